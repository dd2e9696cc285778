"""Operations of the model: number formats, plain-torch references and kernels.

The model is written against the names exported here. Each is bound once, when this module is imported, so that a call
looks nothing up: to a kernel of ops/native where numba is installed, to one of ops/triton where Triton and a GPU are
there, else to the reference. `backends` tells what serves a device; a model or machine that the kernels cannot serve is
refused when it is loaded (engine/kernel_support.py).
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch

from outrider.ops.expert_bank import ExpertBank
from outrider.ops.formats import round_trip_fp4, round_trip_fp8
from outrider.ops.kv_rows import KvRows
from outrider.ops.reference.attention import KeySlots, key_slots, sparse_attention
from outrider.ops.reference.compressor import compress_index_keys, compress_insert, pool_windows
from outrider.ops.reference.expert_routing import ExpertOrder, Routes, order_by_expert, route_by_table, route_tokens
from outrider.ops.reference.experts import (
    ExpertWeights,
    expert_mlp,
    expert_weights,
    routed_experts,
    routing_scores,
    select_experts,
)
from outrider.ops.reference.grouped_experts import grouped_experts
from outrider.ops.reference.hyper_connections import HcHeadWeights, HyperConnectionWeights, hc_head, mhc_post, mhc_pre
from outrider.ops.reference.indexer import hadamard, indexer_scores, top_entries
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.mhc_site import MixWeights, Site, Written, mhc_head, mhc_site
from outrider.ops.reference.norm_rope_insert import gather_rows, norm_rope_insert
from outrider.ops.reference.norms import rms_norm
from outrider.ops.reference.paged_attention import (
    EntryKeys,
    PagedRows,
    Queries,
    gathered_sparse_attention,
    paged_sparse_attention,
)
from outrider.ops.reference.paged_indexer import (
    index_queries,
    indexer_logits,
    select_entries,
    top_visible_entries,
)
from outrider.ops.reference.philox import philox_words
from outrider.ops.reference.rope import Rotation, apply_rope, inverse_frequencies, rotation
from outrider.ops.reference.row_norms import Rows, mtp_rows, norm_rows, swiglu_rows
from outrider.ops.reference.sampling import Draws, sample_tokens
from outrider.ops.reference.scaled_linear import (
    Fp8Rows,
    LinearWeight,
    bf16_weight,
    fp8_weight,
    greedy_tokens,
    quantize_rows,
    scaled_linear,
)
from outrider.ops.reference.topk_swa import combine_topk_swa_indices

try:
    from outrider.ops.native.compilation import has_fused_multiply_add
except ImportError:  # numba is optional, and some platforms have none that loads
    _native = False
else:
    _native = has_fused_multiply_add()

if _native:
    # checkers see the reference's names above, whose signatures these share
    from outrider.ops.native.attention import sparse_attention
    from outrider.ops.native.compressor import pool_windows
    from outrider.ops.native.experts import expert_mlp, routed_experts
    from outrider.ops.native.hyper_connections import hc_head, mhc_post, mhc_pre
    from outrider.ops.native.indexer import hadamard, indexer_scores
    from outrider.ops.native.linear import Linear
    from outrider.ops.native.norms import rms_norm
    from outrider.ops.native.philox import philox_words
    from outrider.ops.native.rope import apply_rope
    from outrider.ops.native.round_trips import round_trip_fp4, round_trip_fp8
    from outrider.ops.native.routing import expert_weights, routing_scores, select_experts
    from outrider.ops.native.threads import give_kernels_the_threads

if find_spec("triton") is not None and torch.cuda.is_available():
    from outrider.ops.triton.compressor import compress_index_keys, compress_insert
    from outrider.ops.triton.expert_order import order_by_expert
    from outrider.ops.triton.expert_routing import route_by_table, route_tokens
    from outrider.ops.triton.gather_rows import gather_rows
    from outrider.ops.triton.gathered_attention import gathered_sparse_attention
    from outrider.ops.triton.greedy_head import greedy_tokens
    from outrider.ops.triton.grouped_experts import grouped_experts
    from outrider.ops.triton.index_queries import index_queries
    from outrider.ops.triton.indexer_logits import indexer_logits
    from outrider.ops.triton.mhc_site import mhc_head, mhc_site
    from outrider.ops.triton.norm_rope_insert import norm_rope_insert
    from outrider.ops.triton.paged_attention import paged_sparse_attention
    from outrider.ops.triton.radix_select import top_visible_entries
    from outrider.ops.triton.row_norms import mtp_rows, norm_rows, quantize_rows, swiglu_rows
    from outrider.ops.triton.sampling import sample_tokens
    from outrider.ops.triton.scaled_linear import scaled_linear
    from outrider.ops.triton.select_entries import select_entries
    from outrider.ops.triton.topk_swa import combine_topk_swa_indices

_CPU = torch.device("cpu")

__all__ = [
    "Draws",
    "EntryKeys",
    "ExpertBank",
    "ExpertOrder",
    "ExpertWeights",
    "Fp8Rows",
    "HcHeadWeights",
    "HyperConnectionWeights",
    "KeySlots",
    "KvRows",
    "Linear",
    "LinearWeight",
    "MixWeights",
    "PagedRows",
    "Queries",
    "Rotation",
    "Routes",
    "Rows",
    "Site",
    "Written",
    "apply_rope",
    "bf16_weight",
    "combine_topk_swa_indices",
    "compress_index_keys",
    "compress_insert",
    "expert_mlp",
    "expert_weights",
    "fp8_weight",
    "gather_rows",
    "gathered_sparse_attention",
    "greedy_tokens",
    "grouped_experts",
    "hadamard",
    "hc_head",
    "index_queries",
    "indexer_logits",
    "indexer_scores",
    "inverse_frequencies",
    "key_slots",
    "mhc_head",
    "mhc_post",
    "mhc_pre",
    "mhc_site",
    "mtp_rows",
    "norm_rope_insert",
    "norm_rows",
    "order_by_expert",
    "paged_sparse_attention",
    "philox_words",
    "pool_windows",
    "quantize_rows",
    "rms_norm",
    "rotation",
    "round_trip_fp4",
    "round_trip_fp8",
    "route_by_table",
    "route_tokens",
    "routed_experts",
    "routing_scores",
    "sample_tokens",
    "scaled_linear",
    "select_entries",
    "select_experts",
    "sparse_attention",
    "swiglu_rows",
    "top_entries",
    "top_visible_entries",
]


def kernel_threads() -> AbstractContextManager[None]:
    """A context in which the machine's threads belong to the kernels, if there are any (see ops/native/threads.py)."""
    return give_kernels_the_threads() if _native else nullcontext()


def backends(device: torch.device = _CPU) -> dict[str, str]:
    """Op name -> what computes it for tensors of `device`: "native" (compiled, float32 on the CPU), "triton" (on a GPU)
    or "reference" (torch, anywhere).

    An op of ops/native hands a GPU's tensors to its reference, one of ops/triton those of the CPU, so a device has one
    kind of kernel.
    """
    kernels = "native" if device.type == "cpu" else "triton"
    exported = {name: getattr(sys.modules[__name__], name) for name in __all__}
    return {
        name: kernels if value.__module__.startswith(f"{__name__}.{kernels}.") else "reference"
        for name, value in exported.items()
        if not (isinstance(value, type) and issubclass(value, tuple))
    }


def describe_backends(device: torch.device = _CPU) -> str:
    """`backends` in one line, by backend: "ops on cpu: native: Linear apply_rope ...; reference: ..."."""
    return f"ops on {device}: " + "; ".join(
        f"{backend}: {' '.join(names)}" for backend, names in ops_by_backend(device).items()
    )


def ops_by_backend(device: torch.device = _CPU) -> dict[str, list[str]]:
    """Backend -> names of the ops that it serves on this device; both in alphabetical order."""
    found: dict[str, list[str]] = {}
    for op, backend in sorted(backends(device).items(), key=lambda pair: (pair[1], pair[0])):
        found.setdefault(backend, []).append(op)
    return found
