"""The engine as a Python object: prompts in, texts out."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outrider.config import ConfigError, SpeculativeConfig, parse_numerics
from outrider.engine.loading import Progress, open_engine
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
        kv_cache_dtype: str = "auto",
        indexer_dtype: str = "fp4",
        exact_qat: bool = False,
        progress: Progress | None = None,
        **engine_options: Any,
    ) -> None:
        """kv_cache_dtype: "auto", "fp8", "bf16" or "float32"; indexer_dtype: "fp4", "fp8", "bf16" or "float32": how
        cached rows are rounded (see `Numerics`; on the CPU they lie in float32 all the same). exact_qat: inputs of the
        linear layers are rounded to FP8 too, as in training. `engine_options`: fields of EngineConfig: max_model_len,
        max_num_seqs, max_num_batched_tokens, gpu_memory_utilization, enable_prefix_caching, seed, ...

        Raises ConfigError and CheckpointError, before weights are read wherever that is possible; among them what does
        not fit into memory. The memory plan is logged (logger "outrider", INFO).
        """
        numerics = parse_numerics(
            {"kv_cache_dtype": kv_cache_dtype, "indexer_dtype": indexer_dtype, "activation_fp8": exact_qat}
        )
        self.engine, self.tokenizer = open_engine(
            model, speculative_config=speculative_config, numerics=numerics, progress=progress, **engine_options
        )

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
        seed = self.engine.new_seed() if params.seed is None else params.seed
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


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [[int(item) for item in prompts if isinstance(item, int)]]
    return [item for item in prompts if not isinstance(item, int)]
