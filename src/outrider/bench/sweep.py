"""Every load, every arm, in turn: A B C, C B A, A B C, ... so that a machine that slows down slows all arms down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.bench.arms import Arm
from outrider.bench.window import Load, Window

RunWindow = Callable[[Arm, Load], Window]


@dataclass(frozen=True)
class Cell:
    """All windows of a load: by arm, in the order of rounds. Round i of one arm ran beside round i of the others."""

    load: Load
    windows: dict[str, list[Window]]


def sweep(
    arms: Sequence[Arm],
    loads: Sequence[Load],
    rounds: int,
    run: RunWindow,
    progress: Callable[[int, int], None] | None = None,
) -> list[Cell]:
    """One cell a load. The first window of each arm at each load warms up and is not kept."""
    total, done = len(loads) * len(arms) * (rounds + 1), 0
    cells = []
    for load in loads:
        windows: dict[str, list[Window]] = {arm.name: [] for arm in arms}
        for number in range(rounds + 1):
            for arm in arms if number % 2 else list(arms)[::-1]:
                window = run(arm, load)
                if number > 0:
                    windows[arm.name].append(window)
                done += 1
                if progress is not None:
                    progress(done, total)
        cells.append(Cell(load, windows))
    return cells
