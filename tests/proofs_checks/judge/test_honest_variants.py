"""Right ports that round differently pass: other orders of sums, other bases, online and split softmaxes.

A bound that fails one of them is wrong, whatever the example ports do. The variants are those of tests/support.
"""

from dataclasses import replace
from types import SimpleNamespace

import draws
import honest_locks as locks
import honest_variants as attention
import numpy as np
import pytest
from draws import Draw, a_few_shapes
from hypothesis import example
from judged import judged, port_from
from stage_inputs import INPUTS

from proofs_checks.judge.cases.inputs import planted_pages


def port_with(**functions):
    """The NumPy port with some of its functions replaced, also where its other functions call them."""
    port = port_from("numpy_port")
    for name, function in functions.items():
        setattr(port, name, function)
    return port


def no_fault(stage, port, drawn, dtype="float32"):
    """A departure is no alarm: rounding exact halves away from even is one of the choices made here."""
    faults = judged(stage, getattr(port, stage), INPUTS[stage](drawn), dtype).faults
    assert not faults, faults[0].message


SOFTMAXES = [
    ("plain", "exp2"),
    ("prescaled", "lse"),
    ("sequential", "online"),
    ("truncating", "online-exp2"),
    ("pairwise", "split"),
]


@pytest.mark.parametrize("stage", ["attention", "paged_sparse_attention"])
@pytest.mark.parametrize(("logits", "state"), SOFTMAXES)
@a_few_shapes
def test_softmaxes(stage, logits, state, drawn):
    head = attention.attention_with(attention.LOGITS[logits], attention.STATES[state])
    no_fault(stage, port_with(_one=head), drawn)


@pytest.mark.parametrize("merge", [attention.merge_by_lse, attention.merge_one_by_one])
@a_few_shapes
@example(drawn=Draw(1, 64, 8, seed=3, content="plus-60000"))  # weights exp(lse_s - lse) at 60000: all off by one factor
def test_merges(merge, drawn):
    no_fault("merge_attention", port_with(merge_attention=merge), drawn)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cast", [True, False])
@pytest.mark.parametrize("stage", ["attention", "locks_build_summary", "locks_score_pages", "locks_decode"])
@a_few_shapes
def test_half_precision_inputs(stage, cast, dtype, drawn):
    state = attention.cast_weights(dtype) if cast else attention.by_exp2
    port = port_with(_one=attention.attention_with(attention.plain, state))
    no_fault(stage, SimpleNamespace(**{stage: attention.half_inputs(getattr(port, stage), dtype)}), drawn, dtype)


@pytest.mark.parametrize("build", locks.BUILDS)
@a_few_shapes
def test_builds(build, drawn):
    small = replace(drawn, d=min(drawn.d, 96), B=min(drawn.B, 16), H=1)  # d x d eigenvectors and Jacobi are slow
    no_fault("locks_build_summary", port_with(locks_build_summary=locks.BUILDS[build]), small)


@pytest.mark.parametrize("build", ["gram-normalised", "jacobi"])
@pytest.mark.parametrize("off", [-1e-4, -1e-6, 1e-6, 1e-4])
@pytest.mark.parametrize(("B", "d"), [(2, 256), (8, 64), (8, 8)])
def test_modes_at_the_level_may_be_kept_or_dropped(B, d, off, build):
    """All singular values are 1, the page's size is such that they lie at sqrt(max(B, d) eps) ||page||, or just off."""
    rng = np.random.default_rng(B * d)
    size = (1 + off) / np.sqrt(max(B, d) * np.finfo(np.float32).eps)  # ||page||
    deviations = planted_pages(rng, 1, 2, B, d, [1.0] * (B - 1))
    deviations -= deviations.mean(axis=2, keepdims=True)
    pages = deviations + np.sqrt((size**2 - (B - 1)) / B) * np.eye(d)[0]
    inputs = {"key_pages": pages, "rank": B - 1}
    assert not judged("locks_build_summary", locks.BUILDS[build], inputs).faults


@pytest.mark.parametrize("quantizer", locks.QUANTIZERS)
@a_few_shapes
def test_quantizers(quantizer, drawn):
    no_fault("locks_quantize_summary", port_with(_quantize=locks.QUANTIZERS[quantizer]), drawn)


@pytest.mark.parametrize("scorer", locks.SCORERS)
@a_few_shapes
def test_scorers(scorer, drawn):
    no_fault("locks_score_pages", port_with(locks_score_pages=locks.SCORERS[scorer]), drawn)


@a_few_shapes
def test_scores_in_base_2(drawn):
    no_fault("exact_page_scores", port_with(_log_sum_exp=locks.log_sum_exp2), drawn)


@a_few_shapes
def test_shares_by_lse(drawn):
    no_fault("locks_page_shares", port_with(locks_page_shares=locks.shares_by_lse), drawn)


@pytest.mark.parametrize("stage", ["locks_decode", "locks_decode_paged"])
@pytest.mark.parametrize(
    ("build", "quantizer", "scorer"),
    [
        ("svd-flipped", "reciprocal", "rebuilt"),
        ("svd-turned", "level", "sequential"),
        ("gram-normalised", "reciprocal", "sequential"),
    ],
)
@a_few_shapes
def test_whole_steps(stage, build, quantizer, scorer, drawn):
    port = port_with(
        _one=attention.attention_with(attention.prescaled, attention.by_lse),
        _quantize=locks.QUANTIZERS[quantizer],
        locks_build_summary=locks.BUILDS[build],
        locks_score_pages=locks.SCORERS[scorer],
        locks_page_shares=locks.shares_by_lse,
    )
    no_fault(stage, port, drawn)


def test_the_variants_are_not_all_one():
    """The variants differ in their bits, so that each of them tests something."""
    drawn = draws.EXPLICIT[1]
    inputs = {n: a.astype(np.float32) for n, a in draws.qkv(drawn).items()}
    bits = {
        attention_head(pair)(inputs["queries"][0], inputs["keys"][0], inputs["values"][0], np.float32(0.1))[0].tobytes()
        for pair in SOFTMAXES
    }
    assert len(bits) == len(SOFTMAXES)


def attention_head(pair):
    return attention.attention_with(attention.LOGITS[pair[0]], attention.STATES[pair[1]])
