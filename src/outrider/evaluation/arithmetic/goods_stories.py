"""Training stories for the arithmetic generator: buying, packing, sharing, earning, comparing.

Format, one story a block: `name: number low-high, ..., derived = a * b`; then `Q` lines, one sentence of the
question each, and `A` lines, one step each: `A result = left op right | sentence with {=}`, where `{=}` is
replaced by `left op right = <<left op right=result>>result`. Paraphrases are separated by `|`; a line that
begins with blanks continues the one before. Words in braces are numbers or slots of problems.py.
"""

GOODS_STORIES = """
buy_each: n 2-9, p 11-60
Q {name} buys {n} {items} for {p} dollars each. | {name} buys {n} {items}. Each {item} costs {p} dollars. | At
  {place}, one {item} costs ${p}. {name} buys {n} of them.
Q How much does {name} spend? | How many dollars does {name} pay in total? | What is the total cost?
A cost = n * p | The {items} cost {=} dollars. | {name} pays {=} dollars in total.

buy_two_kinds: n 2-9, p 5-30, m 2-9, r 5-30
Q {name} buys {n} {items} for {p} dollars each and {m} {others} for {r} dollars each. | {name} goes to {place}
  and buys {n} {items} at ${p} each. {He} also buys {m} {others} at ${r} each.
Q How much does {name} spend in total? | How many dollars does {he} spend altogether?
A x = n * p | The {items} cost {=} dollars.
A y = m * r | The {others} cost {=} dollars.
A total = x + y | Together they cost {=} dollars. | The total cost is {=} dollars.

buy_change: n 2-9, p 3-30, m 50-300
Q {name} has {m} dollars. {He} buys {n} {items} for {p} dollars each. | {name} takes {m} dollars to {place} and
  buys {n} {items} that cost {p} dollars each. | {name} buys {n} {items} at ${p} each. {He} pays with ${m}.
Q How much money does {name} have left? | How many dollars does {he} have left? | How much change does {he} get?
A cost = n * p | The {items} cost {=} dollars.
A left = m - cost | {name} has {=} dollars left. | That leaves {=} dollars.

buy_coupon: n 2-9, p 8-40, c 5-40
Q {name} buys {n} {items} for {p} dollars each and uses a coupon for {c} dollars off the total. | The price of
  one {item} is {p} dollars. {name} buys {n} of them and has a coupon worth {c} dollars.
Q How much does {he} pay? | How many dollars does {name} pay in the end?
A cost = n * p | The {items} cost {=} dollars. | Without the coupon the price is {=} dollars.
A pay = cost - c | With the coupon {name} pays {=} dollars.

sale_price: p 20-90, d 3-19, n 2-9
Q A {item} usually costs {p} dollars. Today it is {d} dollars cheaper. | The shop sells a {item} for {p}
  dollars, but on {day} the price is {d} dollars lower.
Q {name} buys {n} of them. How much does {he} pay? | How much do {n} {items} cost now?
A now = p - d | One {item} now costs {=} dollars. | The new price is {=} dollars.
A total = n * now | So {n} {items} cost {=} dollars.

unit_price: n 2-9, u 3-30, m 2-9, t = n * u
Q {n} {items} cost {t} dollars. | {name} pays {t} dollars for {n} {items}. | A pack of {n} {items} costs ${t}.
Q How much do {m} {items} cost at the same price? | What is the price of {m} {items} at this rate?
A one = t / n | One {item} costs {=} dollars. | Each {item} costs {=} dollars.
A cost = m * one | So {m} {items} cost {=} dollars.

unit_price_simple: n 2-9, u 3-40, t = n * u
Q {name} pays {t} dollars for {n} {items}. | {n} {items} cost {t} dollars. All have the same price.
Q How much does one {item} cost? | What is the price of each {item}?
A one = t / n | One {item} costs {=} dollars. | Each {item} costs {=} dollars.

share_equally: n 2-9, q 3-40, t = n * q
Q {name} shares {t} {items} equally among {n} friends. | {name} has {t} {items} and divides them equally among
  {n} children. | {n} friends share {t} {items} equally.
Q How many {items} does each one get? | How many {items} will each of them receive?
A each = t / n | Each one gets {=} {items}. | Each of them receives {=} {items}.

keep_then_share: n 2-9, q 3-20, k 4-40, t = n * q + k
Q {name} has {t} {items}. {He} keeps {k} of them and shares the rest equally among {n} friends. | {name} buys
  {t} {items}. {He} gives {k} of them to {his} sister and divides the rest equally among {n} friends.
Q How many {items} does each friend get? | How many {items} will each friend receive?
A rest = t - k | The rest is {=} {items}. | After that there are {=} {items} left to share.
A each = rest / n | Each friend gets {=} {items}.

pool_then_share: a 10-90, b 10-90, n 2-9
Q {name} has {a} {items} and {friend} has {b} {items}. They put them together and share them equally among {n}
  children. | {name} brings {a} {items}. {friend} brings {b} {items}. They divide them all equally among {n}
  people.
Q How many {items} does each one get? | How many {items} will each of them get?
A total = a + b | Together they have {=} {items}. | In total there are {=} {items}.
A each = total / n | Each one gets {=} {items}.

split_bill: a 20-90, b 10-90, n 2-6
Q {n} friends have lunch at {place}. The food costs {a} dollars and the drinks cost {b} dollars. | A group of
  {n} friends orders food for ${a} and drinks for ${b}.
Q They split the bill equally. How much does each friend pay? | If they share the cost equally, how much does
  each one pay?
A bill = a + b | The bill is {=} dollars. | Together the food and the drinks cost {=} dollars.
A each = bill / n | Each friend pays {=} dollars.

pack_boxes: n 2-9, q 3-40, t = n * q
Q {name} packs {t} {items} into {boxes}. Each {box} holds {n} {items}. | {n} {items} fit in one {box}. {name}
  has {t} {items}.
Q How many {boxes} does {name} need? | How many {boxes} will {he} fill?
A need = t / n | {name} needs {=} {boxes}. | The {items} fill {=} {boxes}.

pack_two_kinds: a 10-90, b 10-90, n 2-9
Q {name} has {a} {color} {items} and {b} {color2} {items}. {He} packs them into {boxes} that hold {n} {items}
  each. | There are {a} {color} {items} and {b} {color2} {items}. They go into {boxes} of {n}.
Q How many {boxes} does {name} need? | How many {boxes} are needed for all the {items}?
A total = a + b | In total there are {=} {items}. | All together that is {=} {items}.
A need = total / n | So {=} {boxes} are needed.

boxes_each: n 2-9, m 11-80
Q There are {n} {boxes} with {m} {items} in each {box}. | {name} has {n} {boxes}. Each {box} holds {m} {items}.
  | {name} fills {n} {boxes} with {m} {items} each.
Q How many {items} are there in total? | How many {items} is that in all?
A total = n * m | In total there are {=} {items}. | The {boxes} hold {=} {items}.

boxes_and_loose: n 2-9, m 11-50, k 3-60
Q {name} has {n} {boxes} of {items} with {m} in each {box}. {He} also has {k} loose {items}. | There are {m}
  {items} in each of {n} {boxes}, and {k} more {items} lie on the table.
Q How many {items} are there in total? | How many {items} is that altogether?
A x = n * m | The {boxes} hold {=} {items}. | In the {boxes} there are {=} {items}.
A total = x + k | In total there are {=} {items}.

boxes_given_away: n 2-9, m 11-50, k 5-90
Q {name} has {n} {boxes} with {m} {items} in each. {He} gives {k} {items} to {friend}. | {name} buys {n} {boxes}
  of {m} {items}. Then {he} gives away {k} of them.
Q How many {items} does {name} have left? | How many {items} are left?
A x = n * m | At first {name} has {=} {items}. | The {boxes} hold {=} {items}.
A left = x - k | {name} has {=} {items} left. | That leaves {=} {items}.

packs_used_daily: n 2-9, m 10-40, d 2-7, k 2-9
Q {name} buys {n} packs of {m} {items}. {He} uses {k} {items} a day for {d} days. | A pack has {m} {items}.
  {name} buys {n} packs and uses {k} {items} each day for {d} days.
Q How many {items} are left? | How many {items} does {he} still have?
A x = n * m | {name} buys {=} {items}. | The packs hold {=} {items}.
A y = d * k | In {d} days {he} uses {=} {items}.
A left = x - y | That leaves {=} {items}.

earn_hours: n 2-9, p 11-40
Q {name} earns {p} dollars an hour by {job}. | {name} makes ${p} per hour {job}.
Q How much does {he} earn in {n} hours? | How many dollars does {he} make if {he} works for {n} hours?
A pay = n * p | In {n} hours {name} earns {=} dollars.

earn_two_days: p 8-30, n 2-8, m 2-8
Q {name} earns {p} dollars an hour. {He} works {n} hours on {day} and {m} hours on {day2}. | {name} makes ${p}
  an hour by {job}. On {day} {he} works {n} hours and on {day2} {he} works {m} hours.
Q How much does {he} earn in total? | How many dollars does {name} make on the two days?
A hours = n + m | {name} works {=} hours in total. | In all that is {=} hours.
A pay = hours * p | {He} earns {=} dollars. | In total {name} makes {=} dollars.

earn_spend: n 2-9, p 8-30, s 5-60
Q {name} earns {p} dollars an hour and works {n} hours. Then {he} spends {s} dollars on a {item}. | {name} makes
  ${p} per hour by {job}. After {n} hours of work {he} buys a {item} for ${s}.
Q How much money is left? | How many dollars does {name} have left?
A pay = n * p | {name} earns {=} dollars.
A left = pay - s | After that {he} has {=} dollars left. | That leaves {=} dollars.

sell_and_costs: n 3-9, p 11-40, c 5-50
Q {name} makes {n} {items} and sells each one for {p} dollars. The material costs {c} dollars. | {name} sells
  {n} {items} at {place} for {p} dollars each. {He} has costs of {c} dollars.
Q How much profit does {name} make? | How many dollars does {he} have after paying the costs?
A x = n * p | The sales bring {=} dollars. | {name} gets {=} dollars for the {items}.
A profit = x - c | After the costs {name} has {=} dollars. | The profit is {=} dollars.

more_than: a 11-90, k 4-60
Q {name} has {a} {items}. {friend} has {k} more {items} than {name}. | {name} finds {a} {items}, and {friend}
  finds {k} more than {name}.
Q How many {items} does {friend} have? | How many {items} is that for {friend}?
A b = a + k | {friend} has {=} {items}.

more_than_total: a 11-90, k 4-60
Q {name} has {a} {items}. {friend} has {k} more {items} than {name}. | {name} collects {a} {items} and {friend}
  collects {k} more than {name}.
Q How many {items} do they have together? | How many {items} do they have in total?
A b = a + k | {friend} has {=} {items}.
A total = a + b | Together they have {=} {items}. | In total they have {=} {items}.

fewer_than_total: a 30-99, k 4-29
Q {name} has {a} {items}. {friend} has {k} fewer {items} than {name}. | {name} sells {a} {items} and {friend}
  sells {k} fewer than {name}.
Q How many {items} is that together? | How many {items} do both have in total?
A b = a - k | {friend} has {=} {items}.
A total = a + b | Together that is {=} {items}.

times_as_many: a 11-60, n 2-6
Q {name} has {a} {items}. {friend} has {n} times as many {items}. | {name} picks {a} {items}, and {friend} picks
  {n} times as many as {name}.
Q How many {items} does {friend} have? | How many {items} is that for {friend}?
A b = n * a | {friend} has {=} {items}.

times_as_many_total: a 11-60, n 2-6
Q {name} has {a} {items}. {friend} has {n} times as many {items}. | {name} makes {a} {items} and {friend} makes
  {n} times as many as {name}.
Q How many {items} do they have together? | How many {items} do they have in total?
A b = n * a | {friend} has {=} {items}.
A total = a + b | Together they have {=} {items}.

twice_as_many: a 11-90
Q {name} reads {a} pages on {day} and twice as many pages on {day2}. | On {day} {name} reads {a} pages. On
  {day2} {he} reads twice as many.
Q How many pages does {he} read in total? | How many pages is that on both days together?
A b = 2 * a | On {day2} {name} reads {=} pages.
A total = a + b | In total {he} reads {=} pages.

half_as_many: h 6-45, a = h * 2
Q {name} sells {a} {items} on {day} and half as many on {day2}. | On {day} {name} makes {a} {items}. On {day2}
  {he} makes half as many.
Q How many {items} is that in total? | How many {items} is that on both days together?
A b = a / 2 | On {day2} the number is {=} {items}. | Half as many is {=} {items}.
A total = a + b | In total that is {=} {items}.

difference: a 30-200, b 11-150
Q {name} has {a} {items} and {friend} has {b} {items}. | {name} counts {a} {items}. {friend} counts {b} {items}.
Q How many more {items} does {name} have than {friend}? | How many more is that for {name} than for {friend}?
A d = a - b | {name} has {=} more {items} than {friend}. | The difference is {=} {items}.

total_minus_part: t 40-300, a 11-200
Q There are {t} {animals} and {others_a} on a farm. {a} of them are {animals}. | A farm has {t} {animals} and
  {others_a}, and {a} of these are {animals}.
Q How many {others_a} are there? | How many of them are {others_a}?
A b = t - a | There are {=} {others_a}.

three_friends: a 11-90, b 11-90, c 11-90
Q {name} has {a} {items}, {friend} has {b} {items} and {third} has {c} {items}. | {name} collects {a} {items}.
  {friend} collects {b} and {third} collects {c}.
Q How many {items} do they have in total? | How many {items} do the three have together?
A x = a + b | {name} and {friend} have {=} {items}.
A total = x + c | In total they have {=} {items}.
"""
