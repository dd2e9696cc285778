"""Further words of the training stories, real ones by the hundred and invented ones without end.

A model that meets every noun a thousand times learns sentences together with their nouns, and falls out of the story
at the first noun that it does not know. So training draws from many nouns, rare ones and ones of several tokens too,
and a share of its stories is about names and things that have never been written before.
The format of the lists is that of words.py, without held-out words.
"""

from collections.abc import Sequence
from random import Random

from outrider.evaluation.arithmetic.words import HELD_OUT, Activity, Lexicon, Noun, Person, nouns, words

_WOMEN = """Abigail, Ada, Adele, Agnes, Aisha, Alexandra, Alma, Amanda, Amelia, Anastasia, Andrea, Angela, Anita
Annabel, Antonia, April, Ariadne, Astrid, Audrey, Aurora, Ayesha, Barbara, Beatrice, Belinda, Bernadette, Bonnie
Brenda, Bridget, Camille, Candace, Caroline, Cassandra, Catalina, Cecilia, Celeste, Charlotte, Chiara, Christine
Claudia, Constance, Cordula, Cynthia, Deborah, Delphine, Denise, Dolores, Doris, Dorothea, Edith, Eleanor, Elif
Elizabeth, Eloise, Elsa, Elvira, Emily, Erika, Esmeralda, Estelle, Eugenia, Eunice, Fatima, Felicity, Fernanda
Florence, Frances, Gabriela, Geneva, Genevieve, Georgia, Gertrude, Giulia, Gloria, Guadalupe, Gwendolyn, Harriet, Hazel
Heather, Heidi, Henrietta, Hilda, Hortense, Imogen, Indira, Irene, Isabella, Isadora, Jacqueline, Jasmine, Jessica
Joanna, Josephine, Juanita, Kamala, Katarina, Keiko, Kimberly, Kristina, Lakshmi, Larissa, Latoya, Lavinia, Leonora
Leticia, Lorraine, Louisa, Lucinda, Ludmila, Lydia, Mabel, Madeleine, Magdalena, Manuela, Marcia, Margaret, Marianne
Marjorie, Matilda, Maureen, Melissa, Mercedes, Michelle, Mildred, Miranda, Miriam, Monique, Nadia, Naomi, Natasha
Nicolette, Odette, Olga, Ophelia, Pamela, Parvati, Patricia, Penelope, Phoebe, Prudence, Ramona, Rebecca, Regina
Roberta, Rosalind, Roxanne, Sabrina, Samantha, Saoirse, Shanti, Sheila, Siobhan, Stella, Svetlana, Sylvia, Tabitha
Tamara, Teresa, Theodora, Trinity, Ursula, Valentina, Vanessa, Veronica, Victoria, Viola, Vivian, Wilhelmina, Winifred
Xenia, Yasmin, Yolanda, Yuki, Zainab, Zelda"""
_MEN = """Abdullah, Abraham, Adrian, Alasdair, Albert, Alejandro, Alessandro, Alfonso, Amadou, Ambrose, Anatole
Andreas, Angus, Antonio, Archibald, Armando, Arnold, Augustus, Balthazar, Barnaby, Bartholomew, Basil, Benedict
Benjamin, Bernard, Bertrand, Bjorn, Bradley, Bruno, Caleb, Callum, Casimir, Cedric, Chandra, Christopher, Clarence
Claude, Clement, Conrad, Cornelius, Crispin, Damian, Darius, Desmond, Dietrich, Dimitri, Dominic, Donovan, Douglas
Duncan, Edmund, Eduardo, Edward, Eliot, Elijah, Emmanuel, Enrique, Ernest, Eugene, Everett, Ezekiel, Fabian, Ferdinand
Fernando, Finlay, Francisco, Franklin, Gabriel, Geoffrey, Gerald, Gilbert, Giovanni, Godfrey, Gonzalo, Gregory
Guillermo, Hamish, Haruki, Harrison, Hassan, Heinrich, Herbert, Hiroshi, Horatio, Hubert, Humphrey, Ibrahim, Ichiro
Ignatius, Isaac, Ismail, Jamal, Jeremiah, Jerome, Joaquin, Jonathan, Joseph, Julian, Karim, Kenneth, Kwame, Lambert
Laurence, Leonard, Leopold, Lorenzo, Lucas, Ludwig, Lysander, Magnus, Malcolm, Marcel, Marmaduke, Marvin, Matthias
Maurice, Maximilian, Mehmet, Mortimer, Mustafa, Nathaniel, Nehemiah, Neville, Nicholas, Nikolai, Norbert, Octavio
Orlando, Osvaldo, Pablo, Patrick, Percival, Philip, Quentin, Ramesh, Randall, Raymond, Reginald, Reuben, Ricardo
Roderick, Rodrigo, Roland, Rudolf, Rupert, Russell, Salvador, Samuel, Santiago, Sebastian, Sergei, Seymour, Siegfried
Solomon, Stanley, Sylvester, Takeshi, Thaddeus, Theodore, Timothy, Tobias, Tristan, Ulrich, Umberto, Valentin, Vikram
Vincent, Vladimir, Wallace, Wilfred, William, Winston, Xavier, Yannick, Yitzhak, Zachary, Zoltan"""
_THINGS = """abacus/abacuses, accordion, acorn, airplane model, album, alarm clock, amulet, anchor, anklet, antenna
apron, arrow, ashtray, atlas/atlases, awl, axe, axle, bagpipe, ballad sheet, bandage, banjo, banner, barometer, bathtub
beanbag, bearing, beeper, beret, bicycle, binder, birdcage, birdhouse, blanket pin, blender, blouse, bonnet, booklet
bookcase, boomerang, bow tie, bracket, brooch/brooches, bugle, bungee cord, buoy, cabinet, cactus/cactuses, calculator
canister, canoe, canvas/canvases, cardigan, carpet, cartridge, carving, cassette, castanet, catalog, cello, chain
chalkboard, charm, chess piece, chisel, clarinet, clasp, clipboard, clothespin, coat hanger, cobblestone, collar
colander, comb, corkscrew, cotton reel, costume, crowbar, crown, cuckoo clock, curtain, cymbal, daybook, decal, desk
diary/diaries, dictionary/dictionaries, dinghy/dinghies, document, doorbell, doorknob, doormat, drawing, dustpan
earring, easel, egg timer, elastic band, emblem, emerald, encyclopedia, engine, engraving, eyepatch/eyepatches, faucet
fan, fez/fezzes, fiddle, figurine, filter, fishing rod, flashlight, flowerpot, flute, flyer, footstool, fossil, funnel
fuse, gadget, garland, gear, gemstone, geode, gong, goggle, grater, guidebook, guitar, hairband, hairpin, hammock
handbag, handkerchief, hard drive, harmonica, harness/harnesses, harp, hatpin, headband, headset, hinge, horn
horseshoe, hourglass/hourglasses, hubcap, hula hoop, icicle, ink bottle, invitation, iron, jewel, jigsaw, joystick
journal, jump rope, kaleidoscope, kayak, kettle, keyboard, kimono, knapsack, label, lace, ladder, ladle, laptop, lasso
leaflet, leash/leashes, lens/lenses, lever, lighthouse model, limerick, lock, locket, lute, magnet bar, mallet
mandolin, manuscript, mat, matchbox/matchboxes, mattress/mattresses, medallion, megaphone, menu, metronome, microphone
microscope, mitten, moccasin, monitor, monocle, mosaic, motor, mousepad, mousetrap, nameplate, necktie, needle
newspaper, nightcap, notecard, nozzle, nutcracker, oar, oboe, oil lamp, ornament, orchid, overcoat, padlock
paintbrush/paintbrushes, pamphlet, paper boat, paper clip, parachute, parasol, parcel, passport, peg, pendant, pennant
periscope, piccolo, pinwheel, pitcher, pitchfork, placemat, planner, pliers/pliers, plug, pocketknife/pocketknives
poncho, postage stamp, pouf, printer, prism, propeller, pulley, pump, puppet, purse, quilt, quiver, radiator, raincoat
rake, rattle, razor, receipt, recorder, relic, replica, rivet, rocking horse, rolling pin, rubber duck, rucksack, rug
saber, sandal, sapphire, satchel, saucepan, saucer, saw, saxophone, scale, scepter, scooter, scrapbook, screen
screwdriver, scroll, sculpture, seashell, sewing kit, shawl, shield, shovel, sickle, sketchpad, ski, slate, sled
slipper, slingshot, snorkel, soap bar, sombrero, spatula, sphere, spindle, spool, spring, sprocket, spur, stamp pad
stapler, steering wheel, stencil, stocking, stopwatch/stopwatches, strap, suitcase, sundial, sunhat, surfboard, swing
switch/switches, sword, syringe, tablecloth, tablet, tambourine, tapestry/tapestries, teacup, teapot, teddy bear
thermometer, thermos/thermoses, thread, tiara, timer, toaster, toboggan, toolbox/toolboxes, toothbrush/toothbrushes
torch/torches, totem, trampoline, transistor, treasure map, triangle, tricycle, tripod, trombone, trowel, tuba
tulip bulb, turban, typewriter, ukulele, unicycle, uniform, valve, veil, velvet bow, vest, video, visor, voucher
waistcoat, wallet, walking stick, wand, washer, watering can, weather vane, wedge, whisk, wig, wind chime, windmill
wreath, wrench/wrenches, wristband, xylophone, yardstick, yo-yo, yoke, zither"""
_FOODS = """almond cookie, anchovy/anchovies, artichoke, asparagus spear, aubergine, baguette
barley loaf/barley loaves, blackberry/blackberries, blueberry/blueberries, bonbon, bread roll, breadstick
broccoli head, burrito, butter bar, calzone, cantaloupe, caramel, cashew, cauliflower, celery stick, cheesecake
cheese wheel, chestnut, chickpea, chili pepper, chocolate, cinnamon roll, clementine, corn cob, cranberry/cranberries
crepe, croissant, croquette, crumpet, cucumber, currant, custard tart, doughnut, dragon fruit, eclair, eggplant
eggroll, empanada, endive, enchilada, falafel, flapjack, fritter, fudge square, garlic clove
gingerbread man/gingerbread men, gooseberry/gooseberries, grapefruit, guava, gumdrop, gummy bear, hazelnut, honey jar
hot dog, jackfruit, jalapeno, jelly bean, kebab, kohlrabi, kumquat, leek, lentil, licorice stick, lychee, marshmallow
marzipan egg, meatball, meringue, mince pie, mulberry/mulberries, nectarine, nugget, oatcake, okra pod, omelet
pastry/pastries, pea pod, peanut, pecan, persimmon, pickle, pineapple, pistachio, pita, plantain, pomegranate, popsicle
praline, profiterole, prune, quesadilla, quiche, quince, raisin, raspberry/raspberries, ravioli/ravioli, rice cake
rutabaga, samosa, satsuma, sausage, shallot, shortbread, soda can, spring roll, sprout, squash/squashes
strawberry/strawberries, strudel, sugar cube, sundae, sweet potato/sweet potatoes, tangerine, toffee, tortilla, truffle
wafer, watermelon, yam, yogurt, zucchini"""
_ANIMALS = """alligator, alpaca, ant, anteater, antelope, armadillo, badger, bat, bear, beaver, bison/bison, boar
buffalo/buffaloes, bull, calf/calves, camel, canary/canaries, caterpillar, cheetah, chimpanzee, chipmunk, cicada, clam
cockatoo, cormorant, coyote, crab, crane, cricket, crocodile, cuckoo, dolphin, dove, dragonfly/dragonflies, eagle, eel
elephant, elk/elk, falcon, ferret, finch/finches, firefly/fireflies, gazelle, gecko, giraffe, gorilla, grasshopper
guinea pig, gull, hamster, hare, hawk, hedgehog, heron, hippo, hummingbird, hyena, iguana, impala, jackal, jaguar
jellyfish/jellyfish, kangaroo, kingfisher, koala, ladybug, lamb, lemur, leopard, lion, llama, lobster, lynx/lynxes
magpie, mammoth, marmot, meerkat, mole, mongoose/mongooses, moose/moose, moth, mouse/mice, mule, newt
octopus/octopuses, orangutan, ostrich/ostriches, owl, ox/oxen, panda, panther, partridge, peacock, pelican, pheasant
polar bear, pony/ponies, porcupine, puffin, python, quail, raccoon, ram, rat, raven, reindeer/reindeer, rhino, robin
rooster, salamander, salmon/salmon, sardine, scorpion, seahorse, shark, shrimp, skunk, sloth, snail, snake, spider
starfish/starfish, starling, stork, swallow, tadpole, tapir, tiger, toad, toucan, trout/trout, vulture
wallaby/wallabies, walrus/walruses, warbler, wasp, weasel, whale, wolf/wolves, wombat, woodpecker, worm, yak"""
_CONTAINERS = """album page, backroom, bottle rack, bowl, briefcase, cabinet, can, canister, casket, compartment
container, cooler, cupboard, display case, envelope, flask, glass case, holder, jug, kit, locker, mailbag, net, pail
pallet, parcel, plastic tub, rack, safe, satchel, section, shelf/shelves, sleeve, storage box/storage boxes, suitcase
tank, toolbox/toolboxes, tote, trolley, tube, vat, wagon, wheelbarrow, wicker basket"""
_ADJECTIVES = """ancient, antique, beautiful, beige, bent, blank, broken, bronze, carved, chipped, colorful, cotton
cracked, crimson, crooked, crumpled, decorated, delicate, dented, dotted, dull, dusty, elegant, embroidered, empty
engraved, expensive, fancy, faded, fine, flat, folded, fragile, fresh, frozen, fuzzy, giant, glass, glossy, glowing
greenish, handmade, heart-shaped, hollow, huge, imported, indigo, iron, ivory, jade, knotted, leather, local, magenta
magnetic, maroon, matching, metal, miniature, modern, narrow, navy, odd, ornate, oval, paper, pearl, plastic, pointed
polished, porcelain, pretty, printed, quilted, rectangular, rough, rubber, rusty, scarlet, scratched, secondhand, sharp
signed, simple, slim, smooth, speckled, spotted, square, square-edged, steel, sturdy, tall, tangled, tartan, tattered
teal, tin, torn, transparent, triangular, turquoise, unusual, used, velvet, vintage, violet, warm, waxed, weathered
wet, wide, woolen, woven, wrinkled, zigzag"""
_PLACES = """airport, antique shop, arcade, archive, art room, auction, bank, barber shop, bazaar, bike shop
boat house, bowling alley, brewery, bus depot, butcher shop, cabin, campsite, candy store, canteen, car park, carnival
cathedral, cheese shop, circus, city hall, clinic, coffee house, college, community center, concert hall, cottage
craft fair, dairy, dance hall, depot, diner, dock, drugstore, embassy, fabric shop, farm stand, fire station
fish market, food bank, forge, fountain, gas station, gift shop, grain silo, greenhouse, grocery, guest house
hardware store, health club, hobby shop, hostel, ice rink, inn, island, jail, jewelry store, juice bar, junkyard, kiosk
laboratory, laundry, lighthouse, lobby, lodge, lumber yard, mansion, marina, mill, mine, mint, monastery, music room
night market, nursery, orchard, orphanage, palace, pawn shop, pet shop, picnic, pizzeria, plaza, police station, port
print shop, quarry, ranch, recycling center, repair shop, restaurant, resort, saloon, sawmill, science fair, shipyard
shoe store, ski lodge, spa, sports hall, square, stable, studio, swap meet, swimming pool, tailor shop, tavern
tea house, temple, tennis club, thrift store, tower, toy museum, train depot, university, vault, village hall, vineyard
water park, winery, yard sale, youth club"""
_KIN = """actor, aunt, boy, brother, captain, carpenter, client, colleague, cook, customer, daughter, doctor, driver
employee, family/families, farmer, fisherman/fishermen, gardener, girl, grandchild/grandchildren, king, knight
librarian, member, musician, niece, nurse, officer, painter, partner, patient, person/people, pilot, pirate, pupil
relative, runner, sister, soldier, son, swimmer, teacher, tenant, toddler, tourist, traveler, trainee, twin, uncle
visitor, volunteer, waiter, winner, witch/witches, wizard, worker"""
_ACTIVITIES = """assemble/assembles/assembled/clocks, bake/bakes/baked/loaves, build/builds/built/walls
carry/carries/carried/logs, carve/carves/carved/spoons, clean/cleans/cleaned/windows
collect/collects/collected/samples, crawl/crawls/crawled/yards, crochet/crochets/crocheted/squares
deliver/delivers/delivered/parcels, dance/dances/danced/minutes, draw/draws/drew/sketches, edit/edits/edited/chapters
feed/feeds/fed/ducks, file/files/filed/reports, fill/fills/filled/forms, fly/flies/flew/kilometers
gather/gathers/gathered/herbs, grade/grades/graded/papers, harvest/harvests/harvested/acres, hop/hops/hopped/yards
iron/irons/ironed/napkins, kick/kicks/kicked/penalties, label/labels/labeled/jars, lift/lifts/lifted/weights
load/loads/loaded/crates, march/marches/marched/leagues, memorize/memorizes/memorized/poems, milk/milks/milked/goats
mow/mows/mowed/lawns, paddle/paddles/paddled/miles, peel/peels/peeled/potatoes
photograph/photographs/photographed/birds, pick/picks/picked/berries, play/plays/played/songs
plow/plows/plowed/furrows, polish/polishes/polished/shoes, print/prints/printed/leaflets
proofread/proofreads/proofread/letters, prune/prunes/pruned/shrubs, record/records/recorded/episodes
repair/repairs/repaired/watches, review/reviews/reviewed/cases, sail/sails/sailed/miles, scan/scans/scanned/documents
scrub/scrubs/scrubbed/pots, sell/sells/sold/raffle slips, sew/sews/sewed/seams, shovel/shovels/shoveled/driveways
sing/sings/sang/hymns, sketch/sketches/sketched/portraits, ski/skis/skied/slopes, sort/sorts/sorted/letters
stack/stacks/stacked/bales, stitch/stitches/stitched/patches, sweep/sweeps/swept/floors, tow/tows/towed/barges
transcribe/transcribes/transcribed/interviews, travel/travels/traveled/leagues, trim/trims/trimmed/hedges
tune/tunes/tuned/pianos, wax/waxes/waxed/floorboards, weave/weaves/wove/rugs, weed/weeds/weeded/beds
wrap/wraps/wrapped/presents"""
_PENS = """aviary/aviaries, burrow, corral, corner, coop, den, fold, garden, hut, hutch/hutches, kennel, nest, paddock
park, pasture, pond, pool, run, section, shed, shelter, stall, sty/sties, tank, valley, yard, zone"""
_RIDERS = """actors, artists, athletes, bakers, boys, cadets, campers, clerks, clowns, commuters, cooks, cousins
customers, cyclists, dentists, doctors, engineers, explorers, farmers, firefighters, fishermen, gardeners, girls
golfers, graduates, gymnasts, judges, jugglers, knights, lawyers, librarians, magicians, members, men, merchants
miners, monks, mothers, musicians, neighbors, novices, nurses, painters, parents, photographers, pilots, poets, pupils
recruits, refugees, reporters, residents, runners, scholars, scientists, shoppers, singers, skaters, skiers, soldiers
spectators, surfers, swimmers, teachers, teenagers, travelers, villagers, violinists, volunteers, voters, waiters
women, workers"""


def widened(base: Lexicon) -> Lexicon:
    """`base` and the words of this file."""
    people = [Person(name, "she", "her", "her") for name in words(_WOMEN)]
    people += [Person(name, "he", "his", "him") for name in words(_MEN)]
    return Lexicon(
        people=base.people + tuple(people),
        things=base.things + nouns(_THINGS),
        foods=base.foods + nouns(_FOODS),
        animals=base.animals + nouns(_ANIMALS),
        containers=base.containers + nouns(_CONTAINERS),
        adjectives=base.adjectives + words(_ADJECTIVES),
        places=base.places + tuple(f"the {word}" for word in words(_PLACES)),
        kin=base.kin + nouns(_KIN),
        activities=base.activities + tuple(Activity(*activity.split("/")) for activity in words(_ACTIVITIES)),
        pens=base.pens + nouns(_PENS),
        riders=base.riders + words(_RIDERS),
    )


MEASURES = (
    ("gallons", "water", "a tank"), ("liters", "milk", "a vat"), ("pounds", "flour", "a bin"),
    ("cups", "sugar", "a jar"), ("grams", "salt", "a tin"), ("kilograms", "rice", "a silo"),
    ("ounces", "honey", "a pot"), ("buckets", "sand", "a pit"), ("pints", "juice", "a cooler"),
    ("barrels", "oil", "a ship"), ("tons", "coal", "a train"), ("quarts", "soup", "a kettle"),
    ("spoons", "tea", "a box"), ("bushels", "wheat", "a barn"), ("sacks", "cement", "a shed"),
    ("drops", "ink", "a bottle"), ("bowls", "broth", "a pan"), ("cans", "paint", "a drum"),
    ("feet", "wire", "a spool"), ("yards", "cloth", "a chest"), ("inches", "tape", "a drawer"),
    ("meters", "cable", "a store room"), ("loads", "gravel", "a truck"), ("tubs", "clay", "a studio"),
    ("flasks", "acid", "a cabinet"), ("mugs", "cocoa", "an urn"),
)  # fmt: skip
"""(unit, what is measured, where it is kept)"""

# --- invented words -----------------------------------------------------------------------------------------

_ONSETS = (
    "b", "bl", "br", "c", "ch", "cl", "cr", "d", "dr", "f", "fl", "fr", "g", "gl", "gr", "h", "j", "k", "l", "m", "n",
    "p", "ph", "pl", "pr", "qu", "r", "s", "sc", "sh", "sl", "sm", "sn", "sp", "st", "str", "sw", "t", "th", "tr", "v",
    "w", "y", "z",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ee", "ea", "oo", "ou", "ia", "io")
_CODAS = ("", "", "", "b", "ck", "d", "g", "l", "ll", "m", "mp", "n", "nd", "ng", "nt", "p", "r", "rd", "rn", "rt", "t")
NAME_ENDS = ("a", "o", "us", "el", "in", "ia", "en", "or", "is", "an", "ette", "ard", "y", "as", "ina", "eth", "ov")
_NOUN_ENDS = (
    "er", "le", "et", "on", "ard", "ink", "ope", "ane", "oid", "um", "ick", "ette", "ing", "or", "y", "ch", "ie",
    "ow", "ax", "el",
)  # fmt: skip
_FIELD_SHARE = 0.6  # of the kinds of words of a story with inventions


_NOUNS = ("things", "foods", "animals", "containers", "kin", "pens")  # the fields of a lexicon that hold nouns
_TAKEN = frozenset(
    word.lower()
    for text in (
        *(person.name for person in HELD_OUT.people), *HELD_OUT.adjectives, *HELD_OUT.places, *HELD_OUT.riders,
        *(activity.units for activity in HELD_OUT.activities),
        *(form for field in _NOUNS for noun in getattr(HELD_OUT, field) for form in noun),
    )
    for word in text.split()
)  # fmt: skip


def invented_word(rng: Random, ends: Sequence[str]) -> str:
    """A word that may be pronounced and is not held out."""
    while True:
        word = _stem(rng) + rng.choice(ends)
        if word not in _TAKEN and _plural(word) not in _TAKEN:
            return word


def _stem(rng: Random) -> str:
    syllables = []
    for _ in range(1 if rng.random() < 0.55 else 2):
        syllables += [rng.choice(_ONSETS), rng.choice(_VOWELS)]
    return "".join(syllables) + rng.choice(_CODAS)


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("ch", "x")) else "s")


def _noun(rng: Random, known: tuple[Noun, ...]) -> Noun:
    """An invented noun, alone or joined to a known one: `blenter`, `blenter cup`, `cup blenter`."""
    new = invented_word(rng, _NOUN_ENDS)
    form = rng.random()
    if form < 0.7:
        return Noun(new, _plural(new))
    one, many = rng.choice(known)
    if form < 0.85:
        return Noun(f"{new} {one}", f"{new} {many}")
    return Noun(f"{one} {new}", f"{one} {_plural(new)}")


def with_inventions(base: Lexicon, rng: Random) -> Lexicon:
    """A lexicon for one story: of every kind of words, either those of `base` or a few that are invented now."""

    def invents() -> bool:
        return rng.random() < _FIELD_SHARE

    def several(known: tuple[Noun, ...], count: int) -> tuple[Noun, ...]:
        return tuple(_noun(rng, known) for _ in range(count)) if invents() else known

    things, foods = base.things, base.foods
    if invents():  # both at once: a story draws its things from the two together
        things, foods = (tuple(_noun(rng, base.things) for _ in range(3)) for _ in range(2))
    people, activities, adjectives, places, riders = (
        base.people, base.activities, base.adjectives, base.places, base.riders
    )  # fmt: skip
    if invents():
        pronouns = rng.sample((base.people[0], base.people[-1]) * 2, 3)
        people = tuple(p._replace(name=invented_word(rng, NAME_ENDS).capitalize()) for p in pronouns)
    if invents():
        verb = rng.choice(base.activities)
        activities = (verb._replace(units=_noun(rng, base.things).many),)
    if rng.random() < 0.2:
        adjectives = (invented_word(rng, ("y", "ish", "ed", "al", "ic")),)
    if invents():
        places = tuple(f"the {invented_word(rng, _NOUN_ENDS)}{kind}" for kind in ("", rng.choice(base.places)[3:]))
    if invents():
        riders = (_noun(rng, base.kin).many,)
    return base._replace(
        people=people, activities=activities, adjectives=adjectives, places=places, riders=riders,
        things=things, foods=foods, animals=several(base.animals, 2),
        containers=several(base.containers, 2), kin=several(base.kin, 1), pens=several(base.pens, 1),
    )  # fmt: skip
