"""Settings about money and about progress: a purse, a bill, an activity measured in pages, miles or minutes, people."""

from outrider.evaluation.arithmetic.composition import Setting, part

# --- a purse ------------------------------------------------------------------------------------------------

PURSE = Setting(
    "purse",
    (
        part(
            "has", "now 30-600",
            """[{name} [<has/had>|<saves/saved>|<gets/got>|<starts/started> with] [{now} dollars|${now}]|There
            <are/were> {now} dollars in {name}'s [purse|bank account|piggy bank|pocket|wallet]|{name} <goes/went> to
            {place} with [{now} dollars|${now}]].""",
        ),
        part(
            "wage", "n 2-9, p 8-70",
            """[{name} <works/worked> [for|] {n} hours[| at {place}| on {day2}] and <earns/earned> [{p} dollars|${p}]
            [per hour|an hour|every hour|for each hour]|{name} <earns/earned> [{p} dollars|${p}] [a day|per day|every
            day] [by {job}|at {place}] and {name} <works/worked> {n} days|{place} <pays/paid> {name} [{p}
            dollars|${p}] [a day for {n} days|a week for {n} weeks]].""",
            "now = n * p | {name} earns {=} dollars.",
        ),
        part(
            "sales", "n 3-60, p 2-9",
            """{name} <sells/sold> {n} {items}[| at {place}| on {day2}] for [{p} dollars|${p}] [each|apiece].""",
            "now = n * p | {name} earns {=} dollars.",
        ),
        part(
            "savings", "n 2-9, p 5-70",
            """{name} [<saves/saved>|<puts/put> aside|<keeps/kept>] [{p} dollars|${p}] [every|each|a|per] [week for {n}
            weeks|month for {n} months|day for {n} days].""",
            "now = n * p | {name} saves {=} dollars.",
        ),
        part(
            "gifts", "a 10-300, b 10-300",
            """{name} <gets/got> [{a} dollars|${a}] from {his} @relative and [{b} dollars|${b}] from [{friend}|a
            neighbor].""",
            "now = a + b | Together that is {=} dollars.",
        ),
    ),
    (
        part(
            "spend", "k 5-99",
            """@then @who [[<spends/spent>|<pays/paid>] [{k} dollars|${k}] [on|for] [{a_item}|food|a ticket|lunch|a
            gift|some {items}|a book|the bus]|<buys/bought> [{a_item}|some {items}|a gift] for [{k}
            dollars|${k}]|<gives/gave> [{k} dollars|${k}] to @receiver|<loses/lost> [{k} dollars|${k}]].""",
            "now = have - k | That leaves {=} dollars.",
        ),
        part(
            "receive", "k 5-99",
            """@then [@who [<gets/got>|<earns/earned>|<finds/found>|<wins/won>|<receives/received>] [another {k}
            dollars|{k} more dollars|${k} more|${k}]|[{friend}|{his} @relative] <gives/gave> {him} [{k}
            dollars|${k}|{k} more dollars]].""",
            "now = have + k | After that there are {=} dollars.",
        ),
        part(
            "buy", "n 2-9, p 3-40",
            """@then @who [<buys/bought>|<pays/paid> for|<orders/ordered>] {n} {items}[| at {place}] [for [{p}
            dollars|${p}] each|at [{p} dollars|${p}] each|that cost [{p} dollars|${p}] each|. Each {item} <costs/cost>
            [{p} dollars|${p}]].""",
            "x = n * p | The {items} cost {=} dollars.",
            "now = have - x | That leaves {=} dollars.",
        ),
        part(
            "half", "",
            "@then {name} [<spends/spent>|<loses/lost>] half of [it|the money].",
            "now = have / 2 | That leaves {=} dollars.",
        ),
    ),
    (
        part(
            "now", "",
            "How [much money|many dollars] <does/did> {name} have [now|left|in the end|at the end|@all|after that]?",
        ),
        part(
            "share", "d 2-9",
            """@then {name} <shares/shared> the money @equally among {d} {kins}. How [much money|many dollars]
            <does/did> each {kin} [get|receive]?""",
            "now = have / d | Each {kin} gets {=} dollars.",
        ),
        part(
            "goal", "g 100-900",
            """[@who [<wants/wanted>|<needs/needed>] to buy {a_item} [for|that costs] [{g} dollars|${g}]|{a_item}
            <costs/cost> [{g} dollars|${g}]]. [How [much more money|many more dollars] <does/did> @who need?|How many
            dollars <is/was> @who still missing?]""",
            "now = g - have | {name} needs {=} more dollars.",
        ),
        part(
            "afford", "p 2-9",
            """[One {item} <costs/cost>|The price of one {item} <is/was>] [{p} dollars|${p}]. How many {items} can @who
            buy [with the money|now]?""",
            "now = have / p | {name} can buy {=} {items}.",
        ),
        part(
            "other", "k 5-99",
            """{third} <has/had> [{k} dollars|${k}] more than {name}. How [much money|many dollars] <does/did> {third}
            have?""",
            "now = have + k | {third} has {=} dollars.",
        ),
    ),
)  # fmt: skip

# --- a bill -------------------------------------------------------------------------------------------------

BILL = Setting(
    "bill",
    (
        part(
            "buy", "n 2-9, p 3-60",
            """{name} [<buys/bought>|<orders/ordered>|<takes/took>|<needs/needed>] {n} {items}[| at {place}| on {day2}]
            [for [{p} dollars|${p}] each|at [{p} dollars|${p}] each|that cost [{p} dollars|${p}] each|. Each {item}
            <costs/cost> [{p} dollars|${p}]|. The price of one {item} <is/was> [{p} dollars|${p}]].""",
            "now = n * p | The {items} cost {=} dollars.",
        ),
        part(
            "two", "a 5-300, b 5-300",
            """[{name} <buys/bought> {a_item} for [{a} dollars|${a}] and {a_other} for [{b} dollars|${b}]|At {place},
            {a_item} <costs/cost> [{a} dollars|${a}] and {a_other} <costs/cost> [{b} dollars|${b}]. {name}
            <buys/bought> both].""",
            "now = a + b | Together they cost {=} dollars.",
        ),
        part(
            "rent", "n 2-9, p 5-90",
            """{name} <rents/rented> [a bike|a boat|a room|a tent|a car|a hall] [from {place}|] [for {n} days and
            <pays/paid> [{p} dollars|${p}] [a|per|for every|for each] day|for {n} hours and <pays/paid> [{p}
            dollars|${p}] [an|per|for every|for each] hour|for {n} weeks and <pays/paid> [{p} dollars|${p}] [a|per|for
            every|for each] week].""",
            "now = n * p | The rent is {=} dollars.",
        ),
    ),
    (
        part(
            "discount", "k 5-60",
            """[@who [<has/had> a coupon [for|worth]|<gets/got> a discount of] [{k} dollars|${k}]|The
            [seller|shop|clerk] <takes/took> [{k} dollars|${k}] off[| the total| the price]|Today the total is [{k}
            dollars|${k}] lower].""",
            "now = have - k | That leaves {=} dollars to pay.",
        ),
        part(
            "fee", "k 5-60",
            """[[The delivery|Shipping|A ticket|The tax|Parking|Insurance|Gift wrap] <costs/cost> [{k} dollars|${k}][|
            more| extra]|@who <adds/added> {a_other2} for [{k} dollars|${k}]|@who also <pays/paid> [{k} dollars|${k}]
            for [delivery|parking|a bag|lunch|cleaning]].""",
            "now = have + k | With that it is {=} dollars.",
        ),
        part(
            "buy_others", "n 2-9, p 3-40",
            """@who also [<buys/bought>|<takes/took>|<orders/ordered>] {n} {others} [for|at] [{p} dollars|${p}]
            [each|apiece].""",
            "x = n * p | The {others} cost {=} dollars.",
            "now = have + x | With that it is {=} dollars.",
        ),
    ),
    (
        part(
            "total", "",
            """[How [much money|much|many dollars] <does/did> @who [pay|spend][| @all]?|What <is/was> the total
            [cost|price]?|How many dollars <is/was> that @all?]""",
        ),
        part(
            "split", "d 2-9",
            """{d} {kins} [<share/shared>|<split/split>] the [cost|bill|price] @equally. How [much|many dollars]
            <does/did> each {kin} pay?""",
            "now = have / d | Each {kin} pays {=} dollars.",
        ),
        part(
            "change", "g 100-900",
            """[@who <pays/paid> with [{g} dollars|${g}]. How [much change|many dollars] <does/did> @who get back?|@who
            <has/had> [{g} dollars|${g}]. How [much money|many dollars] <does/did> @who have left?]""",
            "now = g - have | That leaves {=} dollars.",
        ),
    ),
)  # fmt: skip

# --- an activity --------------------------------------------------------------------------------------------

ACTIVITY = Setting(
    "activity",
    (
        part(
            "rate", "n 2-9, m 3-80",
            """{name} {does} {m} {units} [[a|per|every|each] day for {n} days|[an|per|every|each] hour for {n}
            hours|[every|each] morning for {n} mornings].""",
            "now = n * m | That makes {=} {units}.",
        ),
        part(
            "two_days", "a 5-300, b 5-300",
            """[On {day}|In the morning|In the first week|Yesterday], {name} {does} {a} {units}. [On {day2}|In the
            evening|In the second week|Today], {he} {does} {b} [more|] {units}.""",
            "now = a + b | Together that is {=} {units}.",
        ),
        part(
            "more", "a 10-300, k 5-99",
            """{friend} {does} {a} {units}[| on {day}| at {place}]. {name} {does} {k} more {units} than {friend}.""",
            "now = a + k | For {name} it is {=} {units}.",
        ),
        part(
            "fewer", "a 20-300, k 5-99",
            """{friend} {does} {a} {units}[| on {day}| at {place}]. {name} {does} {k} fewer {units} than {friend}.""",
            "now = a - k | For {name} it is {=} {units}.",
        ),
        part(
            "times", "a 5-90, n 2-9",
            """{friend} {does} {a} {units}[| on {day}| at {place}]. {name} {does} {n} times as many[| {units}][| as
            {friend}].""",
            "now = a * n | For {name} it is {=} {units}.",
        ),
        part("once", "now 20-300", "[On {day}, {name}|Last week {name}|Today {name}|{name}] {does} {now} {units}."),
    ),
    (
        part(
            "further", "k 5-99",
            "@then @who {does} [{k} more {units}|another {k} {units}].",
            "now = have + k | After that it is {=} {units}.",
        ),
        part(
            "further_rate", "n 2-9, m 3-40",
            """@then @who {does} [{m} {units} a day for {n} [more|] days|{m} {units} in each of {n}
            [hours|mornings|lessons]].""",
            "x = n * m | That makes {=} {units}.",
            "now = have + x | After that it is {=} {units}.",
        ),
    ),
    (
        part("total", "", "[How many {units} is that @all?|How many {units} <does/did> {name} {do} @all?]"),
        part(
            "left", "g 100-900",
            """[@who <wants/wanted> to {do} {g} {units}|{name}'s [plan|goal] <is/was> {g} {units}|The [goal|task|whole
            thing] <has/had> {g} {units}]. How many {units} <are/were> [left|still missing]?""",
            "now = g - have | {=} {units} are left.",
        ),
        part(
            "per_day", "d 2-9",
            """[It <takes/took> {d} days @all. How many {units} is that [per|each|a] day?|This <happens/happened> in
            {d} equal parts. How many {units} is that in each part?]""",
            "now = have / d | In each there are {=} {units}.",
        ),
        part(
            "both", "k 5-99",
            "{third} {does} {k} {units} more than {name}. How many {units} <do/did> [they|the two] {do} @all?",
            "x = have + k | For {third} it is {=} {units}.",
            "now = have + x | Together that is {=} {units}.",
        ),
    ),
)  # fmt: skip

# --- people on the way --------------------------------------------------------------------------------------

PEOPLE = Setting(
    "people",
    (
        part(
            "has", "now 20-300",
            """[There <are/were> {now} {riders} [on|in] a
            [bus|train|boat|ferry|plane|hall|stadium|theater|museum|ship]|{now} {riders} <come/came> to [{place}|a
            party|a concert|a game|a fair]|A [school|club|team|choir|village] <has/had> {now} {riders}].""",
        ),
        part(
            "two", "a 10-300, b 10-300",
            """[There <are/were>|A [school|club|village|camp] <has/had>] {a} [girls|women|children|players|teachers]
            and {b} [boys|men|adults|guests|drivers], all of them {riders}.""",
            "now = a + b | Together there are {=} {riders}.",
        ),
        part(
            "rows", "n 2-9, m 4-60",
            """[{n} [buses|boats|classes|teams|groups|trains] with {m} {riders} each <come/came> to [{place}|a fair|a
            concert]|{riders} <sit/sat> in {n} rows of {m}].""",
            "now = n * m | Together there are {=} {riders}.",
        ),
    ),
    (
        part(
            "gain", "k 5-99",
            """@then {k} [[more|other|new] {riders}|more of them] [<get/got> on|<come/came>
            in|<arrive/arrived>|<join/joined>].""",
            "now = have + k | After that there are {=} {riders}.",
        ),
        part(
            "lose", "k 5-99",
            """@then {k} [of them|{riders}|of the {riders}] [<get/got> off|<leave/left>|<go/went> home|<go/went>
            away].""",
            "now = have - k | That leaves {=} {riders}.",
        ),
        part(
            "gain_groups", "n 2-9, m 4-40",
            """@then {n} [more|] [groups|families|buses|classes|teams] [of|with] {m} {riders} [each|]
            <arrive/arrived>.""",
            "x = n * m | These are {=} {riders}.",
            "now = have + x | After that there are {=} {riders}.",
        ),
    ),
    (
        part("now", "", "How many {riders} [<are/were> there|is that] [now|in the end|@all|then]?"),
        part(
            "groups", "d 2-9",
            """[The {riders} <form/formed> {d} equal [teams|groups|lines|rows]|The {riders} <sit/sat> @equally at {d}
            [tables|desks|benches]]. How many {riders} is that [in|at] each?""",
            "now = have / d | In each there are {=} {riders}.",
        ),
        part(
            "vehicles", "m 2-9",
            """[Each [car|tent|table|room|boat|cabin] [holds|takes|has room for] {m} {riders}]. How many [are needed|do
            they need] for [all|everyone]?""",
            "now = have / m | They need {=}.",
        ),
        part(
            "tickets", "p 2-9",
            """Each of the {riders} <pays/paid> [{p} dollars|${p}]. How [much money|many dollars] is that @all?""",
            "now = have * p | That makes {=} dollars.",
        ),
        part(
            "apiece", "n 2-9",
            "Each of the {riders} <gets/got> {n} {items}. How many {items} <are/were> [needed|given out] @all?",
            "now = have * n | That makes {=} {items}.",
        ),
    ),
)  # fmt: skip
