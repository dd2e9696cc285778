"""`outrider eval` and lm-evaluation-harness on the same questions, which lie in files: the same score?

    python -m venv LM_EVAL && LM_EVAL/bin/pip install 'lm-eval[api]' transformers
    python -m benchmarks.lm_eval_file LM_EVAL/bin/lm_eval

The harness is unmodified (0.4.13 when this was written), reads docs/lm_eval/gsm8k_file.yaml and asks a server with the
shipped model. The files have GSM8K's format; their problems come from our own generator, of the kinds trained on, so
that nothing is downloaded and some answers are right. Eight examples in front, greedy. Prints both scores and fails
where they, or any two answers, differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.lm_eval_server import SPECULATION, server

from outrider.assets import shipped_model
from outrider.evaluation.arithmetic import problems

TASKS = Path(__file__).resolve().parent.parent / "docs" / "lm_eval"
SHOTS, MAX_MODEL_LEN = 8, 4096


def write_problems(path: Path, seed: int, count: int) -> None:
    rows = [{"question": p.question, "answer": p.answer} for p in problems(seed=seed, count=count, split="train")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def ask_with_harness(lm_eval: Path, folder: Path) -> tuple[float, list[str]]:
    """Exact match, and the answers in the order of the questions."""
    environment = {
        **os.environ,
        "OPENAI_API_KEY": "none",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "cache"),
    }
    command = [str(lm_eval), "run", "--model", "local-completions", "--include_path", str(TASKS)]
    command += ["--tasks", "gsm8k_file", "--num_fewshot", str(SHOTS), "--output_path", "harness", "--log_samples"]
    with server("--max-model-len", str(MAX_MODEL_LEN), "--speculative-config", SPECULATION) as url:
        arguments = [f"base_url={url}/completions", "model=tiny", f"tokenizer={shipped_model()}"]
        arguments += ["tokenized_requests=False", f"max_length={MAX_MODEL_LEN}", "num_concurrent=4"]
        command += ["--model_args", ",".join(arguments)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    (results,) = folder.rglob("results_*.json")
    (samples,) = folder.rglob("samples_*.jsonl")
    score: float = json.loads(results.read_text(encoding="utf-8"))["results"]["gsm8k_file"]["exact_match,strict-match"]
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    return score, [row["resps"][0][0] for row in sorted(rows, key=lambda row: row["doc_id"])]


def ask_with_outrider(folder: Path) -> tuple[float, list[str]]:
    command = [sys.executable, "-m", "outrider", "eval", "gsm8k_test.jsonl", "--examples", "gsm8k_train.jsonl"]
    command += ["--arms", "off", "--shots", str(SHOTS), "--max-model-len", str(MAX_MODEL_LEN)]
    subprocess.run(
        [*command, "--records", "records.jsonl", "--json"], cwd=folder, stdout=subprocess.DEVNULL, check=True
    )
    rows = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    answers = [row["text"] for row in sorted(rows, key=lambda row: row["index"])]
    return sum(row["strict"] for row in rows) / len(rows), answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lm_eval", type=Path, help="the harness's command")
    parser.add_argument("--problems", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_problems(folder / "gsm8k_train.jsonl", seed=8, count=SHOTS)
        write_problems(folder / "gsm8k_test.jsonl", seed=20261203, count=options.problems)
        harness, theirs = ask_with_harness(options.lm_eval.resolve(), folder)
        ours, own = ask_with_outrider(folder)
    same = sum(a == b for a, b in zip(theirs, own, strict=True))
    print(f"{options.problems} problems, {SHOTS} examples in front: exact match")
    print(f"lm-eval, local-completions, with speculation  {harness:.3f}")
    print(f"outrider eval, without                        {ours:.3f}")
    print(f"answers identical                             {same} of {len(own)}")
    sys.exit(harness != ours or same != len(own))


if __name__ == "__main__":
    main()
