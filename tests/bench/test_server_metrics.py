"""What is read from a server's /metrics: our own names, vLLM's, and nothing where there is nothing."""

from __future__ import annotations

from outrider.bench.server_metrics import parse_metrics
from outrider.bench.window import DraftCounts

BEFORE = """\
# HELP vllm:spec_decode_num_drafts_total Target passes.
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 5.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 3.0
"""
AFTER = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 2.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 28.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 11.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 9.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1.003e3
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e9
"""


def test_difference_of_two_scrapes() -> None:
    before, after = parse_metrics(BEFORE), parse_metrics(AFTER)
    assert after.drafts_since(before) == DraftCounts(4, 8, 6, (4, 2))
    assert after.cached_since(before) == 1000


def test_a_server_that_counts_nothing() -> None:
    nothing = parse_metrics("go_gc_duration_seconds 3\n")
    assert nothing.drafts_since(nothing) is None and nothing.cached_since(nothing) is None
