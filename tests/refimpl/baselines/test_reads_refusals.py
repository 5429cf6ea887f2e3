"""Every argument of every stage that reads or keeps, spoilt: an ArgumentError that starts with its name."""

import numpy as np
import pytest

from proofs_checks.judge.judging import prepare
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.table_baseline_reads import BASELINE_READS
from refimpl.checks import ArgumentError

ROWS = {row.name: row for row in BASELINE_READS}


def valid(stage):
    """The small general case of a stage, as the reference gets it."""
    small = [c for c in cases_of(stage) if not c.probe and "capture" not in c.name and c.relation is None]
    return prepare(small[0], "float64").exact


VALID = {stage: valid(stage) for stage in ROWS}
ARRAYS = [(s, n) for s, call in VALID.items() for n, value in call.items() if isinstance(value, np.ndarray)]
FLOATS = [(s, n) for s, n in ARRAYS if VALID[s][n].dtype.kind == "f"]
INTEGERS = [(s, n) for s, n in ARRAYS if VALID[s][n].dtype.kind == "i"]
NUMBERS = [
    ("quest_envelope", "page_size", 0), ("quest_pages", "page_size", 0), ("quest_pages", "budget_tokens", -1),
    ("quest_pages", "recent_pages", -1), ("quest_pages", "recent_pages", 10**6), ("centroid_scores", "page_tokens", 0),
    ("moment_scores", "page_tokens", 0), ("sparq_attention", "rank", 0), ("sparq_attention", "rank", 10**6),
    ("sparq_attention", "kept_tokens", -1), ("sparq_attention", "ranking", "mass"),
    ("sparq_attention", "local_tokens", 10**6), ("sparq_nested_attention", "rank", 0),
    ("sparq_nested_attention", "kept_tokens", 2.5), ("loki_attention", "rank", 0),
    ("loki_attention", "kept_tokens", -1),
    ("shadowkv_landmarks", "chunk_size", 0), ("shadowkv_landmarks", "local_chunks", -1),
    ("shadowkv_landmarks", "outlier_chunks", -1), ("shadowkv_chunks", "kept_chunks", -1),
    ("shadowkv_low_rank", "rank", 0), ("shadowkv_low_rank", "rank", 10**6), ("rocketkv_snap", "budget_tokens", 1),
    ("rocketkv_snap", "kernel", 4), ("rocketkv_tokens", "chunk_size", 0), ("rocketkv_tokens", "rank", 0),
    ("rocketkv_tokens", "kept_tokens", -1), ("kvzip_keep", "ratio", -0.5), ("kvzip_keep", "ratio", float("nan")),
    ("kvzip_keep", "level", "head"), ("evict_tokens", "budget_tokens", 3), ("evict_tokens", "first_tokens", -1),
    ("expected_attention_scores", "sinks", 10**6), ("rkv_scores", "mix", 1.5), ("rkv_scores", "kernel", 2),
    ("triattention_scores", "step", -1), ("triattention_scores", "aggregate", "sum"),
    ("lazyeviction_scores", "step", 3.5), ("lazyeviction_scores", "combine", "mean"),
    ("lazyeviction_scores", "least_interval", 0.0),
]  # fmt: skip


def refused(stage, **spoilt):
    with pytest.raises(ArgumentError) as caught:
        ROWS[stage].reference(**(VALID[stage] | spoilt))
    return str(caught.value)


@pytest.mark.parametrize("stage", ROWS)
def test_the_valid_call_is_accepted_and_left_as_it_was(stage):
    before = {n: np.copy(v) for n, v in VALID[stage].items() if isinstance(v, np.ndarray)}
    ROWS[stage].reference(**VALID[stage])
    assert all(np.array_equal(value, VALID[stage][n]) for n, value in before.items())


@pytest.mark.parametrize(("stage", "name"), ARRAYS)
def test_another_number_of_axes(stage, name):
    value = VALID[stage][name]
    for wrong in (value[None], value.ravel()[0]):
        assert refused(stage, **{name: wrong}).startswith(f"{name}: expected shape [")


@pytest.mark.parametrize(("stage", "name"), FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(stage, name, bad):
    if name.endswith("signs"):
        return  # +1 and -1 alone: refused by another sentence
    spoilt = VALID[stage][name].copy()
    spoilt[(0,) * spoilt.ndim] = bad
    assert refused(stage, **{name: spoilt}).startswith(f"{name}: expected finite values, got {bad} at [0")


@pytest.mark.parametrize(("stage", "name"), INTEGERS)
def test_indices_that_are_no_integers(stage, name):
    assert refused(stage, **{name: VALID[stage][name] + 0.5}).startswith(f"{name}: expected integers")


@pytest.mark.parametrize(("stage", "name", "value"), NUMBERS)
def test_numbers_and_words_out_of_range(stage, name, value):
    assert refused(stage, **{name: value}).startswith(f"{name}: expected ")


@pytest.mark.parametrize("stage", [s for s, row in ROWS.items() if "softmax_scale" in row.optional])
@pytest.mark.parametrize("scale", [np.nan, "half", True])
def test_a_scale_that_is_no_number(stage, scale):
    assert refused(stage, softmax_scale=scale).startswith("softmax_scale: expected a finite number")


@pytest.mark.parametrize(
    "stage", ["quest_scores", "centroid_scores", "moment_scores", "shared_basis_scores", "codebook_scores"]
)
def test_no_pages_are_scored_as_no_pages(stage):
    call = dict(VALID[stage])
    paged = {"minimum", "maximum", "centroid", "directions", "energies", "coordinates", "codes"}
    empty = {n: v[:, :0] if n in paged else v for n, v in call.items()}
    assert ROWS[stage].reference(**empty).shape == (*call["queries"].shape[:2], 0)
