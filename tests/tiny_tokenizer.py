"""A byte-level tokenizer of fewer than 512 entries, for the tiny models: every text, and every split of a character."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

CONTROL = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
MARKUP = ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>")
# a few merges, so that not every token is one byte: "th", "the", " the", and three of the four bytes of most emoji
_MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("ð", "Ł"), ("ðŁ", "ĺ"))


def tiny_tokenizer() -> tokenizers.Tokenizer:
    """Ids 0-2 control tokens, then markup, the 256 bytes, the merges."""
    names = [*CONTROL, *MARKUP, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in _MERGES)]
    backend = tokenizers.Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=list(_MERGES)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    backend.add_tokens([AddedToken(name, special=False, normalized=False) for name in MARKUP])
    return backend


def write_tiny_tokenizer(folder: Path) -> None:
    """Puts `tokenizer.json` beside a tiny checkpoint."""
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
