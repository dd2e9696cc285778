"""`outrider serve` as a process: the openai client unmodified, and an end that leaves nobody without an answer."""

from __future__ import annotations

import signal
import socket
import time

import httpx
import openai
import pytest
from tests.server.process import process
from tests.server.serving import QUESTION

from outrider.cli.main import run

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]


def test_openai_client() -> None:
    speculation = '{"method": "mtp", "num_speculative_tokens": 3, "adaptive": false}'
    with process("--speculative_config", speculation, "--served-model-name", "v4") as (started, url):
        client = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
        assert [model.id for model in client.models.list()] == ["v4"]

        chat = client.chat.completions.create(model="v4", messages=MESSAGES, temperature=0, logprobs=True)
        text = chat.choices[0].message.content
        assert text
        assert chat.choices[0].logprobs is not None and chat.choices[0].logprobs.content
        assert chat.usage is not None and chat.usage.model_extra is not None
        assert chat.usage.model_extra["speculation"]["num_accepted_tokens"] > 0

        stream = client.chat.completions.create(
            model="v4",
            messages=MESSAGES,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"speculation": "off"},
        )
        chunks = list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
        assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == chat.usage.completion_tokens

        completion = client.completions.create(
            model="v4", prompt=["There", "Tom"], max_tokens=5, logprobs=2, echo=True, seed=3, stop=["zebra"]
        )
        assert [choice.index for choice in completion.choices] == [0, 1]
        assert completion.choices[0].text.startswith("There")

        with pytest.raises(openai.BadRequestError) as bad:
            client.completions.create(model="v4", prompt="x", temperature=-1)
        assert bad.value.param == "temperature"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="gpt", prompt="x")
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()

        with client.completions.create(model="v4", prompt="x", max_tokens=400, stream=True) as left:
            next(iter(left))
        end = time.monotonic() + 20
        while 'num_requests_running{engine="0",model_name="v4"} 0.0' not in httpx.get(f"{url[:-3]}/metrics").text:
            assert time.monotonic() < end
        started.send_signal(signal.SIGTERM)
        assert started.wait(20) in (0, -signal.SIGTERM)


def test_sigterm_ends_streams_with_an_error_after_the_time_to_drain() -> None:
    with process("--drain-seconds", "0.5") as (started, url):
        client = openai.OpenAI(base_url=url, api_key="sesame", max_retries=0)
        stream = client.completions.create(
            model="tiny", prompt="There", max_tokens=500, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        begin = time.monotonic()
        started.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="the engine has ended"):
            for _ in stream:
                pass
        assert started.wait(20) in (0, -signal.SIGTERM)
        assert time.monotonic() - begin < 15


def test_what_a_start_refuses(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options, words in (
            (["--port", port], f"--host 127.0.0.1 --port {port}: Address already in use"),
            (["--host", "256.0.0.1.x"], "--host 256.0.0.1.x --port 8000: "),
            (["--api-key", " ", "--port", "0"], "--api-key: it is empty"),
            (["--max_num_seqs", "0"], "max_num_seqs: "),
            (["/nowhere", "--port", "0"], "/nowhere: no such folder"),
            (["--max-model-len", "100000000", "--port", "0"], "max_model_len: 100000000 is more than"),
        ):
            capsys.readouterr()
            assert run(["serve", *options]) == 2
            assert words in capsys.readouterr().err
