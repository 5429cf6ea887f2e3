"""The parts of the enclosure against perturbations of known size: projectors, single modes, codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_checks.bounds.locks_columns import columns
from proofs_checks.bounds.locks_decode import score_enclosure
from proofs_checks.bounds.locks_perturbation import cut, routes, spectrum, subspace_error
from proofs_checks.bounds.locks_rounding import requantized
from proofs_checks.capture import long_text_slice
from proofs_checks.judge.case import generator
from proofs_checks.judge.cases.inputs import planted_pages
from proofs_checks.numbers import REFERENCE

U = REFERENCE.roundoff
SIGMA = [8.0, 4.0, 2.0, 1.0, 0.5]


def example(seed, B=8, d=6, sigma=SIGMA):
    """A page, its spectrum and queries [1, 2, d]."""
    rng = generator("perturbation", str(seed))
    pages = planted_pages(rng, 1, 1, B, d, sigma)
    return rng, spectrum(pages, U), rng.normal(size=(1, 2, d))


def symmetric(rng, s, size, aligned):
    """A symmetric X [B, B] with ||X||_F = size, random or of one or two of the first modes."""
    B = s.left.shape[-1]
    x = rng.normal(size=(B, B))
    if aligned:
        one, other = rng.integers(0, 5, 2)
        x = np.outer(s.left[0, 0, :, one], s.left[0, 0, :, other])
    x = x + x.T
    return x * size / np.linalg.norm(x)


def leading(matrix, rank):
    return np.linalg.eigh(matrix)[1][:, ::-1][:, :rank]


def gram_of(s):
    return s.deviations[0, 0] @ s.deviations[0, 0].T


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(1e-6, 0.99), st.booleans())
def test_the_projector_changes_by_no_more_than_the_cut_says(seed, after, t, aligned):
    rng, s, queries = example(seed)
    gap = s.energy[0, 0, after - 1] - s.energy[0, 0, after]
    s = replace(s, gram=np.full((1, 1), t * gap / 2))
    change = leading(gram_of(s) + symmetric(rng, s, t * gap / 2, aligned), after)
    exact = leading(gram_of(s), after)
    w = s.deviations[0, 0] @ queries[0].T  # [B, G]
    moved = np.abs((change @ change.T - exact @ exact.T) @ w).T  # [G, B]
    one = cut(s, np.full((1, 1), after))
    # eigh of matrices of norm 64 turns its vectors by no more than 64 roundoffs over the gap, times B
    noise = 8 * 64 * U / gap * np.linalg.norm(w)
    assert (moved <= one.change(routes(s, queries)[0])[0, :, 0] + noise).all()
    turned = np.linalg.norm(change @ change.T - exact @ exact.T, 2)
    assert turned <= one.turn[0, 0] + 8 * 64 * U / gap


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_the_worst_perturbation_reaches_the_first_order(after):
    _, s, queries = example("worst")
    route = routes(s, queries)[0]
    x, y, energy = route.tokens[0, 0, 0, 3], route.queries[0, 0, 0], s.energy[0, 0]
    size = 1e-6 * (energy[after - 1] - energy[after])
    worst = np.zeros((8, 8))  # the coefficients themselves, in the modes' coordinates
    for k in range(after):
        for n in range(after, 8):
            worst[k, n] = worst[n, k] = (x[k] * y[n] + x[n] * y[k]) / (energy[k] - energy[n])
    worst *= size / np.linalg.norm(worst)
    u = s.left[0, 0]
    change, exact = leading(gram_of(s) + u @ worst @ u.T, after), leading(gram_of(s), after)
    w = s.deviations[0, 0] @ queries[0, 0]
    moved = (change @ (change.T @ w) - exact @ (exact.T @ w))[3]
    bound = cut(replace(s, gram=np.full((1, 1), size)), np.full((1, 1), after)).change(route)[0, 0, 0, 3]
    tiny = cut(replace(s, gram=np.full((1, 1), size * 1e-6)), np.full((1, 1), after)).change(route)[0, 0, 0, 3] * 1e6
    noise = 8 * 64 * U / (energy[after - 1] - energy[after]) * np.linalg.norm(w)
    assert tiny - (bound - tiny) - noise <= moved <= bound + noise  # bound - tiny is the remainder


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 0.24), st.booleans())
def test_single_modes_move_by_no_more_than_said(seed, t, aligned):
    rng, s, queries = example(seed)
    gap = s.sigma[0, 0, 3] ** 2 - s.sigma[0, 0, 4] ** 2
    size = t * gap / 2
    s = replace(s, gram=np.full((1, 1), size))
    moves = columns(s, queries, [cut(s, np.full((1, 1), a)) for a in range(5)], U)
    values, left = np.linalg.eigh(gram_of(s) + symmetric(rng, s, size, aligned))
    sigma, left = np.sqrt(np.maximum(values[::-1][:4], 0)), left[:, ::-1][:, :4]
    basis = s.deviations[0, 0].T @ left / sigma
    sign = np.sign(np.sum(basis * s.right[0, 0, :4].T, axis=0))
    basis, coefficients = basis * sign, left * sigma * sign
    exact = s.right[0, 0, :4].T
    alone = moves.alone[0, 0]
    assert alone[:3].all()
    allowed = moves.basis[0, 0] * (1 + moves.common[0, 0]) + moves.common[0, 0] * np.abs(exact)
    assert (np.abs(basis - exact) <= allowed)[:, alone].all()
    wanted = s.left[0, 0, :, :4] * s.sigma[0, 0, :4]
    assert (np.abs(coefficients - wanted) <= moves.coefficients[0, 0])[:, alone].all()
    projected = queries[0] @ (basis - exact)
    assert (np.abs(projected) <= moves.projections[0, :, 0])[:, alone].all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 127]), st.floats(0, 0.5))
def test_codes_and_scales_stay_within_what_is_said(seed, level, most):
    rng = generator("requantized", str(seed))
    x, moved = rng.normal(size=12), most * rng.random(12)
    line = requantized(x, moved, 0, level, U)
    y = x + moved * rng.choice([-1.0, 1.0, 0.0], size=12)
    scale = np.max(np.abs(y)) / level
    codes, own = np.rint(y / scale), np.rint(x / (np.max(np.abs(x)) / level))
    assert (np.abs(codes - own) <= line.steps).all()
    assert scale <= line.step * (1 + U)
    by_scale = np.where(line.value == 0, 0.0, float(line.stretch)) * np.abs(line.value) if line.value.any() else 0.0
    assert (np.abs(codes * scale - line.value) <= by_scale + line.steps * line.step + 4 * U * np.abs(x)).all()


def test_a_tie_may_fall_either_way_and_nothing_else():
    line = requantized(np.array([127.0, 2.5, 3.0, -0.5]), np.zeros(4), 0, 127, U)
    assert line.steps.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_what_a_reciprocal_scale_rounds_across_a_half_is_allowed():
    """x (1 / s) errs by 1.5 roundoffs of x / s and may cross a half that lies one away, not one 8 away."""
    u = 2.0**-23
    line = requantized(np.array([127.0, 2.5 * (1 - u), 2.5 * (1 - 8 * u)]), np.zeros(3), 0, 127, u)
    assert line.steps.tolist() == [0.0, 1.0, 0.0]


def test_modes_that_carry_nothing_put_nothing_at_stake():
    """Keys of one mode, rank 4: the other columns may be anything, yet the logits hold to first order in E."""
    _, s, queries = example("rank-1", sigma=[4.0])
    gap = s.sigma[0, 0, 0] ** 2
    # x, y <= 1, |D q|: first order <= sqrt(2) E |D q| / gap and two leaks of E / gap on either side, twice for margin
    allowed = 8 * s.gram[0, 0] / gap * np.linalg.norm(s.deviations) * np.linalg.norm(queries, axis=-1)[0]
    assert (subspace_error(s, queries, 4)[0, :, 0].max(axis=-1) <= allowed).all()


def test_real_pages_are_told_apart_at_four_bits():
    """Half the 511 complete and open pages of the 8K text are known to a tenth of their own spread."""
    real = long_text_slice(5)
    reference, eta = score_enclosure(
        real["queries"], real["keys"], 8, 4, 16, 0.125, replace(REFERENCE, accumulate="float32")
    )
    assert np.median(eta) < np.std(reference) / 10
