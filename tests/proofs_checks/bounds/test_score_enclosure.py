"""Scores of honest float32 summaries lie within the enclosure, also where every code is in doubt.

The largest |difference| / eta found by searching such pages was .992 (B = 3, d = 8, rank 1, int2), so the enclosure is
neither wrong nor far too wide there.
"""

import honest_locks
import numpy as np
import pytest
from draws import BITS, EXPLICIT, a_few_shapes, key_pages, qkv
from half_steps import half_step_page
from hypothesis import example, given
from hypothesis import strategies as st
from judged import port_from
from stage_inputs import rank

from proofs_checks.bounds.locks_decode import score_enclosure
from proofs_checks.numbers import Precision
from refimpl.attention import scale_of
from refimpl.locks.quantize import LEVELS

PORT = port_from("numpy_port")
BUILDS = {"eigh": PORT.locks_build_summary, "svd": honest_locks.by_svd, "gram": honest_locks.by_gram}


def port_scores(queries, pages, rank, bits, build, quantizer):
    """Scores [H, G, P] of a float32 port."""
    summary = build(key_pages=pages, rank=rank)
    if bits is not None:
        port = port_from("numpy_port")
        port._quantize = quantizer
        codes = port.locks_quantize_summary(**summary, basis_bits=8 if bits == "fp" else bits)
        deployed = port.locks_dequantize_summary(**codes)
        summary = deployed | {"basis": summary["basis"]} if bits == "fp" else deployed
    return PORT.locks_score_pages(queries=queries, **summary)


def largest_ratio(queries, pages, rank, bits, build, quantizer):
    """Largest |score - reference| / eta over all heads and pages."""
    queries, pages = queries.astype(np.float32), pages.astype(np.float32)
    H, _, B, d = pages.shape
    keys = pages.reshape(H, -1, d).astype(np.float64)
    reference, eta = score_enclosure(queries.astype(np.float64), keys, rank, bits, B, scale_of(None, d), Precision())
    error = np.abs(port_scores(queries, pages, rank, bits, build, quantizer) - reference)
    return np.max(error / eta, initial=0.0)


@pytest.mark.parametrize("build", BUILDS)
@a_few_shapes
def test_scores_of_drawn_pages(build, drawn):
    quantizer = list(honest_locks.QUANTIZERS.values())[drawn.seed % 2]
    pages = key_pages(drawn)
    assert largest_ratio(qkv(drawn)["queries"], pages, rank(drawn), drawn.bits, BUILDS[build], quantizer) <= 1


@pytest.mark.parametrize("build", BUILDS)
@given(
    B=st.sampled_from([4, 8, 16]),
    d=st.sampled_from([16, 32, 64]),
    modes=st.integers(1, 3),
    bits=st.sampled_from(BITS),
    ratio=st.sampled_from([0.9, 0.5, 0.05]),
    aligned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@example(B=4, d=16, modes=3, bits=2, ratio=0.5, aligned=False, seed=1)
@example(B=4, d=16, modes=2, bits=2, ratio=0.05, aligned=True, seed=1)
def test_scores_where_every_code_is_in_doubt(build, B, d, modes, bits, ratio, aligned, seed):
    """``aligned`` queries have the signs of the first column: all flips of one sign add up."""
    rng = np.random.default_rng(seed)
    level = LEVELS.get(bits, 127)
    pages = np.stack([half_step_page(rng, B, d, modes, level, ratio) for _ in range(3)])[None]
    queries = rng.normal(size=(1, 2, d))
    if aligned:
        _, _, right = np.linalg.svd(pages[0, 0] - pages[0, 0].mean(axis=0))
        queries = np.sign(right[0]) * np.abs(queries)
    quantizer = honest_locks.by_reciprocal if seed % 2 else honest_locks.by_level
    assert largest_ratio(queries, pages, modes, bits, BUILDS[build], quantizer) <= 1


def test_codes_of_these_pages_do_flip():
    """Guards the test above: float32 and float64 codes differ in a tenth of the entries or more."""
    rng = np.random.default_rng(5)
    pages = np.stack([half_step_page(rng, 8, 64, 2, 7, 0.5) for _ in range(8)])[None].astype(np.float32)
    codes = [
        PORT._quantize(honest_locks.by_svd(key_pages=p, rank=2)["basis"], -2, 7)[0]
        for p in (pages, pages.astype(float))
    ]
    assert np.mean(np.abs(codes[0]) != np.abs(codes[1])) >= 0.1


def test_every_explicit_draw_has_pages_to_score():
    assert all(drawn.complete for drawn in EXPLICIT)
