"""The library's page summaries and codes against the second reference, each within the rounding of float64.

Bounds, with u = 2^-53 and gamma_n = n u / (1 - n u). Centring: a mean of B keys is off by gamma_B mean|k|, a deviation
by that and u |delta|. Decomposition: with n = min(B, d) and m = max(B, d), a page passes through 2n reflections of at
most m entries, 4m + 20 operations on the way of each (Higham, Accuracy and Stability, Sec. 19.3), and the bidiagonal
matrix through at most 2n sweeps of 2n rotations of 6 operations; the computed factors are near those of a page that is
off by the sum E of both (Frobenius norm). Then singular values move by E (Weyl), and the projector on the first r modes
by 2 E / (sigma_r - sigma_(r+1) - E) (Wedin).
"""

from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from proofs_checks.golden.second.exact import fractions
from proofs_checks.golden.second.summary import build_summary, quantize_page, zero_mode_bound
from refimpl import port

UNIT = mpf(2) ** -53


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def gamma(count):
    return count * UNIT / (1 - count * UNIT)


def norm(rows):
    return mpmath.sqrt(mpmath.fsum(mpf(x) ** 2 for row in rows for x in row))


def distance(left, right):
    return norm([[mpf(x) - mpf(y) for x, y in zip(a, b, strict=True)] for a, b in zip(left, right, strict=True)])


def real(number):
    return mpf(number.numerator) / number.denominator


@dataclass
class Errors:
    """Bounds for one page: centring and decomposition in Frobenius norm, and one factor's own rounding."""

    centroid: list
    page: mpf
    factor: mpf


def errors_of(page, exact):
    tokens, size = len(page), len(page[0])
    short, long = min(tokens, size), max(tokens, size)
    mean = [gamma(tokens) * mpmath.fsum(abs(mpf(row[c])) for row in page) / tokens for c in range(size)]
    deviations = [[mpf(row[c]) - real(exact.centroid[c]) for c in range(size)] for row in page]
    centring = norm([[mean[c] + UNIT * (abs(row[c]) + mean[c]) for c in range(size)] for row in deviations])
    factor = (2 * short * (4 * long + 20) + 24 * short**2) * UNIT
    return Errors(mean, centring + factor * (norm(deviations) + centring), factor)


def column_norms(coefficients):
    return [norm([column]) for column in zip(*coefficients, strict=True)]


def check_page(page, rank, built):
    """Compare one page's summary of the library (float64 lists) with the second reference."""
    exact = build_summary([page], rank)[0]
    errors = errors_of(page, exact)
    assert all(
        abs(x - real(y)) <= e for x, y, e in zip(built["centroid"], exact.centroid, errors.centroid, strict=True)
    )
    zero_bound = zero_mode_bound(fractions("page", page))
    kept = 0
    for size, sigma in zip(column_norms(built["coefficients"]), exact.singular_values, strict=False):
        if sigma > zero_bound + errors.page:
            assert abs(size - sigma) <= errors.page + errors.factor * sigma
            kept += 1
        elif sigma + errors.page <= zero_bound:
            assert size == 0
        else:  # too near the bound for float64 to tell: the mode is dropped, or as small as it is in truth
            assert sigma <= zero_bound, "whether this page's mode is kept is not determined: no comparison"
            assert size <= sigma + errors.page
    sigmas = [*exact.singular_values, mpf(0)]
    gap = sigmas[kept - 1] - sigmas[kept] if kept else mpf(1)
    assert gap > 4 * errors.page, "the subspace of this page is not determined: no comparison"
    moved = 2 * errors.page / (gap - errors.page) + 3 * rank * errors.factor
    basis = [row[:kept] for row in built["basis"]]
    projector = [[mpmath.fdot(one, other) for other in basis] for one in basis]
    assert distance(projector, exact.projector) <= moved
    reconstruction = [
        [mpf(mu) + mpmath.fdot(row, c) for mu, row in zip(built["centroid"], built["basis"], strict=True)]
        for c in built["coefficients"]
    ]
    tolerance = (
        sigmas[0] * (moved + 3 * rank * errors.factor) + 2 * errors.page + len(page) * mpmath.fsum(errors.centroid)
    )
    assert distance(reconstruction, exact.reconstruction) <= tolerance


def random_page(seed, tokens, size, offset=0.0, scale=1.0):
    return (offset + scale * np.random.default_rng(seed).normal(size=(tokens, size))).tolist()


def falling_page(seed, tokens, size, ratio):
    """A page whose channels shrink by a ratio: its modes are far apart."""
    return (np.array(random_page(seed, tokens, size)) * ratio ** np.arange(size)).tolist()


def rank_two_page(seed, tokens, size):
    """Integer coefficients on two integer directions: two modes in exact arithmetic, noise in float64."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-9, 9, (tokens, 2)) @ rng.integers(-9, 9, (2, size)) / 8.0).tolist()


PAGES = {
    "two tokens": (random_page(1, 2, 2), 2),
    "one token": (random_page(2, 1, 4), 1),
    "tall": (random_page(3, 8, 3), 2),
    "wide": (random_page(4, 3, 8), 2),
    "more ranks than modes": (random_page(5, 4, 8), 4),
    "more ranks than channels leave": (random_page(6, 8, 2), 2),
    "same key, not dyadic": ([[0.1, -0.7, 1e-3]] * 5, 3),
    "far from the origin": (random_page(7, 4, 4, offset=2.0**20), 2),
    "rank two": (rank_two_page(8, 6, 4), 4),
    "modes far apart": (falling_page(9, 6, 5, 1e-2), 4),
    "one outlier": ([*random_page(10, 7, 4, scale=1e-3), [1e3, 0.0, -1e3, 5.0]], 1),
    "tiny": (random_page(11, 4, 4, scale=1e-140), 3),
    "huge": (random_page(12, 4, 4, scale=1e140), 3),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_summary_agrees_within_the_rounding_of_float64(name):
    page, rank = PAGES[name]
    built = port.locks_build_summary(key_pages=np.array([[page]]), rank=rank)
    check_page(page, rank, {key: value[0, 0].tolist() for key, value in built.items()})


def test_pages_of_several_heads_are_summarised_one_by_one():
    pages = [[random_page(20 + 3 * head + j, 4, 4) for j in range(3)] for head in range(2)]
    built = port.locks_build_summary(key_pages=np.array(pages), rank=2)
    for head, j in np.ndindex(2, 3):
        check_page(pages[head][j], 2, {key: value[head, j].tolist() for key, value in built.items()})


def test_the_comparison_refuses_wrong_summaries():
    page, rank = PAGES["tall"]
    built = port.locks_build_summary(key_pages=np.array([[page]]), rank=rank)
    right = {key: value[0, 0].tolist() for key, value in built.items()}
    check_page(page, rank, right)
    for name in right:
        wrong = {**right, name: (np.array(right[name]) * (1 + 1e-9)).tolist()}
        with pytest.raises(AssertionError):
            check_page(page, rank, wrong)


def check_codes(codes, scale, values, own_codes, own_scale):
    """One division gives the scale, another the ratio: codes may differ where it lies within 4u of a half."""
    assert abs(mpf(scale) - real(own_scale)) <= UNIT * real(own_scale)
    for code, value, own in zip(codes, values, own_codes, strict=True):
        ratio = Fraction(value) / own_scale if own_scale else Fraction(0)
        tie = abs(abs(ratio) % 1 - Fraction(1, 2)) <= 4 * abs(ratio) / 2**53
        assert code == own or (tie and abs(code - own) == 1)


@pytest.mark.parametrize("basis_bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["random", "halves", "zeros"])
def test_codes_agree_except_where_a_ratio_rounds_across_a_half(basis_bits, kind):
    rng = np.random.default_rng(basis_bits)
    shapes = {"centroid": (6,), "basis": (6, 3), "coefficients": (4, 3)}
    draw = {
        "random": lambda shape: rng.normal(size=shape),
        "halves": lambda shape: rng.integers(-14, 15, shape) / 2.0,
        "zeros": lambda shape: rng.normal(size=shape) * (rng.random(shape) < 0.2),
    }[kind]
    page = {name: draw(shape) for name, shape in shapes.items()}
    own = quantize_page(*(page[name].tolist() for name in shapes), basis_bits=basis_bits)
    got = port.locks_quantize_summary(**{k: v[None, None] for k, v in page.items()}, basis_bits=basis_bits)
    got = {key: value[0, 0] for key, value in got.items()}
    check_codes(got["centroid_codes"], got["centroid_scale"], page["centroid"], own.centroid_codes, own.centroid_scale)
    for k in range(3):
        own_column = [row[k] for row in own.basis_codes]
        check_codes(
            got["basis_codes"][:, k], got["basis_scale"][k], page["basis"][:, k], own_column, own.basis_scale[k]
        )
    for i, row in enumerate(page["coefficients"]):
        own_row = own.coefficient_codes[i], own.coefficient_scale[i]
        check_codes(got["coefficient_codes"][i], got["coefficient_scale"][i], row, *own_row)
