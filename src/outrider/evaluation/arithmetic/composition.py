"""Stories composed of interchangeable parts: a beginning, moves, an end.

Each part is a sentence with many surfaces and at most two worked steps. A *setting* lists the parts that go together
(a person and things, a place, an animal herd, a purse, a bill, an activity); every sequence of parts with one to three
steps is a template of its own. One composition in `HELD_OUT_EVERY`, chosen by a checksum of its name, is held out.

In a part, `have` is the quantity before it and `now` the quantity after it; other names are numbers of the part.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from outrider.evaluation.arithmetic.template import Template, build

HELD_OUT_EVERY = 6
FURTHER_ONE_IN = 6  # of the many further compositions of single steps, so that a process starts in seconds
IDLE_ONE_IN = 8  # of those with an idle fact, so that most stories have none
MOST_STEPS = 3
MOST_MOVES = 3
_SLOT = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Part:
    """`numbers` as in `template.build`; `says` is a pattern; `steps` are (formula, pattern with `{=}`)."""

    name: str
    numbers: tuple[str, ...]
    says: str
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Setting:
    name: str
    beginnings: tuple[Part, ...]
    moves: tuple[Part, ...]
    ends: tuple[Part, ...]


_SHORTHANDS = {
    "@then ": (
        "[|[Then|Later|After that|The next day|On {day}|In the afternoon|In the evening|A week later|Soon after"
        "|The day after|Before dinner|After lunch|At noon|That week|Next|At the weekend|A few days later"
        "|In the morning|A month later|On the way home|Today|By the evening], ]"
    ),
    "@when ": (
        "[|[Then|Afterwards|Some days later|That evening|On {day} morning|Meanwhile|One night|The following week"
        "|Later on|In the meantime|During {day}|At last|Before long|After a while|At ten|Around noon|Suddenly], ]"
    ),
    "@who": "[{name}|{he}]",
    "@equally": "[equally|evenly|in equal parts]",
    "@how_many_now": (
        "[How many {items} <are/were> there [now|in the end|at the end|after that|@all]?|How many {items} is that"
        " [now|@all]?|What is the number of {items} [now|in the end]?]"
    ),
    "@all": "[in all|in total|altogether|together]",
    "@giver": "[{friend}|{his} @relative|a neighbor|someone at {place}]",
    "@receiver": "[{friend}|{his} @relative|a neighbor|a child|someone at {place}]",
    "@relative": (
        "[aunt|uncle|mother|father|sister|brother|grandmother|grandfather|teacher|boss|roommate|best friend|coach]"
    ),
}


def part(name: str, numbers: str, says: str, *steps: str) -> Part:
    """A part; `numbers` are separated by commas, a step is `formula | pattern`; line breaks count as blanks."""
    names = tuple(n.strip() for n in numbers.split(",")) if numbers else ()
    says = " ".join(says.split()).replace(" |", "|").replace(" ]", "]")
    for short, pattern in _SHORTHANDS.items():
        says = says.replace(short, pattern)
    worked = (step.partition(" | ") for step in steps)
    return Part(name, names, says, tuple((formula, pattern) for formula, _, pattern in worked))


def compositions(setting: Setting, held_out: bool) -> Iterator[Template]:
    """The templates of a setting that are held out, or those that are not."""
    for parts in _sequences(setting):
        if _is_held_out(setting, parts) == held_out:
            yield _join(_name(setting, parts), parts)


def further_compositions(setting: Setting, further: Setting) -> Iterator[Template]:
    """Training templates of the parts of both settings, with at least one further part and at most one idle fact.

    Of those with three single steps one in `FURTHER_ONE_IN` is taken, of those with an idle fact one in `IDLE_ONE_IN`.

    An idle fact is no change of the story: what is held out stays so with an idle fact in it.
    """
    known = {*setting.beginnings, *setting.moves, *setting.ends}
    both = Setting(
        setting.name,
        setting.beginnings + further.beginnings,
        setting.moves + further.moves,
        setting.ends + further.ends,
    )
    for parts in _sequences(both):
        if known.issuperset(parts):
            continue
        active = tuple(p for p in parts if p.steps or p not in further.moves)
        if len(parts) - len(active) > 1 or (known.issuperset(active) and _is_held_out(setting, active)):
            continue
        name = _name(setting, parts)
        one_in = FURTHER_ONE_IN if sum(len(p.steps) == 1 for p in parts) == MOST_STEPS else 1
        one_in *= IDLE_ONE_IN if len(active) < len(parts) else 1
        if zlib.crc32(name.encode()) % one_in == 0:
            yield _join(name, parts)


def _sequences(setting: Setting) -> Iterator[tuple[Part, ...]]:
    moves = [
        (several, steps)
        for count in range(MOST_MOVES + 1)
        for several in product(setting.moves, repeat=count)
        if (steps := sum(len(p.steps) for p in several)) <= MOST_STEPS
    ]
    for beginning, end in product(setting.beginnings, setting.ends):
        others = len(beginning.steps) + len(end.steps)
        for several, steps in moves:
            if 1 <= others + steps <= MOST_STEPS:
                yield (beginning, *several, end)


def _name(setting: Setting, parts: tuple[Part, ...]) -> str:
    return f"{setting.name}: " + " ".join(p.name for p in parts)


def _is_held_out(setting: Setting, parts: tuple[Part, ...]) -> bool:
    return zlib.crc32(_name(setting, parts).encode()) % HELD_OUT_EVERY == 0


def _join(name: str, parts: tuple[Part, ...]) -> Template:
    numbers: list[str] = []
    question: list[str] = []
    steps: list[tuple[str, str]] = []
    have = "nothing"
    for index, p in enumerate(parts):
        own = {text.split()[0]: f"{text.split()[0]}{index}" for text in (*p.numbers, *(f for f, _ in p.steps))}
        names = own | {"have": have}
        numbers += [_rename_words(number, names) for number in p.numbers]
        question.append(_rename_slots(p.says, names))
        for formula, pattern in p.steps:
            steps.append((_rename_words(formula, names), _rename_slots(pattern, names).replace("{=}", "{equation}")))
        have = own.get("now", have)
    return build(name, numbers, question, steps)


def _rename_words(text: str, names: dict[str, str]) -> str:
    return " ".join(names.get(word, word) for word in text.split())


def _rename_slots(pattern: str, names: dict[str, str]) -> str:
    return _SLOT.sub(lambda found: "{" + names.get(found[1], found[1]) + "}", pattern)
