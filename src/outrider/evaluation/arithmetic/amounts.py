"""Settings of their own for training: an amount that is measured, and the points of a game.

They show the plans of the other settings apart from things that can be counted out.
"""

from outrider.evaluation.arithmetic.composition import Setting, part

AMOUNT = Setting(
    "amount",
    (
        part(
            "has", "now 30-400",
            """[There <are/were> {now} {measure} of {stuff} in {vessel}|{vessel} <holds/held> {now} {measure} of
            {stuff}].""",
        ),
        part(
            "two", "a 10-300, b 10-300",
            """[{a} {measure} and {b} {measure} of {stuff} <are/were> put into {vessel}|{name} <pours/poured> {a}
            {measure} of {stuff} into {vessel}, and {friend} <pours/poured> in {b}].""",
            "now = a + b | Together that is {=} {measure}.",
        ),
        part(
            "loads", "n 2-9, m 5-80",
            "{name} <fills/filled> {vessel} with {n} loads of {stuff}, {m} {measure} [each|a load].",
            "now = n * m | The loads are {=} {measure}.",
        ),
        part(
            "rate", "n 2-9, m 5-60",
            """[Every hour|Each hour], {m} {measure} of {stuff} <flow/flowed> into {vessel}, which <is/was> empty at
            first. This <lasts/lasted> {n} hours.""",
            "now = n * m | In {n} hours it is {=} {measure}.",
        ),
        part(
            "not_full", "t 60-400, a 10-200",
            "{vessel} <has/had> room for {t} {measure} of {stuff}, but {a} {measure} <are/were> missing.",
            "now = t - a | There are {=} {measure}.",
        ),
    ),
    (
        part(
            "leak", "k 5-99",
            """@when [{k} {measure} <leak/leaked> out|{k} {measure} <are/were> [used|sold|spilled|taken out]|{name}
            <uses/used> {k} {measure} of it].""",
            "now = have - k | That leaves {=} {measure}.",
        ),
        part(
            "refill", "k 5-99",
            "@when [{name} <adds/added> {k} {measure}|{k} [more|] {measure} <are/were> [added|poured in|delivered]].",
            "now = have + k | After that there are {=} {measure}.",
        ),
        part(
            "drain", "n 2-9, m 2-30",
            "[For {n} hours, {m} {measure} an hour <run/ran> out|{m} {measure} <are/were> used on each of {n} days].",
            "x = n * m | In that time it is {=} {measure}.",
            "now = have - x | That leaves {=} {measure}.",
        ),
        part(
            "half", "",
            "@when half of the {stuff} <is/was> [used up|sold|lost].",
            "now = have / 2 | That leaves {=} {measure}.",
        ),
        part("idle_price", "d 2-90", "[One of the pumps <is/was> {d} years old.|{friend} <waits/waited> {d} minutes.]"),
    ),
    (
        part(
            "now", "",
            """How [much {stuff} is that, in {measure}|many {measure} of {stuff} [are there|is that|are left]] [now|in
            the end|then]?""",
        ),
        part(
            "jars", "m 2-9",
            "All of it <is/was> put into {boxes} of {m} {measure}. How many {boxes} [are filled|does that take]?",
            "now = have / m | That fills {=} {boxes}.",
        ),
        part(
            "each", "d 2-9",
            "{d} {kins} <share/shared> it @equally. How many {measure} [is that for each|does each {kin} get]?",
            "now = have / d | Each {kin} gets {=} {measure}.",
        ),
        part(
            "full", "g 100-900",
            "It <is/was> full at {g} {measure}. How many {measure} are missing?",
            "now = g - have | {=} {measure} are missing.",
        ),
        part(
            "price", "p 2-9",
            """The {stuff} <costs/cost> [{p} dollars|${p}] for each of the {measure}. What is all of it worth, in
            dollars?""",
            "now = have * p | It is worth {=} dollars.",
        ),
        part(
            "other", "k 5-99",
            "A second one <contains/contained> {k} {measure} more. How many {measure} does the second one contain?",
            "now = have + k | It contains {=} {measure}.",
        ),
    ),
)  # fmt: skip

SCORE = Setting(
    "score",
    (
        part(
            "has", "now 20-300",
            """[{name} <leads/led> with {now} points|{name}'s score <is/was> {now} points|{name} <starts/started> at
            {now} points].""",
        ),
        part(
            "halves", "a 10-300, b 10-300",
            "{name} <scores/scored> {a} points in the first [half|game|round] and {b} in the second.",
            "now = a + b | Together that is {=} points.",
        ),
        part(
            "goals", "n 3-60, m 2-9",
            """[Every [goal|hit|throw] <counts/counted> {m} points, and {name} <makes/made> {n} of them|{name}
            <makes/made> {n} [goals|hits|throws] at {m} points each].""",
            "now = n * m | {name} makes {=} points.",
        ),
        part(
            "behind", "a 40-400, k 5-39",
            "{friend} <has/had> {a} points, and {name} <is/was> {k} points behind.",
            "now = a - k | {name} has {=} points.",
        ),
        part(
            "ahead", "a 20-400, k 5-39",
            "{name} <is/was> {k} points ahead of {friend}, who <has/had> {a} points.",
            "now = a + k | {name} has {=} points.",
        ),
    ),
    (
        part(
            "penalty", "k 5-99",
            "@when {name} <loses/lost> {k} points [for a mistake|as a penalty|in one round].",
            "now = have - k | That leaves {=} points.",
        ),
        part(
            "bonus", "k 5-99",
            "@when {name} <gets/got> [a bonus of {k} points|{k} extra points|{k} points more].",
            "now = have + k | After that there are {=} points.",
        ),
        part(
            "double", "",
            "@when a [lucky card|joker|star] <doubles/doubled> the score.",
            "now = have * 2 | That makes {=} points.",
        ),
        part(
            "rounds", "n 2-9, m 3-40",
            "@when {name} <wins/won> {n} rounds, each worth {m} points.",
            "x = n * m | The rounds bring {=} points.",
            "now = have + x | After that there are {=} points.",
        ),
        part(
            "fouls", "n 2-9, m 2-20",
            "@when {n} fouls <cost/cost> {name} {m} points each.",
            "x = n * m | The fouls cost {=} points.",
            "now = have - x | That leaves {=} points.",
        ),
        part("idle_players", "d 3-90", "[{d} people <watch/watched> the game.|The game <lasts/lasted> {d} minutes.]"),
    ),
    (
        part(
            "now", "",
            """[What <is/was> {name}'s [final|] score?|How many points <does/did> {name} have [now|in the end|at the
            end]?|How many points is that?]""",
        ),
        part(
            "win", "g 100-900",
            """[A win <needs/needed> {g} points|The record <is/was> {g} points]. How many points [are missing|is {name}
            away from that]?""",
            "now = g - have | {=} points are missing.",
        ),
        part(
            "level", "m 2-9",
            "Every {m} points <give/gave> [one star. How many stars|one coin. How many coins] <is/was> that?",
            "now = have / m | That gives {=}.",
        ),
        part(
            "team", "k 5-200",
            """{third} <has/had> {k} points and <plays/played> in the same team. How many points <does/did> the team
            have?""",
            "now = have + k | The team has {=} points.",
        ),
        part(
            "times", "n 2-9",
            "{third} <scores/scored> {n} times as many points as {name}. How many points <is/was> that?",
            "now = have * n | {third} has {=} points.",
        ),
        part(
            "lead", "k 5-90",
            "{third} <has/had> {k} points less than {name}. How many points <does/did> {third} have?",
            "now = have - k | {third} has {=} points.",
        ),
    ),
)  # fmt: skip
