"""The float64 reference of every stage that has a bound lies within it, at float64 roundoffs, of 50 digits."""

import numpy as np
import pytest
import small_inputs as small

from proofs_checks.golden import fifty_digits, fifty_digits_codes
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.table_locks import LOCKS
from proofs_checks.numbers import REFERENCE

CODES = {
    "centroid_codes": np.array([[[127, -1, 0]]]),
    "centroid_scale": np.array([[0.1]]),
    "basis_codes": np.array([[[[7], [-8], [1]]]]),
    "basis_scale": np.array([[[1 / 3]]]),
    "coefficient_codes": np.array([[[[-127], [5]]]]),
    "coefficient_scale": np.array([[[1e-30, 0.0]]]),
}
INPUTS = {
    "attention": small.ATTENTION,
    "merge_attention": small.MERGE,
    "sparse_attention": small.SPARSE,
    "paged_attention": small.PAGED,
    "paged_sparse_attention": small.PAGED_SPARSE,
    "locks_dequantize_summary": {"three-channels": CODES},
    "locks_score_pages": small.SCORES,
    "exact_page_scores": small.EXACT_SCORES,
    "locks_page_shares": small.SHARES,
}
# Judged without a bound function: their own tests stand in the files named here.
ELSEWHERE = {
    "locks_build_summary": "test_fifty_digits_summary",
    "locks_quantize_summary": "test_fifty_digits_summary",
    "locks_pack_basis": "test_fifty_digits_summary",
    "locks_unpack_basis": "test_fifty_digits_summary",
    "locks_select_pages": "test_fifty_digits_decode",
    "locks_decode": "test_fifty_digits_decode",
    "locks_decode_paged": "test_fifty_digits_decode",
}


def test_no_stage_is_left_out():
    """Attention and Locks here; ReadKV's stages are compared in tests/refimpl/readkv, others' in baselines."""
    here = {row.name for row in LOCKS}
    assert set(INPUTS) | set(ELSEWHERE) == here
    assert {name for name in here if STAGES[name].bound is not None} == set(INPUTS)


@pytest.mark.parametrize(("stage", "name"), [(s, n) for s, cases in INPUTS.items() for n in cases])
def test_the_reference_agrees_with_fifty_digits(stage, name):
    row, inputs = STAGES[stage], INPUTS[stage][name]
    reference = row.named(row.reference(**inputs))
    module = fifty_digits if hasattr(fifty_digits, stage) else fifty_digits_codes
    exact = getattr(module, stage)(**inputs)
    bounds = row.bound(inputs, reference, REFERENCE)
    for result, value in reference.items():
        assert np.isfinite(bounds[result]).all(), "an infinite bound accepts anything"
        assert fifty_digits.ratio(value, exact[result], bounds[result]) <= 1
