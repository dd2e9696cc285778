"""Arithmetic word problems that a generator of our own makes, and the scoring of answers to them."""

from outrider.evaluation.arithmetic.problems import (
    Problem,
    as_chat,
    as_text,
    exact_match,
    extract_answer,
    problems,
    sample_problem,
    templates,
)
from outrider.evaluation.arithmetic.words import Split

__all__ = [
    "Problem",
    "Split",
    "as_chat",
    "as_text",
    "exact_match",
    "extract_answer",
    "problems",
    "sample_problem",
    "templates",
]
