"""Rows of the stage table: the other systems that choose what to read or to keep (Locks App. C, D; ReadKV App. F.2)."""

from __future__ import annotations

from collections.abc import Mapping

from proofs_checks.bounds import baseline_scores as score_bounds
from proofs_checks.bounds import baseline_tokens as token_bounds
from proofs_checks.judge.checks import baseline_choices as choices
from proofs_checks.judge.checks.baseline_reads import loki_judged, nested_judged, sparq_judged
from proofs_checks.judge.checks.general import BoundFunction, Check, exactly, within
from proofs_checks.judge.stage import Stage

SCORES = {"scores": "float"}
QKV = {"queries": "input", "keys": "input", "values": "input"}
STEP = {"output": "output", "channels": "index", "tokens": "index", "mass": "float"}
NESTED = {
    "queries": "input",
    "key_codes": "uint8",
    "value_codes": "uint8",
    **dict.fromkeys(("key_mean", "key_scale", "value_mean", "value_scale", "key_signs", "value_signs"), "float"),
}
TRIGONOMETRIC = {
    "keys": "input",
    "positions": "index",
    "frequencies": "float",
    "centre": "float",
    "magnitude": "float",
    "step": "plain",
}
SCALE = ("softmax_scale",)


def _chosen(
    name: str,
    arguments: Mapping[str, str],
    results: Mapping[str, str],
    source: str,
    check: Check,
    optional: tuple[str, ...] = (),
) -> Stage:
    """A row whose check knows no single bound: sets, and values on the port's own choice."""
    return Stage(name, arguments, results, source, check, None, optional)


def _scored(
    name: str, arguments: Mapping[str, str], source: str, bound: BoundFunction, optional: tuple[str, ...]
) -> Stage:
    """A row that gives scores within a bound."""
    return Stage(name, arguments, SCORES, source, within(bound), bound, optional)


PAGE_SCORES = (
    _chosen(
        "quest_envelope",
        {"keys": "input", "page_size": "plain"},
        {"minimum": "float", "maximum": "float"},
        "Locks Lemma 2, App. D (Quest)",
        exactly,
    ),
    _scored(
        "quest_scores",
        {"queries": "input", "minimum": "float", "maximum": "float"},
        "Locks Lemma 2 (Quest)",
        score_bounds.envelope_score_bound,
        (),
    ),
    _chosen(
        "quest_pages",
        {"scores": "float", "budget_tokens": "plain", "page_size": "plain"},
        {"pages": "index", "read": "uint8"},
        "Locks App. C.1 (Quest)",
        choices.quest_chosen,
        ("recent_pages",),
    ),
    _scored(
        "centroid_scores",
        {"queries": "input", "centroid": "float", "page_tokens": "plain"},
        "Locks Table B.1 (centroid only)",
        score_bounds.centroid_score_bound,
        SCALE,
    ),
    _scored(
        "moment_scores",
        {"queries": "input", "centroid": "float", "directions": "float", "energies": "float", "page_tokens": "plain"},
        "Locks Eq. (A.2), App. D (moment core)",
        score_bounds.moment_score_bound,
        SCALE,
    ),
    _scored(
        "shared_basis_scores",
        {"queries": "input", "mean": "float", "basis": "float", "coordinates": "float"},
        "Locks App. D (sequence and global basis)",
        score_bounds.shared_score_bound,
        SCALE,
    ),
    _scored(
        "codebook_scores",
        {"queries": "input", "codes": "index", "codewords": "float"},
        "Locks App. D (codebook)",
        score_bounds.codebook_score_bound,
        SCALE,
    ),
)
"""Scores of pages, and what Quest chooses by them."""

SPARSE_STEPS = (
    _chosen(
        "sparq_attention",
        {**QKV, "rank": "plain", "kept_tokens": "plain"},
        STEP,
        "ReadKV App. F.2 (SparQ)",
        sparq_judged,
        ("ranking", "local_tokens", *SCALE),
    ),
    _chosen(
        "sparq_nested_attention",
        {**NESTED, "rank": "plain", "kept_tokens": "plain"},
        STEP,
        "ReadKV App. F.2 (SparQ + nested code)",
        nested_judged,
        ("ranking", *SCALE),
    ),
    _chosen(
        "loki_attention",
        {**QKV, "components": "float", "rank": "plain", "kept_tokens": "plain"},
        {"output": "output", "tokens": "index"},
        "Locks Sec. 3, App. D (Loki)",
        loki_judged,
        SCALE,
    ),
)
"""Whole steps that choose tokens and attend them."""

SELECTIONS = (
    _chosen(
        "shadowkv_landmarks",
        {"keys": "input"},
        {"landmarks": "float", "outliers": "index"},
        "Locks App. C.1 (ShadowKV)",
        choices.landmarks_chosen,
        ("chunk_size", "local_chunks", "outlier_chunks"),
    ),
    _chosen(
        "shadowkv_chunks",
        {"queries": "input", "landmarks": "float", "kept_chunks": "plain"},
        {"chunks": "index"},
        "Locks App. C.1 (ShadowKV)",
        choices.chunks_chosen,
        SCALE,
    ),
    _chosen(
        "shadowkv_low_rank",
        {"keys": "input", "rank": "plain"},
        {"left": "float", "right": "float"},
        "Locks Sec. 3 (ShadowKV)",
        choices.factored,
    ),
    _chosen(
        "rocketkv_snap",
        {"queries": "input", "keys": "input", "budget_tokens": "plain"},
        {"tokens": "index"},
        "Locks App. C.1 (RocketKV, first stage)",
        choices.snapped,
        ("kernel", *SCALE),
    ),
    _chosen(
        "rocketkv_tokens",
        {"queries": "input", "keys": "input", "chunk_size": "plain", "rank": "plain", "kept_tokens": "plain"},
        {"channels": "index", "tokens": "index"},
        "Locks App. C.1 (RocketKV, second stage)",
        choices.rocket_chosen,
        SCALE,
    ),
    _chosen(
        "kvzip_keep",
        {"scores": "float", "ratio": "plain"},
        {"keep": "uint8"},
        "Locks App. C.1 (KVzip)",
        choices.zipped,
        ("level",),
    ),
    _chosen(
        "evict_tokens",
        {"scores": "float", "budget_tokens": "plain"},
        {"tokens": "index"},
        "Locks App. C.2",
        choices.stayed,
        ("first_tokens", "recent_tokens"),
    ),
)
"""What is kept or attended, by scores given or made."""

TOKEN_SCORES = (
    _scored(
        "expected_attention_scores",
        {"keys": "input", "values": "input", "query_mean": "float", "query_covariance": "float"},
        "Locks Sec. 6 (Expected Attention)",
        token_bounds.expected_attention_bound,
        ("sinks", *SCALE),
    ),
    _scored(
        "rkv_scores",
        {"queries": "input", "keys": "input"},
        "Locks App. C.2 (R-KV)",
        token_bounds.rkv_bound,
        ("mix", "kernel", *SCALE),
    ),
    _scored(
        "triattention_scores",
        {**TRIGONOMETRIC, "offsets": "index"},
        "Locks App. C.2 (TriAttention)",
        token_bounds.triattention_bound,
        ("offsets", "aggregate"),
    ),
    _scored(
        "lazyeviction_scores",
        {"last": "index", "interval": "index", "step": "plain"},
        "Locks App. C.2 (LazyEviction)",
        token_bounds.lazyeviction_bound,
        ("combine", "least_interval"),
    ),
)
"""Scores of tokens by which a cache is cut to its budget."""

BASELINE_READS = (*PAGE_SCORES, *SPARSE_STEPS, *SELECTIONS, *TOKEN_SCORES)
