"""Operations of the model: number formats, plain-torch references and kernels.

The model is written against the names exported here.
"""

from outrider.ops.formats import round_trip_fp4, round_trip_fp8
from outrider.ops.reference.attention import KeySlots, key_slots, sparse_attention
from outrider.ops.reference.compressor import pool_windows
from outrider.ops.reference.experts import (
    ExpertWeights,
    expert_mlp,
    expert_weights,
    routed_experts,
    routing_scores,
    select_experts,
)
from outrider.ops.reference.hyper_connections import HcHeadWeights, HyperConnectionWeights, hc_head, mhc_post, mhc_pre
from outrider.ops.reference.indexer import hadamard, indexer_scores, top_entries
from outrider.ops.reference.linear import Linear
from outrider.ops.reference.norms import rms_norm
from outrider.ops.reference.rope import Rotation, apply_rope, inverse_frequencies, rotation

__all__ = [
    "ExpertWeights",
    "HcHeadWeights",
    "HyperConnectionWeights",
    "KeySlots",
    "Linear",
    "Rotation",
    "apply_rope",
    "expert_mlp",
    "expert_weights",
    "hadamard",
    "hc_head",
    "indexer_scores",
    "inverse_frequencies",
    "key_slots",
    "mhc_post",
    "mhc_pre",
    "pool_windows",
    "rms_norm",
    "rotation",
    "round_trip_fp4",
    "round_trip_fp8",
    "routed_experts",
    "routing_scores",
    "select_experts",
    "sparse_attention",
    "top_entries",
]
