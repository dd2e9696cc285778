"""A model that a kernel would refuse in the middle of a batch is refused when it is loaded, by the same limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.test_config import CONFIGS

from outrider import ops
from outrider.config import ConfigError, EngineConfig, ModelConfig, Numerics, load_model_config
from outrider.engine import kernel_support
from outrider.engine.kernel_support import kernel_problems, require_kernels
from outrider.ops.expert_bank import check_bank
from outrider.ops.triton.indexer_logits import check_logits
from outrider.ops.triton.key_rows import key_format
from outrider.ops.triton.softmax_tiles import output_angles
from outrider.platforms.architectures import architecture


def changed(**fields: Any) -> ModelConfig:
    return load_model_config(CONFIGS / "flash.json").model_copy(update=fields)


def problems(config: ModelConfig, options: EngineConfig | None = None, numerics: Numerics | None = None) -> list[str]:
    return list(kernel_problems(config, options or EngineConfig(), numerics or Numerics()))


@pytest.mark.parametrize("name", ["flash", "flash_dspark", "pro"])
def test_released_models_are_served(name: str) -> None:
    assert problems(load_model_config(CONFIGS / f"{name}.json")) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("head_dim", 192),
        ("head_dim", 1024),
        ("qk_rope_head_dim", 48),
        ("index_head_dim", 16),
        ("hc_mult", 2),
        ("hidden_size", 4160),
        ("moe_intermediate_size", 2080),
        ("q_lora_rank", 1000),
        ("o_lora_rank", 1000),
        ("quantization_config", None),
        ("expert_dtype", "fp8"),
    ],
)
def test_a_field_that_no_kernel_serves_is_named(field: str, value: object) -> None:
    found = problems(changed(**{field: value}))
    assert len(found) == 1 and found[0].startswith(f"{field}: ") and "; " in found[0]


def test_other_options_that_no_kernel_serves() -> None:
    assert problems(changed(o_groups=512))[0].startswith("num_attention_heads * head_dim / o_groups: 64; ")
    assert "window_pages: " in problems(changed(), EngineConfig(window_pages=(1 << 24) + 1))[0]
    assert problems(changed(), EngineConfig(window_pages=1 << 24)) == []
    assert [text.partition(":")[0] for text in problems(changed(), None, Numerics.plain())] == [
        "kv_cache_dtype",
        "indexer_dtype",
    ]


def test_every_problem_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(device: torch.device) -> object:
        raise ValueError("no kernels for GPU architecture 'gfx1100'")

    monkeypatch.setattr(kernel_support, "gpu_architecture", unknown)
    with pytest.raises(ConfigError, match=r"model: cannot run on cuda: .*gfx1100.*; head_dim: 96; .*hc_mult: 2"):
        require_kernels(changed(head_dim=96, hc_mult=2), EngineConfig(), Numerics(), torch.device("cuda"), "model")


def test_the_architecture_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    target = architecture("gfx950")
    monkeypatch.setattr(kernel_support, "gpu_architecture", lambda device: target)
    assert require_kernels(changed(), EngineConfig(), Numerics(), torch.device("cuda"), "model") is target
    assert require_kernels(changed(head_dim=96), EngineConfig(), Numerics(), torch.device("cpu"), "model") is None


def _keys(width: int) -> Callable[[], object]:
    q = torch.zeros(1, 4, width, dtype=torch.bfloat16)
    return lambda: key_format(ops.KvRows(q[0], None, None), q)


def _angles(rope: int) -> Callable[[], object]:
    return lambda: output_angles(ops.Rotation(*torch.zeros(2, 1, rope // 2)), torch.zeros(1, 4, 512))


def _index(width: int) -> Callable[[], object]:
    rows = ops.KvRows(torch.zeros(4, width), None, None)
    paged = ops.PagedRows(rows, torch.zeros(1, 1, dtype=torch.int32), 4)
    return lambda: check_logits(torch.zeros(1, 2, width), torch.zeros(1, 2), paged)


def _bank(width: int) -> Callable[[], object]:
    codes = [torch.zeros(2, rows, columns // 2, dtype=torch.uint8) for rows, columns in ((256, width), (width, 128))]
    scales = [torch.zeros(2, rows, columns // 32, dtype=torch.uint8) for rows, columns in ((256, width), (width, 128))]
    return lambda: check_bank(ops.ExpertBank(codes[0], scales[0], codes[1], scales[1], None))


@pytest.mark.parametrize(
    ("field", "served", "refused", "kernel"),
    [
        ("head_dim", 256, 192, _keys),
        ("qk_rope_head_dim", 32, 48, _angles),
        ("index_head_dim", 64, 16, _index),
        ("hidden_size", 4096, 4160, _bank),
    ],
)
def test_the_limits_are_the_kernels(
    field: str, served: int, refused: int, kernel: Callable[[int], Callable[[], object]]
) -> None:
    assert problems(changed(**{field: served})) == []
    kernel(served)()
    assert problems(changed(**{field: refused})) != []
    with pytest.raises(ValueError, match=str(refused)):
        kernel(refused)()
