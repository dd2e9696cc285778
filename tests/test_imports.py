"""The arrows of the design: which room may import which, no cycles, and files that can be read in one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = ("*",)

# Room -> what it may import besides itself. A dotted entry allows that module alone.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "outrider": ("engine", "sampling"),  # the package's own __init__ hands out LLM and SamplingParams
    "__main__": ("cli",),
    "cli": EVERYTHING,
    "server": ("engine", "text", "sampling", "config"),
    "bench": ("engine", "text", "sampling", "config"),
    "evaluation": ("bench", "engine", "text", "sampling", "config"),  # the arms, and what repeats in a text
    "engine": (
        "speculative",
        "sampling",
        "text",
        "model",
        "cache",
        "checkpoint",
        "parallel",
        "ops",
        "platforms",
        "config",
    ),
    "speculative": ("sampling", "model", "cache", "ops", "config"),
    "sampling": ("ops", "config"),
    "text": ("config",),
    "model": ("ops", "cache", "parallel", "config"),
    "cache": ("ops", "config"),
    "checkpoint": ("config", "ops.formats"),
    "ops": ("platforms",),
    "parallel": ("platforms",),
    "platforms": (),
    "config": (),
    "assets": ("config",),
}

MAX_LINES = 449
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}


def module_name(path: Path, source_root: Path) -> str:
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_modules(source_root: Path) -> dict[str, str]:
    """Module name -> source text of every module under `source_root`."""
    return {module_name(p, source_root): p.read_text(encoding="utf-8") for p in sorted(source_root.rglob("*.py"))}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imported_modules(source: str, known: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """(module, line) of every import of outrider anywhere in a file: functions and TYPE_CHECKING blocks count too.

    `from outrider import ops` imports the module outrider.ops; a relative import comes out as "." and its level.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "outrider":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level, node.lineno
            elif node.module is not None and node.module.split(".")[0] == "outrider":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    # a name that is no module on disk is still a room when it is taken from the package itself
                    is_module = inner in known or (node.module == "outrider" and alias.name in MAY_IMPORT)
                    yield (inner if is_module else node.module), node.lineno


def allowed(importer: str, imported: str) -> bool:
    room, target = room_of(importer), room_of(imported)
    rules = MAY_IMPORT[room]
    if target in (room, "outrider") or rules == EVERYTHING:
        return True
    inside = imported.removeprefix("outrider.")
    return any(target == rule or inside == rule or inside.startswith(rule + ".") for rule in rules)


def import_problems(modules: Mapping[str, str]) -> list[str]:
    """Every arrow that the table does not have, every room it does not know, every relative import, every cycle."""
    problems = []
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in modules.items():
        if room_of(name) not in MAY_IMPORT:
            problems.append(f"{name}: room {room_of(name)!r} is not in the table")
            continue
        for imported, line in imported_modules(source, modules):
            if imported.startswith("."):
                problems.append(f"{name}:{line}: relative import")
            elif room_of(imported) not in MAY_IMPORT or not allowed(name, imported):
                problems.append(f"{name}:{line}: may not import {imported}")
            if imported in modules:
                graph[name].add(imported)
    problems += [f"import cycle: {' -> '.join(cycle)}" for cycle in cycles(graph)]
    return problems


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """One cycle for each back edge of a depth-first search; empty exactly when the graph has none."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> None:
        if node in path:
            found.append([*path[path.index(node) :], node])
        elif node not in done:
            for target in sorted(graph[node]):
                visit(target, [*path, node])
            done.add(node)

    for node in sorted(graph):
        visit(node, [])
    return found


def test_imports_follow_the_design() -> None:
    modules = read_modules(ROOT / "src")
    assert len(modules) > 30
    assert import_problems(modules) == []


def test_the_checker_sees_the_imports_that_exist() -> None:
    modules = read_modules(ROOT / "src")
    seen = {imported for imported, _ in imported_modules(modules["outrider.model.attention"], modules)}
    assert {"outrider.ops", "outrider.config", "outrider.cache.paged_cache", "outrider.model.compressor"} <= seen


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("outrider.ops.bad", "from outrider.model.attention import Attention", "may not import outrider.model"),
        ("outrider.ops.bad", "import outrider.config", "may not import outrider.config"),
        ("outrider.model.bad", "from outrider import engine", "may not import outrider.engine"),
        ("outrider.model.bad", "from outrider import ops, sampling as s", "may not import outrider.sampling"),
        (
            "outrider.cache.bad",
            "def f():\n    import outrider.model.plan as p",
            ":2: may not import outrider.model.plan",
        ),
        ("outrider.text.bad", "if TYPE_CHECKING:\n    from outrider.cli import main", "may not import outrider.cli"),
        ("outrider.checkpoint.bad", "from outrider.ops import Linear", "may not import outrider.ops"),
        ("outrider.checkpoint.bad", "from outrider.ops.reference.linear import Linear", "may not import outrider.ops"),
        ("outrider.evaluation.bad", "from outrider.model.mtp import X", "may not import outrider.model.mtp"),
        ("outrider.speculative.bad", "from outrider.engine.engine import Engine", "may not import outrider.engine"),
        ("outrider.engine.bad", "from outrider.nowhere import x", "may not import outrider.nowhere"),
        ("outrider.engine.bad", "from . import request", "relative import"),
        ("outrider.stray", "x = 1", "room 'stray' is not in the table"),
    ],
)
def test_the_checker_refuses_a_bad_import(module: str, source: str, complaint: str) -> None:
    problems = import_problems({module: source})
    assert len(problems) == 1
    assert problems[0].startswith(module)
    assert complaint in problems[0]


def test_the_checker_accepts_what_the_table_allows() -> None:
    modules = {
        "outrider.checkpoint.good": "from outrider.ops.formats import encode_e4m3\nfrom outrider.config import X",
        "outrider.cli.good": "from outrider.engine.engine import Engine\nimport outrider.ops.reference.linear",
        "outrider.model.good": "from outrider import __version__, ops\nfrom outrider.cache.pages import PagePool",
        "outrider.ops.formats": "import torch",
    }
    assert import_problems(modules) == []


def test_the_checker_finds_a_cycle() -> None:
    modules = {
        "outrider.cache.a": "from outrider.cache.b import x",
        "outrider.cache.b": "def f():\n    from outrider.cache import c",
        "outrider.cache.c": "import outrider.cache.a",
        "outrider.cache.d": "import outrider.cache.a",
    }
    assert import_problems(modules) == [
        "import cycle: outrider.cache.a -> outrider.cache.b -> outrider.cache.c -> outrider.cache.a"
    ]


def python_files() -> list[Path]:
    folders = ("src", "tests", "training", "benchmarks")
    return [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


def test_files_can_be_read_in_one_sitting() -> None:
    lengths = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in python_files()}
    assert len(lengths) > 50
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [p.relative_to(ROOT).as_posix() for p in python_files() if p.name in VAGUE_NAMES] == []
