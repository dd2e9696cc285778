"""`outrider chat`: a conversation in the terminal, with what speculation did under every answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.interrupts import slow_import
from outrider.cli.terminal import GREEN, RESET, progress_bar, visible, wants_colour

if TYPE_CHECKING:
    from outrider.cli.chat_turns import Account, Answers, Piece

DIM = "\x1b[2m"
NEW = "/new"
DEFAULT_DEPTH = 3


def chat(
    model: Annotated[
        str | None, typer.Argument(help="Checkpoint folder or hub id (default: the one that ships).")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Talk to a server of `outrider serve` instead, e.g. http://127.0.0.1:8000/v1.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OUTRIDER_API_KEY", help="Key of that server.")] = None,
    system: Annotated[str | None, typer.Option(help="System text in front of the conversation.")] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Let the model reason before it answers.")] = False,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="64 bits; drawn for every answer if not given.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens of an answer (default: the context's end).")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Most tokens of the conversation (default: the model's).")
    ] = None,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help=f"As for `outrider serve` (default: {DEFAULT_DEPTH} drafts a step if there is an MTP layer).",
        ),
    ] = None,
    show_drafts: Annotated[
        bool | None,
        typer.Option("--show-drafts/--no-show-drafts", help="Accepted drafts in green (default: on a terminal)."),
    ] = None,
) -> None:
    """Talk to a model; accepted drafts are green. /new begins again, Ctrl-C stops an answer, Ctrl-D leaves."""
    from outrider.config import ConfigError

    if url is None:
        answers = _engine_answers(model, thinking, temperature, seed, max_tokens, max_model_len, speculative_config)
    else:
        if model is not None or speculative_config is not None or max_model_len is not None:
            raise ConfigError("--url: the model and its limits are the server's; leave out what would choose them")
        from outrider.cli.chat_turns import ServerAnswers

        fields: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_completion_tokens": max_tokens}
        fields["thinking"] = {"type": "enabled" if thinking else "disabled"}
        answers = ServerAnswers(url, api_key, fields)
    _Conversation(answers, system, wants_colour(show_drafts, sys.stdout)).run()


def _engine_answers(
    model: str | None,
    thinking: bool,
    temperature: float,
    seed: int | None,
    max_tokens: int | None,
    max_model_len: int | None,
    speculative_config: str | None,
) -> Answers:
    from outrider.config import SpeculativeConfig, parse_engine_config, parse_speculative_config
    from outrider.sampling.params import SamplingParams

    speculation = None if speculative_config is None else parse_speculative_config(speculative_config)
    options = parse_engine_config(
        {
            "max_model_len": max_model_len,
            "max_num_seqs": 1,
            "max_num_batched_tokens": 256,
            "enable_prefix_caching": True,
        }
    )
    most = 1 << 20 if max_tokens is None else max_tokens
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=most)
    with slow_import():
        from outrider.assets import shipped_model
        from outrider.checkpoint.reader import Checkpoint
        from outrider.cli.chat_turns import EngineAnswers
        from outrider.engine.loading import load_model, load_tokenizer

    checkpoint = Checkpoint.open(shipped_model() if model is None else model)
    options.context_of(checkpoint.config)
    tokenizer = load_tokenizer(checkpoint)
    if speculation is None and checkpoint.drafter == "mtp":
        speculation = SpeculativeConfig(method="mtp", num_speculative_tokens=DEFAULT_DEPTH)
    with progress_bar("loading", hidden=False, byte_count=True) as progress:
        loaded = load_model(checkpoint, speculative_config=speculation, engine_config=options, progress=progress)
    return EngineAnswers(loaded.engine(speculation, tokenizer=tokenizer), tokenizer, params, thinking=thinking)


class _Conversation:
    def __init__(self, answers: Answers, system: str | None, colour: bool) -> None:
        self._answers = answers
        self._start = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._start)
        self._colour = colour

    def run(self) -> None:
        """Until the input ends. An answer that fails is reported, and its question forgotten."""
        from outrider.cli.chat_turns import ChatError
        from outrider.config import ConfigError
        from outrider.text.conversation import PromptError

        for line in self._lines():
            if line == NEW:
                self._messages = list(self._start)
                continue
            self._messages.append({"role": "user", "content": line})
            try:
                self._messages.append(self._answer())
            except (ChatError, ConfigError, PromptError) as error:
                self._messages.pop()
                print(f"outrider: {visible(str(error))} ({NEW} begins a new conversation)", file=sys.stderr)

    def _lines(self) -> Iterator[str]:
        """What the user types, without empty lines."""
        with suppress(ImportError):
            import readline  # noqa: F401  (input() then knows arrows and history)
        asked = sys.stdin.isatty() and sys.stdout.isatty()
        while True:
            try:
                line = input("> " if asked else "")
            except EOFError:
                if asked:
                    print()
                return
            if line.strip():
                yield line

    def _answer(self) -> dict[str, str]:
        """The assistant's message, shown while it comes. Ctrl-C ends it where it is."""
        from outrider.cli.chat_turns import Account

        account = Account()
        texts = {False: "", True: ""}  # content, reasoning
        begin = perf_counter()
        first: float | None = None
        pieces = self._answers.answer(self._messages, account)
        try:
            for piece in pieces:
                if first is None:
                    first = perf_counter()
                texts[piece.reasoning] += piece.text
                self._show(piece)
        except KeyboardInterrupt:
            account.finish_reason = "interrupted"
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
            print(flush=True)
        end = perf_counter()
        print(self._dimmed(describe(account, (first or end) - begin, end - (first or end))), file=sys.stderr)
        message = {"role": "assistant", "content": texts[False]}
        return message | ({"reasoning_content": texts[True]} if texts[True] else {})

    def _show(self, piece: Piece) -> None:
        text = visible(piece.text) if sys.stdout.isatty() else piece.text
        if self._colour and (piece.drafted or piece.reasoning):
            text = (GREEN if piece.drafted else "") + (DIM if piece.reasoning else "") + text + RESET
        print(text, end="", flush=True)

    def _dimmed(self, text: str) -> str:
        return f"{DIM}{text}{RESET}" if self._colour and sys.stderr.isatty() else text


def describe(account: Account, first_seconds: float, decode_seconds: float) -> str:
    """One line: how long, how fast, and what speculation did."""
    if not account.tokens:
        return f"stopped after {first_seconds + decode_seconds:.1f} s"
    line = f"{account.tokens} tokens ({account.finish_reason}), the first after {first_seconds:.2f} s"
    if account.tokens > 1 and decode_seconds > 0:
        line += f", then {(account.tokens - 1) / decode_seconds:.0f} tokens/s"
    if not sum(account.drafted_per_position):
        return line + "; no drafts"
    shares = " ".join(
        f"{accepted / drafted:.2f}"
        for accepted, drafted in zip(account.accepted_per_position, account.drafted_per_position, strict=True)
    )
    return f"{line}; {account.acceptance_length:.2f} tokens a pass, drafts accepted by position {shares}"
