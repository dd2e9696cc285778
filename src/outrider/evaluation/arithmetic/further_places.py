"""Further parts for the setting of a place's stock (see further_things.py)."""

from outrider.evaluation.arithmetic.composition import Setting, part

FURTHER_PLACE = Setting(
    "place",
    (
        part(
            "two_rooms", "a 10-300, b 10-300",
            """[In the front room of {place} there <are/were> {a} {items}, and {b} [more|] in the back room|{place}
            <keeps/kept> {a} {items} upstairs and {b} downstairs|{a} {items} <stand/stood> in the window of {place} and
            {b} [more|] behind it].""",
            "now = a + b | Together there are {=} {items}.",
        ),
        part(
            "other_place", "a 20-300, k 5-99",
            """{place} [<stores/stored>|<lists/listed>] {a} {items}; {place2} <has/had> {k} fewer. [We only look at|Now
            to the {items} of|This is about] {place2}.""",
            "now = a - k | There are {=} {items} there.",
        ),
        part(
            "dozens", "n 2-30",
            "[A van <unloads/unloaded>|{place} <receives/received>|A clerk <counts/counted>] {n} dozen {items}.",
            "now = n * 12 | A dozen is 12, so that is {=} {items}.",
        ),
        part(
            "grid", "n 2-9, m 4-40",
            """[The wall|The yard|The hall|The cellar] of {place} <is/was> [filled|covered] with {items}: {n}
            [rows|columns|lines], {m} {items} in [each|every one].""",
            "now = n * m | That makes {=} {items}.",
        ),
        part(
            "moved_out", "t 60-400, k 5-99",
            """[{k} of the {t} {items} at {place} <are/were> moved to {place2}|{place} <lends/lent> out {k} of its {t}
            {items}].""",
            "now = t - k | {place} still has {=} {items}.",
        ),
        part(
            "twice_and_more", "a 5-150, k 3-60",
            "{place2} <has/had> {a} {items}. {place} <has/had> {k} more than twice as many.",
            "x = a * 2 | Twice as many is {=} {items}.",
            "now = x + k | {place} has {=} {items}.",
        ),
        part(
            "unsold", "t 60-400, a 20-300",
            """[{place} <prepares/prepared> {t} {items}, of which {a} [<do/did> not pass the test|<are/were>
            reserved|<are/were> spoiled]. The others <go/went> on sale|Out of {t} {items} at {place}, {a} <are/were>
            [already taken|unusable], and the rest <are/were> free].""",
            "now = t - a | There are {=} {items}.",
        ),
        part(
            "two_trucks", "n 2-9, m 3-40, k 5-90",
            "A first truck <brings/brought> {k} {items} to {place}, a second one {n} {boxes} [with|of] {m} {items}.",
            "x = n * m | The second truck brings {=} {items}.",
            "now = x + k | Together that is {=} {items}.",
        ),
    ),
    (
        part(
            "returned", "k 5-99",
            """@when [{k} {items} <come/came> back from [repair|customers|{place2}]|the staff <finds/found> {k} {items}
            in [a back room|the basement]|{place2} <lends/lent> out {k} {items} to {place}].""",
            "now = have + k | With those there are {=} {items}.",
        ),
        part(
            "ruined", "k 5-99",
            """@when [a [leak|fire|fall] <ruins/ruined> {k} {items}|{k} {items} <are/were> [sent to
            {place2}|recalled|used up by the staff]|the owner <puts/put> {k} {items} aside for {friend}].""",
            "now = have - k | That leaves {=} {items}.",
        ),
        part(
            "sales_days", "n 2-9, m 2-30",
            """[On each of the next {n} days {m} {items} <are/were> sold|For {n} days, {place} <loses/lost> {m} {items}
            a day|{m} {items} <go/went> out in every one of {n} weeks].""",
            "x = n * m | In that time it is {=} {items}.",
            "now = have - x | That leaves {=} {items}.",
        ),
        part(
            "supply_days", "n 2-9, m 2-30",
            """[Over {n} [days|weeks], {m} {items} [<are/were> added|<come/came> in] each time|{n} suppliers
            <deliver/delivered> {m} {items} each].""",
            "x = n * m | The new ones are {=} {items}.",
            "now = have + x | After that there are {=} {items}.",
        ),
        part(
            "two_buyers", "a 3-60, b 3-60",
            """@when [{name} <orders/ordered> {a} {items} and {friend} {b}|{a} {items} <are/were> sold before lunch and
            {b} after it|a school <buys/bought> {a} {items} and a club {b}].""",
            "x = a + b | Together that is {=} {items}.",
            "now = have - x | That leaves {=} {items}.",
        ),
        part("double", "", "@when the stock of {items} <doubles/doubled>.", "now = have * 2 | That makes {=} {items}."),
        part(
            "idle_others", "d 5-99",
            "[There <are/were> also {d} {others} nearby.|{d} {others} <hang/hung> on the wall.]",
        ),
        part("idle_staff", "d 3-60", "[{d} people <work/worked> there.|The building <is/was> {d} years old.]"),
    ),
    (
        part(
            "if_more", "k 5-99",
            "How many {items} will {place} have if {k} more [arrive|are ordered]?",
            "now = have + k | Then there are {=} {items}.",
        ),
        part(
            "if_fewer", "k 5-99",
            "If [someone|{name}] [buys|takes] {k} of the {items}, how many will be left?",
            "now = have - k | Then there are {=} {items}.",
        ),
        part(
            "shelves_of", "m 2-9",
            """One shelf <holds/held> {m} {items}. [How many shelves <does/did> {place} need for them?|How many shelves
            do the {items} fill?]""",
            "now = have / m | They fill {=} shelves.",
        ),
        part(
            "stands_each", "d 2-9",
            """They <are/were> set out on {d} stands with equally many on each. How many {items} <does/did> one stand
            carry?""",
            "now = have / d | Each stand has {=} {items}.",
        ),
        part(
            "worth", "p 2-9",
            """Each {item} <is/was> worth [{p} dollars|${p}]. What <is/was> the value of [the stock|all {items}] in
            dollars?""",
            "now = have * p | The value is {=} dollars.",
        ),
        part(
            "other_stock", "k 5-99",
            "{place2} <has/had> {k} {items} more than {place}. What <is/was> the number of {items} at {place2}?",
            "now = have + k | There are {=} {items} at {place2}.",
        ),
        part(
            "times_stock", "n 2-9",
            "{place2} <has/had> {n} times that number of {items}. How many <is/was> that?",
            "now = have * n | There are {=} {items} at {place2}.",
        ),
        part(
            "both_stocks", "n 2-5",
            "{place2} <has/had> {n} times as many {items} as {place}. How many {items} <do/did> the two places have?",
            "x = have * n | At {place2} there are {=} {items}.",
            "now = have + x | Together there are {=} {items}.",
        ),
        part(
            "short", "g 100-900",
            "A customer <asks/asked> for {g} {items}. How many {items} <is/was> {place} short?",
            "now = g - have | It is short of {=} {items}.",
        ),
    ),
)  # fmt: skip
