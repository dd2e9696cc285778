"""Settings about things that are counted: someone's belongings, the stock of a place, animals."""

from outrider.evaluation.arithmetic.composition import Setting, part

# --- parts that several settings share ----------------------------------------------------------------------

_AFTER_GAIN = "now = have + k | After that there are {=} {items}."
_AFTER_LOSS = "now = have - k | That leaves {=} {items}."
# --- a person and things ------------------------------------------------------------------------------------

_PERSON_BEGINNINGS = (
    part(
        "has", "now 20-300",
        """[{name} [<has/had>|<owns/owned>|<keeps/kept>|<starts/started> with|<begins/began> with|<collects/collected>]
        {now} {items}[| in {his} [room|garage|house|drawer|cupboard|desk|hall]| in a {box}| at home]|[There
        <are/were>|{name} <counts/counted>] {now} {items} in {name}'s [room|bag|garage|cupboard|house]|[At first|In the
        beginning|This morning|On {day2}|Last week|Before the trip] {name} <has/had> {now} {items}].""",
    ),
    part(
        "packs", "n 2-9, m 4-60",
        """{name} [<has/had>|<buys/bought>|<gets/got>|<finds/found>|<packs/packed>|<fills/filled>|<owns/owned>] {n}
        {boxes}[ with {m} {items} [each|in each]| of {m} {items} each|. Each {box} [<holds/held>|<has/had>] {m}
        {items}|. There <are/were> {m} {items} in [each|every] {box}|, each with {m} {items}].""",
        "now = n * m | The {boxes} hold {=} {items}.",
    ),
    part(
        "pooled", "a 10-300, b 10-300",
        """{name} <has/had> {a} {items} and {friend} <has/had> {b}[| {items}| of them]. [They put [them|all {items}]
        [together|in one {box}|on one pile]|{friend} <gives/gave> [all|all of the] {items} to {name}|{name} <gets/got>
        all the {items} of {friend}].""",
        "now = a + b | Together there are {=} {items}.",
    ),
    part(
        "colors", "a 10-300, b 10-300",
        """{name} [<has/had>|<collects/collected>|<buys/bought>|<finds/found>|<owns/owned>|<counts/counted>] {a}
        [{color}|large|old] {items} and {b} [{color2}|small|new] [ones|{items}].""",
        "now = a + b | Together there are {=} {items}.",
    ),
    part(
        "more", "a 10-400, k 5-99",
        """{friend} <has/had> {a} {items}[. {name}| and {name}] <has/had> {k} [more[| than {friend}]|more {items} than
        {friend}].""",
        "now = a + k | {name} has {=} {items}.",
    ),
    part(
        "fewer", "a 20-400, k 5-99",
        """{friend} <has/had> {a} {items}[. {name}|, but {name}] <has/had> {k} [fewer[| than {friend}]|fewer {items}
        than {friend}|less than {friend}].""",
        "now = a - k | {name} has {=} {items}.",
    ),
    part(
        "times", "a 5-90, n 2-9",
        """{friend} <has/had> {a} {items}[. {name}| and {name}] <has/had> {n} times as many[| {items}][| as
        {friend}].""",
        "now = a * n | {name} has {=} {items}.",
    ),
    part(
        "daily", "n 3-60, m 2-9",
        """{name}
        [<makes/made>|<sells/sold>|<collects/collected>|<packs/packed>|<finds/found>|<counts/counted>|<paints/painted>|<draws/drew>]
        {n} {items} [[every day|each day|a day|every morning] for {m} days|[an hour|every hour] for {m} hours].""",
        "now = n * m | That makes {=} {items}.",
    ),
)  # fmt: skip

_PERSON_MOVES = (
    part(
        "gain", "k 5-99",
        """@then [@who
        [<buys/bought>|<gets/got>|<finds/found>|<receives/received>|<collects/collected>|<wins/won>|<picks up/picked
        up>|<borrows/borrowed>|<makes/made>|<orders/ordered>|<adds/added>|<earns/earned>] {k} [more|new|other|more of
        these] {items}[| [at|in] {place}]|@who <gets/got> {k} [more|] {items} from @giver|[{friend}|{his} @relative]
        [<gives/gave>|<brings/brought>|<sends/sent>|<hands/handed>|<lends/lent>|<buys/bought>] {him} {k} [more|new|]
        {items}|{k} more {items} <are/were> [sent to {him}|given to {him}|added|brought to {him}]].""",
        _AFTER_GAIN,
    ),
    part(
        "lose", "k 5-99",
        """@then [@who [<gives/gave>|<sells/sold>|<lends/lent>|<sends/sent>|<hands/handed>|<mails/mailed>] {k} [of
        them|{items}|of the {items}|] to @receiver|@who [<loses/lost>|<sells/sold>|<throws away/threw away>|<gives
        away/gave away>|<uses/used>|<breaks/broke>|<drops/dropped>|<donates/donated>|<trades away/traded away>|<leaves
        behind/left behind>|<returns/returned>|<hands out/handed out>] {k} [of them|{items}|of {his} {items}|of the
        {items}]|{k} [of them|of the {items}|{items}] <are/were> [lost|broken|stolen|given away|sold|thrown
        away|missing]].""",
        _AFTER_LOSS,
    ),
    part(
        "gain_packs", "n 2-9, m 4-40",
        """@then [@who
        [<buys/bought>|<gets/got>|<receives/received>|<orders/ordered>|<finds/found>|<wins/won>]|{friend}
        [<gives/gave>|<brings/brought>|<sends/sent>] {him}] {n} [more|] {boxes}[ with {m} {items} [each|in each]| of
        {m} {items} each|. Each {box} <has/had> {m} {items}| that hold {m} {items} each].""",
        "x = n * m | The {boxes} hold {=} {items}.",
        "now = have + x | After that there are {=} {items}.",
    ),
    part(
        "lose_packs", "n 2-9, m 2-30",
        """@then [@who [<gives/gave>|<sells/sold>|<sends/sent>|<hands/handed>] {m} {items} to each of {n} {kins}|{n}
        {kins} [<take/took>|<get/got>|<buy/bought>|<borrow/borrowed>] {m} {items} each|@who <gives/gave> {n} {kins} {m}
        {items} each|each of {n} {kins} <gets/got> {m} {items}].""",
        "x = n * m | The {kins} get {=} {items}.",
        "now = have - x | That leaves {=} {items}.",
    ),
    part(
        "double", "",
        """@then [the number of {items} [<doubles/doubled>|<becomes/became> twice as large]|@who <doubles/doubled>
        [{his} {items}|the number of {items}]|@who <has/had> twice as many {items} as before].""",
        "now = have * 2 | That makes {=} {items}.",
    ),
    part(
        "half", "",
        """@then @who [<gives/gave> half of the {items} to @receiver|[<sells/sold>|<loses/lost>|<uses/used>] half of
        the {items}].""",
        "now = have / 2 | That leaves {=} {items}.",
    ),
)  # fmt: skip

_SHARE = part(
    "share", "d 2-9",
    """@then [{name} [<shares/shared>|<divides/divided>|<splits/split>|<distributes/distributed>] [all|] the {items}
    @equally among {d} {kins}|{d} {kins} <share/shared> [all|] the {items} @equally]. [How many {items} <does/did> each
    [{kin}|of them|one] [get|receive]?|How many {items} is that for each {kin}?|What is each {kin}'s share?]""",
    "now = have / d | Each {kin} gets {=} {items}.",
)  # fmt: skip
_BOXES = part(
    "boxes", "m 2-9",
    """@then [{name}|{friend}] [<puts/put>|<packs/packed>|<sorts/sorted>] [all|] the {items} into {boxes2} [of
    {m}|with {m} {items} each|that hold {m} {items} each|, {m} in each]. [How many {boxes2} <are/were>
    [needed|filled|that|used]?|How many {boxes2} <does/did> that [make|take]?]""",
    "now = have / m | That makes {=} {boxes2}.",
)  # fmt: skip
_EACH_BOX = part(
    "each_box", "d 2-9",
    """@then [{name}|{friend}] [<puts/put>|<packs/packed>|<sorts/sorted>] [all|] the {items} @equally into {d}
    {boxes2}. [How many {items} <are/were> in each {box2}?|How many {items} <does/did> each {box2} [hold|have]?]""",
    "now = have / d | Each {box2} gets {=} {items}.",
)  # fmt: skip
_PRICE = part(
    "price", "p 2-9",
    """@then [{name} <sells/sold> [all|] the {items} for [{p} dollars|${p}] each|[all|] the {items} <are/were> sold for
    [{p} dollars|${p}] each]. [How many dollars <does/did> {name} get?|How much money is that?|How much <does/did>
    {name} [earn|get|make]?]""",
    "now = have * p | That makes {=} dollars.",
)  # fmt: skip

_PERSON_ENDS = (
    part(
        "now", "",
        "[How many {items} <does/did> @who have [now|left|in the end|at the end|after that|@all]?|@how_many_now]",
    ),
    _SHARE,
    _BOXES,
    _EACH_BOX,
    _PRICE,
    part(
        "other_more", "k 5-99",
        """{third} <has/had> {k} more {items} than {name}. How many {items} <does/did> {third} have?""",
        "now = have + k | {third} has {=} {items}.",
    ),
    part(
        "other_less", "k 5-99",
        """{third} <has/had> {k} fewer {items} than {name}. How many {items} <does/did> {third} have?""",
        "now = have - k | {third} has {=} {items}.",
    ),
    part(
        "both", "k 5-99",
        """{third} <has/had> {k} [more|more {items}] than {name}. How many {items} <do/did> [they|the two|{name} and
        {third}] have @all?""",
        "x = have + k | {third} has {=} {items}.",
        "now = have + x | Together there are {=} {items}.",
    ),
    part(
        "goal", "g 100-900",
        """[@who [<wants/wanted>|<needs/needed>|<would like/wanted> to have|<plans/planned> to have] {g} {items}[|
        @all]|For [a party|a project|{his} collection|{place}], {name} <needs/needed> {g} {items}]. How many [more
        {items}|{items} more] <does/did> @who need?""",
        "now = g - have | {name} needs {=} more {items}.",
    ),
)  # fmt: skip

PERSON = Setting("person", _PERSON_BEGINNINGS, _PERSON_MOVES, _PERSON_ENDS)


# --- the stock of a place -----------------------------------------------------------------------------------

_PLACE_BEGINNINGS = (
    part(
        "has", "now 20-300",
        """[There <are/were> {now} {items} [in|at] {place}|{place}
        [<has/had>|<keeps/kept>|<stores/stored>|<offers/offered>|<opens/opened> with|<starts/started> with] {now}
        {items}|[A worker|{name}] [<counts/counted>|<finds/found>] {now} {items} [in|at] {place}|[This morning|On
        {day2}|In the morning|At first] {place} <has/had> {now} {items}].""",
    ),
    part(
        "packs", "n 2-9, m 4-60",
        """[{place} [<has/had>|<buys/bought>|<gets/got>|<orders/ordered>|<stores/stored>]|There <are/were>|A truck
        <brings/brought>] {n} {boxes} [with|of] {m} {items} [each|in each][| [to|for] {place}].""",
        "now = n * m | The {boxes} hold {=} {items}.",
    ),
    part(
        "colors", "a 10-300, b 10-300",
        """[There <are/were>|{place} [<has/had>|<sells/sold>|<stores/stored>|<shows/showed>]] {a} [{color}|large|old]
        {items} and {b} [{color2}|small|new] [ones|{items}][| in {place}| in the hall].""",
        "now = a + b | Together there are {=} {items}.",
    ),
    part(
        "more", "a 10-400, k 5-99",
        """[On {day}|In {place2}|Last month|Yesterday] there <are/were> {a} {items}. [On {day2}|In {place}|This
        month|Today] there <are/were> {k} more[| {items}].""",
        "now = a + k | Then there are {=} {items}.",
    ),
    part(
        "daily", "n 3-60, m 2-9",
        """[{place} [<sells/sold>|<makes/made>|<receives/received>|<repairs/repaired>]|[A machine|A worker|A helper] in
        {place} [<makes/made>|<packs/packed>|<checks/checked>]] {n} {items} [[every day|each day|a day] for {m}
        days|[an hour|per hour] for {m} hours].""",
        "now = n * m | That makes {=} {items}.",
    ),
    part(
        "shelves", "n 2-9, m 4-60",
        """[There <are/were>|{place} <has/had>] {n} [shelves|tables|rows|racks|stands|rooms|floors|corners][| in
        {place}| in the hall] [with|that hold] {m} {items} [each|on each].""",
        "now = n * m | Together there are {=} {items}.",
    ),
)  # fmt: skip

_PLACE_MOVES = (
    part(
        "gain", "k 5-99",
        """@then [[a truck|a driver|a farmer|a van|the owner|a helper|{name}|a customer]
        [<brings/brought>|<delivers/delivered>|<adds/added>] {k} [more|new|] {items}|{place}
        [<gets/got>|<buys/bought>|<receives/received>|<orders/ordered>] {k} [more|new|other] {items}|{k}
        [more|new|other] {items} [<arrive/arrived>|<are/were> delivered|<are/were> brought in|<come/came> in|<are/were>
        added]].""",
        _AFTER_GAIN,
    ),
    part(
        "lose", "k 5-99",
        """@then [{place} [<sells/sold>|<gives away/gave away>|<sends back/sent back>|<throws away/threw away>] {k} [of
        them|{items}|of the {items}]|{k} [of them|of the {items}|{items}] <are/were> [sold|taken away|broken|given
        away|sent back|stolen|lent out|moved to {place2}|thrown away]|[people|visitors|customers|guests|children]
        [<buy/bought>|<take/took>] {k} [of them|of the {items}|{items}]].""",
        _AFTER_LOSS,
    ),
    part(
        "gain_packs", "n 2-9, m 4-40",
        """@then [{n} [more|] {boxes} with {m} {items} [each|in each] [<arrive/arrived>|<are/were> delivered]|{place}
        [<gets/got>|<buys/bought>|<orders/ordered>] {n} [more|] {boxes} of {m} {items}[| each]|[a truck|a van]
        <brings/brought> {n} {boxes} with {m} {items} each].""",
        "x = n * m | The {boxes} hold {=} {items}.",
        "now = have + x | After that there are {=} {items}.",
    ),
    part(
        "lose_packs", "n 2-9, m 2-30",
        """@then [{n} [people|customers|visitors|{kins}] [<buy/bought>|<take/took>] {m} {items} each|each of {n}
        [customers|people|visitors|{kins}] [<buys/bought>|<gets/got>|<takes/took>] {m} {items}|{n} {boxes} with {m}
        {items} each are [sold|taken away|sent back]].""",
        "x = n * m | These are {=} {items}.",
        "now = have - x | That leaves {=} {items}.",
    ),
    part(
        "half", "",
        """@then half of the {items} <are/were> [sold|taken away|moved to {place2}|given away|broken|sent back].""",
        "now = have / 2 | That leaves {=} {items}.",
    ),
)  # fmt: skip

_PLACE_ENDS = (
    part("now", "", "[How many {items} <does/did> {place} have [now|left|in the end|at the end|@all]?|@how_many_now]"),
    _SHARE,
    _BOXES,
    _EACH_BOX,
    _PRICE,
    part(
        "room_left", "g 100-900",
        """[{place}|The [room|hall|store]] <has/had> [room|space] for {g} {items}. How many more {items} <can/could> it
        hold?""",
        "now = g - have | It can hold {=} more {items}.",
    ),
)  # fmt: skip

PLACE = Setting("place", _PLACE_BEGINNINGS, _PLACE_MOVES, _PLACE_ENDS)

# --- animals and people that come and go --------------------------------------------------------------------

HERD = Setting(
    "herd",
    (
        part(
            "has", "now 20-300",
            """[There <are/were> {now} {animals}|{now} {animals} [<live/lived>|<sit/sat>|<stay/stayed>|<rest/rested>]]
            [on a [farm|field|hill|roof]|in a [park|garden|forest|barn|valley]|by a [lake|river|pond]|at {place}|near
            the house].""",
        ),
        part(
            "colors", "a 10-300, b 10-300",
            """[A farmer <has/had>|There <are/were>|{name} <counts/counted>] {a} [young|white|small|female] {animals}
            and {b} [old|black|big|male][| ones| {animals}].""",
            "now = a + b | Together there are {=} {animals}.",
        ),
        part(
            "groups", "n 2-9, m 4-60",
            """[There <are/were>|A farmer <has/had>|{name} <sees/saw>] {n} [groups|pens|fields|barns|flocks|islands]
            with {m} {animals} [each|in each].""",
            "now = n * m | Together there are {=} {animals}.",
        ),
    ),
    (
        part(
            "gain", "k 5-99",
            """@then {k} [more|other|new|young|more of the] {animals} [<come/came>|<arrive/arrived>|<join/joined>
            them|<are/were> born|<are/were> brought there|<are/were> added].""",
            "now = have + k | After that there are {=} {animals}.",
        ),
        part(
            "lose", "k 5-99",
            """@then {k} [of them|{animals}|of the {animals}] [<leave/left>|<run/ran> away|<go/went> away|<are/were>
            sold|<are/were> moved to {place}|<hide/hid>|<are/were> taken away].""",
            "now = have - k | That leaves {=} {animals}.",
        ),
        part(
            "gain_groups", "n 2-9, m 4-40",
            """@then {n} [more|] [groups of|trucks with|families of] {m} {animals} [each|]
            [<come/came>|<arrive/arrived>].""",
            "x = n * m | These are {=} {animals}.",
            "now = have + x | After that there are {=} {animals}.",
        ),
        part("half", "", "@then half of the {animals} <leave/left>.", "now = have / 2 | That leaves {=} {animals}."),
    ),
    (
        part(
            "now", "",
            """[How many {animals} <are/were> there [now|in the end|@all|then]?|How many {animals} is that
            [now|@all]?|What is the number of {animals} [now|in the end]?]""",
        ),
        part(
            "pens", "d 2-9",
            """@then the {animals} <are/were> [put|divided|moved|led] @equally into {d} {pens}. [How many {animals}
            <are/were> in each {pen}?|How many {animals} does each {pen} [hold|have]?]""",
            "now = have / d | Each {pen} gets {=} {animals}.",
        ),
        part(
            "eat", "n 2-9",
            """[Each of them|Each one|Every one of them] <needs/needed> {n} {items}. How many {items} <do/did>
            [they|the {animals}] need @all?""",
            "now = have * n | They need {=} {items}.",
        ),
    ),
)  # fmt: skip
