"""Further parts for the settings of a purse, a bill and an activity (see further_things.py)."""

from outrider.evaluation.arithmetic.composition import Setting, part

# --- a purse ------------------------------------------------------------------------------------------------

FURTHER_PURSE = Setting(
    "purse",
    (
        part(
            "pockets", "a 5-300, b 5-300",
            """{name} <finds/found> [{a} dollars|${a}] in [one pocket|a drawer|a coat] and [{b} dollars|${b}] in
            [another pocket|the car|a jar].""",
            "now = a + b | Together that is {=} dollars.",
        ),
        part(
            "after_tax", "t 60-400, a 10-90",
            """[{name}'s pay <is/was> [{t} dollars|${t}], but {a} dollars <are/were> withheld|Of a prize of {t}
            dollars, {name} <loses/lost> {a} dollars to tax].""",
            "now = t - a | {name} gets {=} dollars.",
        ),
        part(
            "richer", "a 10-300, k 5-99",
            "{friend} <has/had> [{a} dollars|${a}], and {name} <has/had> [{k} dollars|${k}] more[| than {friend}].",
            "now = a + k | {name} has {=} dollars.",
        ),
        part(
            "times_richer", "a 5-90, n 2-9",
            "{friend} <owns/owned> [{a} dollars|${a}]; {name} <owns/owned> {n} times as much.",
            "now = a * n | {name} has {=} dollars.",
        ),
        part(
            "part_paid", "t 60-400, k 5-99",
            """{name} <pays/paid> [{k} dollars|${k}] out of the [{t} dollars|${t}] in {his} [purse|bag|pocket] [for
            {a_item}|to {friend}].""",
            "now = t - k | {name} still has {=} dollars.",
        ),
        part(
            "short_of", "t 100-400, k 5-99",
            "With {k} dollars more, {name} would have [{t} dollars|${t}].",
            "now = t - k | {name} has {=} dollars.",
        ),
        part(
            "shared_win", "n 2-9, q 10-90, t = n * q",
            "{n} {kins} <win/won> [{t} dollars|${t}] and <share/shared> it. {name} <is/was> one of them.",
            "now = t / n | The share of {name} is {=} dollars.",
        ),
        part(
            "bills", "n 3-20, k 2-19",
            "In {his} [hand|bag|coat] {name} <has/had> {n} five-dollar bills and {k} one-dollar bills.",
            "x = n * 5 | The five-dollar bills are {=} dollars.",
            "now = x + k | Together that is {=} dollars.",
        ),
    ),
    (
        part(
            "fare", "k 5-99",
            """@when [a [taxi|repair|haircut|dentist|fine] <takes/took> [{k} dollars|${k}] of it|{name}
            <donates/donated> [{k} dollars|${k}]|{his} @relative <borrows/borrowed> [{k} dollars|${k}]].""",
            "now = have - k | That leaves {=} dollars.",
        ),
        part(
            "refund", "k 5-99",
            """@when [a refund of [{k} dollars|${k}] <arrives/arrived>|{friend} <pays/paid> back [{k}
            dollars|${k}]|{name} <sells/sold> {a_item} for [{k} dollars|${k}]].""",
            "now = have + k | With that there are {=} dollars.",
        ),
        part(
            "weekly_cost", "n 2-9, p 3-40",
            """For {n} weeks, {name} [<pays/paid>|<spends/spent>] [{p} dollars|${p}] a week [for lessons|on food|for
            the bus].""",
            "x = n * p | In {n} weeks that is {=} dollars.",
            "now = have - x | That leaves {=} dollars.",
        ),
        part(
            "odd_jobs", "n 2-9, p 3-40",
            "@when {name} <does/did> {n} odd jobs for [{p} dollars|${p}] [each|apiece|a job].",
            "x = n * p | The jobs bring {=} dollars.",
            "now = have + x | After that there are {=} dollars.",
        ),
        part(
            "two_costs", "a 3-60, b 3-60",
            "@when {name} <buys/bought> {a_item} for [{a} dollars|${a}] and {a_other} for [{b} dollars|${b}].",
            "x = a + b | Together they cost {=} dollars.",
            "now = have - x | That leaves {=} dollars.",
        ),
        part(
            "doubled", "",
            "@when {his} @relative <doubles/doubled> the [money|amount|sum].",
            "now = have * 2 | That makes {=} dollars.",
        ),
        part("idle_age", "d 6-90", "{name} <is/was> {d} years old."),
        part("idle_items", "d 3-90", "{name} also <has/had> {d} {items} [at home|in {his} bag]."),
    ),
    (
        part(
            "ahead", "g 100-900",
            "{third} <has/had> [{g} dollars|${g}]. How much more money <does/did> {third} have than {name}?",
            "now = g - have | {third} has {=} dollars more.",
        ),
        part(
            "pooled", "k 5-200",
            """[{third} <adds/added>|Then {third} <puts/put> in] [{k} dollars|${k}]. How many dollars <do/did> the two
            have @all?""",
            "now = have + k | Together they have {=} dollars.",
        ),
        part(
            "times_other", "n 2-9",
            "{third} <has/had> {n} times as much money[| as {name}]. How many dollars <is/was> that?",
            "now = have * n | {third} has {=} dollars.",
        ),
        part(
            "lasts", "p 2-9",
            "Lunch <costs/cost> [{p} dollars|${p}] a day. For how many days of lunch <is/was> the money enough?",
            "now = have / p | It is enough for {=} days.",
        ),
        part(
            "if_paid", "k 5-99",
            "If {name} [pays|spends|gives away] [{k} dollars|${k}], how many dollars remain?",
            "now = have - k | Then there are {=} dollars.",
        ),
        part(
            "if_earned", "k 5-99",
            "How much money would {name} have [with {k} dollars more|after earning {k} more dollars]?",
            "now = have + k | Then there are {=} dollars.",
        ),
        part(
            "less", "k 5-99",
            "{third} <has/had> [{k} dollars|${k}] less than {name}. How much [money|] <is/was> that?",
            "now = have - k | {third} has {=} dollars.",
        ),
        part(
            "rest_after_lot", "n 2-9, p 2-30",
            "How many dollars would {name} still have after buying {n} {items} at [{p} dollars|${p}] apiece?",
            "x = n * p | The {items} cost {=} dollars.",
            "now = have - x | That leaves {=} dollars.",
        ),
    ),
)  # fmt: skip

# --- a bill -------------------------------------------------------------------------------------------------

FURTHER_BILL = Setting(
    "bill",
    (
        part(
            "reduced", "q 20-300, k 5-60",
            """[The old price of {a_item} <is/was>|{a_item} usually <costs/cost>] [{q} dollars|${q}], but it is {k}
            dollars cheaper today.""",
            "now = q - k | It costs {=} dollars.",
        ),
        part(
            "dearer", "a 5-300, k 5-60",
            """{a_item} <costs/cost> [{a} dollars|${a}] and {a_other} <costs/cost> {k} dollars more. {name}
            <chooses/chose> the {other}.""",
            "now = a + k | It costs {=} dollars.",
        ),
        part(
            "boxes", "n 2-9, m 2-9, p 2-9",
            "{name} <buys/bought> {n} {boxes} with {m} {items} each. A single {item} <is/was> [{p} dollars|${p}].",
            "x = n * m | The {boxes} hold {=} {items}.",
            "now = x * p | They cost {=} dollars.",
        ),
        part(
            "three", "a 5-200, b 5-200, c 5-200",
            "The bill <lists/listed> {a_item} for ${a}, {a_other} for ${b} and {a_other2} for ${c}.",
            "x = a + b | The first two cost {=} dollars.",
            "now = x + c | Together they cost {=} dollars.",
        ),
        part(
            "times_price", "a 5-90, n 2-9",
            """{a_other} <costs/cost> [{a} dollars|${a}]. {a_item} <costs/cost> {n} times as much, and {name}
            <takes/took> it.""",
            "now = a * n | It costs {=} dollars.",
        ),
        part(
            "meal", "n 2-9, p 5-60",
            """[A dinner for {n} <costs/cost> [{p} dollars|${p}] a person|{n} people <eat/ate> at {place} for [{p}
            dollars|${p}] each].""",
            "now = n * p | The meal costs {=} dollars.",
        ),
    ),
    (
        part(
            "tip", "k 5-60",
            """[A tip of [{k} dollars|${k}] <is/was> added|On top <comes/came> a deposit of [{k} dollars|${k}]|Wrapping
            <adds/added> [{k} dollars|${k}]].""",
            "now = have + k | With that it is {=} dollars.",
        ),
        part(
            "voucher", "k 5-60",
            """[A voucher <pays/paid> for [{k} dollars|${k}] of it|{friend} <chips/chipped> in [{k} dollars|${k}]|A
            rebate of [{k} dollars|${k}] <is/was> subtracted].""",
            "now = have - k | That leaves {=} dollars to pay.",
        ),
        part(
            "half_price", "",
            "@when everything <is/was> sold at half price.",
            "now = have / 2 | Half of it is {=} dollars.",
        ),
        part(
            "two_fees", "a 3-40, b 3-40",
            """[Packing <costs/cost> ${a} and postage ${b}|There <is/was> a fee of {a} dollars and a tax of {b}
            dollars].""",
            "x = a + b | The extra costs are {=} dollars.",
            "now = have + x | With that it is {=} dollars.",
        ),
        part("idle_time", "d 5-90", "[{name} <waits/waited> {d} minutes in line.|{place} <is/was> {d} miles away.]"),
    ),
    (
        part(
            "instalments", "m 2-9",
            "{name} <pays/paid> in {m} equal parts. How many dollars <is/was> one part?",
            "now = have / m | Each part is {=} dollars.",
        ),
        part(
            "months", "m 5-50",
            """{name} <pays/paid> {m} dollars a month. [After how many months <is/was> everything paid?|How many months
            <does/did> that take?]""",
            "now = have / m | It takes {=} months.",
        ),
        part(
            "twice", "n 2-9",
            "{name} <does/did> the same on {n} days. How much money <is/was> that @all?",
            "now = have * n | That makes {=} dollars.",
        ),
        part(
            "short", "k 5-99",
            "{name} <is/was> [{k} dollars|${k}] short. How much money <does/did> {name} have?",
            "now = have - k | {name} has {=} dollars.",
        ),
        part(
            "over", "g 100-900",
            "The budget <is/was> [{g} dollars|${g}]. How many dollars of the budget remain?",
            "now = g - have | That leaves {=} dollars.",
        ),
    ),
)  # fmt: skip

# --- an activity --------------------------------------------------------------------------------------------

FURTHER_ACTIVITY = Setting(
    "activity",
    (
        part(
            "with_friend", "a 5-300, b 5-300",
            """[Together, {name} and {friend} work as a team:|In one team,] {name} {does} {a} {units} and {friend}
            {does} {b}.""",
            "now = a + b | Together that is {=} {units}.",
        ),
        part(
            "half_of", "h 6-150, a = h * 2",
            "{friend} {does} {a} {units}; {name} {does} half as many.",
            "now = a / 2 | For {name} it is {=} {units}.",
        ),
        part(
            "twice_a_day", "m 3-60",
            "{name} {does} {m} {units} twice [in a row|on the same day|in one week].",
            "now = m * 2 | That makes {=} {units}.",
        ),
        part(
            "less_each", "a 20-200, k 3-19",
            "On {day} {name} {does} {a} {units}, and on {day2} {k} fewer.",
            "x = a - k | On {day2} it is {=} {units}.",
            "now = a + x | On both days it is {=} {units}.",
        ),
        part(
            "three_days", "a 5-200, b 5-200, c 5-200",
            "In three [days|weeks|rounds], {name} {does} {a}, {b} and {c} {units}.",
            "x = a + b | The first two make {=} {units}.",
            "now = x + c | Together that is {=} {units}.",
        ),
        part(
            "sessions", "n 2-9, m 3-60",
            """[{name} <has/had> {n} sessions. In each, {he} {does} {m} {units}|In every one of {n} sessions, {name}
            {does} {m} {units}].""",
            "now = n * m | That makes {=} {units}.",
        ),
        part("record", "now 20-300", "[{name}'s record <stands/stood> at|{name} <reports/reported>] {now} {units}."),
    ),
    (
        part(
            "with_help", "k 5-99",
            "@when [{friend} <helps/helped> with {k} [more|] {units}|a helper <adds/added> {k} {units}].",
            "now = have + k | After that it is {=} {units}.",
        ),
        part(
            "invalid", "k 5-99",
            "@when [{k} of the {units} <are/were> not counted|{k} {units} <have/had> to be taken off].",
            "now = have - k | That leaves {=} {units}.",
        ),
        part(
            "two_more", "a 3-60, b 3-60",
            "@when {name} {does} {a} and then {b} further {units}.",
            "x = a + b | The further ones are {=} {units}.",
            "now = have + x | After that it is {=} {units}.",
        ),
        part("double", "", "@when {name} <doubles/doubled> this number.", "now = have * 2 | That makes {=} {units}."),
        part("idle_money", "d 5-90", "[The shoes <cost/cost> {d} dollars.|{d} people <watch/watched>.]"),
    ),
    (
        part(
            "compare", "g 100-900",
            "{third} {does} {g} {units}. How many {units} more <is/was> that than for {name}?",
            "now = g - have | It is {=} {units} more.",
        ),
        part(
            "less", "k 5-99",
            "{third} {does} {k} {units} less. How many {units} <does/did> {third} {do}?",
            "now = have - k | For {third} it is {=} {units}.",
        ),
        part(
            "paid", "p 2-9",
            "[For each of these|Per unit] {name} <gets/got> [{p} dollars|${p}]. How much money <is/was> that?",
            "now = have * p | That makes {=} dollars.",
        ),
        part(
            "parts", "m 2-9",
            """[{m} of them <make/made> one set. How many sets|For every {m} {name} <gets/got> a star. How many stars]
            <is/was> that?""",
            "now = have / m | That makes {=}.",
        ),
        part(
            "team", "n 2-9",
            "{n} others {do} exactly as many {units}. How many {units} <is/was> that for the {n} others?",
            "now = have * n | For the others it is {=} {units}.",
        ),
        part(
            "average", "d 2-9",
            "On average, how many {units} <is/was> that for each of {d} days?",
            "now = have / d | For each day it is {=} {units}.",
        ),
    ),
)  # fmt: skip
