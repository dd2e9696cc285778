"""One invocation of `outrider generate`: the checkpoint, the prompt in tokens, and the model, loaded once."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from outrider.assets import shipped_model
from outrider.checkpoint.reader import Checkpoint
from outrider.cli.prompt import context_length, encode_prompt
from outrider.cli.terminal import TextStream, progress_bar, wants_colour
from outrider.config import EngineConfig, Numerics, SpeculativeConfig
from outrider.engine.engine import Engine
from outrider.engine.loading import LoadedModel, load_model, load_tokenizer
from outrider.sampling.params import SamplingParams
from outrider.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Session:
    """What every run of this invocation shares; speculation is what --speculative-config or --compare asked for."""

    model_name: str
    tokenizer: Tokenizer
    prompt_token_ids: list[int]
    params: SamplingParams
    speculation: SpeculativeConfig | None
    loaded: LoadedModel
    quiet: bool  # --json: nothing but the object
    show_drafts: bool | None

    def engine(self, speculation: SpeculativeConfig | None) -> Engine:
        return self.loaded.engine(speculation, tokenizer=self.tokenizer)

    def text_stream(self) -> TextStream:
        return TextStream(self.tokenizer, sys.stdout, colour=wants_colour(self.show_drafts, sys.stdout))


def open_session(
    model: str | None,
    text: str,
    params: SamplingParams,
    speculation: SpeculativeConfig | None,
    *,
    chat: bool,
    options: EngineConfig,
    numerics: Numerics,
    engines: int,
    quiet: bool,
    show_drafts: bool | None,
) -> Session:
    """Everything that can be refused is refused before weights are read. Raises ConfigError and CheckpointError.

    engines: how many the session will make.
    """
    checkpoint = Checkpoint.open(shipped_model() if model is None else model)
    if speculation is not None:
        checkpoint.require_drafter(speculation.method)
    tokenizer = load_tokenizer(checkpoint)
    prompt = encode_prompt(text, tokenizer, chat=chat)
    length = context_length(checkpoint.config, options, len(prompt), params.max_tokens)
    with progress_bar("loading", hidden=quiet, byte_count=True) as progress:
        loaded = load_model(
            checkpoint,
            speculative_config=speculation,
            engine_config=options.model_copy(update={"max_model_len": length}),
            numerics=numerics,
            progress=progress,
            engines=engines,
        )
    return Session(
        model_name=checkpoint.folder.name if model is None else model,
        tokenizer=tokenizer,
        prompt_token_ids=prompt,
        params=params,
        speculation=speculation,
        loaded=loaded,
        quiet=quiet,
        show_drafts=show_drafts,
    )
