"""The engine as a Python object: prompts in, texts out."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from outrider.checkpoint.reader import Checkpoint
from outrider.config import ConfigError, EngineConfig, Numerics, SpeculativeConfig, describe_validation_error
from outrider.engine.loading import Progress, load_model, load_tokenizer
from outrider.engine.outputs import CompletionOutput, RequestOutput, completion_output
from outrider.engine.request import Request
from outrider.sampling.logprobs import TokenLogprobs
from outrider.sampling.noise import derived_seed
from outrider.sampling.params import SamplingParams

Prompt = str | Sequence[int]


class LLM:
    """A checkpoint, loaded and ready to generate.

        llm = LLM("path/or/hub-id", speculative_config={"method": "mtp", "num_speculative_tokens": 3})
        for output in llm.generate(["Two plus two is"], SamplingParams(temperature=0.7, seed=1)):
            print(output.outputs[0].text)

    With the same seeds the texts are the same whatever `speculative_config` says.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        speculative_config: SpeculativeConfig | Mapping[str, Any] | None = None,
        numerics: Numerics | None = None,
        progress: Progress | None = None,
        **engine_options: Any,
    ) -> None:
        """`engine_options`: fields of EngineConfig (max_model_len, max_num_seqs, ...).

        Raises ConfigError and CheckpointError, before weights are read wherever that is possible.
        """
        speculation, options = _parse(speculative_config, engine_options)
        checkpoint = Checkpoint.open(model)
        options.context_of(checkpoint.config)
        self.tokenizer = load_tokenizer(checkpoint)
        loaded = load_model(checkpoint, speculative_config=speculation, numerics=numerics, progress=progress)
        self.engine = loaded.engine(speculation, options, tokenizer=self.tokenizer)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        speculation: int | None = None,
    ) -> list[RequestOutput]:
        """Continues every prompt; results in the order of the prompts.

        prompts: texts (a begin token is put in front) or token ids (taken as they are), one or many. params: one for
        all, or one a prompt (None: greedy, 256 tokens). `speculation`: drafts a step, at most; 0 is off.

        Raises ConfigError before anything is generated. A request that fails while it runs has finish_reason "error".
        """
        many = _as_list(prompts)
        each = [params or SamplingParams()] * len(many) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(many):
            raise ConfigError(f"params: {len(each)} given for {len(many)} prompts")
        groups: list[list[Request]] = []
        try:
            for prompt, own in zip(many, each, strict=True):
                ids = self.tokenizer.completion_prompt(prompt) if isinstance(prompt, str) else list(prompt)
                groups.append(self._add(ids, own, speculation))
            logprobs = self._run([request for group in groups for request in group])
        finally:
            for request in (request for group in groups for request in group):
                self.engine.abort(request)
        return [self._output(group, logprobs) for group in groups]

    def _add(self, prompt: list[int], params: SamplingParams, speculation: int | None) -> list[Request]:
        """The n requests of a prompt. All but the first wait until they can share the first one's prompt blocks."""
        seed = secrets.randbits(64) if params.seed is None else params.seed
        salt = None if self.engine.options.enable_prefix_caching or params.n == 1 else secrets.token_bytes(16)
        requests: list[Request] = []
        for index in range(params.n):
            own = replace(params, n=1, seed=seed if params.n == 1 else derived_seed(seed, index))
            first = requests[0] if requests else None
            requests.append(self.engine.add_request(prompt, own, speculation=speculation, salt=salt, follows=first))
        return requests

    def _run(self, requests: Sequence[Request]) -> dict[Request, list[TokenLogprobs]]:
        logprobs: dict[Request, list[TokenLogprobs]] = {request: [] for request in requests}
        while any(request.finish_reason is None for request in requests):
            for output in self.engine.step():
                if output.logprobs is not None:
                    logprobs[output.request] += output.logprobs
        return logprobs

    def _output(self, group: Sequence[Request], logprobs: Mapping[Request, list[TokenLogprobs]]) -> RequestOutput:
        outputs: list[CompletionOutput] = []
        for index, request in enumerate(group):
            own = tuple(logprobs[request]) if request.params.logprobs is not None else None
            outputs.append(completion_output(index, request, self.tokenizer, own))
        first = group[0]
        return RequestOutput(
            prompt_token_ids=tuple(first.token_ids[: first.prompt_length]),
            outputs=tuple(outputs),
            num_cached_tokens=first.num_cached or 0,
            prompt_logprobs=None if first.prompt_logprobs is None else tuple(first.prompt_logprobs),
        )


def _parse(
    speculative_config: SpeculativeConfig | Mapping[str, Any] | None, engine_options: Mapping[str, Any]
) -> tuple[SpeculativeConfig | None, EngineConfig]:
    try:
        speculation = None if speculative_config is None else SpeculativeConfig.model_validate(speculative_config)
        return speculation, EngineConfig.model_validate(engine_options)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error)) from None


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [[int(item) for item in prompts if isinstance(item, int)]]
    return [item for item in prompts if not isinstance(item, int)]
