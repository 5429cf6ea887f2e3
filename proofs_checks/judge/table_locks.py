"""Rows of the stage table: attention, paging and Locks."""

from __future__ import annotations

from proofs_checks.bounds import attention as attention_bounds
from proofs_checks.bounds import locks_score as score_bounds
from proofs_checks.judge.checks.codes import packed, quantized, unpacked
from proofs_checks.judge.checks.decode import decoded, decoded_paged
from proofs_checks.judge.checks.general import within
from proofs_checks.judge.checks.selection import selected
from proofs_checks.judge.checks.summary import built
from proofs_checks.judge.stage import Stage, bounded

QKV = {"queries": "input", "keys": "input", "values": "input"}
POOLS = {"queries": "input", "key_pool": "input", "value_pool": "input", "block_table": "index", "tokens": "index"}
SUMMARY = {"centroid": "float", "basis": "float", "coefficients": "float"}
CODES = {
    "centroid_codes": "int8",
    "centroid_scale": "float",
    "basis_codes": "int8",
    "basis_scale": "float",
    "coefficient_codes": "int8",
    "coefficient_scale": "float",
}
STATE = {"output": "output", "lse": "float"}
DECODE = {"rank": "plain", "basis_bits": "plain", "budget_tokens": "plain"}

LOCKS = (
    bounded("attention", QKV, STATE, "both, Sec. 2", attention_bounds.attention_bound),
    Stage(
        "merge_attention",
        {"outputs": "float", "lses": "float"},
        STATE,
        "split decoding",
        within(attention_bounds.merge_attention_bound),
        attention_bounds.merge_attention_bound,
        optional=(),
    ),
    bounded(
        "sparse_attention",
        {**QKV, "pages": "index", "page_size": "plain"},
        STATE,
        "Locks Sec. 2",
        attention_bounds.sparse_attention_bound,
    ),
    bounded("paged_attention", POOLS, STATE, "serving", attention_bounds.paged_attention_bound),
    bounded(
        "paged_sparse_attention", {**POOLS, "pages": "index"}, STATE, "serving", attention_bounds.paged_attention_bound
    ),
    Stage(
        "locks_build_summary", {"key_pages": "input", "rank": "plain"}, SUMMARY, "Locks Sec. 4, Build", built, None, ()
    ),
    Stage(
        "locks_quantize_summary",
        {**SUMMARY, "basis_bits": "plain"},
        CODES,
        "Locks Sec. 4, App. D",
        quantized,
        optional=(),
    ),
    Stage(
        "locks_dequantize_summary",
        CODES,
        SUMMARY,
        "Locks Sec. 4, App. D",
        within(score_bounds.dequantize_bound),
        score_bounds.dequantize_bound,
        optional=(),
    ),
    Stage("locks_pack_basis", {"basis_codes": "int8"}, {"basis_bytes": "uint8"}, "Locks App. D", packed, None, ()),
    Stage("locks_unpack_basis", {"basis_bytes": "uint8"}, {"basis_codes": "int8"}, "Locks App. D", unpacked, None, ()),
    bounded(
        "locks_score_pages",
        {"queries": "input", **SUMMARY},
        {"scores": "float"},
        "Locks Eq. (1)",
        score_bounds.score_bound,
    ),
    bounded(
        "exact_page_scores",
        {"queries": "input", "key_pages": "input"},
        {"scores": "float"},
        "Locks Lemma 1",
        score_bounds.exact_score_bound,
    ),
    Stage(
        "locks_page_shares",
        {"scores": "float"},
        {"shares": "float"},
        "Locks Sec. 4, Table D.17",
        within(score_bounds.shares_bound),
        score_bounds.shares_bound,
        optional=("combine",),
    ),
    Stage(
        "locks_select_pages",
        {"shares": "float", "budget_tokens": "plain", "page_size": "plain"},
        {"pages": "index"},
        "Locks Sec. 2 and 4",
        selected,
        optional=(),
    ),
    Stage(
        "locks_decode",
        {**QKV, **DECODE, "page_size": "plain"},
        {"output": "output", "pages": "index"},
        "Locks Sec. 4",
        decoded,
    ),
    Stage("locks_decode_paged", {**POOLS, **DECODE}, {"output": "output", "pages": "index"}, "serving", decoded_paged),
)
