"""Tensors as stored, straight to a device; and checkpoints of which only config.json exists."""

from __future__ import annotations

import functools
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoint import damage
from tests.test_config import CONFIGS
from tests.tiny import tiny_checkpoint, tiny_config

from outrider.checkpoint import reader
from outrider.checkpoint.dummy import DummyCheckpoint
from outrider.checkpoint.errors import CheckpointError
from outrider.checkpoint.reader import Checkpoint
from outrider.checkpoint.staging import Staging
from outrider.config import load_model_config

CPU = torch.device("cpu")
SMALL = {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0], "num_hash_layers": 1, "vocab_size": 96}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path, tiny_config(**SMALL), max_shard_bytes=200_000)


@pytest.fixture(params=[64, 4096])
def _staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Host buffers smaller than most tensors, or than some."""
    size: int = request.param
    monkeypatch.setattr(reader, "Staging", functools.partial(Staging, size=size))
    return size


@pytest.mark.usefixtures("_staging")
def test_every_tensor_as_stored(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    calls: list[tuple[int, int]] = []
    found = checkpoint.load_to_device(CPU, progress=lambda done, total: calls.append((done, total)))
    assert found.keys() == checkpoint.tensors().keys()
    for name, tensor in found.items():
        expected = checkpoint.read(name)
        assert tensor.dtype == expected.dtype and tensor.shape == expected.shape, name
        assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8)), name
    total = sum(map(checkpoint.stored_bytes, found))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls) and calls[-1] == (total, total)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.usefixtures("_staging")
def test_copies_that_overlap_reads(folder: Path) -> None:
    """Page-locked buffers, filled again only when their copy has ended."""
    checkpoint = Checkpoint.open(folder)
    found = checkpoint.load_to_device(torch.device("cuda"))
    for name, tensor in found.items():
        assert tensor.is_cuda
        assert torch.equal(tensor.cpu().view(torch.uint8), checkpoint.read(name).view(torch.uint8)), name


def test_files_are_read_once_and_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[str, int]] = []
    fill = Staging.fill

    def watched(self: Staging, target: torch.Tensor, file: Any, begin: int) -> Any:
        places.append((file.name, begin))
        return fill(self, target, file, begin)

    monkeypatch.setattr(Staging, "fill", watched)
    Checkpoint.open(folder).load_to_device(CPU)
    assert places == sorted(places) and len({name for name, _ in places}) > 2


def test_host_memory_is_two_buffers(folder: Path, _staging: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(folder)
    sizes: list[int] = []
    empty = torch.empty

    def counted(*size: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = empty(*size, **options)
        sizes.append(made.numel() * made.element_size())
        return made

    monkeypatch.setattr(torch, "empty", counted)
    found = checkpoint.load_to_device(CPU)
    assert sum(sizes) == 2 * _staging + sum(checkpoint.stored_bytes(name) for name in found)


def test_chosen_tensors(folder: Path) -> None:
    assert Checkpoint.open(folder).load_to_device(CPU, ["norm.weight", "embed.weight"]).keys() == {
        "embed.weight",
        "norm.weight",
    }


@pytest.mark.usefixtures("_staging")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("layers.1.attn.wq_a.scale", b"\xff", "1 of 1 block scales are NaN"),
        ("layers.1.attn.wq_a.weight", b"\x7f", "holds NaN"),
        ("norm.weight", struct.pack("<f", float("nan"))[2:], "holds NaN"),
        ("layers.0.ffn.gate.tid2eid", struct.pack("<q", 99), "row 0 names experts"),
    ],
)
def test_what_is_damaged_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    tiny_checkpoint(tmp_path, tiny_config(**SMALL))
    damage.poke(tmp_path / "model.safetensors", name, content)
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=f"model.safetensors: {name}: {words}"):
        checkpoint.load_to_device(CPU)


def test_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path, tiny_config(**SMALL)) / "model.safetensors"
    checkpoint = Checkpoint.open(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="the file ends early"):
        checkpoint.load_to_device(CPU)


# -------- dummy


def dummy(tmp_path: Path, **fields: Any) -> DummyCheckpoint:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config(**SMALL | fields)))
    return DummyCheckpoint.open(tmp_path)


@pytest.mark.parametrize("fields", [{}, {"expert_dtype": "fp8"}], ids=str)
def test_dummy_weights_have_the_shapes_and_formats_of_real_ones(tmp_path: Path, fields: dict[str, Any]) -> None:
    made = dummy(tmp_path, **fields)
    real = Checkpoint.open(tiny_checkpoint(tmp_path / "real", tiny_config(**SMALL | fields)))
    assert made.drafter == real.drafter == "mtp"
    assert {name: (spec.shape, spec.dtype) for name, spec in made.tensors().items()} == {
        name: (spec.shape, spec.dtype) for name, spec in real.tensors().items()
    }
    there, here = made.load_to_device(CPU), real.load_to_device(CPU)
    for name, tensor in here.items():
        assert (there[name].dtype, there[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(there[name].view(torch.uint8), made.read(name).view(torch.uint8)), name


def test_dummy_weights_keep_the_size_of_activations(tmp_path: Path) -> None:
    """As `load_weight` reads them: no NaN, valid routing tables, matrices of rms about 1 / sqrt(columns)."""
    made = dummy(tmp_path)
    for name, weight in made.iter_weights():
        assert weight.shape == made.tensors()[name].logical_shape
        if weight.is_floating_point() and weight.ndim == 2 and name != "embed.weight" and not name.endswith("ape"):
            size = float(weight.square().mean().sqrt()) * weight.shape[1] ** 0.5
            assert 0.6 < size < 1.6, (name, size)
    assert not torch.equal(made.read("layers.0.attn.wkv.weight"), made.read("layers.1.attn.wkv.weight"))


def test_dummy_of_a_released_model_takes_no_memory_until_it_is_read() -> None:
    made = DummyCheckpoint.open(CONFIGS / "pro.json")
    assert made.config == load_model_config(CONFIGS / "pro.json") and len(made.tensors()) > 100_000
    assert made.read("layers.0.ffn.experts.383.w2.scale").shape == (7168, 96)
