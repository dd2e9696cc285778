"""Names, things and places that the arithmetic stories draw from."""


def _words(text: str, separator: str = " ") -> tuple[str, ...]:
    return tuple(text.split(separator))


WOMEN = _words(
    "Anna Beth Clara Dana Elena Fiona Grace Hana Iris Julia Kira Laura Maria Nina Olivia Priya Rosa Sara Tina "
    "Uma Vera Wendy Yara Zoe Amina Carmen Emma Leila Mei Sofia"
)
MEN = _words(
    "Adam Ben Carlos David Ethan Felix George Hugo Ivan James Kevin Liam Marco Noah Omar Peter Quinn Raj Sam "
    "Tom Victor Walter Yusuf Zack Ahmed Daniel Jonas Leo Paul Ravi"
)

# (name, he, his, him)
PEOPLE = tuple((name, "she", "her", "her") for name in WOMEN) + tuple((name, "he", "his", "him") for name in MEN)


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Read `singular/plural` words; a bare word forms its plural with s."""
    pairs = []
    for word in text.replace("\n", ",").split(","):
        one, _, many = word.strip().partition("/")
        if one:
            pairs.append((one, many or one + "s"))
    return tuple(pairs)


THINGS = _pairs(
    """pencil, notebook, sticker, marble, toy car, card, stamp, button, shell, coin, crayon, eraser, ribbon
    balloon, candle, ball, puzzle, book, comic, magazine, key ring, poster, magnet, postcard, paper star, whistle, badge
    cup, plate, spoon, towel, sock, hat, scarf/scarves, belt, lamp, clock, brush/brushes, bottle, rope, brick
    tile"""
)
FOODS = _pairs(
    """apple, orange, banana, pear, peach/peaches, plum, lemon, cookie, muffin, cupcake, bagel, donut
    sandwich/sandwiches
    pie, egg, carrot, potato/potatoes, onion, tomato/tomatoes, candy/candies, nut, cracker, bun, mango/mangoes, kiwi"""
)
GOODS = THINGS + FOODS
CONTAINERS = _pairs("box/boxes, bag, basket, crate, jar, carton, packet, sack, tin, bucket, case, tray")
ANIMALS = _pairs("cow, sheep/sheep, goat, duck, horse, chicken, pig, rabbit, turkey, goose/geese")
COLOURS = _words("red blue green yellow white black purple orange pink brown silver golden")
PLACES = tuple(
    f"the {word}"
    for word in _words(
        "market,fair,school,park,library,shop,beach,club,museum,town hall,stadium,farm,mall,station", ","
    )
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
JOBS = _words(
    "washing cars,walking dogs,mowing lawns,painting fences,teaching piano,selling juice,raking leaves,"
    "cleaning windows,watering plants,helping neighbors,delivering papers,stacking shelves",
    ",",
)
