"""Trains the small model: joint training, quantisation-aware decay, MTP finish, evaluation, export.

    python -m training.train --data training/build --state STATE --out OUT --minutes 20

Wall-clock planned (schedule.py). STATE keeps what a later run can resume from; OUT receives the log (one JSON object
a line), the report and the tensors. See README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from training.config import SHIPPED_CONFIG, smoke_config
from training.data import SYNTHETIC, Mix, Source, SyntheticStream, load_sources
from training.export import load_tensors, rounded_official, save_tensors
from training.model import Model
from training.mtp_finish import finish
from training.optimizer import Optimizer
from training.schedule import Schedule
from training.sinkhorn import sinkhorn, sinkhorn_reference

from training import evaluate as evaluation

TEXT_WEIGHTS = {
    "gsm8k": 0.6, "gsm8k_chat": 0.4, "pydocs": 13.0, "stdlib": 9.0, "sympy": 4.0, "numpy": 3.0, "networkx": 2.5,
    "postgres": 7.0, "rust": 4.5, "node": 3.0, "wordnet": 3.0,
}  # fmt: skip
FINISH_SYNTHETIC = 0.7


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True, help="folder of tokenizer.json, train_*.npy, heldout_*.npy")
    p.add_argument("--state", type=Path, required=True, help="folder for snapshots and synthetic tokens")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--minutes", type=float, default=20.0)
    p.add_argument("--finish-seconds", type=float, default=90.0)
    p.add_argument("--evaluate-seconds", type=float, default=60.0)
    p.add_argument("--rows", type=int, default=64)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--long-rows", type=int, default=16)
    p.add_argument("--long-length", type=int, default=4096)
    p.add_argument("--synthetic-share", type=float, default=0.66)
    p.add_argument("--synthetic-tokens", type=int, default=360_000_000)
    p.add_argument("--synthetic-chunk", type=int, default=10_000_000)
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--muon-lr", type=float, default=4e-3)
    p.add_argument("--adam-lr", type=float, default=3e-3)
    p.add_argument("--balance", type=float, default=0.002, help="step of the routers' selection bias")
    p.add_argument("--problems", type=int, default=512)
    p.add_argument("--texts", type=int, default=64)
    p.add_argument("--new-tokens", type=int, default=192)
    p.add_argument("--gsm8k-test", type=Path, help="GSM8K's test file, to report exact match on its first problems")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cuda")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--smoke", action="store_true", help="tiny sizes, for a CPU")
    p.add_argument("--init", type=Path, help="folder with final_*.safetensors to start from")
    return p.parse_args()


class Run:
    """State of one run and its steps."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        reserve = a.finish_seconds + a.evaluate_seconds
        self.schedule = Schedule(a.minutes, reserve, a.state / "minutes")
        a.state.mkdir(parents=True, exist_ok=True)
        a.out.mkdir(parents=True, exist_ok=True)
        self.log_file = (a.out / "log.jsonl").open("a")
        self.stream = SyntheticStream(
            a.state / "synthetic", a.data / "tokenizer.json", a.synthetic_tokens, a.synthetic_chunk, a.processes, a.seed
        )
        torch.manual_seed(a.seed)
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.cache_size_limit = 64
        fields = smoke_config() if a.smoke else SHIPPED_CONFIG
        dtype = torch.bfloat16 if a.device == "cuda" else torch.float32
        self.model = Model(fields, a.device, dtype)
        self.model.initialise(a.seed)
        self.step, self.tokens = 0, 0
        snapshot = a.state / "stable.pt"
        if a.init:
            self.model.load_official(load_tensors(a.init, "final"))
        self.optimizer = Optimizer(self.model.tensors, None, a.muon_lr, a.adam_lr)
        if snapshot.exists():
            self.restore(snapshot)
        if not a.no_compile:
            self.model.compile()
        self.mix = self._mix(fields["bos_token_id"])
        self.good: tuple[dict[str, Tensor], dict[str, Any]] | None = None

    def _mix(self, bos: int) -> Mix:
        sources = load_sources(self.a.data, "train", self.a.device, bos)
        chunks = self.stream.wait_first(120)
        sources[SYNTHETIC] = Source(chunks[0], self.a.device, bos)
        for chunk in chunks[1:]:
            sources[SYNTHETIC].append(chunk)
        text = {n: w for n, w in TEXT_WEIGHTS.items() if n in sources}
        share = (1 - self.a.synthetic_share) / sum(text.values())
        weights = {n: w * share for n, w in text.items()} | {SYNTHETIC: self.a.synthetic_share}
        return Mix(sources, weights, self.a.seed + self.step)

    def log(self, record: dict[str, Any]) -> None:
        line = json.dumps({"seconds": round(self.schedule.elapsed(), 1)} | record, ensure_ascii=False)
        print(line[:1500], flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    # -------- snapshots

    def save(self, path: Path) -> None:
        torch.save(
            {"tensors": {n: t.detach() for n, t in self.model.tensors.items()}, "optimizer": self.optimizer.state(),
             "step": self.step, "tokens": self.tokens},
            path,
        )  # fmt: skip

    def restore(self, path: Path) -> None:
        saved = torch.load(path, map_location=self.a.device, weights_only=True)
        with torch.no_grad():
            for n, t in self.model.tensors.items():
                t.copy_(saved["tensors"][n])
        self.optimizer.load(saved["optimizer"])
        self.step, self.tokens = saved["step"], saved["tokens"]

    def remember(self) -> None:
        """Keeps a copy in memory, to fall back on if the loss stops being finite."""
        import copy

        tensors = {n: t.detach().clone() for n, t in self.model.tensors.items()}
        self.good = (tensors, copy.deepcopy(self.optimizer.state()))

    def fall_back(self) -> None:
        if self.good is None:
            raise RuntimeError("the loss is not finite, and there is no earlier state to return to")
        with torch.no_grad():
            for n, t in self.model.tensors.items():
                t.copy_(self.good[0][n])
        self.optimizer.load(self.good[1])

    # -------- training

    def train_step(self, rows: int, length: int, p: float) -> dict[str, Tensor]:
        """One update. Returns device scalars; reading them is the caller's choice."""
        s, model = self.schedule, self.model
        quantised = p >= s.quantise
        ids = self.mix.batch(rows, length + 2)
        flags = model.flags(quantise=quantised, dense=p < s.dense)
        w = model.prepare(quantised)
        inputs, following = ids[:, :length].contiguous(), ids[:, 1 : length + 1].contiguous()
        out = model.trunk(inputs, w, flags)
        main, choice = model.functions.loss(model.logits(out.streams, w), following)
        draft = model.mtp(out.streams, following, w, flags)
        mtp, guess = model.functions.loss(model.logits(draft.streams, w, mtp=True), ids[:, 2:].contiguous())
        main_mean, mtp_mean = main.mean(), mtp.mean()
        weight = 0.1 if p >= s.late_mtp else 0.3
        (main_mean + weight * mtp_mean + out.index_loss).backward()
        self.optimizer.step(s.learning_rate(self.step, p))
        self.balance([*out.loads, draft.load])
        self.step += 1
        self.tokens += rows * length
        worst = torch.stack([load.max() / load.mean() for load in out.loads]).max()
        agree = (guess[:, :-1] == choice[:, 1:]).float().mean()
        return {"main": main_mean.detach(), "mtp": mtp_mean.detach(), "index": out.index_loss.detach(), "agree": agree,
                "load": worst}  # fmt: skip

    @torch.no_grad()
    def balance(self, loads: list[Tensor]) -> None:
        """bias += g * sign(mean load - load), learned routers only."""
        names = [f"layers.{i}.ffn.gate.bias" for i in range(self.model.z.layers)] + ["mtp.0.ffn.gate.bias"]
        for name, load in zip(names, loads, strict=True):
            if name in self.model.tensors:
                self.model.tensors[name].add_(torch.sign(load.mean() - load), alpha=self.a.balance)

    def smoke_test(self) -> None:
        """Fails early: the Sinkhorn kernel against plain torch, then whole steps on finite losses."""
        m = (2 * torch.randn(4099, 4, 4, device=self.a.device)).requires_grad_()
        got, (want, _) = sinkhorn(m, 20, 1e-6), sinkhorn_reference(m, 20, 1e-6)
        up = torch.randn_like(m)
        gradient, wanted = (torch.autograd.grad(v, m, up)[0] for v in (got, want))
        if not (torch.allclose(got, want, atol=1e-5) and torch.allclose(gradient, wanted, atol=1e-4)):
            raise RuntimeError("the Sinkhorn kernel disagrees with plain torch")
        ids = self.mix.batch(2, self.a.length)
        w, flags = self.model.prepare(True), self.model.flags(True)
        with torch.no_grad():
            compiled, self.model.functions = self.model.functions, self.model._functions(compiled=False)
            plain = self.model.logits(self.model.trunk(ids, w, flags).streams, w)
            self.model.functions = compiled
        self.log({"smoke": "plain forward", "logits": [round(float(plain.float().std()), 4)]})

    def warm_up(self) -> None:
        """First steps, which compile: they fail early if they fail, and the plan starts after them."""
        a = self.a
        for rows, length in ((a.rows, a.length), (a.long_rows, a.long_length)):
            if rows:
                values = {n: round(float(v), 4) for n, v in self.train_step(rows, length, 0.0).items()}
                self.log({"compiled": [rows, length]} | values)

    def joint(self) -> None:
        """Joint training until the reserve begins."""
        a, s = self.a, self.schedule
        s.start()
        began, mark, mark_tokens = time.monotonic(), time.monotonic(), self.tokens
        saved_stable, long_rows = False, a.long_rows
        last_kept = time.monotonic()
        while (p := s.progress()) < 1:
            use_long = long_rows > 0 and p >= s.long and self.step % s.long_every == 0
            try:
                m = self.train_step(long_rows if use_long else a.rows, a.long_length if use_long else a.length, p)
            except torch.OutOfMemoryError:
                if not use_long:
                    raise
                long_rows //= 2
                self.log({"long_rows": long_rows})
                torch.cuda.empty_cache()
                continue
            if self.step % 10 == 0 or self.step <= 3:
                values = {n: round(float(v), 4) for n, v in m.items()}  # waits for the device
                now = time.monotonic()
                rate = (self.tokens - mark_tokens) / (now - mark)
                mark, mark_tokens = now, self.tokens
                if not all(v == v and abs(v) < 1e4 for v in values.values()):
                    self.log({"step": self.step, "not finite": values})
                    self.fall_back()
                    continue
                if self.step % 20 == 0 or self.step <= 3:
                    record = {"step": self.step, "tokens": self.tokens, "p": round(p, 3), "long": use_long}
                    self.log(record | values | {"tok/s": round(rate)})
                for chunk in self.stream.new_chunks():
                    self.mix.sources[SYNTHETIC].append(chunk)
                if now - last_kept > 60:
                    self.remember()
                    last_kept = now
            if not saved_stable and p > 1 - s.decay:
                self.save(a.state / "stable.pt")
                saved_stable = True
                self.log({"saved": "stable.pt", "step": self.step, "drawn": self.mix.drawn})
        self.log({"joint": "done", "step": self.step, "tokens": self.tokens, "train seconds": time.monotonic() - began,
                  "drawn": self.mix.drawn, "synthetic tokens": len(self.mix.sources[SYNTHETIC])})  # fmt: skip

    def finish_mtp(self) -> None:
        seconds = self.schedule.deadline() - self.a.evaluate_seconds - self.schedule.elapsed()
        text = {n: w for n, w in self.mix.weights.items() if n != SYNTHETIC}
        share = (1 - FINISH_SYNTHETIC) / sum(text.values())
        self.mix.weights = {n: w * share for n, w in text.items()} | {SYNTHETIC: FINISH_SYNTHETIC}
        a = self.a
        finish(self.model, self.mix, max(seconds, 5.0), a.rows, a.length, self.log, compiled=not a.no_compile)

    def export(self, prefix: str) -> None:
        save_tensors(rounded_official(self.model.official_tensors()), self.a.out, prefix)

    def report(self) -> None:
        from tokenizers import Tokenizer

        a = self.a
        tokenizer = Tokenizer.from_file(str(a.data / "tokenizer.json"))
        held_out = load_sources(a.data, "heldout", a.device, self.model.fields["bos_token_id"])
        report = evaluation.evaluate(
            self.model, self.model.prepare(True), self.model.flags(True), tokenizer, held_out,
            problems=a.problems, texts=a.texts, new_tokens=a.new_tokens, rows=a.rows, length=a.length,
            gsm8k_test=a.gsm8k_test,
        )  # fmt: skip
        (a.out / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False))
        self.log({"report": report})


def main() -> None:
    run = Run(arguments())
    run.smoke_test()
    run.warm_up()
    run.joint()
    run.finish_mtp()
    run.export("final")
    run.log({"exported": "final"})
    run.report()
    run.stream.stop()
    run.log({"done": True})


if __name__ == "__main__":
    main()
