"""The Triton kernels as a port: attention, Locks, ReadKV and some other systems, each stage under its name."""

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
from fastimpl.readkv.affine import affine_dequantize, affine_quantize
from fastimpl.readkv.choose import readkv_choose_depths
from fastimpl.readkv.codebooks import lloyd_max_codebook
from fastimpl.readkv.codec import readkv_decode, readkv_encode
from fastimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from fastimpl.readkv.planes import (
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
)
from fastimpl.readkv.reader import readkv_attention, readkv_restricted_attention
from fastimpl.readkv.rotation import readkv_rotate
from fastimpl.readkv.tree import readkv_tree

FRAMEWORK = "torch"
DTYPES = ("bfloat16", "float16", "float32")
ACCUMULATE = "float32"
TIES = "lowest_index"

__all__ = [
    "affine_dequantize",
    "affine_quantize",
    "attention",
    "centroid_scores",
    "exact_page_scores",
    "kivi_dequantize",
    "kivi_quantize",
    "lloyd_max_codebook",
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
    "readkv_attention",
    "readkv_choose_depths",
    "readkv_decode",
    "readkv_encode",
    "readkv_key_importance",
    "readkv_pack_key_planes",
    "readkv_pack_value_planes",
    "readkv_restricted_attention",
    "readkv_rotate",
    "readkv_tree",
    "readkv_unpack_key_planes",
    "readkv_unpack_value_planes",
    "readkv_value_importance",
    "shared_basis_scores",
    "sparq_attention",
    "sparse_attention",
    "turboquant_decode",
    "turboquant_encode",
    "turboquant_pack_slots",
    "turboquant_unpack_slots",
]
