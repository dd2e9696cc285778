"""lm-evaluation-harness against a running server with the shipped model: over both APIs, without and with speculation.

    python -m venv LM_EVAL && LM_EVAL/bin/pip install 'lm-eval[api]' transformers
    python -m benchmarks.lm_eval_server LM_EVAL/bin/lm_eval

The harness is unmodified (0.4.13 when this was written). Its tasks are made here, from our own generator of word
problems, so that nothing is downloaded: free answers over `local-completions` and `local-chat-completions`, and a
choice between numbers, which is scored from the log-probabilities of echoed prompts. Greedy. The script fails if a
score with speculation is not the score without, or if an answer differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.assets import shipped_model
from outrider.evaluation.arithmetic import extract_answer, problems

SPECULATION = '{"method": "mtp", "num_speculative_tokens": 3}'
FREE = {
    "output_type": "generate_until",
    "doc_to_target": "{{final}}",
    "generation_kwargs": {"until": ["Question:"], "max_gen_toks": 160, "do_sample": False, "temperature": 0},
    "filter_list": [
        {
            "name": "final",
            "filter": [{"function": "regex", "regex_pattern": "#### (-?[0-9.,]+)"}, {"function": "take_first"}],
        }
    ],
    "metric_list": [
        {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "regexes_to_ignore": [","]}
    ],
}
TASKS: dict[str, dict[str, Any]] = {
    "free": {**FREE, "doc_to_text": "Question: {{question}}\nAnswer:"},
    "chat": {**FREE, "doc_to_text": "{{question}}"},
    "choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{question}}\nAnswer: {{worked}}\n####",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": 0,
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
}
RUNS = (("local-completions", "completions", "free"), ("local-completions", "completions", "choice"),
        ("local-chat-completions", "chat/completions", "chat"))  # fmt: skip


def write_tasks(folder: Path, count: int) -> None:
    """Problems and task files (JSON is YAML)."""
    rows = []
    for problem in problems(seed=20261203, count=count, split="train"):
        final = extract_answer(problem.answer)
        assert final is not None
        worked = problem.answer.rpartition("\n")[0]
        choices = [f" {final}", *(f" {int(final) + wrong}" for wrong in (1, 10, 100))]
        rows.append({"question": problem.question, "worked": worked, "final": final, "choices": choices})
    data = folder / "problems.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, fields in TASKS.items():
        task = {"task": f"arithmetic_{name}", "dataset_path": "json", "test_split": "test", **fields}
        task["dataset_kwargs"] = {"data_files": {"test": str(data)}}
        (folder / f"{name}.yaml").write_text(json.dumps(task, indent=1), encoding="utf-8")


@contextmanager
def server(*options: str) -> Iterator[str]:
    """Base URL of a server of the shipped model."""
    command = [sys.executable, "-m", "outrider", "serve", "--port", "0", "--max-model-len", "1024", *options]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        lines = []
        for line in started.stderr:
            lines.append(line)
            if found := re.search(r"at (http://\S+/v1)", line):
                break
        else:
            raise SystemExit("".join(lines))
        yield found.group(1)
    finally:
        started.terminate()
        started.wait()
        started.stderr.close()


def evaluate(lm_eval: Path, folder: Path, url: str, model: str, path: str, task: str) -> tuple[float, list[Any]]:
    """Score and the answers it rests on."""
    arguments = {
        "model": "tiny",
        "base_url": f"{url}/{path}",
        "tokenizer": str(shipped_model()),
        "tokenized_requests": False,
        "num_concurrent": 4,
        "max_retries": 1,
        "max_length": 1024,
    }
    out = Path(tempfile.mkdtemp(dir=folder))
    command = [str(lm_eval), "run", "--model", model, "--tasks", f"arithmetic_{task}", "--include_path", str(folder)]
    command += ["--model_args", ",".join(f"{key}={value}" for key, value in arguments.items())]
    command += ["--output_path", str(out), "--log_samples", *(["--apply_chat_template"] if task == "chat" else [])]
    environment = {
        **os.environ,
        "OPENAI_API_KEY": "none",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    (results,) = out.rglob("results_*.json")
    (samples,) = out.rglob("samples_*.jsonl")
    scores = json.loads(results.read_text(encoding="utf-8"))["results"][f"arithmetic_{task}"]
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    answers = [row["resps"] for row in sorted(rows, key=lambda row: row["doc_id"])]
    return next(value for key, value in scores.items() if key.startswith(("exact_match,", "acc,"))), answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lm_eval", type=Path, help="the harness's command")
    parser.add_argument("--problems", type=int, default=100)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, list[Any]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder, options.problems)
        for arm in ((), ("--speculative-config", SPECULATION)):
            with server(*arm) as url:
                for model, path, task in RUNS:
                    found.setdefault(task, []).append(evaluate(options.lm_eval, folder, url, model, path, task))
    print(f"{options.problems} problems of kinds that the model was trained on")
    print("score without speculation, with it; answers that are identical")
    failed = False
    for model, _, task in RUNS:
        (plain, plain_answers), (drafted, drafted_answers) = found[task]
        same = sum(a == b for a, b in zip(plain_answers, drafted_answers, strict=True))
        print(f"{model:24} {task:8} {plain:.3f} {drafted:.3f} {same}/{len(plain_answers)}")
        failed |= plain != drafted or same != len(plain_answers)
    sys.exit(failed)


if __name__ == "__main__":
    main()
