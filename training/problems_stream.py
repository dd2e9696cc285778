"""Training tokens made on the spot: arithmetic stories and drills from the generator's training split.

A document is BOS ... EOS. About 85 % of the tokens come from stories: 35 % of these documents in the chat form, the
rest as `Question: ... Answer: ...`, of which one in ten is a few-shot document of two to four problems with an
empty line between. The other tokens are drills, several lines to a document.
"""

import multiprocessing
import os
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer
from training.tokenizer import sentence_ids

from outrider.evaluation.arithmetic import as_chat, as_text, sample_problem
from outrider.evaluation.arithmetic.drills import drill

CHAT_SHARE = 0.35
FEW_SHOT_SHARE = 0.10  # of the plain documents
DRILL_SHARE = 0.15  # of the tokens; a drill document is about as long as a story document
DRILL_LINES = (4, 10)
DOCUMENTS_AT_ONCE = 2000  # per call of encode_batch


def document(rng: Random) -> str:
    """The text of one training document, without BOS and EOS."""
    if rng.random() < DRILL_SHARE:
        return "\n".join([drill(rng) for _ in range(rng.randint(*DRILL_LINES))])
    if rng.random() < CHAT_SHARE:
        return as_chat(sample_problem(rng))
    count = rng.randint(2, 4) if rng.random() < FEW_SHOT_SHARE else 1
    return "\n\n".join([as_text(sample_problem(rng)) for _ in range(count)])


def _tokens_of_one(tokenizer_path: str, n_tokens: int, seed: int) -> np.ndarray:
    """At least `n_tokens` tokens of whole documents, uint16 [tokens], from one process."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    bos, eos = sentence_ids(tokenizer)
    rng = Random(seed)
    parts: list[np.ndarray] = []
    have = 0
    while have < n_tokens:
        texts = [document(rng) for _ in range(DOCUMENTS_AT_ONCE)]
        ids: list[int] = []
        for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            ids.append(bos)
            ids += encoding.ids
            ids.append(eos)
        parts.append(np.array(ids, dtype=np.uint16))
        have += len(ids)
    return np.concatenate(parts)


def synthetic_tokens(tokenizer_path: str | Path, n_tokens: int, seed: int, processes: int) -> np.ndarray:
    """`n_tokens` tokens of documents, uint16 [n_tokens]; the last document may be cut.

    The same seed and number of processes give the same tokens; different seeds give different problems.
    """
    share = -(-n_tokens // processes)
    # Seeds of workers are apart for every pair of (seed, worker), so that no two calls repeat a stream.
    jobs = [(str(tokenizer_path), share, seed * 1_000_003 + worker) for worker in range(processes)]
    if processes == 1:
        return _tokens_of_one(*jobs[0])[:n_tokens]
    # Spawned, not forked: the caller may hold a GPU or threads, which a fork would copy half alive.
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_one_thread) as pool:
        parts = pool.starmap(_tokens_of_one, jobs)
    return np.concatenate(parts)[:n_tokens]


def _one_thread() -> None:
    """A worker encodes on its own core: the tokenizer's threads would only compete with the other workers."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
