"""What is reported about a model: held-out loss, exact match on held-out problems, acceptance of its drafts.

Acceptance is measured on the model's own greedy text: at every generated position a chain of three drafts is run
exactly as an engine would (`Model.mtp_chain`), and a draft counts if it equals the next greedy token, given that the
drafts before it did. Distinct 4-grams stand beside it, because looping text is trivially easy to draft, and the same
figures with an untrained MTP block as control.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from training.data import Source
from training.decode import generate
from training.layers import Flags
from training.model import Model, Prepared, initial_tensor, padded

DEPTH = 3
TEXTS = ("gsm8k", "pydocs", "postgres", "stdlib")  # sources whose greedy continuations are measured


def held_out_losses(
    model: Model, w: Prepared, flags: Flags, sources: dict[str, Source], rows: int, length: int
) -> dict[str, dict[str, float]]:
    """Per source: main and MTP cross-entropy, and how often the first draft equals the trunk's next choice."""
    out = {}
    for name, source in sources.items():
        if len(source) < length + 2:
            continue
        ids = source.rows(rows, length + 2, np.random.default_rng(5), at_bos=0.0)
        S = length
        trunk = model.trunk(ids[:, :S].contiguous(), w, flags)
        main, main_arg = model.functions.loss(model.logits(trunk.streams, w), ids[:, 1 : S + 1].contiguous())
        mtp_out = model.mtp(trunk.streams, ids[:, 1 : S + 1].contiguous(), w, flags)
        draft, draft_arg = model.functions.loss(
            model.logits(mtp_out.streams, w, mtp=True), ids[:, 2 : S + 2].contiguous()
        )
        agree = (draft_arg[:, :-1] == main_arg[:, 1:]).float().mean()
        out[name] = {
            "main": round(float(main.mean()), 4),
            "mtp": round(float(draft.mean()), 4),
            "agree": round(float(agree), 4),
        }
    return out


@torch.no_grad()
def acceptance(
    model: Model, w: Prepared, flags: Flags, ids: Tensor, given: list[int], lengths: list[int], batch: int = 64
) -> list[float]:
    """Greedy acceptance [a1, a2 | 1, a3 | 1, 2] over generated positions of ids [B, L]."""
    eager, model.functions = model.functions, model._functions(compiled=False)
    reached, right = [0] * DEPTH, [0] * DEPTH
    L = ids.shape[1]
    row = padded(ids, model.z.sequence_multiple)
    S = row.shape[1]
    row = torch.nn.functional.pad(row, (0, DEPTH + 1))
    for b in range(0, ids.shape[0], batch):
        part = row[b : b + batch]
        X = model.trunk(part[:, :S].contiguous(), w, flags).streams
        chains = [lg.argmax(-1) for lg in model.mtp_chain(X, part, w, flags, DEPTH)]
        t = torch.arange(S, device=ids.device)[None]
        first = torch.tensor(given[b : b + batch], device=ids.device)[:, None]
        end = torch.tensor(lengths[b : b + batch], device=ids.device)[:, None]
        alive = (t + 1 >= first) & (t < L)  # the chain's first fed token, t + 1, was generated
        for j, drafts in enumerate(chains):
            alive = alive & (t + 2 + j < end)
            correct = alive & (drafts == part[:, j + 2 : j + 2 + S])
            reached[j] += int(alive.sum())
            right[j] += int(correct.sum())
            alive = correct
    model.functions = eager
    return [round(r / max(n, 1), 4) for r, n in zip(right, reached, strict=True)]


def distinct_4(ids: Tensor, given: list[int], lengths: list[int]) -> float:
    """Mean share of distinct 4-grams among each sequence's generated tokens."""
    shares = []
    for row, start, end in zip(ids.tolist(), given, lengths, strict=True):
        grams = [tuple(row[i : i + 4]) for i in range(start, end - 3)]
        if grams:
            shares.append(len(set(grams)) / len(grams))
    return round(sum(shares) / max(len(shares), 1), 4)


def with_random_mtp(model: Model, w: Prepared, seed: int) -> Prepared:
    """The same trunk with an untrained MTP block: the control for acceptance."""
    g = torch.Generator().manual_seed(seed)
    saved = {n: t for n, t in model.tensors.items() if n.startswith("mtp.")}
    for n, t in saved.items():
        model.tensors[n] = initial_tensor(n, tuple(t.shape), model.z, g).to(t.device)
    own, own_top = model.prepare_mtp()
    control = w._replace(mtp=own, mtp_top=own_top)
    model.tensors |= saved
    return control


def problem_prompts(count: int, seed: int, split: str, chat: bool = False) -> list[tuple[str, str]]:
    """(prompt, reference answer) of generated arithmetic problems, in the plain or the chat form."""
    from outrider.evaluation import arithmetic

    pairs = []
    for problem in arithmetic.problems(seed, count, split):  # type: ignore[arg-type]
        text = arithmetic.as_chat(problem) if chat else arithmetic.as_text(problem)
        mark = "</think>" if chat else "Answer:"
        pairs.append((text[: text.index(mark) + len(mark)], problem.answer))
    return pairs


def gsm8k_prompts(path: Path, count: int = 512) -> list[tuple[str, str]]:
    """(prompt, reference answer) of the first problems of GSM8K's test file, in the plain form."""
    rows = [json.loads(line) for line in path.read_text().splitlines()[:count]]
    return [(f"Question: {row['question']}\nAnswer:", row["answer"]) for row in rows]


def evaluate_problems(
    model: Model, w: Prepared, flags: Flags, tokenizer: Tokenizer, pairs: list[tuple[str, str]], new_tokens: int
) -> dict[str, Any]:
    """Exact match, acceptance and the control on greedy answers; keeps a few answers for reading."""
    from outrider.evaluation import arithmetic

    bos, eos = model.fields["bos_token_id"], model.fields["eos_token_id"]
    prompts = [[bos, *tokenizer.encode(p, add_special_tokens=False).ids] for p, _ in pairs]
    given = [len(p) for p in prompts]
    ids, lengths = generate(model, w, flags, prompts, new_tokens, eos)
    rows = ids.tolist()
    answers = [tokenizer.decode(r[g:n], skip_special_tokens=True) for r, g, n in zip(rows, given, lengths, strict=True)]
    right = [arithmetic.exact_match(a, ref) for a, (_, ref) in zip(answers, pairs, strict=True)]
    return {
        "exact_match": round(sum(right) / len(right), 4),
        "ended": round(sum(r[n - 1] == eos for r, n in zip(rows, lengths, strict=True)) / len(rows), 4),
        "acceptance": acceptance(model, w, flags, ids, given, lengths),
        "random_mtp": acceptance(model, with_random_mtp(model, w, 1), flags, ids[:64], given[:64], lengths[:64]),
        "distinct_4": distinct_4(ids, given, lengths),
        "generated": sum(lengths) - sum(given),
        "samples": [pairs[i][0] + answers[i] for i in range(min(3, len(pairs)))],
        "wrong": [pairs[i][0] + answers[i] for i in range(len(pairs)) if not right[i]][:3],
    }


def evaluate_text(
    model: Model, w: Prepared, flags: Flags, tokenizer: Tokenizer, source: Source, count: int, new_tokens: int
) -> dict[str, Any]:
    """Acceptance on greedy continuations of held-out text (64 tokens)."""
    rng = Random(3)
    tokens = source.chunks[0].tolist()
    starts = [rng.randrange(0, len(tokens) - 64) for _ in range(count)]
    prompts = [tokens[s : s + 64] for s in starts]
    given = [64] * count
    ids, lengths = generate(model, w, flags, prompts, new_tokens, model.fields["eos_token_id"])
    pairs = list(zip(ids.tolist(), lengths, strict=True))[:2]
    return {
        "acceptance": acceptance(model, w, flags, ids, given, lengths),
        "distinct_4": distinct_4(ids, given, lengths),
        "samples": [tokenizer.decode(r[:n], skip_special_tokens=False) for r, n in pairs],
    }


def evaluate(
    model: Model,
    w: Prepared,
    flags: Flags,
    tokenizer: Tokenizer,
    held_out: dict[str, Source],
    *,
    problems: int = 512,
    texts: int = 64,
    new_tokens: int = 192,
    rows: int = 64,
    length: int = 1024,
    gsm8k_test: Path | None = None,
) -> dict[str, Any]:
    """The whole report, as a JSON-able dict."""
    report: dict[str, Any] = {"held_out": held_out_losses(model, w, flags, held_out, rows, length)}
    with torch.no_grad():
        for name, count, split, chat in (
            ("problems_heldout", problems, "heldout", False),
            ("problems_heldout_chat", problems // 2, "heldout", True),
            ("problems_train", problems // 2, "train", False),
            ("problems_far", problems // 2, "far", False),
        ):
            pairs = problem_prompts(count, 20_000, split, chat)
            report[name] = evaluate_problems(model, w, flags, tokenizer, pairs, new_tokens)
        if gsm8k_test is not None:
            report["gsm8k_test"] = evaluate_problems(model, w, flags, tokenizer, gsm8k_prompts(gsm8k_test), new_tokens)
        for name in TEXTS:
            if name in held_out:
                report["text_" + name] = evaluate_text(model, w, flags, tokenizer, held_out[name], texts, new_tokens)
    return report
