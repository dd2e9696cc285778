r"""Splits generated text, while it arrives, into content, reasoning and tool calls.

What a model writes (spelt as the tokenizer decodes it):

    [reasoning</think>]content[\n\n<｜DSML｜tool_calls>\n invokes </｜DSML｜tool_calls>]

An answer that is well formed gives what DeepSeek's published parser gives. Markup that is not is read as follows:
- a tool block, or an invoke without one, ends reasoning that was not closed;
- a block may be called toolcalls, tool or function_calls; a call needs no block;
- other DSML tags outside a call are dropped, and so are `<｜...｜>` tokens; text after the first call is dropped;
- <think> at the beginning of the content opens reasoning; a second <think> or </think> at a beginning is dropped.
What is inside a call: see `tool_call.py`.
"""

from __future__ import annotations

import re
from enum import Enum

from outrider.text.deltas import Content, Delta, Reasoning
from outrider.text.protocol import DSML, THINK, THINK_END
from outrider.text.tool_call import ToolCallReader

_BLOCKS = ("tool_calls", "toolcalls", "tool", "function_calls")
_TOKEN = re.compile(r"<｜[^｜<>\s]{1,48}｜>")
_TOKEN_BEGUN = re.compile(r"<(?:｜(?:[^｜<>\s]{1,48}｜?)?)?")
_TAG = re.compile(rf"</?{DSML}[^<>\n]{{0,256}}>")
_TAG_BEGUN = re.compile(rf"</?{DSML}[^<>\n]{{0,256}}")
_INVOKE = re.compile(rf'<{DSML}invoke +name="([^"<>\n]*)" *(/?)>')
_MARKS = (THINK, THINK_END, f"<{DSML}", f"</{DSML}")
_LONGEST_TAG = 300  # characters, with room to spare: what may have to be held back
_PIECE = 4096  # characters


class _Kind(Enum):
    TEXT = 0  # the "<" is text
    UNDECIDED = 1  # markup or text, depending on what follows
    THINK = 2
    THINK_END = 3
    TOKEN = 4
    TAG = 5


class OutputParser:
    """Reads one answer. However the text is cut into pieces, the deltas of one kind add up to the same.

    thinking: the prompt ended inside a thinking block (`ChatPrompt.starts_in_reasoning`), so the text begins with
    reasoning. tools: the request has tools; without them tool markup is content. literal: a grammar says what content
    is; unless it begins as a tool block does, nothing in it is markup.
    """

    def __init__(self, thinking: bool, tools: bool, *, literal: bool = False) -> None:
        self._tools = tools
        self._literal = literal
        self._reasoning = thinking
        self._at_beginning = True  # nothing but white space yet in this stretch of reasoning or content
        self._skips_space = False  # after a block's opening, until text or a call
        self._calls = 0
        self._call: ToolCallReader | None = None
        self._buffer = ""
        self._deltas: list[Delta] = []

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as the text so far says."""
        return self._reasoning

    def feed(self, text: str) -> list[Delta]:
        """What this piece of text completes; [] while it may still be the start of markup."""
        for at in range(0, len(text), _PIECE):  # reading copies what is left of the buffer at every mark
            self._buffer += text[at : at + _PIECE]
            self._advance()
        return self._taken()

    def finish(self, truncated: bool) -> list[Delta]:
        """What is left at the end.

        truncated: anything but the model's own end token ended the answer: a limit, an abort, and a stop string of the
        client's too, although its finish reason is "stop". A call that was cut gets no `ToolCallEnd`; one that the
        model left open gets it if every argument is complete.
        """
        if self._call is not None:
            self._buffer = self._call.finish(self._buffer, truncated, self._deltas)
            self._call = None
            if not truncated:
                self._advance()  # text held back in an argument that turned out to be what follows the call
                if self._call is not None:
                    return self.finish(truncated)
        rest, self._buffer = self._buffer, ""
        # half of a tag is nothing to read; half of a token is text, since a real one is never cut
        self._text(re.split(f"</?{DSML}", rest)[0] if self._tools else rest)
        return self._taken()

    def _taken(self) -> list[Delta]:
        taken, self._deltas = self._deltas, []
        return taken

    def _advance(self) -> None:
        while True:
            if self._call is not None:
                done, self._buffer = self._call.read(self._buffer, self._deltas)
                if not done:
                    return
                self._call = None
            elif not self._outside():
                return

    def _outside(self) -> bool:
        """Reads text up to the next markup and the markup. False: the rest of the buffer must wait."""
        buffer, at = self._buffer, -1
        if self._literal and not self._reasoning and not self._calls:
            begun = buffer.lstrip()
            if not self._at_beginning or (begun and not begun.startswith("<")):
                self._text(buffer)
                self._buffer = ""
                return False
        while (at := buffer.find("<", at + 1)) >= 0:
            kind, end = self._classify(buffer, at)
            if kind is _Kind.TEXT:
                continue
            if kind is _Kind.UNDECIDED:
                self._text_before(at)
                return False
            self._markup(kind, at, end)
            return True
        self._text_before(len(buffer))
        return False

    def _text_before(self, at: int) -> None:
        """Gives out the text before `at`, but for line ends that may belong to a tool block."""
        if self._tools:
            kept = at
            while kept > max(0, at - 2) and self._buffer[kept - 1] == "\n":
                kept -= 1
            at = kept
        self._text(self._buffer[:at])
        self._buffer = self._buffer[at:]

    def _classify(self, text: str, at: int) -> tuple[_Kind, int]:
        """What begins at the "<" at `at`, and where it ends."""
        if text.startswith(THINK, at):
            return _Kind.THINK, at + len(THINK)
        if text.startswith(THINK_END, at):
            return _Kind.THINK_END, at + len(THINK_END)
        if token := _TOKEN.match(text, at):
            return _Kind.TOKEN, token.end()
        if self._tools and (tag := _TAG.match(text, at)):
            return _Kind.TAG, tag.end()
        rest = text[at : at + _LONGEST_TAG]
        marks = _MARKS if self._tools else _MARKS[:2]
        begun = any(mark.startswith(rest) for mark in marks) or _TOKEN_BEGUN.fullmatch(rest) is not None
        begun = begun or (self._tools and _TAG_BEGUN.fullmatch(rest) is not None)
        return (_Kind.UNDECIDED if begun else _Kind.TEXT), at

    def _markup(self, kind: _Kind, at: int, end: int) -> None:
        before, markup, self._buffer = self._buffer[:at], self._buffer[at:end], self._buffer[end:]
        invoke = _INVOKE.fullmatch(markup)
        opens = any(markup == f"<{DSML}{name}>" for name in _BLOCKS)
        if kind is _Kind.TAG and (opens or invoke):
            before = before.removesuffix("\n").removesuffix("\n")
        self._text(before)
        if kind is _Kind.THINK or kind is _Kind.THINK_END:
            self._think(markup)
        elif kind is _Kind.TAG and (opens or invoke):
            self._leave_reasoning()
            self._skips_space = True
            if invoke:
                self._call = ToolCallReader(self._calls, invoke[1], self._deltas, empty=bool(invoke[2]))
                self._calls += bool(invoke[1])

    def _think(self, markup: str) -> None:
        if self._reasoning and markup == THINK_END:
            self._leave_reasoning()
        elif not self._at_beginning:
            self._text(markup)
        elif markup == THINK:
            self._reasoning = True

    def _leave_reasoning(self) -> None:
        if self._reasoning:
            self._reasoning, self._at_beginning = False, True

    def _text(self, text: str) -> None:
        if self._skips_space:
            text = text.lstrip()
        if not text or self._calls:
            return
        self._skips_space = False
        self._at_beginning = self._at_beginning and not text.strip()
        self._deltas.append(Reasoning(text) if self._reasoning else Content(text))
