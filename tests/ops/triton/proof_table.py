"""Every op that has kernels, by name, in small shapes and in those of V4-Flash. The same names in both tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.ops.triton import attention_cases, compressor_cases
from tests.ops.triton.proof_cases import (
    FNUZ,
    OCP,
    Case,
    combination,
    compressed,
    gathered,
    gathered_attention,
    indexer_queries,
    insertion,
    paged_attention,
    scores,
    selection,
    top_entries,
)

FLASH = attention_cases.Shape(heads=64, head_dim=512, rope=64, ratio=4, topk=512, block=64)
TINY = attention_cases.Shape(heads=4, head_dim=64, rope=16, ratio=4, topk=24)
CSA = compressor_cases.Shape(ratio=4, head_dim=512, rope=64, block=64)
TINY_CSA = compressor_cases.Shape(ratio=4, page_tokens=8)
KEYS = replace(CSA, head_dim=128, index="fp4")

# a prompt's last chunk, verify blocks and decodes; and a chunk of V4-Flash
MIXED, CHUNK = [(30, 2), (300, 4), (131, 1), (129, 1)], [(8192, 4096)]

Build = Callable[[str], Case]
"""device -> case"""

SMALL: dict[str, Build] = {
    "paged_sparse_attention": lambda d: paged_attention(TINY, MIXED, d),
    "paged_sparse_attention fp8": lambda d: paged_attention(replace(TINY, dialect=FNUZ), MIXED, d),
    "paged_sparse_attention all entries": lambda d: paged_attention(
        replace(TINY, ratio=4, topk=None), [(30, 4), (2201, 1), (2562, 3)], d
    ),
    "paged_sparse_attention ratio 128": lambda d: paged_attention(replace(TINY, ratio=128, topk=None), MIXED, d),
    "gathered_sparse_attention": lambda d: gathered_attention(8, 4, 130, fp8=False, device=d),
    "gathered_sparse_attention fp8": lambda d: gathered_attention(8, 4, 130, fp8=True, device=d),
    "norm_rope_insert": lambda d: insertion(8, 3, dialect=None, device=d),
    "norm_rope_insert ocp": lambda d: insertion(8, 3, dialect=OCP, device=d),
    "norm_rope_insert fnuz": lambda d: insertion(8, 3, dialect=FNUZ, device=d),
    "gather_rows": lambda d: gathered(8, fp8=False, device=d),
    "gather_rows fp8": lambda d: gathered(8, fp8=True, device=d),
    "compress_insert": lambda d: compressed(TINY_CSA, 8, d),
    "compress_insert fp8": lambda d: compressed(replace(TINY_CSA, dialect=FNUZ), 8, d),
    "compress_insert ratio 128": lambda d: compressed(compressor_cases.Shape(ratio=128), 4, d),
    "compress_index_keys fp4": lambda d: compressed(replace(TINY_CSA, index="fp4"), 8, d),
    "compress_index_keys fp8": lambda d: compressed(replace(TINY_CSA, index="fp8", dialect=OCP), 8, d),
    "index_queries fp4": lambda d: indexer_queries(8, 3, "fp4", d),
    "index_queries fp8": lambda d: indexer_queries(8, 3, "fp8", d),
    "indexer_logits": lambda d: scores("bfloat16", 5, MIXED, d),
    "indexer_logits fp8": lambda d: scores("fnuz", 5, MIXED, d),
    "indexer_logits fp4": lambda d: scores("fp4", 5, MIXED, d),
    "select_entries": lambda d: selection(5, 24, MIXED, d),
    "top_visible_entries": lambda d: top_entries(8, 130, 24, d),
    "combine_topk_swa_indices": lambda d: combination(8, 64, d),
}

FULL: dict[str, Build] = {
    "paged_sparse_attention": lambda d: paged_attention(FLASH, CHUNK, d),
    "paged_sparse_attention fp8": lambda d: paged_attention(replace(FLASH, dialect=OCP), CHUNK, d),
    "paged_sparse_attention all entries": lambda d: paged_attention(replace(FLASH, topk=None), CHUNK, d),
    "paged_sparse_attention ratio 128": lambda d: paged_attention(replace(FLASH, ratio=128, topk=None), CHUNK, d),
    "gathered_sparse_attention": lambda d: gathered_attention(4096, 64, 640, fp8=False, device=d),
    "gathered_sparse_attention fp8": lambda d: gathered_attention(4096, 64, 640, fp8=True, device=d),
    "norm_rope_insert": lambda d: insertion(4096, 64, dialect=None, device=d),
    "norm_rope_insert ocp": lambda d: insertion(4096, 64, dialect=OCP, device=d),
    "norm_rope_insert fnuz": lambda d: insertion(4096, 64, dialect=FNUZ, device=d),
    "gather_rows": lambda d: gathered(4096, fp8=False, device=d),
    "gather_rows fp8": lambda d: gathered(4096, fp8=True, device=d),
    "compress_insert": lambda d: compressed(CSA, 4096, d),
    "compress_insert fp8": lambda d: compressed(replace(CSA, dialect=OCP), 4096, d),
    "compress_insert ratio 128": lambda d: compressed(replace(CSA, ratio=128), 256, d),
    "compress_index_keys fp4": lambda d: compressed(KEYS, 4096, d),
    "compress_index_keys fp8": lambda d: compressed(replace(KEYS, index="fp8", dialect=OCP), 4096, d),
    "index_queries fp4": lambda d: indexer_queries(4096, 64, "fp4", d),
    "index_queries fp8": lambda d: indexer_queries(4096, 64, "fp8", d),
    "indexer_logits": lambda d: scores("bfloat16", 64, CHUNK, d),
    "indexer_logits fp8": lambda d: scores("ocp", 64, CHUNK, d),
    "indexer_logits fp4": lambda d: scores("fp4", 64, CHUNK, d),
    "select_entries": lambda d: selection(64, 512, CHUNK, d),
    "top_visible_entries": lambda d: top_entries(4096, 16400, 512, d),
    "combine_topk_swa_indices": lambda d: combination(4096, 512, d),
}
