"""Growing and shrinking collections: stories composed from one to three moves.

A collection names its start, its moves and its question; `compose` joins them into stories of the format of
arithmetic_templates.py, one for each pattern of moves. Moves: `g` gain, `l` lose, `p` gain of whole packs
(multiply, then add), `s` share the collection equally at the end.
"""

from dataclasses import dataclass

PATTERNS = ("g", "l", "p", "gg", "gl", "lg", "ll", "pl", "lp", "gs", "ls")


@dataclass(frozen=True)
class Collection:
    """Each sentence holds paraphrases separated by `|`; numbers: start {a}, moves {k}, packs {n} of {m}."""

    name: str
    items: str
    start: str
    gain: str
    lose: str
    packs: str
    share: str
    ask: str
    ask_share: str


TRAINING_COLLECTIONS = (
    Collection(
        name="library",
        items="books",
        start="There are {a} books in a small library. | A school library has {a} books.",
        gain="People give it {k} more books. | It buys {k} new books. | Then it gets {k} more books.",
        lose="It lends out {k} books. | {k} books are taken out. | Then {k} old books are given away.",
        packs="Then {n} boxes with {m} books each arrive. | It gets {n} packs of {m} books.",
        share="All the books are put equally on {d} shelves. | They are shared equally among {d} rooms.",
        ask="How many books does the library have now? | How many books are there now?",
        ask_share="How many books are in each part? | How many books does each one get?",
    ),
    Collection(
        name="bus",
        items="people",
        start="{a} people are on a train. | A train leaves the station with {a} people.",
        gain="At the next stop {k} people get on. | Then {k} more people get on.",
        lose="At the next stop {k} people get off. | Then {k} people get off.",
        packs="Then {n} groups of {m} people get on. | {n} classes with {m} people each get on.",
        share="They sit equally in {d} cars. | The people share {d} cars equally.",
        ask="How many people are on the train now? | How many people is that now?",
        ask_share="How many people are in each car? | How many people does each car have?",
    ),
    Collection(
        name="coin_jar",
        items="coins",
        start="{name} has {a} coins in a jar. | There are {a} coins in the jar of {name}.",
        gain="{friend} gives {him} {k} coins. | {He} finds {k} more coins. | On {day} {he} gets {k} more coins.",
        lose="{He} spends {k} coins. | {He} gives {k} coins to {friend}. | {name} loses {k} coins.",
        packs="{He} gets {n} bags with {m} coins in each. | {He} adds {n} rolls of {m} coins.",
        share="{He} divides all coins equally among {d} children. | {name} shares the coins equally with {d} friends "
        "and keeps none.",
        ask="How many coins does {name} have now? | How many coins are in the jar now?",
        ask_share="How many coins does each one get? | How many coins does each of them receive?",
    ),
    Collection(
        name="shop_stock",
        items="{foods}",
        start="A shop has {a} {foods}. | {name} has {a} {foods} in {his} shop. | There are {a} {foods} in a shop.",
        gain="{k} more {foods} arrive. | The shop gets {k} more {foods}. | A farmer brings {k} {foods}.",
        lose="The shop sells {k} {foods}. | {k} {foods} are sold on {day}. | {k} {foods} go bad and are thrown away.",
        packs="Then {n} {boxes} with {m} {foods} each arrive. | The shop buys {n} {boxes} of {m} {foods}.",
        share="All {foods} are packed equally into {d} {boxes}. | They go equally into {d} {boxes}.",
        ask="How many {foods} are there now? | How many {foods} does the shop have now?",
        ask_share="How many {foods} are in each {box}? | How many {foods} does each {box} hold?",
    ),
    Collection(
        name="farm_animals",
        items="{animals}",
        start="A farmer has {a} {animals}. | There are {a} {animals} on a farm.",
        gain="{k} {animals} are born. | The farmer buys {k} more {animals}. | In spring {k} more {animals} come.",
        lose="The farmer sells {k} {animals}. | {k} {animals} run away. | {k} {animals} are moved to another farm.",
        packs="The farmer buys {n} groups of {m} {animals}. | {n} trucks bring {m} {animals} each.",
        share="The {animals} are divided equally among {d} fields. | They are put equally into {d} barns.",
        ask="How many {animals} are there now? | How many {animals} does the farm have now?",
        ask_share="How many {animals} does each one hold? | How many {animals} is that in each?",
    ),
    Collection(
        name="card_game",
        items="cards",
        start="{name} starts with {a} cards. | {name} has {a} cards.",
        gain="{He} wins {k} cards. | {He} gets {k} more cards from {friend}. | {He} buys {k} new cards.",
        lose="{He} loses {k} cards. | {He} gives {k} cards away. | {He} trades away {k} cards.",
        packs="{He} opens {n} packs with {m} cards each. | {He} buys {n} packs of {m} cards.",
        share="{He} puts all cards equally into {d} piles. | {He} divides the cards equally among {d} friends.",
        ask="How many cards does {he} have now? | How many cards is that now?",
        ask_share="How many cards is that for each? | How many cards are in each part?",
    ),
)

HELD_OUT_COLLECTIONS = (
    Collection(
        name="aquarium",
        items="fish",
        start="An aquarium has {a} fish. | There are {a} fish in an aquarium.",
        gain="It buys {k} more fish. | Then {k} more fish are born.",
        lose="Then {k} fish are moved to another aquarium. | It gives away {k} fish.",
        packs="It buys {n} bags with {m} fish in each. | Then {n} tanks with {m} fish each arrive.",
        share="All the fish are divided equally among {d} tanks. | The fish are put equally into {d} tanks.",
        ask="How many fish are there now? | How many fish does the aquarium have now?",
        ask_share="How many fish are in each tank? | How many fish does each tank hold?",
    ),
)


def compose(collection: Collection) -> str:
    """Stories of one collection, one for each pattern, in the text format of arithmetic_templates.py."""
    return "\n\n".join(_story(collection, pattern) for pattern in PATTERNS)


def _story(collection: Collection, pattern: str) -> str:
    items = collection.items
    numbers = ["a 20-300"]
    question, answer = [collection.start], []
    have = "a"
    for i, move in enumerate(pattern, 1):
        now = f"c{i}"
        if move == "p":
            numbers += [f"n{i} 2-9", f"m{i} 4-40"]
            question.append(collection.packs.replace("{n}", f"{{n{i}}}").replace("{m}", f"{{m{i}}}"))
            answer += [f"p{i} = n{i} * m{i} | These are {{=}} {items}. | The new ones are {{=}} {items}."]
            answer += [f"{now} = {have} + p{i} | Now there are {{=}} {items}. | That makes {{=}} {items}."]
        elif move == "s":
            numbers.append("d 2-9")
            question.append(collection.share)
            answer.append(f"{now} = {have} / d | In each there are {{=}} {items}. | Each one gets {{=}} {items}.")
        else:
            numbers.append(f"k{i} 5-99")
            sentence, operator = (collection.gain, "+") if move == "g" else (collection.lose, "-")
            question.append(sentence.replace("{k}", f"{{k{i}}}"))
            verb = "That makes" if move == "g" else "That leaves"
            answer.append(f"{now} = {have} {operator} k{i} | {verb} {{=}} {items}. | Now there are {{=}} {items}.")
        have = now
    question.append(collection.ask_share if pattern[-1] == "s" else collection.ask)
    lines = [f"{collection.name}_{pattern}: " + ", ".join(numbers)]
    lines += [f"Q {sentence}" for sentence in question] + [f"A {step}" for step in answer]
    return "\n".join(lines)
