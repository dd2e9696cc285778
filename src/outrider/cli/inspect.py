"""`outrider inspect MODEL`: what a checkpoint is, what it weighs, and what its cache costs.

Works on a checkpoint (every header is checked) and on a config.json alone (the table is computed, not checked).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.checkpoint.locate import locate_config
from outrider.checkpoint.names import (
    Drafter,
    Part,
    TensorSpec,
    config_drafter,
    describe_drafter,
    expected_tensors,
)
from outrider.checkpoint.reader import Checkpoint
from outrider.config import EngineConfig, LayerKind, ModelConfig, load_model_config
from outrider.engine.memory_plan import plan_memory, size_text
from outrider.platforms.memory import available_memory

KIND_NAMES = {LayerKind.WINDOW: "window", LayerKind.CSA: "CSA 1:4", LayerKind.HCA: "HCA 1:128"}
PLANNED_DEPTH = 3  # drafts of a step, as --compare takes


def inspect(
    model: Annotated[str, typer.Argument(help="Checkpoint folder, path to a config.json, or hub id.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a model's architecture, size by part, drafter and memory per context token."""
    summary = summarize(model)
    if json_output:
        print(json.dumps(summary, indent=2))
    else:
        _show(summary, Console())


def summarize(model: str) -> dict[str, Any]:
    """Everything that `inspect` shows, as plain data. Raises ConfigError and CheckpointError."""
    path, has_weights = locate_config(model)
    if has_weights:
        checkpoint = Checkpoint.open(path.parent)
        config, drafter = checkpoint.config, checkpoint.drafter
        specs, sizes = checkpoint.tensors(), {n: checkpoint.stored_bytes(n) for n in checkpoint.tensors()}
    else:
        config = load_model_config(path)
        drafter = config_drafter(config)
        specs = expected_tensors(config, drafter)
        sizes = {name: spec.nbytes for name, spec in specs.items()}
    parts = _parts(list(specs.values()), sizes)
    return {
        "model": str(model),
        "config": str(path),
        "checked": has_weights,
        "architecture": _architecture(config),
        "layers": layer_runs(config.layer_kinds),
        "weights": _weight_format(config),
        "parts": parts,
        "total": {key: sum(part[key] for part in parts) for key in ("tensors", "parameters", "bytes")},
        "active_parameters": _active_parameters(config, parts),
        "drafter": {"kind": drafter, "description": describe_drafter(drafter, config)},
        "cache": format_costs(config, drafter),
        "memory": _memory(config, specs.values(), drafter),
    }


def _architecture(config: ModelConfig) -> dict[str, Any]:
    names = (
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "num_attention_heads",
        "head_dim",
        "qk_rope_head_dim",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "sliding_window",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "num_hash_layers",
        "hc_mult",
        "max_position_embeddings",
    )
    return {"model_type": config.model_type, **{name: getattr(config, name) for name in names}}


def _weight_format(config: ModelConfig) -> str:
    if config.quantization_config is None:
        return "BF16 or F32, not quantised"
    if config.expert_dtype == "fp4":
        return "linears FP8 (E8M0 scales, 128 x 128), experts FP4 (E8M0 scales, 1 x 32)"
    return "linears and experts FP8 (F32 scales, 128 x 128)"


def layer_runs(kinds: tuple[LayerKind, ...]) -> list[dict[str, str]]:
    """Run-length description: [{"layers": "0-1", "kind": "window"}, {"layers": "2-41", "kind": "alternating ..."}]."""
    runs = []
    at = 0
    while at < len(kinds):
        same = at
        while same < len(kinds) and kinds[same] == kinds[at]:
            same += 1
        pairs = at
        while pairs + 1 < len(kinds) and kinds[pairs : pairs + 2] == kinds[at : at + 2]:
            pairs += 2
        if same == at + 1 and pairs >= at + 4:
            end, text = pairs, f"alternating {KIND_NAMES[kinds[at]]}, {KIND_NAMES[kinds[at + 1]]}"
        else:
            end, text = same, KIND_NAMES[kinds[at]]
        runs.append({"layers": f"{at}" if end == at + 1 else f"{at}-{end - 1}", "kind": text})
        at = end
    return runs


def _parts(specs: list[TensorSpec], sizes: dict[str, int]) -> list[dict[str, Any]]:
    rows = {part: {"part": part.value, "tensors": 0, "parameters": 0, "bytes": 0} for part in Part}
    for spec in specs:
        row: dict[str, Any] = rows[spec.part]
        row["tensors"] += 1
        row["parameters"] += spec.parameters
        row["bytes"] += sizes[spec.name]
    return [row for row in rows.values() if row["tensors"]]


def _active_parameters(config: ModelConfig, parts: list[dict[str, Any]]) -> int:
    """Parameters of the trunk that one token uses: every part but the drafter, top-k of the routed experts."""
    active = 0
    for row in parts:
        if row["part"] == Part.EXPERTS:
            active += row["parameters"] * config.num_experts_per_tok // config.n_routed_experts
        elif row["part"] not in (Part.MTP, Part.DSPARK):
            active += row["parameters"]
    return active


def format_costs(config: ModelConfig, drafter: Drafter) -> dict[str, dict[str, float]]:
    """Bytes of cache in storage formats: growth per context token, and the window rows that every sequence holds.

    "fp8" is the layout of existing engines: E4M3 with E8M0 scales (padded to 8 bytes) and bf16 rope dims for the main
    rows, E4M3 with one float32 scale for indexer rows. "bf16" is plain rows. What this engine takes, with the partial
    groups that it keeps, stands in the memory plan.
    """
    scales = -(-config.nope_head_dim // config.kv_quant_block)
    fp8_row = config.nope_head_dim + 2 * config.qk_rope_head_dim + 8 * -(-scales // 8)
    rows = {"fp8": (fp8_row, config.index_head_dim + 4), "bf16": (2 * config.head_dim, 2 * config.index_head_dim)}
    csa, hca = config.kind_count(LayerKind.CSA), config.kind_count(LayerKind.HCA)
    windows = config.sliding_window * (config.num_hidden_layers + (drafter == "mtp"))
    return {
        name: {"per_token": csa * (row + index_row) / 4 + hca * row / 128, "window_per_sequence": windows * row}
        for name, (row, index_row) in rows.items()
    }


def _memory(config: ModelConfig, specs: Iterable[TensorSpec], drafter: Drafter) -> dict[str, Any]:
    """The memory plan of an engine with default options on this machine, drafting if the checkpoint can."""
    plan = plan_memory(
        config, specs, EngineConfig(), depth=PLANNED_DEPTH if drafter == "mtp" else 0, available=available_memory()
    )
    return {
        **{name: getattr(plan, name) for name in ("weights", "drafter_weights", "workspace", "cache_bytes", "total")},
        "cache": [
            {"kind": cost.kind, "bytes_per_token": cost.bytes_per_token, "window_only": cost.in_window_pages}
            for cost in plan.cache
        ],
        **{name: getattr(plan, name) for name in ("window_pages", "entry_pages", "context_tokens")},
        **{name: getattr(plan, name) for name in ("available", "budget", "fits")},
    }


# ------------------------------------------------------------------------------------------------ for people


def _show(summary: dict[str, Any], console: Console) -> None:
    checked = "every tensor checked" if summary["checked"] else "computed from config.json; no tensors were checked"
    console.print(Text(summary["model"], style="bold"), soft_wrap=True)
    a = summary["architecture"]
    facts = {
        "tensors": checked,
        "layers": "; ".join(f"{run['layers']} {run['kind']}" for run in summary["layers"]),
        "sizes": f"hidden {a['hidden_size']}, {a['num_attention_heads']} heads of {a['head_dim']} "
        f"({a['qk_rope_head_dim']} rotated), {a['hc_mult']} streams, vocabulary {a['vocab_size']:,}",
        "attention": f"window {a['sliding_window']}, indexer {a['index_n_heads']} heads of {a['index_head_dim']}, "
        f"top {a['index_topk']}; context {a['max_position_embeddings']:,}",
        "experts": f"{a['n_routed_experts']} routed (top {a['num_experts_per_tok']}) and 1 shared of width "
        f"{a['moe_intermediate_size']}; layers below {a['num_hash_layers']} routed by token table",
        "weights": summary["weights"],
        "drafter": summary["drafter"]["description"],
        "active": f"{_count(summary['active_parameters'])} parameters per token",
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in facts.items():
        table.add_row(Text(name, style="dim"), Text(text))
    console.print(table)
    console.print(_part_table(summary))
    console.print(_cache_table(summary["cache"]))
    console.print(_memory_table(summary["memory"]))
    if not summary["memory"]["fits"]:
        console.print("It does not fit into the memory of this machine.")


def _part_table(summary: dict[str, Any]) -> Table:
    table = Table("part", title="Weights", title_justify="left")
    for header in ("tensors", "parameters", "bytes"):
        table.add_column(header, justify="right", no_wrap=True)
    for row in summary["parts"]:
        table.add_row(row["part"], f"{row['tensors']:,}", _count(row["parameters"]), f"{row['bytes']:,}")
    table.add_section()
    total = summary["total"]
    table.add_row("total", f"{total['tensors']:,}", _count(total["parameters"]), f"{total['bytes']:,}")
    return table


def _cache_table(costs: dict[str, dict[str, float]]) -> Table:
    table = Table("stored as", title="Cache, by format", title_justify="left")
    table.add_column("per context token", justify="right")
    table.add_column("windows, per sequence", justify="right")
    for name, cost in costs.items():
        table.add_row(name, size_text(cost["per_token"]), size_text(cost["window_per_sequence"]))
    return table


def _memory_table(memory: dict[str, Any]) -> Table:
    table = Table("", title="Memory of this engine, default options, all in float32", title_justify="left")
    table.add_column("per token", justify="right")
    table.add_column("bytes", justify="right")
    table.add_row("weights", "", size_text(memory["weights"]))
    table.add_row("drafter's weights", "", size_text(memory["drafter_weights"]))
    for cost in memory["cache"]:
        kept = ", while in the window" if cost["window_only"] else ", of the whole context"
        table.add_row(f"  {cost['kind']} rows{kept}", size_text(cost["bytes_per_token"]), "")
    table.add_row(f"cache, {memory['context_tokens']:,} context tokens", "", size_text(memory["cache_bytes"]))
    table.add_row("workspace of a step, at most", "", size_text(memory["workspace"]))
    table.add_section()
    table.add_row("total", "", size_text(memory["total"]))
    if memory["budget"] is not None:
        table.add_row("available to it on this machine", "", size_text(memory["budget"]))
    return table


def _count(number: int) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= limit:
            return f"{number / limit:.2f} {unit}"
    return str(number)
