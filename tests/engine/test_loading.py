"""From a checkpoint to a device: what is refused before anything is read, and models whose weights do not exist."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from tests.tiny import tiny_checkpoint, tiny_config

from outrider.checkpoint.dummy import DummyCheckpoint
from outrider.checkpoint.reader import Checkpoint
from outrider.config import ConfigError, SpeculativeConfig
from outrider.engine import kernel_support
from outrider.engine.loading import load_model, load_raw, open_checkpoint
from outrider.platforms.architectures import architecture
from outrider.sampling.params import SamplingParams

MTP = SpeculativeConfig(method="mtp", num_speculative_tokens=1)


def test_raw_tensors_and_what_serves_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path), "auto")
    with caplog.at_level(logging.INFO, "outrider"):
        raw = load_raw(checkpoint, torch.device("cpu"))
    assert [line for line in caplog.messages if line.startswith("ops on cpu: ")] != []
    assert not any(name.startswith("mtp.") for name in raw) and "layers.0.attn.wq_a.scale" in raw
    with_drafter = load_raw(checkpoint, torch.device("cpu"), speculative_config=MTP)
    assert with_drafter.keys() == checkpoint.tensors().keys()


def test_a_gpu_refuses_before_a_weight_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_support, "gpu_architecture", lambda device: architecture("gfx942"))
    monkeypatch.setattr(Checkpoint, "load_to_device", lambda *unused: pytest.fail("a weight was read"))
    checkpoint = open_checkpoint(tiny_checkpoint(tmp_path), "auto")
    with pytest.raises(ConfigError, match=r"cannot run on cuda:0: .*hidden_size: 64; a multiple of 128"):
        load_raw(checkpoint, torch.device("cuda", 0))


def test_a_model_of_random_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    checkpoint = open_checkpoint(tmp_path, "dummy")
    assert isinstance(checkpoint, DummyCheckpoint)
    outputs = []
    for speculation in (None, MTP):
        engine = load_model(checkpoint, speculative_config=speculation).engine(speculation)
        request = engine.add_request(list(range(2, 30)), SamplingParams(max_tokens=6, ignore_eos=True))
        while engine.has_unfinished:
            engine.step()
        outputs.append(list(request.output_token_ids))
    assert len(outputs[0]) == 6 and outputs[0] == outputs[1]
