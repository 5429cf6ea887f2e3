"""The Triton kernels as a port: attention, Locks and some of the other systems, each stage under its name."""

from fastimpl.attention import (
    attention,
    merge_attention,
    paged_attention,
    paged_sparse_attention,
    sparse_attention,
)
from fastimpl.baselines.centroid import centroid_scores
from fastimpl.baselines.kivi import kivi_dequantize, kivi_quantize
from fastimpl.baselines.moment_core import moment_scores
from fastimpl.baselines.quest import quest_envelope, quest_pages, quest_scores
from fastimpl.baselines.shared_basis import shared_basis_scores
from fastimpl.baselines.sparq import sparq_attention
from fastimpl.baselines.turboquant import (
    turboquant_decode,
    turboquant_encode,
    turboquant_pack_slots,
    turboquant_unpack_slots,
)
from fastimpl.locks.combine import locks_page_shares
from fastimpl.locks.decode import locks_decode, locks_decode_paged
from fastimpl.locks.quantize import (
    locks_dequantize_summary,
    locks_pack_basis,
    locks_quantize_summary,
    locks_unpack_basis,
)
from fastimpl.locks.score import exact_page_scores, locks_score_pages
from fastimpl.locks.select import locks_select_pages
from fastimpl.locks.summary import locks_build_summary

FRAMEWORK = "torch"
DTYPES = ("bfloat16", "float16", "float32")
ACCUMULATE = "float32"
TIES = "lowest_index"

__all__ = [
    "attention",
    "centroid_scores",
    "exact_page_scores",
    "kivi_dequantize",
    "kivi_quantize",
    "locks_build_summary",
    "locks_decode",
    "locks_decode_paged",
    "locks_dequantize_summary",
    "locks_pack_basis",
    "locks_page_shares",
    "locks_quantize_summary",
    "locks_score_pages",
    "locks_select_pages",
    "locks_unpack_basis",
    "merge_attention",
    "moment_scores",
    "paged_attention",
    "paged_sparse_attention",
    "quest_envelope",
    "quest_pages",
    "quest_scores",
    "shared_basis_scores",
    "sparq_attention",
    "sparse_attention",
    "turboquant_decode",
    "turboquant_encode",
    "turboquant_pack_slots",
    "turboquant_unpack_slots",
]
