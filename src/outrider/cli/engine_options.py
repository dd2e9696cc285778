"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

ENGINE = "Engine"
_PANEL = ENGINE

Model = Annotated[str | None, typer.Option(help="Checkpoint folder or hub id (default: the one that ships).")]
MaxModelLen = Annotated[
    int | None, typer.Option(help="Most tokens, prompt included (default: the model's).", rich_help_panel=_PANEL)
]
MaxNumBatchedTokens = Annotated[
    int,
    typer.Option(
        help="Rows of a step, drafts included: a longer prompt is computed in chunks.", rich_help_panel=_PANEL
    ),
]
GpuMemoryUtilization = Annotated[
    float | None,
    typer.Option(
        help="Share of the available memory (on the CPU: of the machine's) for weights, cache and workspace: more "
        "than 0, at most 1 (default: 0.9).",
        rich_help_panel=_PANEL,
    ),
]
KvCacheDtype = Annotated[
    str,
    typer.Option(
        metavar="auto|fp8|bf16|float32",
        help="Rounding of cached KV rows; auto is what the model was trained with. The CPU stores float32 whatever "
        "the rounding.",
        rich_help_panel=_PANEL,
    ),
]
IndexerDtype = Annotated[
    str,
    typer.Option(
        metavar="fp4|fp8|bf16|float32",
        help="Rounding of the indexer's keys and queries; fp4 is what the model was trained with. The CPU stores "
        "float32 whatever the rounding.",
        rich_help_panel=_PANEL,
    ),
]
LoadFormat = Annotated[
    str,
    typer.Option(
        metavar="auto|dummy",
        help="dummy: random weights of the shapes in config.json, which is all that --model must hold (for timing).",
        rich_help_panel=_PANEL,
    ),
]
ExactQat = Annotated[
    bool,
    typer.Option("--exact-qat", help="Round activations to FP8 too, as in training (slower).", rich_help_panel=_PANEL),
]
