"""Training stories about time, distance, age, rows, rates and areas (format: see goods_stories.py)."""

MEASURE_STORIES = """
activity_minutes: a 10-60, b 10-60, c 5-60
Q {name} spends {a} minutes on homework, {b} minutes on {job} and {c} minutes on dinner. | On {day} {name} runs
  for {a} minutes, reads for {b} minutes and cooks for {c} minutes.
Q How many minutes is that in total? | How many minutes does {he} spend on all of this?
A x = a + b | The first two take {=} minutes.
A total = x + c | In total that is {=} minutes.

minutes_left: t 90-300, a 20-90, b 20-90
Q {name} has {t} minutes. {He} spends {a} minutes on homework and {b} minutes on {job}. | A visit to {place}
  lasts {t} minutes. {name} uses {a} minutes for the first part and {b} minutes for the second part.
Q How many minutes are left? | How much time is left, in minutes?
A used = a + b | {name} uses {=} minutes. | The two parts take {=} minutes.
A left = t - used | That leaves {=} minutes.

practice_goal: n 3-7, m 10-45, g 150-300
Q {name} practices {m} minutes a day for {n} days. {His} goal is {g} minutes. | {name} wants to practice {g}
  minutes. {He} practices {m} minutes each day for {n} days.
Q How many more minutes does {he} need? | How many minutes are still missing?
A done = n * m | In {n} days {name} practices {=} minutes.
A left = g - done | {He} needs {=} more minutes.

speed_distance: v 11-90, n 2-9
Q A {vehicle} drives {v} miles per hour for {n} hours. | {name} travels for {n} hours in a {vehicle} at {v}
  miles an hour.
Q How many miles does the {vehicle} travel? | How many miles is the trip?
A d = n * v | In {n} hours the {vehicle} travels {=} miles. | The trip is {=} miles.

speed_two_legs: v 11-60, n 2-6, w 11-60, m 2-6
Q A {vehicle} drives {n} hours at {v} miles per hour and then {m} hours at {w} miles per hour. | First {name}
  drives for {n} hours at {v} miles an hour, then for {m} hours at {w} miles an hour.
Q How many miles is that in total? | How far is the whole trip in miles?
A x = n * v | The first part is {=} miles.
A y = m * w | The second part is {=} miles.
A total = x + y | In total that is {=} miles.

speed_from_distance: n 2-9, v 11-60, t = n * v
Q A {vehicle} travels {t} miles in {n} hours. | {name} drives {t} miles and needs {n} hours.
Q How many miles is that per hour? | What is the speed in miles per hour?
A v2 = t / n | The speed is {=} miles per hour. | In one hour that is {=} miles.

ages_older: a 6-60, d 2-30
Q {name} is {a} years old. {friend} is {d} years older. | {name} is {a}. {friend} is {d} years older than
  {name}.
Q What is the sum of their ages? | How old are they together?
A b = a + d | {friend} is {=} years old.
A total = a + b | Together they are {=} years old.

ages_future: a 6-60, n 2-6, k 3-20
Q {name} is {a} years old. {friend} is {n} times as old. | {friend} is {n} times as old as {name}, who is {a}.
Q How old will {friend} be in {k} years? | What will be the age of {friend} in {k} years?
A now = n * a | {friend} is now {=} years old.
A then = now + k | In {k} years {friend} will be {=} years old.

ages_younger: a 20-80, d 3-19, k 2-20
Q {name} is {a} years old and {friend} is {d} years younger. | {friend} is {d} years younger than {name}, who is
  {a}.
Q How old will {friend} be in {k} years? | What will be the age of {friend} after {k} years?
A now = a - d | {friend} is now {=} years old.
A then = now + k | In {k} years {friend} will be {=} years old.

save_weekly: w 5-50, n 2-9, h 10-99
Q {name} has {h} dollars and saves {w} dollars every week. | {name} saves {w} dollars a week. {He} starts with
  {h} dollars.
Q How much money does {he} have after {n} weeks? | How many dollars will {name} have in {n} weeks?
A saved = n * w | In {n} weeks {name} saves {=} dollars.
A total = saved + h | Then {he} has {=} dollars.

save_for_goal: n 2-9, w 4-30, h 10-99, g = n * w + h
Q {name} wants to buy a {item} set that costs {g} dollars. {He} has {h} dollars and saves {w} dollars a week. |
  A bike costs {g} dollars. {name} already has {h} dollars and saves {w} dollars every week.
Q How many weeks does {he} need to save? | In how many weeks will {he} have enough money?
A rest = g - h | {name} still needs {=} dollars. | The missing money is {=} dollars.
A weeks = rest / w | It takes {=} weeks.

pages_daily: n 2-9, m 11-50, b 100-400
Q {name} reads {m} pages a day for {n} days. The book has {b} pages. | A book has {b} pages. {name} reads {m}
  pages each day for {n} days.
Q How many pages are left? | How many pages does {he} still have to read?
A read = n * m | In {n} days {name} reads {=} pages.
A left = b - read | That leaves {=} pages.

pages_days_needed: m 4-9, n 5-30, r 10-90, b = m * n + r
Q A book has {b} pages. {name} has read {r} pages and now reads {m} pages a day. | {name} has read {r} of the
  {b} pages of a book. From now on {he} reads {m} pages a day.
Q How many days does {he} need to finish it? | In how many days will {name} finish the book?
A rest = b - r | There are {=} pages left. | {name} still has {=} pages to read.
A days = rest / m | It takes {=} days.

rows_of_chairs: n 3-9, m 10-40, k 10-99
Q In a hall there are {n} rows with {m} chairs each. {k} chairs are taken. | A hall has {n} rows of {m} chairs,
  and people sit on {k} of them.
Q How many chairs are empty? | How many chairs are free?
A total = n * m | The hall has {=} chairs. | In total there are {=} chairs.
A free = total - k | So {=} chairs are free.

tickets: n 2-9, p 8-30, m 2-9, r 3-20
Q A family buys {n} adult tickets for {p} dollars each and {m} child tickets for {r} dollars each. | At {place}
  an adult ticket costs ${p} and a child ticket costs ${r}. A group buys {n} adult tickets and {m} child
  tickets.
Q How much do they pay in total? | What is the cost of all the tickets?
A x = n * p | The adult tickets cost {=} dollars.
A y = m * r | The child tickets cost {=} dollars.
A total = x + y | In total they pay {=} dollars.

recipe: n 2-9, e 2-9, k 1-12
Q One cake needs {e} eggs. {name} bakes {n} cakes and has {k} eggs left. | {name} bakes {n} cakes with {e} eggs
  each. After that {he} has {k} eggs left.
Q How many eggs did {name} have at first? | How many eggs did {he} start with?
A used = n * e | The cakes need {=} eggs.
A total = used + k | At first {name} had {=} eggs.

recipe_flour: n 2-9, f 11-60, h 200-600
Q One cake needs {f} grams of sugar. {name} has {h} grams of sugar and bakes {n} cakes. | {name} has {h} grams
  of sugar. {He} bakes {n} cakes with {f} grams each.
Q How many grams of sugar are left? | How many grams does {he} have left?
A used = n * f | The cakes need {=} grams.
A left = h - used | That leaves {=} grams.

garden: n 3-9, m 10-40, d 3-60
Q {name} plants {n} rows of {m} flowers each. {d} flowers do not grow. | A garden has {n} rows with {m} flowers
  in each row. Rabbits eat {d} of them.
Q How many flowers are left? | How many flowers does the garden have now?
A x = n * m | At first there are {=} flowers. | The rows have {=} flowers.
A left = x - d | That leaves {=} flowers.

class_groups: a 6-40, b 6-40, n 2-6
Q A class has {a} girls and {b} boys. The teacher makes groups of {n} children. | There are {a} girls and {b}
  boys in a school club. They form teams of {n}.
Q How many groups are there? | How many groups do they make?
A total = a + b | There are {=} children.
A groups = total / n | They make {=} groups.

farm_eggs: n 3-9, m 4-30, d 2-9
Q A farm has {m} hens. Each hen lays {n} eggs in a week. The eggs are packed into {boxes} of {d}. | {name} has
  {m} hens that lay {n} eggs each. {He} packs the eggs into {boxes} with {d} eggs each.
Q How many {boxes} are filled? | How many {boxes} does that fill?
A eggs = n * m | The hens lay {=} eggs.
A need = eggs / d | The eggs fill {=} {boxes}.

pizza: n 2-9, c 6-12, e 5-50
Q {name} orders {n} pizzas with {c} slices each. The guests eat {e} slices. | Each pizza has {c} slices. {name}
  buys {n} pizzas, and {e} slices are eaten.
Q How many slices are left? | How many slices remain?
A total = n * c | The pizzas have {=} slices.
A left = total - e | That leaves {=} slices.

game_points: n 2-9, m 10-50, b 5-99
Q In a game {name} scores {m} points in each of {n} rounds and gets a bonus of {b} points. | {name} plays {n}
  rounds and scores {m} points in each. At the end {he} gets {b} extra points.
Q How many points does {name} have? | What is the final score?
A x = n * m | The rounds give {=} points.
A total = x + b | In total {name} has {=} points.

points_behind: a 50-300, b 20-200, c 11-90
Q {name} scores {a} points. {friend} scores {b} points in the first half and {c} points in the second half. |
  {friend} makes {b} points and then {c} more points. {name} makes {a} points.
Q How many more points does {name} have than {friend}? | By how many points is {name} ahead?
A x = b + c | {friend} has {=} points.
A d = a - x | {name} has {=} more points.

cut_ribbon: n 2-9, q 3-30, w 3-40, t = n * q + w
Q A rope is {t} inches long. {name} cuts off {w} inches and cuts the rest into pieces of {n} inches. | {name}
  has {t} inches of rope. {He} throws {w} inches away and cuts the rest into pieces that are {n} inches long.
Q How many pieces does {he} get? | How many pieces are there?
A rest = t - w | The rest is {=} inches.
A pieces = rest / n | That gives {=} pieces.

tank_daily: t 100-400, k 5-30, n 2-9
Q A tank holds {t} gallons of water. Each day {k} gallons are used. | There are {t} gallons of water in a tank,
  and a farm uses {k} gallons a day.
Q How many gallons are left after {n} days? | How many gallons does the tank hold after {n} days?
A used = n * k | In {n} days {=} gallons are used.
A left = t - used | That leaves {=} gallons.

weights: n 2-9, w 5-40, m 2-9, v 5-40
Q A {vehicle} carries {n} {boxes} of {w} pounds each and {m} bricks of {v} pounds each. | There are {n} {boxes}
  that weigh {w} pounds each and {m} stones that weigh {v} pounds each.
Q What is the total weight in pounds? | How many pounds is that in total?
A x = n * w | The {boxes} weigh {=} pounds.
A y = m * v | The others weigh {=} pounds.
A total = x + y | In total that is {=} pounds.

deliveries: n 2-9, m 10-40, t 100-400
Q {name} has to deliver {t} {items}. {He} makes {n} trips and carries {m} {items} each time. | A {vehicle}
  carries {m} {items} on each trip. {t} {items} must be moved, and it has made {n} trips.
Q How many {items} are still left to move? | How many {items} are left?
A x = n * m | The {n} trips carry {=} {items}.
A left = t - x | That leaves {=} {items}.

two_day_sales: a 11-120, b 11-120, p 2-5
Q {name} sells {a} {foods} on {day} and {b} {foods} on {day2} for {p} dollars each. | On {day} {name} sells {a}
  {foods} and on {day2} {he} sells {b}. Each one costs {p} dollars.
Q How much money does {name} get? | How many dollars does {he} get in total?
A n = a + b | {name} sells {=} {foods}.
A total = p * n | {He} gets {=} dollars.

sale_donate: a 20-300, b 20-300, d 10-200
Q A school sells {foods} for {a} dollars and {others} for {b} dollars. It gives {d} dollars away. | The school
  fair brings {a} dollars from {foods} and {b} dollars from {others}. {d} dollars go to the library.
Q How many dollars are left? | How much money does the school keep?
A total = a + b | In total the school gets {=} dollars.
A left = total - d | That leaves {=} dollars.

area: a 3-9, b 11-60
Q A garden is {a} feet wide and {b} feet long. | The floor of a room is {b} feet long and {a} feet wide.
Q What is its area in square feet? | How many square feet is that?
A area = a * b | The area is {=} square feet.

fence: a 6-60, b 6-60
Q A garden is {a} feet wide and {b} feet long. | {name} has a field that is {b} feet long and {a} feet wide.
Q How many feet of fence go around it? | What is the distance around it in feet?
A half = a + b | One long side and one short side are {=} feet.
A around = 2 * half | All the way around it is {=} feet.

wheels: n 11-60, m 4-60
Q There are {n} cars and {m} bikes at {place}. | {name} counts {n} cars and {m} bikes.
Q How many wheels do they have in total? | How many wheels is that altogether?
A x = 4 * n | The cars have {=} wheels.
A y = 2 * m | The bikes have {=} wheels.
A total = x + y | In total that is {=} wheels.

left_then_bought: a 20-99, b 5-60, n 2-9, m 2-20
Q {name} had {a} {items} and lost {b} of them. Then {he} got {n} {boxes} with {m} {items} each. | {name} had {a}
  {items}. {He} sold {b} of them and then bought {n} {boxes} of {m} {items}.
Q How many {items} does {name} have now? | How many {items} does {he} have in the end?
A left = a - b | First {name} had {=} {items} left.
A new = n * m | The {boxes} hold {=} {items}.
A now = left + new | Now {name} has {=} {items}.
"""
