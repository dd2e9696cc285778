"""The commands in README.md and docs/ run as they are written.

In `make test`: every `outrider ...` there names commands and options that exist. Slow (`make test-docs`; in the order
of the pages, since some commands read what an earlier one wrote): each command of a code block, and those in the text
that are complete, are run in a folder that looks like a fresh clone. What stands for something of the reader's own
(MODEL, a port, a file of questions) is filled in. LM_EVAL and FUZZ are the environments that docs/server.md makes;
their commands run where these lie in the repository's root.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from outrider.assets import shipped_model
from outrider.cli.app import app
from outrider.evaluation.arithmetic import problems

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(r"(outrider|python|pip|make|lm_eval|(LM_EVAL|FUZZ)/\S+) ")
NOT_RUN = {
    r"pip install|python -m venv": "installs packages",
    r"make (demo|test)": "makes an environment of its own; CI and readers run it",
    r"--tasks gsm8k ": "downloads a data set",
}
COMPLETE = re.compile(r"outrider (--version|doctor.*|kernels.*|inspect MODEL|serve --help|generate (PROMPT|\".*\"))")
DEFAULT_URL = "127.0.0.1:8000"


def commands() -> list[str]:
    """One a line of the code blocks, without comments, those that a backslash cuts put together."""
    found: list[str] = []
    for page in PAGES:
        for text in re.findall(r"(?:^    .*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
            for line in text.replace("\\\n", "").splitlines():
                command = re.sub(r"\s+#.*", "", line.strip())
                if PROGRAM.match(command + " ") and command not in found:
                    found.append(command)
    return found


def mentions() -> list[str]:
    """What stands in the text as `outrider ...`."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    return sorted({found for text in texts for found in re.findall(r"`(outrider [^`]+?)`", text.replace("\n", " "))})


def test_the_pages_have_commands() -> None:
    assert len(commands()) > 20 and len(mentions()) > 10


@pytest.mark.parametrize("command", [c for c in [*commands(), *mentions()] if c.startswith("outrider ")])
def test_commands_and_options_exist(command: str) -> None:
    words = shlex.split(command.removesuffix("&"))[1:]
    if "COMMAND" in words:
        return
    for choice in words[1].split("|") if len(words) > 1 else [""]:  # bench serve|latency
        parse(typer.main.get_command(app), "outrider", [words[0], *([choice] if choice else []), *words[2:]])


def parse(command: Any, name: str, words: list[str]) -> None:
    """Fails for a command or an option that does not exist."""
    if words and not words[0].startswith("-") and hasattr(command, "commands"):
        assert words[0] in command.commands, f"no command {words[0]!r} in {name}"
        parse(command.commands[words[0]], f"{name} {words[0]}", words[1:])
        return
    known = {"--help", *(option for parameter in command.params for option in parameter.opts)}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    unknown = {word for word in words if word.startswith("-")} - known
    assert not unknown, f"{name} has no {unknown}"


def test_what_does_not_exist_is_found() -> None:
    for words in (["serve", "--no-such-option"], ["bench", "latency", "--arm"], ["bench", "fly"], ["fly"]):
        with pytest.raises(AssertionError, match="no "):
            parse(typer.main.get_command(app), "outrider", words)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone has, the programs that an installation has, and GSM8K's two files (problems of our own)."""
    folder = tmp_path_factory.mktemp("clone")
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("build", "dist"):
            (folder / entry.name).symlink_to(entry)
    programs = folder / ".programs"
    programs.mkdir()
    for name, words in (("python", ""), ("outrider", "-m outrider ")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (programs / name).chmod(0o755)
    for number, name in enumerate(("train", "test")):
        rows = [{"question": p.question, "answer": p.answer} for p in problems(seed=number, count=12, split="train")]
        (folder / f"gsm8k_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def environment(clone: Path) -> dict[str, str]:
    path = f"{clone / '.programs'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": f"{clone / 'src'}{os.pathsep}{clone}", "OPENAI_API_KEY": "none"}


@contextmanager
def serving(command: str, clone: Path) -> Iterator[str]:
    """A server that was started so, and its host and port. It must end by itself when it is asked to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*shlex.split(command.removesuffix("&")), "--port", str(port)]
    started = subprocess.Popen(words, cwd=clone, env=environment(clone), start_new_session=True)
    try:
        end = time.monotonic() + 120
        while not healthy(port):
            assert started.poll() is None and time.monotonic() < end, f"it did not start: {command}"
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) in (0, -signal.SIGTERM)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=20).status_code == 200
    except httpx.TransportError:
        return False


def run(command: str, clone: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", command], cwd=clone, env=environment(clone), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("command", [*commands(), *filter(COMPLETE.fullmatch, mentions())])
def test_commands_run(command: str, clone: Path) -> None:
    for pattern, reason in NOT_RUN.items():
        if re.search(pattern, command):
            pytest.skip(reason)
    for name in re.findall(r"\b(LM_EVAL|FUZZ)/", command):
        if not (ROOT / name).is_dir():
            pytest.skip(f"no {name} here")
    filled = re.sub(r"\bMODEL\b|model/folder", str(shipped_model()), command)
    if filled.startswith("outrider serve") and "--help" not in filled:
        with serving(filled, clone) as address:
            assert httpx.get(f"http://{address}/v1/models").json()["data"]
    elif DEFAULT_URL in filled:
        options = """--max-model-len 4096 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
        with serving(f"outrider serve {options}", clone) as address:
            run(filled.replace(DEFAULT_URL, address), clone)
    else:
        run(filled, clone)


@pytest.mark.slow
def test_the_example_in_python_runs(clone: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (clone / "example.py").write_text(source.replace("path/or/hub-id", str(shipped_model())))
    run("python example.py", clone)
