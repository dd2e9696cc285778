"""`outrider doctor`: what it shows, and that its test can fail."""

from __future__ import annotations

import json

import pytest
import torch
from tests.cli.conftest import RunCli

from outrider import ops
from outrider.cli import self_test


def test_report(cli: RunCli) -> None:
    shown = cli("doctor", "--no-self-test")
    assert shown.code == 0
    for words in ("platform", "memory", f"torch {torch.__version__.partition('+')[0]}", "rms_norm"):
        assert words in shown.out
    report = json.loads(cli("doctor", "--no-self-test", "--json").out)
    assert report["backends"]["cpu"] == ops.backends() and report["available_memory"] > 0 and report["ok"] is True


def test_self_test(cli: RunCli) -> None:
    report = json.loads(cli("doctor", "--json").out)
    assert report["ok"] is True and len(report["checks"]) == 3
    assert all(check["ok"] is not False for check in report["checks"])


def test_a_wrong_kernel_fails(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    if set(ops.backends().values()) == {"reference"}:
        pytest.skip("every op is the reference")
    right, expected = ops.mhc_post, self_test.layer_logits()
    monkeypatch.setattr(self_test, "_reference_logits", lambda: expected)
    monkeypatch.setattr(ops, "mhc_post", lambda *args: right(*args) * 1.01)
    monkeypatch.setattr(self_test, "_speculation", lambda: iter(()))
    result = cli("doctor")
    assert result.code == 1 and "FAILED:  kernels against the reference, one layer: native" in result.out
