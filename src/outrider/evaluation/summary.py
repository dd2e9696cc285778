"""Accuracy of an arm, with its standard error, and what its drafts did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.bench.distinct import distinct_share
from outrider.evaluation.records import Record


def arm_summary(records: Sequence[Record], shots: int) -> dict[str, Any]:
    """shots: examples that were wanted; how many prompts got fewer is said."""
    answered = [record for record in records if record.token_ids]
    distinct = [share for record in answered if (share := distinct_share(record.token_ids)) is not None]
    drafts, accepted = sum(r.drafts for r in records), sum(r.accepted for r in records)
    return {
        "num_questions": len(records),
        "exact_match": accuracy([record.strict for record in records]),
        "flexible_match": accuracy([record.flexible for record in records]),
        "fewer_shots": sum(record.shots < shots and record.finish_reason != "too long" for record in records),
        "least_shots": min((r.shots for r in records if r.finish_reason != "too long"), default=None),
        "too_long": sum(record.finish_reason == "too long" for record in records),
        "not_ended": sum(record.finish_reason == "length" for record in records),
        "failed": sum(record.finish_reason == "error" for record in records),
        "output_tokens": sum(len(record.token_ids) for record in records),
        "distinct_4grams": sum(distinct) / len(distinct) if distinct else None,
        "acceptance_length": 1 + accepted / drafts if drafts else None,
    }


def accuracy(right: Sequence[bool]) -> dict[str, float | None]:
    """Share of right answers; standard error: of a mean, sqrt(p (1 - p) / (n - 1)), None for a single answer."""
    count, share = len(right), sum(right) / len(right)
    error = (share * (1 - share) / (count - 1)) ** 0.5 if count > 1 else None
    return {"value": share, "standard_error": error}
