"""Which grammar the answer to a request must follow.

answer = [reasoning </think>] (JSON | calls | text [calls])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.server.call_grammar import OPENING_TAG, PLAIN, call_rules, quoted
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.errors import invalid
from outrider.server.grammar import Grammar, check_schema, json_rule
from outrider.text.protocol import DSML, THINK_END

_SCHEMA_FIELD = "response_format.json_schema.schema"


def answer_grammar(
    body: ChatCompletionRequest, tools: Sequence[Mapping[str, Any]], *, starts_in_reasoning: bool
) -> Grammar | None:
    """None: the request leaves the answer free. tools: those that the model is told of.

    A call is forced by `tool_choice` required, or by naming a function (then it is one call). With auto, functions
    that are `strict` have their arguments constrained. Raises ApiError, which names the field.
    """
    forced = body.forces_call
    schema = body.answer_schema
    strict = any(tool["function"].get("strict") for tool in tools)
    if not forced and schema is None and not strict:
        return None
    _check_endings(body)
    parts: list[Grammar] = []
    answers = []
    if tools:
        parts.append(_calls(body, tools, forced))
        answers.append("calls")
    if schema is not None and not forced:
        check_schema(schema, _SCHEMA_FIELD)
        parts.append(Grammar(f"json: {json_rule(schema)}", ((_SCHEMA_FIELD, schema),)))
        answers.append("json")
    if not forced and schema is None:
        # one terminal up to the end of the tag: the lexer reads greedily, and a text may begin like a tag
        parts.append(Grammar(f"TEXT: {PLAIN}\nTEXT_AND_TAG: {PLAIN} {quoted(OPENING_TAG)}", ()))
        answers = ["TEXT", "TEXT_AND_TAG calls_behind_tag"]
    start = "answer"
    if starts_in_reasoning:
        parts.append(Grammar(f"REASONING: /(.|\\n)*/ & ~/(.|\\n)*(<\\/think>|<\\/?{DSML})(.|\\n)*/", ()))
        start = f"REASONING {THINK_END} answer"
    text = "\n".join([f"start: {start}", f"answer: {' | '.join(answers)}", *(part.text for part in parts)])
    return Grammar(text, tuple(schema for part in parts for schema in part.schemas))


def _calls(body: ChatCompletionRequest, tools: Sequence[Mapping[str, Any]], forced: bool) -> Grammar:
    named = body.named_function
    functions = [
        (f"tools[{i}].function", tool["function"], forced or bool(tool["function"].get("strict")))
        for i, tool in enumerate(tools)
        if named is None or tool["function"]["name"] == named
    ]
    return call_rules(functions, parallel=named is None and body.parallel_tool_calls is not False)


def _check_endings(body: ChatCompletionRequest) -> None:
    """A grammar says where the text ends; what says otherwise is refused."""
    if body.ignore_eos:
        raise invalid("ignore_eos", "the answer ends where its grammar ends (response_format, tool_choice, strict)")
    if body.min_tokens:
        raise invalid("min_tokens", "the answer ends where its grammar ends (response_format, tool_choice, strict)")
    if body.continue_final_message:
        raise invalid(
            "continue_final_message", "a grammar (response_format, tool_choice, strict) needs an answer from its start"
        )
