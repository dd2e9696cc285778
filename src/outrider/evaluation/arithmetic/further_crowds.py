"""Further parts for the settings of animals and of people (see further_things.py)."""

from outrider.evaluation.arithmetic.composition import Setting, part

# --- animals ------------------------------------------------------------------------------------------------

FURTHER_HERD = Setting(
    "herd",
    (
        part(
            "two_sites", "a 10-300, b 10-300",
            """[{name} <feeds/fed>|A ranger <watches/watched>|The map <shows/showed>] {a} {animals} in the
            [north|hills|east] and {b} [more|] in the [south|plains|west].""",
            "now = a + b | Together there are {=} {animals}.",
        ),
        part(
            "grown", "a 10-90, n 2-9",
            """[Ten years ago|Long ago|In spring] there were {a} {animals} [on the island|in the reserve]. Now there
            are {n} times as many.""",
            "now = a * n | Now there are {=} {animals}.",
        ),
        part(
            "young", "n 5-60, m 2-9",
            """[A breeder <has/had> {n} mothers|There <are/were> {n} nests|{n} mothers <live/lived> on the ranch], each
            with {m} young {animals}.""",
            "now = n * m | There are {=} young {animals}.",
        ),
        part(
            "not_sick", "t 60-400, a 20-200",
            """[A vet <examines/examined> {t} {animals}|{t} {animals} <are/were> checked] and <finds/found> {a} of them
            sick. [The healthy ones|All the healthy ones] <are/were> set free.""",
            "now = t - a | There are {=} healthy {animals}.",
        ),
    ),
    (
        part(
            "return", "k 5-99",
            """@when [{k} {animals} <return/returned> from the [woods|south|hills]|the ranger <brings/brought> {k}
            {animals} back|{k} wild {animals} <follow/followed>].""",
            "now = have + k | With those there are {=} {animals}.",
        ),
        part(
            "stray", "k 5-99",
            """@when [{k} {animals} <stray/strayed> [into the woods|over the hills]|{name} <adopts/adopted> {k} of the
            {animals}|{k} {animals} <are/were> taken to a doctor].""",
            "now = have - k | That leaves {=} {animals}.",
        ),
        part(
            "leave_daily", "n 2-9, m 2-20",
            "@when {m} {animals} <leave/left> on each of {n} days.",
            "x = n * m | In all {=} {animals} leave.",
            "now = have - x | That leaves {=} {animals}.",
        ),
        part(
            "triple", "",
            "@when the herd <becomes/became> three times as large.",
            "now = have * 3 | That makes {=} {animals}.",
        ),
        part("idle_trees", "d 5-99", "[{d} trees <stand/stood> there.|{d} {others_a} <live/lived> there too.]"),
    ),
    (
        part(
            "per_keeper", "d 2-9",
            """{d} keepers <look/looked> after the same number of {animals}. How many {animals} <does/did> a keeper
            look after?""",
            "now = have / d | Each keeper has {=} {animals}.",
        ),
        part(
            "trips", "m 2-9",
            "A truck <carries/carried> {m} {animals} at a time. How many trips <does/did> it take to move all of them?",
            "now = have / m | It takes {=} trips.",
        ),
        part(
            "compare", "k 5-99",
            """[{place}|Another farm] <has/had> {k} [fewer {animals}|{animals} less]. How many {animals} <are/were> at
            that other place?""",
            "now = have - k | There are {=} {animals} there.",
        ),
        part(
            "feed", "n 2-9",
            "Each animal <gets/got> {n} buckets of feed. How many buckets of feed <is/was> that?",
            "now = have * n | They get {=} buckets.",
        ),
        part(
            "target", "g 100-900",
            "The goal <is/was> a herd of {g} {animals}. How many {animals} [are missing|are still needed]?",
            "now = g - have | The herd needs {=} more {animals}.",
        ),
    ),
)  # fmt: skip

# --- people -------------------------------------------------------------------------------------------------

FURTHER_PEOPLE = Setting(
    "people",
    (
        part(
            "halls", "a 10-300, b 10-300",
            """[{a} {riders} <wait/waited> outside and {b} inside|The list <names/named> {a} {riders} from the city and
            {b} from the country].""",
            "now = a + b | Together there are {=} {riders}.",
        ),
        part(
            "absent", "t 40-400, a 10-200",
            """[Of {t} invited {riders}, {a} <stay/stayed> away, and the others <come/came>|{t} {riders} <sign/signed>
            up, but {a} <are/were> ill on that day].""",
            "now = t - a | {=} {riders} come.",
        ),
        part(
            "times", "a 5-90, n 2-9",
            "Last year there were {a} {riders}. This year there are {n} times as many.",
            "now = a * n | This year there are {=} {riders}.",
        ),
        part(
            "more", "a 20-300, k 5-99",
            """On {day} {a} {riders} <come/came> to {place}. On {day2} {k} more than that <come/came>, and this is
            about {day2}.""",
            "now = a + k | On {day2} there are {=} {riders}.",
        ),
        part(
            "tables", "n 2-9, m 3-40",
            "[At each of {n} tables {m} {riders} <sit/sat>|{n} vans <bring/brought> {m} {riders} apiece].",
            "now = n * m | Together there are {=} {riders}.",
        ),
    ),
    (
        part(
            "late", "k 5-99",
            """@when [{k} late {riders} <appear/appeared>|{k} {riders} <walk/walked> in from the street|{k} {riders}
            <are/were> invited as well].""",
            "now = have + k | With those there are {=} {riders}.",
        ),
        part(
            "tired", "k 5-99",
            """@when [{k} {riders} <give/gave> up|{k} {riders} <fall/fell> asleep and <miss/missed> the rest|the guard
            <sends/sent> {k} {riders} away].""",
            "now = have - k | That leaves {=} {riders}.",
        ),
        part("half", "", "@when half of the {riders} <leave/left>.", "now = have / 2 | That leaves {=} {riders}."),
        part(
            "two_groups_leave", "a 3-60, b 3-60",
            "@when a group of {a} and a group of {b} {riders} <leave/left>.",
            "x = a + b | Together {=} {riders} leave.",
            "now = have - x | That leaves {=} {riders}.",
        ),
        part(
            "stops", "n 2-9, m 2-20",
            "At each of {n} stops, {m} {riders} <get/got> off.",
            "x = n * m | At the stops {=} {riders} get off.",
            "now = have - x | That leaves {=} {riders}.",
        ),
        part("idle_minutes", "d 5-90", "[The trip <takes/took> {d} minutes.|The place <is/was> {d} years old.]"),
    ),
    (
        part(
            "rows_of", "m 2-9",
            "They <stand/stood> in lines of {m}. How many lines [are there|is that]?",
            "now = have / m | That makes {=} lines.",
        ),
        part(
            "seats", "g 100-900",
            "There <are/were> {g} seats. How many seats <stay/stayed> empty?",
            "now = g - have | {=} seats stay empty.",
        ),
        part(
            "guides", "d 2-9",
            "{d} guides each <lead/led> the same number of {riders}. How many {riders} <does/did> one guide lead?",
            "now = have / d | Each guide leads {=} {riders}.",
        ),
        part(
            "other_event", "k 5-99",
            "[A second event|The next event] <has/had> {k} {riders} less. How many {riders} <is/was> that?",
            "now = have - k | There are {=} {riders}.",
        ),
        part(
            "two_events", "k 5-99",
            "At a second event there <are/were> {k} {riders}. How many {riders} do both events have?",
            "now = have + k | Together there are {=} {riders}.",
        ),
    ),
)  # fmt: skip
