"""One valid call, or two, of every checked function of refimpl outside readkv and baselines, argument by argument.

Arrays stand in the order in which the function reads their shapes: of two that disagree the later one is named.
"""

import numpy as np
from argument_kinds import Choice, Free, Integers, Number, Reals, Scale, Whole

from refimpl import attention, paging
from refimpl.locks import accounting, combine, coverage, decode, dialect, incremental, oracle, quantize, score, select
from refimpl.locks import summary as build

QUERIES, KEYS, VALUES = Reals("H G d"), Reals("H T d"), Reals("H T d")
SIZE = Whole(5, low=1)
FIRST = {"at": (0, 0, 0)}  # a token that every page set reads


def pool():
    """Two sequences of 18 and 7 tokens; what lies outside them is not read."""
    return {
        "queries": Reals("N H G d"),
        "key_pool": Reals("M B H d", at=(0, 0, 0, 0), read_later=True),
        "value_pool": Reals("M B H d", at=(0, 0, 0, 0), read_later=True),
        "block_table": Integers("N C", 0, 8, [[0, 8, 3, 5], [2, 1, 0, 4]], at=(0, 0)),
        "tokens": Integers("N", 0, None, [18, 7]),
    }


def sparse():
    return {
        "queries": QUERIES,
        "keys": KEYS,
        "page_size": SIZE,
        "pages": Integers("H K", 0, 3),
        "softmax_scale": Scale(),
    }


def steps(least_budget=6):
    """Settings of a decode step over four pages of five tokens: sink and most recent page need six of budget."""
    return {"rank": Whole(1, low=1, high=5), "budget_tokens": Whole(11, low=least_budget), "softmax_scale": Scale()}


def summary():
    return {"centroid": Reals("H P d"), "basis": Reals("H P d r"), "coefficients": Reals("H P B r")}


INT8 = {"low": -128, "high": 127}
BITS, WIDTHS = Choice(4, 2, 8), Choice(8, 2, 4, 16)
SUMMARY_RANK = Whole(2, low=1, high=5)

CALLS = [
    (attention.attention, {"queries": QUERIES, "keys": KEYS, "values": VALUES, "softmax_scale": Scale()}),
    (attention.scale_of, {"softmax_scale": Scale(), "d": Free(8)}),
    (attention.merge_attention, {"outputs": Reals("S H G d"), "lses": Reals("S H G", minus_infinity=True)}),
    (
        attention.sparse_attention,
        {
            "queries": QUERIES,
            "keys": Reals("H T d", read_later=True, **FIRST),
            "values": Reals("H T d", read_later=True, **FIRST),
            "page_size": SIZE,
            "pages": Integers("H K", 0, 3),
            "softmax_scale": Scale(),
        },
    ),
    (paging.page_count, {"tokens": Whole(18, low=0), "page_size": SIZE}),
    (paging.paged_attention, {**pool(), "softmax_scale": Scale()}),
    (
        paging.paged_sparse_attention,
        {**pool(), "pages": Integers("N H K", -1, 3, [0, 0, -1, -1], at=(0, 0, 0)), "softmax_scale": Scale()},
    ),
    (accounting.page_kv_bytes, {"page_size": SIZE, "head_size": Whole(8, low=1)}),
    (
        accounting.payload_bytes,
        {"rank": Whole(2, low=1), "basis_bits": WIDTHS, "page_size": SIZE, "head_size": Whole(8, low=1)},
    ),
    (
        accounting.scale_bytes,
        {"rank": Whole(2, low=1), "page_size": SIZE, "basis_bits": Choice(4, 2, 8), "bytes_per_scale": Whole(2, low=1)},
    ),
    (
        accounting.record_bytes,
        {
            "rank": Whole(2, low=1),
            "basis_bits": WIDTHS,
            "page_size": SIZE,
            "head_size": Whole(8, low=1),
            "tag": Whole(3, low=0),
            "align": Whole(64, low=1),
        },
    ),
    (
        accounting.step_traffic,
        {
            "context_tokens": Whole(18, low=0),
            "budget_tokens": Whole(7, low=1),
            "page_size": SIZE,
            "head_size": Whole(8, low=1),
            "summary_bytes": Number(3.5, low=0),
        },
    ),
    (
        combine.locks_page_shares,
        {"scores": Reals("H G P", minus_infinity=True), "combine": Choice("share_average", "group_max", "group_mass")},
    ),
    (coverage.coverage, sparse()),
    (coverage.coverage, {**sparse(), "pages": Integers("H G K", 0, 3)}),
    (coverage.coverage_identity, {**sparse(), "values": VALUES}),
    (coverage.output_error, {**sparse(), "values": VALUES}),
    (
        decode.locks_decode,
        {
            "queries": QUERIES,
            "keys": KEYS,
            "values": VALUES,
            **steps(),
            "basis_bits": Choice(4, 2, 8, "fp", None),
            "page_size": SIZE,
        },
    ),
    (decode.locks_decode_paged, {**pool(), **steps(), "basis_bits": Choice(4, 2, 8, "fp", None)}),
    (
        incremental.SummaryBuilder,
        {"kv_heads": Whole(2, low=0), "head_size": Whole(8, low=1), "page_size": SIZE, "rank": Whole(1, low=1, high=5)},
    ),
    (oracle.exact_scores, {"queries": QUERIES, "keys": KEYS, "page_size": SIZE, "softmax_scale": Scale()}),
    (
        oracle.oracle_decode,
        {
            "queries": QUERIES,
            "keys": KEYS,
            "values": Reals("H T d", read_later=True, **FIRST),
            "budget_tokens": Whole(11, low=6),
            "page_size": SIZE,
            "combine": Choice("share_average", "group_max", "group_mass"),
            "softmax_scale": Scale(),
        },
    ),
    (
        oracle.per_head_pages,
        {"scores": Reals("H G P", minus_infinity=True), "budget_tokens": Whole(11, low=6), "page_size": SIZE},
    ),
    (
        oracle.per_head_traffic,
        {"pages": Integers("H G K", 0, 3), "tokens": Whole(18, low=0, accept=(1, 16)), "page_size": SIZE},
    ),
    (
        oracle.per_head_traffic,
        {"pages": Free(np.zeros((2, 3, 0), int), "H G K"), "tokens": Whole(0, low=0), "page_size": SIZE},
    ),
    (quantize.locks_quantize_summary, {**summary(), "basis_bits": BITS}),
    (
        quantize.locks_dequantize_summary,
        {
            "centroid_codes": Integers("H P d", **INT8),
            "basis_codes": Integers("H P d r", **INT8),
            "coefficient_codes": Integers("H P B r", **INT8),
            "centroid_scale": Reals("H P"),
            "basis_scale": Reals("H P r"),
            "coefficient_scale": Reals("H P B"),
        },
    ),
    (quantize.locks_pack_basis, {"basis_codes": Integers("H P d r", -8, 7)}),
    (quantize.locks_unpack_basis, {"basis_bytes": Integers("H P r B", 0, 255)}),
    (score.locks_score_pages, {"queries": QUERIES, **summary(), "softmax_scale": Scale()}),
    (score.exact_page_scores, {"queries": QUERIES, "key_pages": Reals("H P B d"), "softmax_scale": Scale()}),
    (select.pages_within_budget, {"budget_tokens": Whole(11, low=6), "page_size": SIZE, "pages": Free(4)}),
    (select.pages_within_budget, {"budget_tokens": Whole(1, low=1), "page_size": SIZE, "pages": Free(1)}),
    (select.locks_select_pages, {"shares": Reals("H P"), "budget_tokens": Whole(11, low=6), "page_size": SIZE}),
    (build.locks_build_summary, {"key_pages": Reals("H P B d"), "rank": SUMMARY_RANK}),
    (
        dialect.budget_of_package,
        {
            "tokens": Whole(18, low=0),
            "page_size": SIZE,
            "budget_pages": Whole(1, low=0),
            "fraction": Number(0.1, low=0),
        },
    ),
]

for profile, budget in ((dialect.PAPER, 6), (dialect.LOCKS_KV_0_1_4, 1)):
    fixed = {"profile": Free(profile)}
    CALLS += [
        (dialect.build_summary, {**fixed, "key_pages": Reals("H P B d"), "rank": SUMMARY_RANK}),
        (dialect.quantize_summary, {**fixed, **summary(), "basis_bits": BITS}),
        (dialect.score_pages, {**fixed, "queries": QUERIES, **summary(), "softmax_scale": Scale()}),
        (dialect.page_values, {**fixed, "scores": Reals("H G P", minus_infinity=True)}),
        (
            dialect.select_pages,
            {**fixed, "values": Reals("H P"), "budget_tokens": Whole(11, low=budget), "page_size": SIZE},
        ),
        (
            dialect.decode,
            {
                **fixed,
                "queries": QUERIES,
                "keys": KEYS,
                "values": Reals("H T d", read_later=True, **FIRST),
                **steps(budget),
                "basis_bits": BITS,
                "page_size": SIZE,
            },
        ),
        (dialect.decode_paged, {**fixed, **pool(), **steps(budget), "basis_bits": BITS}),
    ]

UNCHECKED = {
    # of arrays that are checked already
    attention.log_sum_exp, attention.softmax, attention.attend, attention.tokens_of_pages, attention.page_coverage,
    paging.split_pages, paging.gather_sequence, paging.slots_of_pages,
    combine.head_shares, decode.deployed_summary, decode.locks_scores, dialect.to_bf16, dialect.round_queries,
    quantize.quantize_symmetric, select.select_one, build.zero_mode_level, build.column_signs, build.reconstruct,
    # of objects
    dialect.departures,
}  # fmt: skip
