"""Stories of the split `far`: never used for training (format: see goods_stories.py).

Each combines operations that training stories teach, in a setting and in sentences that none of them has.
"""

FAR_STORIES = """
bracelet_beads: n 2-9, m 11-60, k 10-90
Q {name} makes {n} bracelets with {m} beads on each, and {k} beads are left in the bowl. | For a gift {name}
  puts {m} beads on each of {n} bracelets. {He} still has {k} beads.
Q How many beads is that in total? | How many beads did {name} have at first?
A x = n * m | The bracelets need {=} beads.
A total = x + k | In total there are {=} beads.

camp_tents: a 10-90, b 10-90, n 2-6
Q {a} girls and {b} boys come to a summer camp. They sleep in tents, and each tent holds {n} children. | A
  summer camp has {a} girls and {b} boys. {n} of them sleep in each tent.
Q How many tents are needed? | How many tents do they fill?
A total = a + b | There are {=} children.
A tents = total / n | So {=} tents are needed.

house_painter: n 2-9, p 20-60, s 10-90
Q A painter gets {p} dollars for every room and paints {n} rooms. The paint costs {s} dollars. | {name} paints
  {n} rooms of a house and gets ${p} for each room. {He} spends ${s} on paint.
Q How many dollars are left? | How much money does the painter have after paying for the paint?
A pay = n * p | The rooms bring {=} dollars.
A left = pay - s | That leaves {=} dollars.

zoo_visitors: a 30-400, k 10-99
Q {a} people visit the zoo in the morning. In the afternoon {k} more people come than in the morning. | In the
  morning the zoo has {a} visitors. In the afternoon it has {k} more visitors than in the morning.
Q How many people visit the zoo in total? | How many visitors is that altogether?
A b = a + k | In the afternoon there are {=} visitors.
A total = a + b | In total there are {=} visitors.

photo_albums: n 2-9, q 3-30, d 10-90, t = n * q + d
Q {name} takes {t} photos on a trip. {He} deletes {d} photos and puts the rest equally into {n} albums. | After
  a holiday {name} has {t} photos. {He} throws {d} of them away and shares the rest equally among {n} albums.
Q How many photos are in each album? | How many photos does each album hold?
A rest = t - d | The rest is {=} photos.
A each = rest / n | Each album holds {=} photos.

flower_shop: n 2-9, p 11-60, m 2-9, r 11-60
Q A florist sells {n} roses for {p} dollars each and {m} tulips for {r} dollars each. | In a flower shop one
  rose costs ${p} and one tulip costs ${r}. {name} sells {n} roses and {m} tulips.
Q How many dollars is that in total? | How much do the flowers cost altogether?
A x = n * p | The roses cost {=} dollars.
A y = m * r | The tulips cost {=} dollars.
A total = x + y | Together that is {=} dollars.

bakery_trays: n 3-9, m 10-60, k 10-90
Q A baker bakes {n} trays of rolls with {m} rolls on each tray. By noon {k} rolls are sold. | In the morning
  {name} bakes {n} trays with {m} rolls each. {He} sells {k} rolls before noon.
Q How many rolls are left? | How many rolls does the bakery still have?
A x = n * m | The trays hold {=} rolls.
A left = x - k | That leaves {=} rolls.

mountain_hike: t 100-400, a 20-90, b 20-90
Q A mountain path is {t} miles long. {name} walks {a} miles in the first week and {b} miles in the second week.
  | {name} hikes along a path of {t} miles. {He} walks {a} miles in the first week and {b} miles in the next
  week.
Q How many miles are left? | How many miles does {he} still have to walk?
A used = a + b | In two weeks {name} walks {=} miles.
A left = t - used | That leaves {=} miles.

aquarium_move: a 20-300, k 5-99, m 5-99
Q An aquarium has {a} fish. | There are {a} fish in an aquarium.
Q Then {k} more fish are born. | It buys {k} more fish.
Q Then {m} fish are moved to another aquarium. | It gives away {m} fish.
Q How many fish are there now? | How many fish does the aquarium have now?
A more = a + k | That makes {=} fish.
A left = more - m | That leaves {=} fish.

aquarium_bags: a 20-300, n 2-9, m 4-40
Q An aquarium has {a} fish. | There are {a} fish in an aquarium.
Q It buys {n} bags with {m} fish in each. | Then {n} tanks with {m} fish each arrive.
Q How many fish are there now? | How many fish does the aquarium have now?
A new = n * m | The new ones are {=} fish.
A total = a + new | That makes {=} fish.

aquarium_tanks: a 20-300, k 5-99, d 2-9
Q An aquarium has {a} fish. | There are {a} fish in an aquarium.
Q Then {k} fish are moved to another aquarium. | It gives away {k} fish.
Q All the fish are divided equally among {d} tanks. | The fish are put equally into {d} tanks.
Q How many fish are in each tank? | How many fish does each tank hold?
A left = a - k | That leaves {=} fish.
A each = left / d | In each tank there are {=} fish.
"""
