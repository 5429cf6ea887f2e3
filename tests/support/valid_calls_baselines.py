"""One valid call of every checked function of refimpl.baselines, argument by argument; see valid_calls_locks."""

import numpy as np
from argument_kinds import Choice, Free, Integers, Number, Reals, Scale, Whole, Wholes
from valid_calls_readkv import CODES, GEOMETRY, state

from refimpl.baselines import (
    centroid,
    choose,
    code_accounting,
    codebook,
    expected_attention,
    kivi,
    kvzip,
    lazyeviction,
    lloyd2,
    loki,
    moment_core,
    qjl,
    quest,
    rkv,
    rocketkv,
    rope,
    shadowkv,
    shared_basis,
    sparq,
    sparq_nested,
    triattention,
    turboquant,
    turboquant_slot,
)
from refimpl.checks import Sizes

QUERIES, KEYS, PAGES = Reals("H G d"), Reals("H T d"), Reals("H P B d")
STEP = {"queries": QUERIES, "keys": KEYS, "values": KEYS, "softmax_scale": Scale()}
WINDOW = {"queries": Reals("H G B d"), "keys": KEYS, "softmax_scale": Scale()}  # the last five queries
FREQUENCIES = Reals("4", [1.0, 0.1, 0.01, 0.001])
LEVELS = Reals("P", [-0.75, -0.25, 0.25, 0.75])
BITS, KEPT, BUDGET = Whole(2, low=1, high=8), Whole(3, low=0), Whole(7, low=0)
RANK, SEED, KERNEL = Whole(2, low=1, high=8), Whole(1, low=0), Whole(3, low=1)
SHARED = {"mean": Reals("H d"), "basis": Reals("H d r")}
TRACKED = {"last": Integers("H G T", None, 9), "interval": Integers("H G T", 0, None)}
LOOKED_AT = {"step": Whole(9, low=0, accept=(9, 10)), **TRACKED}
AT_START = {"step": Whole(0, low=0), **TRACKED, "last": Integers("H G T", None, 0, -2)}
TURBO = {"rotation": Reals("d d", np.eye(8)), "levels": LEVELS}
HALF = Reals("T")

CALLS = [
    (
        centroid.centroid_scores,
        {"queries": QUERIES, "centroid": Reals("H P d"), "page_tokens": Whole(5, low=1), "softmax_scale": Scale()},
    ),
    (centroid.centroid_state_bytes, {"head_size": Whole(8, low=1), "bits": Whole(8, low=1)}),
    (
        choose.evict_tokens,
        {
            "scores": Reals("H T"),
            "budget_tokens": Whole(7, low=3),
            "first_tokens": Whole(1, low=0),
            "recent_tokens": Whole(2, low=0),
        },
    ),
    (choose.protected_tokens, {"tokens": Free(9), "first_tokens": Whole(1, low=0), "recent_tokens": Whole(2, low=0)}),
    (
        code_accounting.kivi_bits,
        {
            "tokens": Whole(18, low=0),
            "bits": BITS,
            "rule": Choice("readkv", "prefill"),
            "group_size": Whole(5, low=1),
            "residual": Whole(5, low=1),
        },
    ),
    (
        code_accounting.kivi_percent,
        {"lengths": Wholes([1, 2], low=1), "bits": BITS, "rule": Choice("readkv", "prefill")},
    ),
    (
        code_accounting.turboquant_percent,
        {"layers": Whole(6, low=1, accept=(4,)), "channels": Whole(8, low=2), "edge": Whole(2, low=0, high=3)},
    ),
    (
        code_accounting.turboquant_percent,
        {"layers": Whole(3, low=1), "channels": Free(8), "edge": Whole(0, low=0, high=1)},
    ),
    (codebook.codebook_train, {"keys": KEYS, "entries": Whole(3, low=1, high=18), "sweeps": Whole(2, low=0)}),
    (codebook.codebook_encode, {"keys": KEYS, "codewords": Reals("H P d")}),
    (codebook.codebook_decode, {"codewords": Reals("H P d"), "codes": Integers("H T", 0, 3)}),
    (
        codebook.codebook_scores,
        {"queries": QUERIES, "codewords": Reals("H P d"), "codes": Integers("H r B", 0, 3), "softmax_scale": Scale()},
    ),
    (
        codebook.codebook_state_bytes,
        {
            "entries": Whole(3, low=1),
            "page_size": Whole(5, low=1),
            "head_size": Whole(8, low=1),
            "pages_per_table": Number(9.5, above=0),
        },
    ),
    (expected_attention.expected_query_moments, {"queries": Reals("H G T d"), "skipped": Whole(4, low=0)}),
    (
        expected_attention.average_rotation,
        {"frequencies": Reals("B"), "start": Whole(-3), "positions": Whole(3, low=1)},
    ),
    (
        expected_attention.expected_attention_scores,
        {
            "keys": KEYS,
            "values": KEYS,
            "query_mean": QUERIES,
            "query_covariance": Reals("H G d d"),
            "sinks": Whole(4, low=0, high=17),
            "softmax_scale": Scale(),
        },
    ),
    (
        kivi.kivi_quantize,
        {
            "keys": KEYS,
            "values": KEYS,
            "bits": BITS,
            "group_size": Whole(2, low=1),
            "scale_format": Choice("float16", "float32", "float64"),
        },
    ),
    (
        kivi.kivi_dequantize,
        {
            "key_codes": CODES,
            "value_codes": CODES,
            "key_scale": Reals("H N d"),
            "key_zero": Reals("H N d"),
            "value_scale": Reals("H T P"),
            "value_zero": Reals("H T P"),
        },
    ),
    (
        kivi.kivi_residual,
        {"tokens": Whole(18, low=0), "rule": Choice("readkv", "prefill"), "residual": Whole(5, low=1)},
    ),
    (
        kvzip.kvzip_scores,
        {
            "queries": Reals("H G B d"),
            "prefix_keys": Reals("H S d"),
            "chunk_keys": KEYS,
            "repeat_keys": Reals("H B d"),
            "softmax_scale": Scale(),
        },
    ),
    (kvzip.kvzip_keep, {"scores": Reals("S H T"), "ratio": Number(0.5, low=0), "level": Choice("pair", "uniform")}),
    (kvzip.kvzip_reads, {"budget_tokens": BUDGET, "question_tokens": BUDGET, "generated_tokens": BUDGET}),
    (
        lazyeviction.lazyeviction_track,
        {**LOOKED_AT, "weights": Reals("H G T"), "threshold": Number(1e-4, accept=(-1.0,))},
    ),
    (
        lazyeviction.lazyeviction_scores,
        {**LOOKED_AT, "combine": Choice("product", "sum"), "least_interval": Number(1.0, above=0)},
    ),
    (
        lazyeviction.lazyeviction_track,
        {**AT_START, "weights": Reals("H G T"), "threshold": Number(1e-4, accept=(-1.0,))},
    ),
    (lazyeviction.lazyeviction_scores, {**AT_START, "combine": Choice("product", "sum"), "least_interval": Free(1.0)}),
    (lazyeviction.lazyeviction_window, {"budget_tokens": Whole(7, low=1)}),
    (lazyeviction.lazyeviction_resident_tokens, {"budget_tokens": Whole(7, low=1), "group": Whole(3, low=1)}),
    (
        lloyd2.lloyd2_encode,
        {"x": KEYS, "mean": Reals("H d"), "scale": Reals("H d", above=0.0), "signs": state()["key_signs"]},
    ),
    (
        lloyd2.lloyd2_decode,
        {
            "codes": Integers("H T d", 0, 3),
            "norm": Reals("H T"),
            "mean": Reals("H d"),
            "scale": Reals("H d", above=0.0),
            "signs": state()["key_signs"],
            "norm_correction": Free(True),
        },
    ),
    (loki.loki_attention, {**STEP, "components": Reals("H d d"), "rank": RANK, "kept_tokens": KEPT}),
    (loki.loki_rank, {"explained": Reals("H d"), "share": Number(0.75)}),
    (loki.loki_kept, {"tokens": Whole(18, low=0), "share": Number(0.25, low=0)}),
    (moment_core.moment_build_summary, {"key_pages": PAGES, "rank": Whole(2, low=1, high=5)}),
    (
        moment_core.moment_scores,
        {
            "queries": QUERIES,
            "centroid": Reals("H P d"),
            "directions": Reals("H P d r"),
            "energies": Reals("H P r"),
            "page_tokens": Whole(5, low=1),
            "softmax_scale": Scale(),
        },
    ),
    (moment_core.moment_state_bytes, {"rank": Whole(2, low=1), "head_size": Whole(8, low=1)}),
    (qjl.qjl_projection, {"rows": Whole(2, low=1), "d": Whole(8, low=1), "seed": SEED}),
    (qjl.qjl_encode, {"x": Reals("T d"), "projection": Reals("r d")}),
    (
        qjl.qjl_estimate,
        {"signs": Integers("T r", -1, 1, 1), "norm": Reals("T"), "projection": Reals("r d"), "queries": Reals("G d")},
    ),
    (qjl.qjl_inner_products, {"x": Reals("T d"), "queries": Reals("G d"), "seed": SEED}),
    (quest.quest_build_summary, {"key_pages": PAGES}),
    (quest.quest_envelope, {"keys": KEYS, "page_size": Whole(5, low=1)}),
    (quest.quest_scores, {"queries": QUERIES, "minimum": Reals("H P d", 0.0), "maximum": Reals("H P d")}),
    (
        quest.quest_pages,
        {
            "scores": Reals("H G P"),
            "budget_tokens": BUDGET,
            "page_size": Whole(5, low=1),
            "recent_pages": Whole(2, low=0, high=3),
        },
    ),
    (quest.quest_kept_pages, {"budget_tokens": BUDGET, "page_size": Whole(5, low=1), "pages": Whole(4, low=0)}),
    (quest.quest_read_range, {"budget_tokens": BUDGET, "group": Whole(3, low=1)}),
    (quest.quest_state_bytes, {"head_size": Whole(8, low=1)}),
    (rkv.rkv_scores, {**WINDOW, "mix": Number(0.1, low=0, high=1), "kernel": KERNEL}),
    (rkv.rkv_resident_tokens, {"budget_tokens": Whole(7, low=1)}),
    (rocketkv.rocketkv_snap, {**WINDOW, "budget_tokens": Whole(7, low=5), "kernel": KERNEL}),
    (
        rocketkv.rocketkv_tokens,
        {
            "queries": QUERIES,
            "keys": KEYS,
            "chunk_size": Whole(4, low=1),
            "rank": RANK,
            "kept_tokens": KEPT,
            "softmax_scale": Scale(),
        },
    ),
    (
        rocketkv.rocketkv_budgets,
        {
            "length": Whole(100, low=1, accept=(9,)),
            "budget_tokens": Whole(20, low=16),
            "new_tokens": Whole(9, low=0, high=100),
            "head_size": Whole(8, low=1),
        },
    ),
    (
        rocketkv.rocketkv_budgets,
        {"length": Whole(5, low=1), "budget_tokens": Free(20), "new_tokens": Whole(0, low=0), "head_size": Free(8)},
    ),
    (rope.rope_frequencies, {"d": Whole(8, low=2), "base": Number(10000.0, above=0)}),
    (rope.rope_rotate, {"x": KEYS, "positions": Reals("T"), "frequencies": FREQUENCIES}),
    (
        shadowkv.shadowkv_landmarks,
        {
            "keys": KEYS,
            "chunk_size": Whole(4, low=1),
            "local_chunks": Whole(1, low=0),
            "outlier_chunks": Whole(1, low=0),
        },
    ),
    (
        shadowkv.shadowkv_chunks,
        {"queries": QUERIES, "landmarks": Reals("H C d"), "kept_chunks": KEPT, "softmax_scale": Scale()},
    ),
    (shadowkv.shadowkv_low_rank, {"keys": KEYS, "rank": Whole(2, low=1, high=16)}),
    (
        shadowkv.shadowkv_keys,
        {"left": Reals("T r"), "right": Reals("H r d"), "tokens": Integers("K", 0, 17), "frequencies": FREQUENCIES},
    ),
    (shadowkv.shadowkv_selected_tokens, {"budget_tokens": BUDGET}),
    (shared_basis.sequence_basis, {"keys": KEYS, "rank": RANK}),
    (shared_basis.covariance_basis, {"mean": Reals("H d"), "covariance": Reals("H d d"), "rank": RANK}),
    (shared_basis.shared_basis_pages, {"key_pages": PAGES, **SHARED, "form": Choice("reconstruction", "projected")}),
    (
        shared_basis.shared_basis_scores,
        {"queries": QUERIES, **SHARED, "coordinates": Reals("H P B r"), "softmax_scale": Scale()},
    ),
    (
        shared_basis.bucket_basis_pages,
        {"key_pages": PAGES, "rank": RANK, "bucket": Whole(2, low=1), "form": Choice("reconstruction", "projected")},
    ),
    (shared_basis.captured_energy, {"key_pages": PAGES, "reconstruction": PAGES}),
    (
        shared_basis.shared_state_bytes,
        {
            "rank": Whole(2, low=1),
            "page_size": Whole(5, low=1),
            "head_size": Whole(8, low=1),
            "pages_per_basis": Number(9.5, above=0),
        },
    ),
    (
        sparq.sparq_attention,
        {
            **STEP,
            "rank": RANK,
            "kept_tokens": Whole(5, low=0, accept=(2,)),
            "ranking": Choice("scores", "weights"),
            "local_tokens": Whole(2, low=0, high=5),
        },
    ),
    (
        sparq.sparq_read_percent,
        {"rank": Whole(2, low=1), "kept_tokens": KEPT, "head_size": Whole(8, low=1), "lengths": Wholes([1, 2], low=1)},
    ),
    (
        sparq.nested_read_percent,
        {"geometry": GEOMETRY, "rank": Whole(2, low=1), "kept_tokens": KEPT, "lengths": Wholes([1, 2], low=1)},
    ),
    (
        sparq_nested.sparq_nested_attention,
        {
            "queries": QUERIES,
            "key_codes": CODES,
            "value_codes": CODES,
            **state(),
            "rank": RANK,
            "kept_tokens": KEPT,
            "ranking": Choice("scores", "weights"),
            "softmax_scale": Scale(),
        },
    ),
    (
        triattention.triattention_scores,
        {
            "keys": KEYS,
            "positions": Integers("T", 0, None),
            "frequencies": FREQUENCIES,
            "centre": QUERIES,
            "magnitude": Reals("H G 4"),
            "step": Whole(9, low=0),
            "offsets": Integers("S", None, None),
            "aggregate": Choice("mean", "max"),
        },
    ),
    (
        triattention.triattention_resident_tokens,
        {"budget_tokens": BUDGET, "prompt_tokens": BUDGET, "generated_tokens": BUDGET},
    ),
    (turboquant.turboquant_rotation, {"d": Whole(8, low=1), "kind": Choice("haar", "hadamard"), "seed": SEED}),
    (turboquant.check_levels, {"levels": LEVELS}),
    (turboquant.turboquant_encode, {"x": Reals("T d"), **TURBO}),
    (
        turboquant.turboquant_decode,
        {"codes": Integers("T d", 0, 3), "norm": Reals("T"), **TURBO, "norm_correction": Free(True)},
    ),
    (
        turboquant.turboquant_inner_products,
        {"x": Reals("T d"), "queries": Reals("G d"), "bits": Whole(3, low=2, high=9), "seed": SEED},
    ),
    (turboquant_slot.turboquant_slot_bytes, {"d": Whole(8, low=2)}),
    (
        turboquant_slot.turboquant_pack_slots,
        {
            "key_codes": Integers("T d", 0, 15),
            "value_codes": Integers("T d", 0, 15),
            "key_norm": HALF,
            "value_scale": HALF,
            "value_zero": HALF,
        },
    ),
    (turboquant_slot.turboquant_unpack_slots, {"slots": Integers("H 14", 0, 255)}),
    (
        rope.pair_values,
        {"name": Free("value"), "value": FREQUENCIES, "axes": Free("F"), "sizes": Free(Sizes({"d": 8}))},
    ),
]

UNCHECKED = {
    # of arrays that are checked already
    choose.best, expected_attention.expected_logits, lazyeviction.twice_sigmoid, loki.loki_scores, rkv.window_logits,
    rkv.cosines, rkv.column_means, rocketkv.max_pool, rocketkv.window_weights, rocketkv.chunk_scores, rope.as_complex,
    shadowkv.worst_cosines, sparq.sparq_channels, sparq.norm_factor, sparq.probe_scores, sparq.ranked_tokens,
    sparq.sparse_step, sparq_nested.nested_reads, triattention.triattention_pool,
}  # fmt: skip
