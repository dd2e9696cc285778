"""Train the byte-level BPE of the small model: 4,096 entries, DeepSeek's special-token strings.

Pre-tokenisation, in the spirit of DeepSeek's: every digit is a token of its own, runs of CJK characters are
isolated, then words (with one leading blank or mark), runs of marks, line ends and blanks. There is no
normaliser and no post-processor: whoever builds a prompt writes the begin-of-sentence token.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
MODEL_MAX_LENGTH = 4096

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"

# Marked special (left out when decoding skips special tokens): ids 0, 1, 2.
CONTROL_TOKENS = (BOS, EOS, PAD)
# Not marked special, as in DeepSeek-V4: parsers need to see them in decoded text. Ids follow from 3.
MARKUP_TOKENS = (
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜extracted_url｜>",
    "<｜read_url｜>",
)

_DIGIT = r"\p{N}"
_CJK = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
_GENERAL = "|".join(
    (
        r"[^\r\n\p{L}\p{M}\p{N}]?[\p{L}\p{M}]+",  # a word with one leading blank or mark
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",  # marks, with the line ends that follow
        r"\s*[\r\n]+",  # blank lines
        r"\s+(?!\S)",  # blanks, but not the one that leads a word
        r"\s+",
    )
)


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Split into digits, CJK runs and general pieces, then into bytes."""
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(p), behavior="isolated") for p in (_DIGIT, _CJK, _GENERAL)),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def train(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of exactly `VOCABULARY` entries; special tokens take the first ids, then bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    reserved = [AddedToken(text, special=True, normalized=False) for text in CONTROL_TOKENS]
    reserved += [AddedToken(text, special=False, normalized=False) for text in MARKUP_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=reserved,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(f"the text yields {tokenizer.get_vocab_size()} entries, not {VOCABULARY}: give more text")
    return _with_markup_not_special(tokenizer)


def _with_markup_not_special(tokenizer: Tokenizer) -> Tokenizer:
    """The trainer marks everything it reserves as special; set the flags as they should be."""
    description = json.loads(tokenizer.to_str())
    for token in description["added_tokens"]:
        token["special"] = token["content"] in CONTROL_TOKENS
    result = Tokenizer.from_str(json.dumps(description))
    ids = [result.token_to_id(text) for text in (*CONTROL_TOKENS, *MARKUP_TOKENS)]
    assert ids == list(range(len(ids))), ids
    assert all(result.id_to_token(i) is not None for i in range(VOCABULARY))
    return result


def sentence_ids(tokenizer: Tokenizer) -> tuple[int, int]:
    """Ids of the begin- and end-of-sentence tokens."""
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    if bos is None or eos is None:
        raise ValueError(f"the tokenizer lacks {BOS} or {EOS}: train it with training/tokenizer.py")
    return bos, eos


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MODEL_MAX_LENGTH,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    text = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
