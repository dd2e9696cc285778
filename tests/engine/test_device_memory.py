"""What a GPU holds: rows and weights against hand counts and against the tensors themselves, a step against bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.test_config import CONFIGS
from tests.tiny import tiny_checkpoint, tiny_config

from outrider import ops
from outrider.checkpoint.dummy import DummyCheckpoint
from outrider.checkpoint.names import expected_tensors
from outrider.config import ConfigError, EngineConfig, Numerics, load_model_config
from outrider.engine import device_memory
from outrider.engine.device_memory import (
    device_cache_costs,
    device_weight_bytes,
    device_workspace_bytes,
    graph_bytes,
    plan_device_memory,
)
from outrider.engine.memory_plan import MemoryPlan

FLASH = load_model_config(CONFIGS / "flash.json")


@pytest.mark.parametrize(
    ("numerics", "row", "key"),
    [
        (Numerics(kv_cache_dtype="fp8"), 448 + 2 * 64 + 7, 64 + 4),
        (Numerics(indexer_dtype="fp8"), 1024, 129),
        (Numerics(kv_cache_dtype="bf16", indexer_dtype="bf16"), 1024, 256),
    ],
)
def test_rows_of_flash(numerics: Numerics, row: int, key: int) -> None:
    costs = {cost.kind: cost for cost in device_cache_costs(FLASH, numerics, with_drafter=True)}
    csa, hca = (FLASH.compress_ratios[:43].count(ratio) for ratio in (4, 128))
    assert costs["window"].bytes_per_token == 43 * row
    assert costs["compressed"].page_bytes == row * (32 * csa + hca)
    assert costs["indexer"].page_bytes == key * 32 * csa
    assert costs["partial group"].bytes_per_token == 4 * (csa * (4 * 512 + 4 * 128) + hca * 2 * 512)
    assert costs["drafter"].page_bytes == 128 * row + 2 * 4 * 4096
    assert [cost.kind for cost in costs.values() if not cost.in_window_pages] == ["compressed", "indexer"]


def test_weights_are_the_bytes_that_lie_on_the_device(tmp_path: Path) -> None:
    """Every matrix of a checkpoint made into what the ops take, the rest as it is."""
    sizes = {"hidden_size": 128, "moe_intermediate_size": 128, "q_lora_rank": 128, "o_lora_rank": 128}
    tiny_checkpoint(tmp_path, tiny_config(**sizes))
    checkpoint = DummyCheckpoint.open(tmp_path)
    table = checkpoint.tensors()
    raw = checkpoint.load_to_device(torch.device("cpu"))
    total = 0
    for name, spec in table.items():
        if spec.is_scale and table[f"{name.removesuffix('.scale')}.weight"].dtype == "F8_E4M3":
            continue
        tensors = [raw[name]]
        if spec.dtype == "F8_E4M3":
            assert spec.scale is not None
            weight = ops.fp8_weight(raw[name], raw[spec.scale])
            assert weight.scales is not None
            tensors = [weight.data, weight.scales, weight.tickets]
        elif spec.dtype == "BF16" and len(spec.shape) == 2 and name != "embed.weight":
            weight = ops.bf16_weight(raw[name])
            tensors = [weight.data, weight.tickets]
        total += sum(x.numel() * x.element_size() for x in tensors)
    assert sum(device_weight_bytes(table).values()) == total
    assert device_weight_bytes(table)[True] > 0


def test_a_step_of_flash_is_a_small_part_of_a_gpu() -> None:
    decode = device_workspace_bytes(FLASH, 65536, 3, rows=256, num_logits=256)
    prefill = device_workspace_bytes(FLASH, 65536, 3, rows=8192, num_logits=64)
    assert 256 * 129280 * 4 < decode < 1 << 30 < prefill < 8 << 30
    longer = device_workspace_bytes(FLASH, 1 << 20, 3, rows=8192, num_logits=64)
    assert prefill <= longer <= prefill + 2 * device_memory.SCRATCH_BYTES


def test_graphs_share_a_pool() -> None:
    one = graph_bytes(FLASH, 65536, 3, sizes=[256], num_logits=256)
    many = graph_bytes(FLASH, 65536, 3, sizes=[1, 2, 4, 8, 256], num_logits=256)
    pool = device_workspace_bytes(FLASH, 65536, 3, rows=256, num_logits=256)
    assert pool < one < many < 2 * one and many - pool == 5 * (one - pool)
    assert graph_bytes(FLASH, 65536, 3, sizes=[], num_logits=0) == 0


def test_the_plan_of_flash_on_a_gpu() -> None:
    """Weights of 160 GB fit into no 141 GB; into 192 GB with room for a context, less of it where graphs are kept."""
    options = EngineConfig(max_model_len=65536, max_num_seqs=64, max_num_batched_tokens=2048)
    table = expected_tensors(FLASH)

    def plan(gigabytes: int, *sizes: int) -> MemoryPlan:
        return plan_device_memory(
            FLASH, table, options, Numerics(), depth=2, available=gigabytes * 10**9, graph_sizes=sizes
        )

    with pytest.raises(ConfigError, match="flash: does not fit into memory: weights 1"):
        plan(141).require_fit("flash")
    without, with_graphs = plan(192), plan(192, 1, 2, 4, 192)
    assert without.fits and with_graphs.fits and without.graphs == 0 < with_graphs.graphs
    assert with_graphs.context_tokens <= without.context_tokens and with_graphs.context_tokens > 65536
    assert "graphs " in with_graphs.describe() and "graphs" not in without.describe()
    assert with_graphs.total <= 0.9 * 192e9
    assert without.drafter_weights > 0
