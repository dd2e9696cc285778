"""Masks of grammars without a server: at every draft, behind an end, after a refusal; and random schemas."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.config import ModelConfig
from outrider.engine.loading import load_tokenizer
from outrider.sampling.constraints import MaskError
from outrider.server.answer_grammar import answer_grammar
from outrider.server.chat_request import ChatCompletionRequest
from outrider.server.grammar import json_rule
from outrider.server.grammar_compiler import GrammarCompiler
from outrider.server.grammar_mask import GrammarMask
from outrider.text.protocol import THINK_END
from outrider.text.tokenizer import Tokenizer


@cache
def vocabulary() -> tuple[Tokenizer, ModelConfig, GrammarCompiler]:
    checkpoint = Checkpoint.open(shipped_model())
    tokenizer = load_tokenizer(checkpoint)
    return tokenizer, checkpoint.config, GrammarCompiler(tokenizer, checkpoint.config)


def mask_of(text: str) -> GrammarMask:
    _, config, compiler = vocabulary()
    matcher = compiler.matcher(text)
    assert not matcher.is_error(), matcher.get_error()
    return GrammarMask(matcher, config.vocab_size, config.eos_token_id)


def reasoned_mask(schema: dict[str, Any]) -> GrammarMask:
    """For an answer that begins inside its reasoning."""
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    }
    grammar = answer_grammar(ChatCompletionRequest.model_validate(body), [], starts_in_reasoning=True)
    assert grammar is not None
    return mask_of(grammar.text)


def allowed(mask: GrammarMask, drafts: list[int]) -> set[int]:
    found = mask.allowed(drafts)
    assert found is not None
    return set(found.nonzero().flatten().tolist())


@pytest.mark.parametrize("position", range(4))
def test_the_grammar_begins_behind_the_end_of_reasoning_wherever_that_is_drafted(position: int) -> None:
    tokenizer, config, _ = vocabulary()
    think_end = tokenizer.think_end_id
    assert think_end is not None
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    mask = reasoned_mask(schema)
    words = tokenizer.encode("so it is then")[:4]
    (brace,) = tokenizer.encode("{")
    drafts = [*words[:position], think_end, brace]
    for count in range(position + 1):
        open_to = allowed(mask, drafts[:count])
        assert think_end in open_to and words[0] in open_to and config.eos_token_id not in open_to
    behind = allowed(mask, drafts[:-1])
    assert brace in behind and think_end not in behind and words[0] not in behind
    assert think_end in allowed(mask, [])  # the drafts were refused: nothing is left of them
    mask.accept(drafts)
    assert allowed(mask, []) == allowed(mask, []) and think_end not in allowed(mask, [])
    reference = mask_of(f"start: json\njson: {json_rule(schema)}")
    reference.accept([brace])
    assert allowed(mask, []) == allowed(reference, [])
    assert THINK_END not in tokenizer.decode(sorted(allowed(mask, [])))


def test_behind_a_drafted_end_anything_goes_and_the_end_itself_needs_a_whole_answer() -> None:
    tokenizer, config, _ = vocabulary()
    eos = config.eos_token_id
    mask = mask_of('start: "ab"')
    a, b = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    assert eos not in allowed(mask, []) and eos not in allowed(mask, [a])
    assert allowed(mask, [a, b]) == {eos}
    assert mask.allowed([a, b, eos]) is None and mask.allowed([a, b, eos, a]) is None
    assert allowed(mask, [a]) == {b}
    mask.accept([a, b, eos])  # the matcher itself takes no end


def test_refused_drafts_leave_nothing() -> None:
    tokenizer, _, _ = vocabulary()
    one, two, three, comma = (tokenizer.encode(c)[0] for c in "123,")
    text = "start: /1(2|3)*,(1|2)/"
    mask, fresh = mask_of(text), mask_of(text)
    for drafts in ([one, two, three], [one, two], [one, three, comma, one], [], [one, three, comma, two]):
        allowed(mask, drafts)
    mask.accept([one, three, three])
    for token in (one, three, three):
        fresh.accept([token])
    for drafts in ([], [comma], [three, comma]):
        assert allowed(mask, drafts) == allowed(fresh, drafts)
    mask.accept([comma])
    assert allowed(mask, []) >= {one, two} and three not in allowed(mask, [])


def test_a_matcher_that_cannot_go_on_says_so_when_it_is_asked() -> None:
    tokenizer, _, _ = vocabulary()
    mask = mask_of('start: "ab"')
    mask.accept(tokenizer.encode("b"))
    with pytest.raises(MaskError, match="the grammar cannot go on: "):
        mask.allowed([])


_STRINGS = st.sampled_from(["", "a", 'q"', "\\", "é\n", "</think>"])
_LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}]),
    st.tuples(st.integers(-30, 30), st.integers(0, 300)).map(
        lambda pair: {"type": "integer", "minimum": pair[0], "maximum": pair[0] + pair[1]}
    ),
    st.tuples(st.integers(0, 2), st.integers(0, 3)).map(
        lambda pair: {"type": "string", "minLength": pair[0], "maxLength": sum(pair)}
    ),
    st.lists(st.one_of(_STRINGS, st.integers(-5, 5), st.booleans(), st.none()), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
    _STRINGS.map(lambda value: {"const": value}),
)


def _nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["n", "é", 'a"b', "x y"])
    objects = st.dictionaries(names, inner, max_size=3).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties)) if properties else st.nothing()).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": False,
            }
        )
    )
    arrays = st.tuples(inner, st.integers(0, 2), st.integers(0, 1)).map(
        lambda t: {"type": "array", "items": t[0], "minItems": t[1], "maxItems": t[1] + t[2]}
    )
    return st.one_of(objects, arrays, st.lists(inner, min_size=1, max_size=2).map(lambda many: {"anyOf": many}))


@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.recursive(_LEAVES, _nested, max_leaves=4), st.integers(0, 2**32))
def test_whatever_is_drawn_under_a_random_schema_follows_it(schema: dict[str, Any], seed: int) -> None:
    """Draws as the engine does: a few drafts, of which some stand, then one of the target's own."""
    tokenizer, config, _ = vocabulary()
    rng = random.Random(seed)
    mask = mask_of(f"start: json\njson: {json_rule(schema)}")
    answer: list[int] = []
    while config.eos_token_id not in answer:
        drafts: list[int] = []
        for _ in range(rng.randrange(4)):
            if config.eos_token_id in drafts:
                break
            drafts.append(_drawn(rng, mask, drafts))
        stand = drafts[: rng.randint(0, len(drafts))]
        if config.eos_token_id not in stand:
            stand = [*stand, _drawn(rng, mask, stand)]
        mask.accept(stand)
        answer += stand
        assert len(answer) < 2000
    jsonschema.validate(json.loads(tokenizer.decode(answer)), schema)


def _drawn(rng: random.Random, mask: GrammarMask, drafts: list[int]) -> int:
    tokens = sorted(allowed(mask, drafts))
    visible = [token for token in tokens if vocabulary()[0].decode([token]).strip()]
    return rng.choice(visible or tokens) if rng.random() < 0.9 else rng.choice(tokens)
