"""The float64 scores of the other systems lie within their bounds, at float64 roundoffs, of 50 digits."""

import numpy as np
import pytest

from proofs_checks.golden import fifty_digits, fifty_digits_scores
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.table_baseline_reads import BASELINE_READS
from proofs_checks.numbers import REFERENCE

RNG = np.random.default_rng(7)
SCALED = {"softmax_scale": 0.3}


def normal(*shape):
    return RNG.normal(size=shape)


QUERIES = 3 * normal(2, 2, 6)
EDGES = np.sort(normal(2, 2, 3, 6), axis=0)
MOMENTS = {
    "queries": QUERIES,
    "centroid": normal(2, 3, 6),
    "directions": normal(2, 3, 6, 2),
    "energies": RNG.random((2, 3, 2)),
    "page_tokens": 5,
}
SHARED = {"queries": QUERIES, "mean": normal(2, 6), "basis": normal(2, 6, 3), "coordinates": 4 * normal(2, 3, 4, 3)}
BOOK = {"queries": QUERIES, "codes": RNG.integers(0, 5, size=(2, 3, 4)), "codewords": normal(2, 5, 6)}
ROOT = normal(2, 2, 6, 6)
EXPECTED = {
    "keys": normal(2, 7, 6),
    "values": normal(2, 7, 6),
    "query_mean": normal(2, 2, 6),
    "query_covariance": ROOT @ np.swapaxes(ROOT, -1, -2),
    "sinks": 2,
}
RKV = {"queries": normal(2, 2, 2, 4), "keys": normal(2, 8, 4), "mix": 0.3, "kernel": 3}
TRI = {
    "keys": normal(1, 3, 6),
    "positions": np.array([0, 3, 900]),
    "frequencies": np.array([1.0, 0.1, 0.01]),
    "centre": normal(1, 2, 6),
    "magnitude": 3 + RNG.random((1, 2, 3)),
    "step": 901,
    "offsets": np.array([1, 64, 65536]),
}
LAZY = {"last": np.array([[[0, 90, 100]]]), "interval": np.array([[[3, 0, 40]]]), "step": 100}
INPUTS = {
    "quest_scores": [{"queries": QUERIES, "minimum": EDGES[0], "maximum": EDGES[1]}],
    "centroid_scores": [
        {"queries": QUERIES, "centroid": normal(2, 3, 6), "page_tokens": 7, **more} for more in ({}, SCALED)
    ],
    "moment_scores": [MOMENTS, MOMENTS | SCALED],
    "shared_basis_scores": [SHARED, SHARED | SCALED],
    "codebook_scores": [BOOK, BOOK | SCALED],
    "expected_attention_scores": [EXPECTED, EXPECTED | SCALED, EXPECTED | {"sinks": 0}],
    "rkv_scores": [RKV, RKV | SCALED, RKV | {"mix": 0.0}, RKV | {"mix": 1.0}],
    "triattention_scores": [TRI, TRI | {"aggregate": "max"}],
    "lazyeviction_scores": [LAZY, LAZY | {"combine": "sum"}, LAZY | {"least_interval": 5.0}],
}


def test_no_scoring_stage_is_left_out():
    assert {row.name for row in BASELINE_READS if row.bound is not None} == set(INPUTS)


@pytest.mark.parametrize(("stage", "index"), [(s, i) for s, rows in INPUTS.items() for i in range(len(rows))])
def test_the_reference_agrees_with_fifty_digits(stage, index):
    row, inputs = STAGES[stage], INPUTS[stage][index]
    scores = row.reference(**inputs)
    bound = row.bound(inputs, {"scores": scores}, REFERENCE)["scores"]
    assert np.isfinite(bound).all(), "an infinite bound accepts anything"
    assert fifty_digits.ratio(scores, getattr(fifty_digits_scores, stage)(**inputs)["scores"], bound) <= 1
