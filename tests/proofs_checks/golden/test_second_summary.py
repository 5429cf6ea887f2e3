"""The second reference's page summaries and codes against what can be done by hand."""

import itertools
from fractions import Fraction

import mpmath
import pytest
from mpmath import mpf

from proofs_checks.golden.second import jacobi, summary
from proofs_checks.golden.second.exact import fractions

DIGITS_50 = mpf(10) ** -50


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def near(left, right, tolerance=DIGITS_50):
    return len(left) == len(right) and all(abs(a - b) <= tolerance for a, b in zip(left, right, strict=True))


def flat(rows):
    return list(itertools.chain.from_iterable(rows))


def equal(left, right):
    return [fractions("left", row) for row in left] == [fractions("right", row) for row in right]


def test_two_by_two_eigenvalues_are_those_of_the_quadratic():
    values, vectors = jacobi.eigen([[mpf(2), mpf(1)], [mpf(1), mpf(2)]])
    assert near(values, [3, 1])
    assert near([abs(x) for x in vectors[0] + vectors[1]], [mpmath.sqrt(mpf(1) / 2)] * 4)
    assert vectors[0][0] * vectors[0][1] > 0 > vectors[1][0] * vectors[1][1]


def test_path_graph_has_the_eigenvalues_2_minus_2_cosines():
    size = 5  # the second difference matrix: 2 - 2 cos(k pi / 6), vectors sin(i k pi / 6)
    matrix = [[mpf(2 * (i == j) - (abs(i - j) == 1)) for j in range(size)] for i in range(size)]
    values, vectors = jacobi.eigen(matrix)
    assert near(values, [2 - 2 * mpmath.cos(k * mpmath.pi / 6) for k in range(size, 0, -1)])
    sines = [mpmath.sin(i * size * mpmath.pi / 6) / mpmath.sqrt(3) for i in range(1, size + 1)]
    assert near([abs(x) for x in vectors[0]], [abs(x) for x in sines])


def test_two_keys_on_an_axis_give_that_axis():
    page = summary.build_summary([[[0, 5], [2, 5]]], rank=2)[0]
    assert page.centroid == [1, 5]
    assert page.modes == 1
    assert near(page.singular_values, [mpmath.sqrt(2), 0])
    assert equal(page.basis, [[1, 0], [0, 0]])
    assert equal(page.projector, [[1, 0], [0, 0]])
    assert near([c[0] for c in page.coefficients], [-1, 1])
    assert near(flat(page.reconstruction), [0, 5, 2, 5])


def test_three_keys_truncated_to_the_longer_axis():
    # Deviations (+-4, 0) twice and (0, +-1) twice: sigma^2 = 32 and 2; rank 1 loses the short axis alone.
    page = summary.build_summary([[[5, 7], [-3, 7], [1, 8], [1, 6]]], rank=1)[0]
    assert near(page.singular_values, [mpmath.sqrt(32), mpmath.sqrt(2), 0, 0])
    assert near(flat(page.projector), [1, 0, 0, 0])
    assert near(flat(page.reconstruction), [5, 7, -3, 7, 1, 7, 1, 7])


@pytest.mark.parametrize(
    "page", [[[3, -1, 2]], [[Fraction(1, 3), 5, -7]] * 4, [[0, 0, 0]] * 2], ids=["one key", "same", "zero"]
)
def test_a_page_without_spread_has_no_mode(page):
    built = summary.build_summary([page], rank=1)[0]
    assert built.modes == 0
    assert equal(built.basis, [[0]] * 3)
    assert equal(built.coefficients, [[0]] * len(page))
    assert near(
        flat(built.reconstruction),
        [mpf(x.numerator) / x.denominator for x in fractions("page", page[0])] * len(page),
    )


def test_full_rank_gives_every_key_back_and_an_orthonormal_basis():
    page = [[1, 2, 4, 0], [-1, 3, 0, 5], [2, 2, -6, 1], [7, 0, 1, 1]]
    built = summary.build_summary([page], rank=4)[0]
    assert built.modes == 3  # B - 1: the deviations sum to zero
    assert near(flat(built.reconstruction), flat(page))
    columns = list(zip(*built.basis, strict=True))
    gram = [mpmath.fdot(a, b) for a, b in itertools.product(columns, columns)]
    assert near(gram, [i == j and i < 3 for i, j in itertools.product(range(4), range(4))])
    assert all(max(column, key=abs) > 0 for column in columns[:3])


def test_a_mode_below_the_norm_of_the_page_times_epsilon_is_zero():
    # Norm of the page about 2, max(B, d) = 2: the bound is about 4 eps.
    built = [summary.build_summary([[[1, 1], [1, 1 + Fraction(k, 2**52)]]], rank=1)[0] for k in (4, 8)]
    assert [page.modes for page in built] == [0, 1]
    assert built[0].singular_values[0] > 0


def test_rank_and_numbers_are_checked_by_name():
    with pytest.raises(ValueError, match=r"rank: expected 1 to 2, got 3"):
        summary.build_summary([[[1, 2, 3], [4, 5, 6]]], rank=3)
    with pytest.raises(ValueError, match=r"key_pages\[0\]\[1\]\[0\]: expected a finite number, got nan"):
        summary.build_summary([[[1, 2], [float("nan"), 5]]], rank=1)
    assert summary.build_summary([], rank=1) == []


def test_codes_round_half_to_even_and_zeros_have_scale_zero():
    codes = summary.quantize_page([254, -3, 1], [[7, 0], [2.5, 0], [-3.5, 0]], [[0, 0], [1, -127]], basis_bits=4)
    assert (codes.centroid_codes, codes.centroid_scale) == ([127, -2, 0], 2)  # -1.5 -> -2, 0.5 -> 0
    assert (codes.basis_codes, codes.basis_scale) == ([[7, 0], [2, 0], [-4, 0]], [1, 0])
    assert (codes.coefficient_codes, codes.coefficient_scale) == ([[0, 0], [1, -127]], [0, 1])
    assert summary.quantize_row([Fraction(3), Fraction(-6), Fraction(-2)], 2) == ([0, -1, 0], 6)  # 0.5 -> 0
