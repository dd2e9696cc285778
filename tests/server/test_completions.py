"""/v1/completions: the same text whatever the speculation, streamed or not; echo, log-probabilities, stops, usage."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.serving import DEPTH, QUESTION, Api

PATH = "/v1/completions"
PROMPT = "There are 3 books"


def completion(api: Api, **body: Any) -> dict[str, Any]:
    response = api.post(PATH, {"model": "tiny", **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["object"] == "text_completion"
    return answer


def text_of(api: Api, **body: Any) -> str:
    text: str = completion(api, **body)["choices"][0]["text"]
    return text


def joined(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(c["text"] for event in events for c in event["choices"] if c["index"] == index)


def test_speculation_is_chosen_by_request_and_changes_no_text(api: Api) -> None:
    answers = {
        depth: completion(api, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=5, speculation=depth, logprobs=2)
        for depth in ("off", "auto", 1)
    }
    off, auto, one = (answers[depth] for depth in ("off", "auto", 1))
    assert off["choices"] == auto["choices"] == one["choices"]
    drafted = [answer["usage"]["speculation"]["num_draft_tokens_per_pos"] for answer in (off, auto, one)]
    assert [len(positions) for positions in drafted] == [0, DEPTH, 1]
    assert auto["usage"]["speculation"]["num_accepted_tokens"] > 0
    assert off["usage"]["speculation"]["acceptance_length"] == 1.0


def test_a_stream_adds_up_to_the_answer(api: Api) -> None:
    body = {"prompt": [PROMPT, "Tom has"], "n": 2, "max_tokens": 12, "temperature": 1.0, "seed": 7, "logprobs": 1}
    whole = completion(api, **body)
    events = api.stream(PATH, {**body, "stream_options": {"include_usage": True}})
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 48
    for choice in whole["choices"]:
        own = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in own) == choice["text"]
        assert [c["finish_reason"] for c in own[:-1]] == [None] * (len(own) - 1)
        assert (own[-1]["finish_reason"], own[-1]["seed"]) == ("length", choice["seed"])
        for field, values in choice["logprobs"].items():
            assert [value for c in own for value in c["logprobs"][field]] == values


def test_usage_is_told_as_it_grows_when_that_is_asked_for(api: Api) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "stop": None}
    events = api.stream(PATH, {**body, "stream_options": options})
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts) and counts[0] < counts[-1] == 12
    assert {event["usage"]["prompt_tokens"] for event in events} == {events[-1]["usage"]["prompt_tokens"]}
    options["include_usage"] = False
    assert not any("usage" in event for event in api.stream(PATH, {**body, "stream_options": options}))


def test_the_seed_of_a_choice_repeats_it_alone(api: Api) -> None:
    body = {"prompt": PROMPT, "max_tokens": 10, "temperature": 1.0}
    choices = completion(api, **body, n=3)["choices"]
    assert len({choice["seed"] for choice in choices}) == 3
    for choice in choices:
        assert text_of(api, **body, seed=choice["seed"]) == choice["text"]
    assert text_of(api, **body, seed=-1) == text_of(api, **body, seed=2**64 - 1)


def test_equal_prompts_without_a_seed_get_different_texts(api: Api) -> None:
    choices = completion(api, prompt=["The"] * 4, max_tokens=16, temperature=1.0)["choices"]
    assert len({choice["text"] for choice in choices}) > 1


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_scoring_a_prompt(api: Api, max_tokens: int) -> None:
    """What lm-eval asks for: token ids, echoed with their log-probabilities."""
    ids = api.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    answer = completion(api, prompt=[ids, ids[:3]], max_tokens=max_tokens, temperature=0, logprobs=1, echo=True)
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["top_logprobs"]) == len(ids) + max_tokens
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert answer["usage"]["completion_tokens"] == 2 * max_tokens
    if max_tokens == 0:
        assert answer["choices"][0]["text"] == PROMPT
        assert "".join(logprobs["tokens"][1:]) == PROMPT
    for name, offset in zip(logprobs["tokens"][1:], logprobs["text_offset"][1:], strict=True):
        assert answer["choices"][0]["text"][offset:].startswith(name)


def test_the_echo_of_a_prompt_scores_what_generation_scored(api: Api) -> None:
    said = completion(api, prompt=PROMPT, max_tokens=8, temperature=0, logprobs=0)["choices"][0]
    again = completion(api, prompt=PROMPT + said["text"], max_tokens=0, logprobs=0, echo=True)["choices"][0]
    assert again["logprobs"]["tokens"][-8:] == said["logprobs"]["tokens"]
    assert again["logprobs"]["token_logprobs"][-8:] == pytest.approx(said["logprobs"]["token_logprobs"], abs=1e-4)


def test_a_stop_string_is_never_shown_not_even_in_part(api: Api) -> None:
    free = text_of(api, prompt=PROMPT, max_tokens=40, temperature=0)
    middle = len(free) // 2
    stop = free[middle : middle + 5]
    before = free[: free.index(stop)]
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "stop": [stop, "never said"]}
    answer = completion(api, **body)
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == (before, "stop")
    assert answer["usage"]["completion_tokens"] < 40
    events = api.stream(PATH, body)
    assert joined(events) == before
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_end_token_ends_a_text_and_usage_counts_kept_tokens(api: Api) -> None:
    bias = {"logit_bias": {"1": 100}}
    answer = completion(api, prompt=PROMPT, max_tokens=10, temperature=0, **bias)
    assert answer["choices"][0]["text"] == "" and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1
    at_least = completion(api, prompt=PROMPT, max_tokens=10, temperature=0, min_tokens=4, **bias)
    assert at_least["usage"]["completion_tokens"] == 5
    assert completion(api, prompt=PROMPT, max_tokens=6, ignore_eos=True, **bias)["usage"]["completion_tokens"] == 6


def test_a_prompt_that_was_seen_before_is_cached_and_says_so(api: Api) -> None:
    body = {"prompt": [7] + [40 + i % 90 for i in range(299)], "max_tokens": 6, "temperature": 0, "cache_salt": "x"}
    cold, warm = completion(api, **body), completion(api, **body)
    assert cold["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["usage"]["prompt_tokens_details"] == {"cached_tokens": 256}
    assert cold["choices"][0]["text"] == warm["choices"][0]["text"]
    other = completion(api, **{**body, "cache_salt": "y"})
    assert other["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_the_context_ends_with_length(api: Api) -> None:
    prompt = [40 + i % 90 for i in range(509)]
    answer = completion(api, prompt=prompt, max_tokens=50, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


def test_tokens_there_and_back(api: Api) -> None:
    found = api.post("/tokenize", {"prompt": QUESTION, "add_special_tokens": False}).json()
    assert found["count"] == len(found["tokens"]) and found["max_model_len"] == 512
    assert api.post("/detokenize", {"tokens": found["tokens"]}).json() == {"prompt": QUESTION}
    assert api.post("/tokenize", {"prompt": QUESTION}).json()["tokens"] == [0, *found["tokens"]]
