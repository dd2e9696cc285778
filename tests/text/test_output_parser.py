"""Reasoning and tool calls out of streamed text: any split, malformed markup, cut answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import tiny_config
from tests.tiny_tokenizer import tiny_tokenizer

from outrider.config import parse_model_config
from outrider.text import json_value
from outrider.text.answer import Answer, ToolCall, collect
from outrider.text.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from outrider.text.encoding import encode_chat
from outrider.text.json_value import JsonValue
from outrider.text.output_parser import OutputParser
from outrider.text.protocol import EOS
from outrider.text.tokenizer import IncrementalDetokenizer, Tokenizer
from outrider.text.tool_call import ToolCallReader

D = "｜DSML｜"
OPEN, CLOSE, END = f"<{D}tool_calls>\n", f"</{D}tool_calls>", f"</{D}invoke>\n"


def invoke(name: str, *parameters: str) -> str:
    return f'<{D}invoke name="{name}">\n' + "".join(p + "\n" for p in parameters) + END


def text(name: str, value: str) -> str:
    return f'<{D}parameter name="{name}" string="true">{value}</{D}parameter>'


def value(name: str, json_text: str) -> str:
    return f'<{D}parameter name="{name}" string="false">{json_text}</{D}parameter>'


def unclosed(parameter: str) -> str:
    return parameter.removesuffix(f"</{D}parameter>")


def stream(pieces: list[str], *, thinking: bool, tools: bool = True, truncated: bool = False) -> list[Delta]:
    parser = OutputParser(thinking, tools)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return deltas + parser.finish(truncated)


def parse(whole: str, *, thinking: bool, tools: bool = True, truncated: bool = False) -> Answer:
    return collect(stream([whole], thinking=thinking, tools=tools, truncated=truncated))


def as_json(text: str) -> str:
    return json.dumps({"s": text}, ensure_ascii=False)


def a(arguments: str, name: str = "f") -> ToolCall:
    return ToolCall(name, arguments)


A, B = invoke("f", text("s", "x")), invoke("g", value("n", "5"))
ARGUMENTS_A, ARGUMENTS_B = '{"s": "x"}', '{"n": 5}'
BOTH = (a(ARGUMENTS_A), a(ARGUMENTS_B, "g"))
HALF = unclosed(text("s", "x"))
HEAD, HEAD_G = (f'<{D}invoke name="{name}">\n' for name in "fg")
WRAPPED = END + CLOSE + "x"
CITY = "杭州 \u200d😀"
QUOTED_END = json.dumps(f"a</{D}parameter><{D}parameter></{D}parameter> b", ensure_ascii=False)
RAW = ' a\n"q"\\ <b> é😀 </｜DSML｜param '

# name: (thinking, text, content, reasoning, calls)
TEXTS: dict[str, tuple[bool, str, str, str, tuple[ToolCall, ...]]] = {
    "content alone": (False, "Hi <b> a < b\n\n", "Hi <b> a < b\n\n", "", ()),
    "reasoning and content": (True, "\nr\n</think>\n\nc", "\n\nc", "\nr\n", ()),
    "reasoning alone": (True, "never done </thin", "", "never done </thin", ()),
    "tokens of the protocol": (True, "r<｜User｜></think>c<｜▁pad▁｜><｜x y｜>d", "c<｜x y｜>d", "r", ()),
    "half a token at the end": (False, "c<｜Assis", "c<｜Assis", "", ()),
    "thinking opened again at the beginning": (True, "<think>r</think></think>c</think>", "c</think>", "r", ()),
    "thinking opened in chat mode": (False, "<think>r</think>c <think>", "c <think>", "r", ()),
    "two calls": (True, f"r</think>c\n\n{OPEN}{A}{B}{CLOSE}", "c", "r", BOTH),
    "raw text value": (False, f"\n\n{OPEN}{invoke('f', text('s', RAW))}{CLOSE}", "", "", (a(as_json(RAW)),)),
    "every kind of value": (
        False,
        OPEN + invoke("f", value("a", "[1, {}]"), value("b", "null"), value("c", " 1.50 "), text("d", "")) + CLOSE,
        "",
        "",
        (a('{"a": [1, {}], "b": null, "c":  1.50 , "d": ""}'),),
    ),
    "no arguments": (False, f"{OPEN}{invoke('f')}{HEAD_G}\n{END}{CLOSE}", "", "", (a("{}"), a("{}", "g"))),
    "unicode": (
        True,
        f"想</think>好\n\n{OPEN}{invoke('天气', text('城市', CITY))}{CLOSE}",
        "好",
        "想",
        (a('{"城市": "杭州 \u200d😀"}', "天气"),),
    ),
    "missing </think>": (True, f"r\n\n{OPEN}{A}{CLOSE}", "", "r", (BOTH[0],)),
    "missing </think>, then it comes": (True, f"r\n\n{OPEN}</think>{A}{CLOSE}</think>", "", "r", (BOTH[0],)),
    "invoke without a block": (False, f"c\n{A}", "c", "", (BOTH[0],)),
    "invoke without a block while reasoning": (True, f"r\n\n{A}", "", "r", (BOTH[0],)),
    "block called toolcalls": (False, f"c\n\n<{D}toolcalls>\n{A}</{D}toolcalls>", "c", "", (BOTH[0],)),
    "block called function_calls": (False, f"<{D}function_calls>\n{A}{B}</{D}function_calls>", "", "", BOTH),
    "two blocks": (False, f"{OPEN}{A}{CLOSE}\n\n{OPEN}{B}{CLOSE}", "", "", BOTH),
    "text after the calls": (False, f"c{OPEN}{A}{CLOSE}\n<tool_result>made up</tool_result>", "c", "", (BOTH[0],)),
    "empty block": (False, f"c\n\n{OPEN}\n  why {CLOSE} d", "cwhy  d", "", ()),
    "block never closed": (False, f"{OPEN}{A}", "", "", (BOTH[0],)),
    "call never closed": (False, f"{OPEN}{A.removesuffix(END)}", "", "", (BOTH[0],)),
    "call closed by the block": (False, f"{OPEN}{A.removesuffix(END)}{CLOSE}", "", "", (BOTH[0],)),
    "call closed by the next": (False, f"{OPEN}{A.removesuffix(END)}{B}{CLOSE}", "", "", BOTH),
    "parameter closed by the next": (
        False,
        f"{OPEN}{invoke('f', HALF, value('n', '5'))}{CLOSE}",
        "",
        "",
        (a('{"s": "x", "n": 5}'),),
    ),
    "parameter closed by the call": (False, f"{OPEN}{invoke('f', HALF)}{CLOSE}", "", "", (BOTH[0],)),
    "number closed by the call": (False, f"{OPEN}{invoke('g', unclosed(value('n', '5')))}", "", "", (BOTH[1],)),
    "parameter closed by the call, then another": (
        False,
        f"{OPEN}{invoke('f', HALF)}{B}{invoke('h', unclosed(text('s', 'y')))}{CLOSE}",
        "",
        "",
        (*BOTH, a('{"s": "y"}', "h")),
    ),
    "closing tags in a value": (
        False,
        f"{OPEN}{invoke('f', text('s', WRAPPED))}{CLOSE}",
        "",
        "",
        (a(as_json(WRAPPED)),),
    ),
    "tags in a string of JSON": (
        False,
        f"{OPEN}{invoke('f', value('s', as_json(WRAPPED + WRAPPED)), value('n', '5'))}{CLOSE}",
        "",
        "",
        (a(f'{{"s": {as_json(WRAPPED + WRAPPED)}, "n": 5}}'),),
    ),
    "closing tag of a parameter in a string of JSON": (
        False,
        f"{OPEN}{invoke('f', value('s', QUOTED_END))}{CLOSE}",
        "",
        "",
        (a(f'{{"s": {QUOTED_END}}}'),),
    ),
    "string of JSON never closed": (
        False,
        f"{OPEN}{invoke('f', value('s', '[' + chr(34) + 'x'), value('n', '5'))}{CLOSE}",
        "",
        "",
        (a('{"s": "[\\"x", "n": 5}'),),
    ),
    "parameter never closed": (False, f"{OPEN}{HEAD}{HALF}", "", "", ()),
    "no string attribute": (
        False,
        invoke("f", f'<{D}parameter name="a">5</{D}parameter>', f'<{D}parameter name="b">x</{D}parameter>'),
        "",
        "",
        (a('{"a": 5, "b": "x"}'),),
    ),
    "values that are no JSON": (
        False,
        invoke("f", value("a", "yes"), value("b", "NaN"), value("c", "")),
        "",
        "",
        (a('{"a": "yes", "b": "NaN", "c": ""}'),),
    ),
    "a name twice": (False, invoke("f", text("s", "x"), text("s", "y"), value("s", "1")), "", "", (BOTH[0],)),
    "name with quotes": (False, invoke("f", text('a"b', "x")), "", "", (a('{"a\\"b": "x"}'),)),
    "JSON body": (
        False,
        f'{OPEN}<{D}invoke name="f">\n{{"s": [1, "<"]}}\n{END}{CLOSE}',
        "",
        "",
        (a('{"s": [1, "<"]}'),),
    ),
    "body that is no JSON": (False, f'{OPEN}<{D}invoke name="f">\ns = 1\n{END}{B}', "", "", (BOTH[1],)),
    "call closed at once": (False, f'{OPEN}<{D}invoke name="f"/>\n{B}{CLOSE}', "", "", (a("{}"), BOTH[1])),
    "parameter without a name": (False, invoke("f", f"<{D}parameter>x</{D}parameter>") + B, "", "", (BOTH[1],)),
    "call without a name": (False, f"c{invoke('', text('s', 'x'))}{B}", "c", "", (BOTH[1],)),
    "orphan pieces": (False, f"a{END}b{text('s', 'x')}c{CLOSE}\n\nd<{D}what>", "a\nbxc\n\nd", "", ()),
    "half a tag at the end of a call": (False, f"{OPEN}{A}{B.removesuffix(END)}</{D}inv", "", "", (BOTH[0],)),
    "half a tag at the end": (True, f"r</think>c\n\n<{D}tool_ca", "c\n\n", "r", ()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_answers_well_formed_and_not(name: str) -> None:
    thinking, whole, content, reasoning, calls = TEXTS[name]
    assert parse(whole, thinking=thinking) == Answer(content, reasoning, calls)


@pytest.mark.parametrize("name", TEXTS)
def test_cut_anywhere(name: str) -> None:
    """Two pieces at every cut, and one character at a time; with and without tools."""
    thinking, whole, *_ = TEXTS[name]
    for tools in (True, False):
        expected = parse(whole, thinking=thinking, tools=tools)
        splits = [[whole[:i], whole[i:]] for i in range(len(whole))] + [list(whole)]
        for pieces in splits:
            deltas = stream(pieces, thinking=thinking, tools=tools)
            assert collect(deltas) == expected
            assert_well_formed(deltas)


def test_cut_at_every_byte() -> None:
    """As it comes from the detokeniser, where a token may be a byte of a character."""
    tokenizer = Tokenizer(tiny_tokenizer(), parse_model_config(tiny_config()))
    for name, (thinking, whole, *_) in TEXTS.items():
        if EOS not in whole and "▁pad▁" not in whole:
            detokenizer = IncrementalDetokenizer(tokenizer)
            pieces = [detokenizer.push([i]) for i in tokenizer.encode(whole)]
            pieces.append(detokenizer.finish())
            assert collect(stream(pieces, thinking=thinking)) == parse(whole, thinking=thinking), name


def assert_well_formed(deltas: list[Delta]) -> None:
    """Calls one after the other, pieces not empty, and arguments are JSON exactly when the call ends."""
    arguments: dict[int, str] = {}
    ended: set[int] = set()
    for delta in deltas:
        match delta:
            case Content(piece) | Reasoning(piece):
                assert piece
                assert not arguments
            case ToolCallStart(index, name):
                assert index == len(arguments)
                assert name
                arguments[index] = ""
            case ToolCallArguments(index, piece):
                assert piece
                assert index == max(arguments)
                assert index not in ended
                arguments[index] += piece
            case ToolCallEnd(index):
                assert index == max(arguments)
                ended.add(index)
    for index, whole in arguments.items():
        if index in ended:
            assert isinstance(json.loads(whole), dict)
        else:
            with pytest.raises(json.JSONDecodeError):
                json.loads(whole)


@pytest.mark.parametrize("name", TEXTS)
def test_a_cut_call_is_never_complete(name: str) -> None:
    """Cut after every character: a call is complete only when something ended it, and then as in the whole answer."""
    thinking, whole, *_ = TEXTS[name]
    complete = parse(whole, thinking=thinking).tool_calls
    before = 0
    for length in range(len(whole) + 1):
        deltas = stream([whole[:length]], thinking=thinking, truncated=True)
        assert_well_formed(deltas)
        calls = collect(deltas).tool_calls
        assert calls == complete[: len(calls)]
        assert len(calls) >= before
        if len(calls) > before:  # something closed it just now
            assert whole[:length].endswith((">", f"<{D}invoke", f"<{D}parameter"))
        before = len(calls)


def test_where_a_grammar_says_what_content_is_nothing_in_it_is_markup() -> None:
    content = json.dumps({"a": f"<think></think><｜User｜>\n\n{OPEN}{A}{CLOSE}"}, ensure_ascii=False)
    calls = f"\n\n{OPEN}{A}{CLOSE}"
    for whole, expected in (
        (f"r</think>{content}", Answer(content, "r", ())),
        (f"r</think>\n {content}", Answer(f"\n {content}", "r", ())),
        (f"r</think>{calls}", Answer("", "r", (BOTH[0],))),
    ):
        for cut in range(len(whole) + 1):
            parser = OutputParser(True, True, literal=True)
            deltas = parser.feed(whole[:cut]) + parser.feed(whole[cut:]) + parser.finish(truncated=False)
            assert collect(deltas) == expected


def test_without_tools_their_markup_is_content() -> None:
    whole = f"c\n\n{OPEN}{A}{CLOSE}"
    assert parse(whole, thinking=False, tools=False) == Answer(whole, "", ())


def test_text_is_given_out_as_soon_as_it_is_certain() -> None:
    parser = OutputParser(thinking=True, tools=True)
    assert parser.feed("Hm") == [Reasoning("Hm")]
    assert parser.feed(", <") == [Reasoning(", ")]
    assert parser.feed("b></think>") == [Reasoning("<b>")]
    assert parser.feed("Yes\n\n") == [Content("Yes")]
    assert parser.feed(f"<{D}tool_calls>\n<{D}invoke name=") == []
    assert parser.feed('"f">') == [ToolCallStart(0, "f"), ToolCallArguments(0, "{")]
    assert parser.feed(f'\n<{D}parameter name="s" string="true">ab') == [
        ToolCallArguments(0, '"s": "'),
        ToolCallArguments(0, "ab"),
    ]
    assert parser.feed("c\n") == [ToolCallArguments(0, "c")]
    assert parser.feed("d") == [ToolCallArguments(0, "\\nd")]
    assert parser.feed(f"</{D}parameter>\n</{D}invoke>")[-2:] == [ToolCallArguments(0, "}"), ToolCallEnd(0)]
    assert parser.finish(truncated=True) == []


MARKUP = [
    "</think>",
    "<think>",
    OPEN,
    CLOSE,
    END,
    A,
    B,
    f'<{D}invoke name="f">',
    f'<{D}parameter name="s" string="true">',
]
MARKUP += [
    f"</{D}parameter>",
    f'<{D}parameter name="n">',
    "<｜User｜>",
    f"<{D}",
    "<",
    "\n",
    "\n\n",
    "x",
    " ",
    '{"a": 1}',
    '"',
    ">",
]


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from(MARKUP), max_size=12).map("".join), st.booleans(), st.booleans(), st.booleans(), st.data()
)
def test_any_markup_in_any_pieces(
    whole: str, thinking: bool, tools: bool, truncated: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[i:j] for i, j in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    for split in (pieces, list(whole)):
        deltas = stream(split, thinking=thinking, tools=tools, truncated=truncated)
        assert_well_formed(deltas)
        assert collect(deltas) == parse(whole, thinking=thinking, tools=tools, truncated=truncated)


WORDS = st.text(st.sampled_from(["a", "é", "😀", "\n", " ", '"', "\\", "{", "<", ">", "/", "｜"]), max_size=12)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(WORDS, WORDS, st.lists(st.tuples(NAMES, st.dictionaries(NAMES, JSON, max_size=3)), max_size=3), st.booleans())
def test_answers_come_back_as_they_were_written(
    reasoning: str, content: str, calls: list[tuple[str, dict[str, Any]]], thinking: bool
) -> None:
    """What the encoder makes of an answer, the parser reads back."""
    if any("<｜" in part or part.endswith("<") for part in (reasoning, content)):
        return  # may be a token of the protocol
    user = {"role": "user", "content": ""}
    written = [{"id": "", "function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    message = {"role": "assistant", "reasoning_content": reasoning, "content": content, "tool_calls": written}
    tools = [{"function": {"name": "f"}}]
    mode: Any = "thinking" if thinking else "chat"
    before = encode_chat([user], tools=tools, thinking=mode)
    whole = encode_chat([user, message, user], tools=tools, thinking=mode).removeprefix(before).split(EOS)[0]
    answer = parse(whole, thinking=thinking)
    assert (answer.content, answer.reasoning) == (content, reasoning if thinking else "")
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == calls
    assert [call.arguments for call in answer.tool_calls] == [json.dumps(c[1], ensure_ascii=False) for c in calls]


def test_time_grows_with_the_length_alone() -> None:
    """A megabyte in a value, in pieces of four characters."""
    long = "ab<\n" * 50_000
    for parameter in (text("s", long), value("s", json.dumps(long))):
        whole = f"{OPEN}{invoke('f', parameter)}{CLOSE}"
        pieces = [whole[i : i + 4] for i in range(0, len(whole), 4)]
        (call,) = collect(stream(pieces, thinking=False)).tool_calls
        assert json.loads(call.arguments) == {"s": long}


@pytest.mark.parametrize("piece", [4, 10**9])
def test_tags_in_one_long_string_are_each_read_once(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work: characters that the reader of JSON looked at, and those of the buffers that were searched for tags."""
    looked, searched = 0, 0
    end, in_value = json_value._end, ToolCallReader._in_value

    def counting_end(pattern: Any, text: str, at: int) -> int:
        nonlocal looked
        found = end(pattern, text, at)
        looked += found - at
        return found

    def counting_in_value(self: ToolCallReader, buffer: str, deltas: list[Delta]) -> str:
        nonlocal searched
        searched += len(buffer)
        return in_value(self, buffer, deltas)

    monkeypatch.setattr(json_value, "_end", counting_end)
    monkeypatch.setattr(ToolCallReader, "_in_value", counting_in_value)
    work = []
    for count in (500, 1000, 2000):
        looked = searched = 0
        tags = f"a</{D}parameter> b" * count
        whole = f"{OPEN}{invoke('f', value('s', json.dumps([tags], ensure_ascii=False)))}{CLOSE}"
        (call,) = collect(
            stream([whole[i : i + piece] for i in range(0, len(whole), piece)], thinking=False)
        ).tool_calls
        assert json.loads(call.arguments) == {"s": [tags]}
        assert looked <= len(whole)
        work.append(searched)
    assert work[1] < 2.2 * work[0] and work[2] < 2.2 * work[1]


@given(JSON.map(lambda value: json.dumps(value, ensure_ascii=False)), st.data())
def test_where_a_json_text_is_inside_a_string(whole: str, data: st.DataObject) -> None:
    """Against json's own complaint; no cut in the middle of an escape, a number or a word."""
    value = JsonValue()
    begin = 0
    for cut in sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4))):
        if re.search(r"\\(u[0-9a-f]{0,3})?$|[a-z0-9.+-]$", whole[:cut]):
            continue
        value.append(whole[begin:cut])
        begin = cut
        message = ""
        try:
            json.loads(whole[:cut])
        except json.JSONDecodeError as error:
            message = error.msg
        assert value.ends_in_string() == message.startswith("Unterminated string")
    value.append(whole[begin:])
    assert value.text() == whole and not value.ends_in_string()
    value.append(' yes "')
    assert not value.ends_in_string()
