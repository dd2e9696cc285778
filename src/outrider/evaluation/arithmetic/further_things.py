"""Further parts for the setting of a person and things: other sentences, other plans, idle facts.

They and those of the other further_*.py files are for training stories only. A part without steps among the moves is
an *idle* fact: nothing uses its number, and a reader must pass over it.
"""

from outrider.evaluation.arithmetic.composition import Setting, part

FURTHER_PERSON = Setting(
    "person",
    (
        part(
            "three_spots", "a 5-200, b 5-200, c 5-200",
            """{name} <has/had> {a} {items} [at home|in the car|upstairs], {b} [in a {box}|at {place}|under the bed]
            and {c} [in the yard|in a second {box}|with {friend}].""",
            "x = a + b | The first two places hold {=} {items}.",
            "now = x + c | Together there are {=} {items}.",
        ),
        part(
            "half_of", "h 6-150, a = h * 2",
            """{friend} <has/had> {a} {items}[. {name}| and {name}] <has/had> [half as many[| as {friend}]|half of that
            number].""",
            "now = a / 2 | {name} has {=} {items}.",
        ),
        part(
            "third_of", "h 4-90, a = h * 3",
            """[{friend} <owns/owned> {a} {items}, and {name} <owns/owned> a third [of that number|as many]|The {items}
            of {name} <are/were> a third of the {a} {items} that {friend} <has/had>].""",
            "now = a / 3 | {name} has {=} {items}.",
        ),
        part(
            "dozens", "n 2-30",
            "{name} [<orders/ordered>|<bakes/baked>|<carries/carried> home|<has/had>] {n} dozen {items}.",
            "now = n * 12 | A dozen is 12, so that is {=} {items}.",
        ),
        part(
            "pairs", "n 5-150",
            "[In {his} closet {name} <has/had>|{name} <bought/had bought>|{name} <owns/owned>] {n} pairs of {items}.",
            "now = n * 2 | The pairs are {=} {items}.",
        ),
        part(
            "rest_of_color", "t 40-300, a 10-200",
            """[Of the {t} {items} that {name} <has/had>, {a} <are/were>|{name} <looks/looked> at {t} {items}, and {a}
            of them <are/were>] {color}. {He} <keeps/kept> only [the others|the rest|those that <are/were> not
            {color}].""",
            "now = t - a | {name} keeps {=} {items}.",
        ),
        part(
            "one_share", "n 2-9, q 10-90, t = n * q",
            """[{n} {kins}, {name} among them, <split/split> {t} {items} so that all <have/had> the same number|{t}
            {items} <are/were> dealt out to {n} {kins} in equal shares, and one share <goes/went> to {name}].""",
            "now = t / n | The share of {name} is {=} {items}.",
        ),
        part(
            "from_each", "n 2-9, m 4-60",
            """[Each of {n} {kins} [<hands/handed>|<gives/gave>|<mails/mailed>] {name} {m} {items}|{name}
            <collects/collected> {m} {items} from each of {n} {kins}|For {his} birthday, {n} {kins} <bring/brought>
            {name} {m} {items} apiece].""",
            "now = n * m | {name} gets {=} {items}.",
        ),
        part(
            "damaged", "n 2-9, m 8-60, k 3-40",
            """{name} <unpacks/unpacked> {n} {boxes} of {m} {items}[ each|], [but|and] {k} of the {items} <are/were>
            [damaged and useless|the wrong size and <go/went> back|not usable].""",
            "x = n * m | The {boxes} hold {=} {items}.",
            "now = x - k | Without the bad ones there are {=} {items}.",
        ),
        part(
            "loose", "n 2-9, m 8-60, k 3-90",
            """[Besides {k} loose {items}, {name} <has/had> {n} full {boxes} with {m} inside|{name} <has/had> {k}
            single {items} and also {n} {boxes}, every one with {m} {items}].""",
            "x = n * m | The {boxes} hold {=} {items}.",
            "now = x + k | With the others there are {=} {items}.",
        ),
        part(
            "next_day", "a 10-200, k 3-80",
            """On {day} {name} [<sorts/sorted>|<makes/made>|<gathers/gathered>|<cleans/cleaned>] {a} {items}, and on
            {day2} {k} more than on {day}.""",
            "x = a + k | On {day2} it is {=} {items}.",
            "now = a + x | On both days it is {=} {items}.",
        ),
        part(
            "part_given", "t 40-300, k 5-99",
            """{name} [<gives/gave>|<sells/sold>|<lends/lent>|<mails/mailed>] {k} of {his} {t} {items} to [{friend}|a
            {kin}|{his} @relative].""",
            "now = t - k | {name} still has {=} {items}.",
        ),
        part(
            "added_to", "t 20-300, k 5-99",
            "{name} <puts/put> {k} {items} [to|with] the {t} that {he} [already <has/had>|<keeps/kept> in the {box}].",
            "now = t + k | {name} then has {=} {items}.",
        ),
        part(
            "short_of", "t 100-400, k 5-99",
            "[{name} <needs/needed> only {k} more {items} to have {t}|With {k} more {items}, {name} would have {t}].",
            "now = t - k | {name} has {=} {items}.",
        ),
        part(
            "as_both", "a 5-200, b 5-200",
            """{friend} <has/had> {a} {items} and a {kin} <has/had> {b}. {name} <has/had> as many as [both|the two]
            together.""",
            "now = a + b | {name} has {=} {items}.",
        ),
        part(
            "twice_and_more", "a 5-150, k 3-60",
            """{friend} <has/had> {a} {items}. [{name} <has/had> {k} more than twice as many|Twice that number and {k}
            more <are/were> the {items} of {name}].""",
            "x = a * 2 | Twice as many is {=} {items}.",
            "now = x + k | {name} has {=} {items}.",
        ),
        part(
            "half_and_less", "h 20-150, a = h * 2, k 2-19",
            "{friend} <has/had> {a} {items}. {name} <has/had> {k} fewer than half as many.",
            "x = a / 2 | Half as many is {=} {items}.",
            "now = x - k | {name} has {=} {items}.",
        ),
    ),
    (
        part(
            "keep_third", "",
            """@when [{name} <keeps/kept> only a third of the {items}|two of every three {items} <are/were> [given
            away|lost|spoiled]].""",
            "now = have / 3 | That leaves {=} {items}.",
        ),
        part(
            "triple", "",
            """@when [the number of {items} <triples/tripled>|{name} <has/had> three times as many {items} as
            before|{his} [collection|supply] <grows/grew> to three times its size].""",
            "now = have * 3 | That makes {=} {items}.",
        ),
        part(
            "use_daily", "n 2-9, m 2-20",
            """[For {n} [days|weeks|nights] {name} [<uses/used>|<needs/needed>|<gives/gave> away] {m} {items} [a
            day|each time|per turn]|{name} <uses/used> up {m} {items} in every one of {n} [lessons|weeks|games]].""",
            "x = n * m | In that time it is {=} {items}.",
            "now = have - x | That leaves {=} {items}.",
        ),
        part(
            "gain_daily", "n 2-9, m 2-30",
            """[For {n} [days|weeks|months] in a row|During the next {n} [days|weeks]], {name}
            [<adds/added>|<finds/found>|<makes/made>|<buys/bought>] {m} {items} [each time|every time].""",
            "x = n * m | In that time it is {=} {items}.",
            "now = have + x | After that there are {=} {items}.",
        ),
        part(
            "give_two", "a 3-60, b 3-60",
            """@when {name} [<passes/passed>|<gives/gave>|<sells/sold>] {a} {items} to [{friend}|a {kin}] and {b}
            [more|] to [{his} @relative|{third}].""",
            "x = a + b | Together {name} parts with {=} {items}.",
            "now = have - x | That leaves {=} {items}.",
        ),
        part(
            "get_two", "a 3-60, b 3-60",
            """@when {name} <gets/got> [{a} {items} from {friend} and {b} from {third}|{a} {items} on {day} and {b} on
            {day2}|{b} {items} by mail and {a} as a present].""",
            "x = a + b | The new ones are {=} {items}.",
            "now = have + x | After that there are {=} {items}.",
        ),
        part(
            "exchange", "k 3-60, m 3-60",
            """@when {name} [<swaps/swapped>|<trades/traded>|<exchanges/exchanged>] {k} of the {items} for {m} [better
            ones|older ones|other {items}].""",
            "x = have - k | Without those there are {=} {items}.",
            "now = x + m | With the new ones there are {=} {items}.",
        ),
        part(
            "merge", "k 5-99",
            """@when [{friend} <adds/added> {k} {items} to the pile|{k} {items} that <belong/belonged> to {friend}
            <go/went> on the same pile|{name} <discovers/discovered> {k} forgotten {items} in [the attic|an old
            {box}|the cellar]].""",
            "now = have + k | With those there are {=} {items}.",
        ),
        part(
            "leaves", "k 5-99",
            """@when [{k} {items} <fall/fell> [into the river|off the cart|to pieces]|a [dog|storm|flood]
            <ruins/ruined> {k} of {his} {items}|{name} <has/had> to return {k} {items}|{k} {items} <go/went> into the
            [trash|recycling|donation bin]].""",
            "now = have - k | That leaves {=} {items}.",
        ),
        part(
            "idle_others", "d 5-99",
            """[The {kins} next door|The people across the street] <have/had> {d} {others}, but [no|not a single]
            {item}.""",
        ),
        part("idle_age", "d 6-90", "{name} <is/was> {d} years old[| and <lives/lived> near {place}]."),
        part("idle_price", "d 2-90", "[The {box} alone|A ticket to {place}] <costs/cost> {d} dollars."),
    ),
    (
        part(
            "ahead", "g 100-900",
            """{third} <has/had> {g} {items}. [How many more {items} <does/did> {third} have than {name}?|By how many
            {items} <is/was> {third} ahead of {name}?]""",
            "now = g - have | {third} has {=} more {items}.",
        ),
        part(
            "with_third", "k 5-200",
            """{third} <owns/owned> {k} {items}. [How many {items} <do/did> {name} and {third} own @all?|What <is/was>
            the number of {items} of both?]""",
            "now = have + k | Together there are {=} {items}.",
        ),
        part(
            "times_other", "n 2-9",
            """{third} <owns/owned> {n} times as many {items} as {name}. [How many {items} <is/was> that?|How many
            <does/did> {third} own?]""",
            "now = have * n | {third} has {=} {items}.",
        ),
        part(
            "half_other", "",
            """{third} [<needs/needed>|<owns/owned>] half as many {items} as {name}. How many {items} <is/was> that for
            {third}?""",
            "now = have / 2 | For {third} it is {=} {items}.",
        ),
        part(
            "if_more", "k 5-99",
            """[How many {items} will {name} have if [{he} gets {k} more|{friend} adds {k}]?|If {he} [found|bought] {k}
            more {items}, how many would that be?]""",
            "now = have + k | Then there are {=} {items}.",
        ),
        part(
            "if_fewer", "k 5-99",
            """[How many {items} remain if {name} [gives away|loses|uses] {k} of them?|If {k} of them broke, how many
            {items} would {name} still have?]""",
            "now = have - k | Then there are {=} {items}.",
        ),
        part(
            "if_shared", "d 2-9",
            """[How many {items} can {name} give to each of {d} {kins}?|If {d} {kins} get all the {items}, each the
            same number, how many is that for one {kin}?]""",
            "now = have / d | Each {kin} can have {=} {items}.",
        ),
        part(
            "if_sold", "p 2-9",
            """[How many dollars does {name} get if every {item} sells for {p} dollars?|What are the {items} of {name}
            worth if one {item} is worth [{p} dollars|${p}]?]""",
            "now = have * p | That is {=} dollars.",
        ),
        part(
            "lasts", "m 2-9",
            """[From then on|Now] {name} <uses/used> {m} {items} [a day|every day|per day]. [How many days <do/did> the
            {items} last?|For how many days <is/was> that enough?|After how many days <are/were> they all used up?]""",
            "now = have / m | They last {=} days.",
        ),
        part(
            "rows_of", "m 2-9",
            """{name} [<lays/laid> out|<arranges/arranged>] the {items} in rows of {m}. [How many rows [are there|does
            that make|will it be]?|What is the number of rows?]""",
            "now = have / m | That makes {=} rows.",
        ),
        part(
            "each_row", "d 2-9",
            """The {items} <are/were> [hung|laid|placed] in {d} rows of the same length. How many {items} <does/did> a
            row have?""",
            "now = have / d | Each row has {=} {items}.",
        ),
        part(
            "weighs", "n 2-9",
            """[Each {item}|One {item}|Every {item}] weighs {n} [ounces|grams]. [How heavy <are/were> the {items}
            together?|What <is/was> the weight of all {items}?]""",
            "now = have * n | The weight is {=}.",
        ),
        part(
            "rest_after_gifts", "n 2-9, m 2-20",
            """Each of {n} {kins} [may|is allowed to] take {m} {items}. How many {items} [remain for {name}|are not
            taken|stay with {name}]?""",
            "x = n * m | The {kins} take {=} {items}.",
            "now = have - x | That leaves {=} {items}.",
        ),
        part(
            "sells_and_pays", "p 2-9, k 5-90",
            """Every {item} <brings/brought> {name} [{p} dollars|${p}], and the stall <costs/cost> [{k} dollars|${k}].
            How much [<does/did> {he} keep|profit <is/was> that]?""",
            "x = have * p | The sales bring {=} dollars.",
            "now = x - k | That leaves {=} dollars.",
        ),
        part(
            "share_of_third", "d 2-9, k 3-90",
            """{third} and the others, {d} {kins} in all, <divide/divided> the {items} @equally. {third} already
            <has/had> {k}. How many {items} <does/did> {third} have in the end?""",
            "x = have / d | The share is {=} {items}.",
            "now = x + k | With the others {third} has {=} {items}.",
        ),
    ),
)  # fmt: skip
