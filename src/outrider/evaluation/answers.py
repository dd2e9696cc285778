"""Which number an answer gives, by the two rules under which GSM8K results are published."""

from __future__ import annotations

import re

from outrider.evaluation.arithmetic import exact_match, extract_answer

_NUMBER = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def strict_match(text: str, reference: str) -> bool:
    """The number after the first `####` is the reference's: the dataset's own rule, and the one that counts."""
    return exact_match(text, reference)


def flexible_match(text: str, reference: str) -> bool:
    """The last number anywhere in the text is the reference's: for models that do not write `####`."""
    found = [number for match in _NUMBER.findall(text) if (number := _plain(match))]
    return bool(found) and found[-1] == extract_answer(reference)


def _plain(number: str) -> str:
    return number.replace(",", "").replace("$", "").rstrip(".")
