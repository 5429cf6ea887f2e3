"""The reference as a port: every stage of the stage table under its name. Judged like any other port."""

from refimpl.attention import attention, merge_attention, sparse_attention
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

TIES = "lowest_index"

__all__ = [
    "TIES",
    "attention",
    "exact_page_scores",
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
    "paged_attention",
    "paged_sparse_attention",
    "sparse_attention",
]
