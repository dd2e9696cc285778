"""Names, things and places that the arithmetic stories draw from, by split.

A word after `~` is held out: no training story uses it. Held-out stories take their people and things from the held-out
words, "far" stories from the others, training stories from those and from training_words.py.
"""

from typing import Literal, NamedTuple

Split = Literal["train", "heldout", "far"]


class Person(NamedTuple):
    name: str
    he: str
    his: str
    him: str


class Noun(NamedTuple):
    one: str
    many: str


def words(text: str, held_out: bool = False) -> tuple[str, ...]:
    """Comma-separated words: those marked `~`, or all others."""
    found = [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]
    return tuple(word.removeprefix("~") for word in found if word.startswith("~") == held_out)


def nouns(text: str, held_out: bool = False) -> tuple[Noun, ...]:
    """`singular/plural`; a bare word forms its plural with s."""
    pairs = (word.partition("/") for word in words(text, held_out))
    return tuple(Noun(one, many or one + "s") for one, _, many in pairs)


_WOMEN = """Anna, Beth, Clara, Dana, Elena, Fiona, Grace, Hana, Iris, Julia, Kira, Laura, Maria, Nina, Olivia, Priya
Rosa, Sara, Tina, Uma, Vera, Wendy, Yara, Zoe, Amina, Carmen, Emma, Leila, Mei, Sofia, Alice, Amy, Bella, Chloe, Daisy
Diana, Ella, Erin, Eva, Flora, Gina, Hannah, Helen, Ida, Ivy, Jane, Jenny, Jill, Joy, Kate, Karen, Kim, Lena, Lily
Linda, Lisa, Lucy, Mary, Megan, Mia, Molly, Nancy, Nora, Paula, Rachel, Rita, Ruth, Sally, Sandra, Sue, Tara, Wanda
~Bianca, ~Cora, ~Delia, ~Esther, ~Freya, ~Greta, ~Ingrid, ~Judith, ~Marta, ~Petra, ~Sonia, ~Thea"""
_MEN = """Adam, Ben, Carlos, David, Ethan, Felix, George, Hugo, Ivan, James, Kevin, Liam, Marco, Noah, Omar, Peter
Quinn, Raj, Sam, Tom, Victor, Walter, Yusuf, Zack, Ahmed, Daniel, Jonas, Leo, Paul, Ravi, Alan, Alex, Andy, Arthur
Bill, Bob, Brian, Charlie, Chris, Dan, Dennis, Eric, Frank, Fred, Gary, Greg, Harry, Henry, Jack, Jacob, Jake, Jason
Jim, Joe, John, Josh, Ken, Larry, Luke, Mark, Matt, Max, Mike, Nick, Oscar, Otto, Rob, Ron, Roy, Simon, Steve, Tim
~Anton, ~Boris, ~Cyrus, ~Dario, ~Emil, ~Gustav, ~Hector, ~Kofi, ~Lars, ~Milo, ~Rafael, ~Stefan"""

_THINGS = """pencil, notebook, sticker, marble, toy car, card, stamp, button, shell, coin, crayon, eraser, ribbon
balloon, candle, ball, puzzle, book, comic, magazine, key ring, poster, magnet, postcard, paper star, whistle, badge
cup, plate, spoon, towel, sock, hat, scarf/scarves, belt, lamp, clock, brush/brushes, bottle, rope, brick, tile, pen
ruler, marker, folder, envelope, letter, photo, picture, map, flag, drum, bell, kite, doll, robot, block, bead, ring
bracelet, necklace, watch/watches, glove, shirt, jacket, coat, shoe, boot, sweater, dress/dresses, skirt, cap, mask
pillow, blanket, chair, stool, table, basket, bucket, jar, box/boxes, bag, bowl, glass/glasses, knife/knives, fork, pan
pot, mug, tray, napkin, cloth, sponge, broom, nail, screw, bolt, wheel, tire, cable, wire, battery/batteries, bulb
phone, camera, radio, speaker, game, disc, ticket, token, medal, trophy/trophies, prize, gift, toy, top, whistle
flower, rose, tulip, plant, seed, leaf/leaves, stone, rock, feather, stick, log, board, plank, pipe, sign, tent, net
paddle, bat, racket, helmet, dart, dice/dice, coaster, notepad, sketch/sketches, painting, bookmark, calendar, vase
~lantern, ~compass/compasses, ~zipper, ~crystal, ~umbrella, ~violin, ~magnifier, ~pebble, ~statue, ~thimble
~keychain, ~backpack, ~saddle, ~hammer, ~blueprint, ~telescope, ~mirror, ~cushion, ~pinecone, ~trumpet, ~snow globe
~wooden block"""
_FOODS = """apple, orange, banana, pear, peach/peaches, plum, lemon, cookie, muffin, cupcake, bagel, donut
sandwich/sandwiches, pie, egg, carrot, potato/potatoes, onion, tomato/tomatoes, candy/candies, nut, cracker, bun, kiwi
melon, grape, lime, date, fig, olive, pepper, bean, radish/radishes, turnip, beet, mushroom, walnut, almond, pancake
waffle, roll, pretzel, biscuit, brownie, tart, cake, lollipop, mint, burger, pizza/pizzas, taco, wrap, dumpling
~mango/mangoes, ~apricot, ~coconut, ~papaya, ~cherry/cherries, ~scone, ~pumpkin, ~avocado, ~cabbage, ~macaroon"""
_ANIMALS = """cow, sheep/sheep, goat, duck, horse, chicken, pig, rabbit, turkey, goose/geese, bird, pigeon, crow, frog
fish/fish, turtle, butterfly/butterflies, bee, cat, dog, deer/deer, fox/foxes, monkey, zebra, seal, swan, sparrow, hen
~penguin, ~flamingo, ~squirrel, ~beetle, ~parrot, ~donkey, ~otter, ~lizard"""
_CONTAINERS = """box/boxes, bag, basket, crate, jar, carton, packet, sack, tin, bucket, case, tray, pack, bundle
drawer, chest, bin, tub, folder, barrel, ~pouch/pouches, ~hamper, ~trunk"""
_ADJECTIVES = """red, blue, green, yellow, white, black, purple, orange, pink, brown, small, big, old, new, large, tiny
round, plain, shiny, bright, heavy, light, cheap, rare, short, long, thin, thick, clean, soft, ~silver, ~golden
~striped, ~gray, ~curved, ~painted"""
_PLACES = """market, fair, school, park, library, shop, beach, club, museum, town hall, stadium, farm, mall, station
store, bakery, kitchen, hotel, office, factory, warehouse, hospital, garden center, gym, camp, castle, harbor, theater
cafe, toy shop, book shop, corner store, village shop, post office, school shop, supermarket, flea market, gallery
~pharmacy, ~workshop, ~zoo, ~observatory, ~theme park, ~chapel"""
_KIN = "friend, cousin, child/children, neighbor, student, classmate, player, teammate, guest, ~nephew, ~helper, ~scout"


_ACTIVITIES = """walk/walks/walked/miles, run/runs/ran/laps, read/reads/read/pages, swim/swims/swam/laps
ride/rides/rode/miles, write/writes/wrote/lines, knit/knits/knitted/rows, practice/practices/practiced/minutes
drive/drives/drove/miles, type/types/typed/words, hike/hikes/hiked/miles, solve/solves/solved/exercises
study/studies/studied/pages, dig/digs/dug/holes, plant/plants/planted/trees, wash/washes/washed/plates
paint/paints/painted/tiles, fold/folds/folded/shirts, lay/lays/laid/bricks, learn/learns/learned/words
cycle/cycles/cycled/kilometers, row/rows/rowed/kilometers, copy/copies/copied/pages, cut/cuts/cut/boards
~climb/climbs/climbed/stairs, ~jog/jogs/jogged/blocks, ~check/checks/checked/tickets
~translate/translates/translated/verses, ~skate/skates/skated/rounds"""
_PENS = "pen, field, barn, stable, cage, ~meadow, ~enclosure"
_RIDERS = """people, children, students, guests, visitors, passengers, adults, fans, tourists, players, ~dancers
~pilgrims, ~sailors, ~hikers"""


class Activity(NamedTuple):
    do: str
    does: str
    did: str
    units: str


class Lexicon(NamedTuple):
    """The words of one split."""

    people: tuple[Person, ...]
    things: tuple[Noun, ...]
    foods: tuple[Noun, ...]
    animals: tuple[Noun, ...]
    containers: tuple[Noun, ...]
    adjectives: tuple[str, ...]
    places: tuple[str, ...]
    kin: tuple[Noun, ...]
    activities: tuple[Activity, ...]
    pens: tuple[Noun, ...]
    riders: tuple[str, ...]


def _lexicon(held_out: bool) -> Lexicon:
    women = tuple(Person(name, "she", "her", "her") for name in words(_WOMEN, held_out))
    men = tuple(Person(name, "he", "his", "him") for name in words(_MEN, held_out))
    return Lexicon(
        people=women + men,
        things=nouns(_THINGS, held_out),
        foods=nouns(_FOODS, held_out),
        animals=nouns(_ANIMALS, held_out),
        containers=nouns(_CONTAINERS, held_out),
        adjectives=words(_ADJECTIVES, held_out),
        places=tuple(f"the {word}" for word in words(_PLACES, held_out)),
        kin=nouns(_KIN, held_out),
        activities=tuple(Activity(*activity.split("/")) for activity in words(_ACTIVITIES, held_out)),
        pens=nouns(_PENS, held_out),
        riders=words(_RIDERS, held_out),
    )


BASE = _lexicon(False)
HELD_OUT = _lexicon(True)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
COLOURS = (
    "red", "blue", "green", "yellow", "white", "black", "purple", "orange", "pink", "brown", "silver", "golden",
)  # fmt: skip
JOBS = (
    "washing cars", "walking dogs", "mowing lawns", "painting fences", "teaching piano", "selling juice",
    "raking leaves", "cleaning windows", "watering plants", "helping neighbors", "delivering papers",
    "stacking shelves",
)  # fmt: skip
VEHICLES = ("car", "truck", "bus", "train", "van")
