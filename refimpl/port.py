"""The reference as a port: every stage of the stage table under its name. Judged like any other port."""

from refimpl.attention import attention, merge_attention, sparse_attention
from refimpl.baselines.centroid import centroid_scores
from refimpl.baselines.choose import evict_tokens
from refimpl.baselines.codebook import codebook_scores
from refimpl.baselines.expected_attention import expected_attention_scores
from refimpl.baselines.kivi import kivi_dequantize, kivi_quantize
from refimpl.baselines.kvzip import kvzip_keep
from refimpl.baselines.lazyeviction import lazyeviction_scores
from refimpl.baselines.lloyd2 import lloyd2_decode, lloyd2_encode
from refimpl.baselines.loki import loki_attention
from refimpl.baselines.moment_core import moment_scores
from refimpl.baselines.qjl import qjl_encode, qjl_estimate, qjl_inner_products
from refimpl.baselines.quest import quest_envelope, quest_pages, quest_scores
from refimpl.baselines.rkv import rkv_scores
from refimpl.baselines.rocketkv import rocketkv_snap, rocketkv_tokens
from refimpl.baselines.shadowkv import shadowkv_chunks, shadowkv_landmarks, shadowkv_low_rank
from refimpl.baselines.shared_basis import shared_basis_scores
from refimpl.baselines.sparq import sparq_attention
from refimpl.baselines.sparq_nested import sparq_nested_attention
from refimpl.baselines.triattention import triattention_scores
from refimpl.baselines.turboquant import (
    turboquant_decode,
    turboquant_encode,
    turboquant_inner_products,
    turboquant_rotation,
)
from refimpl.baselines.turboquant_slot import turboquant_pack_slots, turboquant_unpack_slots
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.decode import locks_decode, locks_decode_paged
from refimpl.locks.quantize import (
    locks_dequantize_summary,
    locks_pack_basis,
    locks_quantize_summary,
    locks_unpack_basis,
)
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.select import locks_select_pages
from refimpl.locks.summary import locks_build_summary
from refimpl.paging import paged_attention, paged_sparse_attention
from refimpl.readkv.affine import affine_dequantize, affine_quantize
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.codebooks import LAWS, lloyd_max_codebook
from refimpl.readkv.codec import readkv_decode, readkv_encode
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.planes import (
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
)
from refimpl.readkv.reader import readkv_attention
from refimpl.readkv.restricted import readkv_restricted_attention
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import readkv_tree

TIES = "lowest_index"

__all__ = [
    "LAWS",
    "TIES",
    "affine_dequantize",
    "affine_quantize",
    "attention",
    "centroid_scores",
    "codebook_scores",
    "evict_tokens",
    "exact_page_scores",
    "expected_attention_scores",
    "kivi_dequantize",
    "kivi_quantize",
    "kvzip_keep",
    "lazyeviction_scores",
    "lloyd2_decode",
    "lloyd2_encode",
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
    "loki_attention",
    "merge_attention",
    "moment_scores",
    "paged_attention",
    "paged_sparse_attention",
    "qjl_encode",
    "qjl_estimate",
    "qjl_inner_products",
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
    "rkv_scores",
    "rocketkv_snap",
    "rocketkv_tokens",
    "shadowkv_chunks",
    "shadowkv_landmarks",
    "shadowkv_low_rank",
    "shared_basis_scores",
    "sparq_attention",
    "sparq_nested_attention",
    "sparse_attention",
    "triattention_scores",
    "turboquant_decode",
    "turboquant_encode",
    "turboquant_inner_products",
    "turboquant_pack_slots",
    "turboquant_rotation",
    "turboquant_unpack_slots",
]
