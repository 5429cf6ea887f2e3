"""The page summary of Locks (Sec. 4, Build; App. D), by the paper's own route: the Gram matrix of the centred page.

The centroid, the deviations and the Gram matrix are exact fractions. Only its eigenvectors are rounded, and with enough
digits that the squared condition number, which the route is known for, costs nothing that shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
from mpmath import mpf

from proofs_checks.golden.second.exact import dot, fractions, real, transposed
from proofs_checks.golden.second.jacobi import eigen

# Kept modes reach down to 1e-16 of the page's norm, so 1e-32 of the Gram matrix: 120 digits leave 88 for them.
GRAM_DIGITS = 120
FLOAT64_EPSILON = Fraction(1, 2**52)
LARGEST_CODE = {2: 1, 4: 7, 8: 127}

Matrix = list[list[Any]]


@dataclass(frozen=True)
class PageSummary:
    """One page: centroid [d], basis [d,r], coefficients [B,r], and what does not depend on signs or on their order.

    projector [d,d] is basis basis^T, reconstruction [B,d] is centroid + basis c_i; singular_values [B] are those of the
    centred page, falling, dropped modes included; modes says how many of them the basis holds.
    """

    centroid: list[Fraction]
    basis: Matrix
    coefficients: Matrix
    projector: Matrix
    reconstruction: Matrix
    singular_values: list[mpf]
    modes: int


def build_summary(key_pages: list[Matrix], rank: int) -> list[PageSummary]:
    """Summarise the complete pages [P,B,d] of one KV head at 1 <= rank <= min(B, d) (Locks Sec. 4, Build)."""
    return [build_page(page, rank) for page in fractions("key_pages", key_pages)]


def build_page(page: Matrix, rank: int) -> PageSummary:
    """Summarise one page [B,d] of fractions (Locks Sec. 4, Build)."""
    tokens, size = len(page), len(page[0])
    if not 1 <= rank <= min(tokens, size):
        raise ValueError(f"rank: expected 1 to {min(tokens, size)}, got {rank}")
    centroid = [sum(column) / Fraction(tokens) for column in transposed(page)]
    deviations = [[key - mu for key, mu in zip(row, centroid, strict=True)] for row in page]
    with mpmath.workdps(GRAM_DIGITS):
        singular_values, kept = leading_modes(deviations, rank, zero_mode_bound(page))
        filled = kept + [([mpf(0)] * size, [mpf(0)] * tokens)] * (rank - len(kept))
        basis, coefficients = transposed([v for v, _ in filled]), transposed([c for _, c in filled])
        projector = [[mpmath.fdot(one, other) for other in basis] for one in basis]
        reconstruction = [
            [real(mu) + mpmath.fdot(row, c) for mu, row in zip(centroid, basis, strict=True)] for c in coefficients
        ]
    return PageSummary(centroid, basis, coefficients, projector, reconstruction, singular_values, len(kept))


def leading_modes(
    deviations: Matrix, rank: int, zero_bound: mpf
) -> tuple[list[mpf], list[tuple[list[mpf], list[mpf]]]]:
    """Give all singular values of D, and for the first `rank` above the bound the columns of V and C (Locks Sec. 4).

    D D^T = U Sigma^2 U^T is decomposed; then V = D^T U Sigma^-1 and C = U Sigma.
    """
    gram = [[real(dot(one, other)) for other in deviations] for one in deviations]
    channels = [[real(delta) for delta in channel] for channel in transposed(deviations)]
    eigenvalues, vectors = eigen(gram)
    singular_values = [mpmath.sqrt(max(value, 0)) for value in eigenvalues]
    modes = []
    for sigma, u in zip(singular_values[:rank], vectors, strict=False):
        if sigma > zero_bound:
            v = [mpmath.fdot(u, channel) / sigma for channel in channels]
            modes.append(with_sign(v, [u_i * sigma for u_i in u]))
    return singular_values, modes


def zero_mode_bound(page: Matrix) -> mpf:
    """Give the singular value up to which a mode counts as zero: max(B, d) eps |page|_F, not centred (AMB-10)."""
    squares = sum((key * key for row in page for key in row), Fraction(0))
    return max(len(page), len(page[0])) * real(FLOAT64_EPSILON) * mpmath.sqrt(real(squares))


def with_sign(v: list[mpf], c: list[mpf]) -> tuple[list[mpf], list[mpf]]:
    """Flip a mode where its basis entry of largest magnitude is negative; their product stays (AMB-12)."""
    sign = -1 if max(v, key=abs) < 0 else 1
    return [sign * x for x in v], [sign * x for x in c]


def quantize_row(values: list[Fraction], bits: int) -> tuple[list[int], Fraction]:
    """Give symmetric codes and their scale absmax / (2^(bits-1) - 1), ties to even; zeros have scale 0 (AMB-07, 09)."""
    scale = max((abs(value) for value in values), default=Fraction(0)) / LARGEST_CODE[bits]
    return [round(value / scale) if scale else 0 for value in values], scale


@dataclass(frozen=True)
class PageCodes:
    """The codes of one page and their scales: basis by column, coefficients by token, centroid by page (AMB-08)."""

    centroid_codes: list[int]
    centroid_scale: Fraction
    basis_codes: list[list[int]]
    basis_scale: list[Fraction]
    coefficient_codes: list[list[int]]
    coefficient_scale: list[Fraction]


def quantize_page(centroid: list[Any], basis: Matrix, coefficients: Matrix, basis_bits: int) -> PageCodes:
    """Quantise one page's summary exactly: basis to basis_bits, the rest to int8 (Locks Sec. 4, App. D)."""
    columns = [quantize_row(column, basis_bits) for column in transposed(fractions("basis", basis))]
    tokens = [quantize_row(row, 8) for row in fractions("coefficients", coefficients)]
    return PageCodes(
        *quantize_row(fractions("centroid", centroid), 8),
        transposed([codes for codes, _ in columns]),
        [scale for _, scale in columns],
        [codes for codes, _ in tokens],
        [scale for _, scale in tokens],
    )
