"""Summaries, codes and nibbles of the reference against 50 digits; bounds at u = 2^-53 derived here.

Singular vectors are never compared: signs are free and equal singular values leave a plane free. Compared are the
centroid, the singular values, the projector, the reconstruction C V^T and the energy it loses.

float64 errors. Centring: the mean of B numbers errs by gamma_B mean|k|, the subtraction by u|delta|. The SVD is the
exact one of D + F: it applies at most m + 2 m two-sided transformations (bidiagonalisation, then one implicit QR sweep
or merge per value), m = min(B, d), each a backward error of at most 8 max(B, d) u of the Frobenius norm (Higham,
Lemma 19.3), so ||F|| <= 24 m max(B, d) u ||D||_F; so do U and V depart from orthonormal columns. With both, E below.
"""

from functools import cache

import numpy as np
import pytest
import small_inputs as small

from proofs_checks.golden import fifty_digits
from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits import exact_list
from proofs_checks.golden.fifty_digits_codes import half_even
from refimpl.locks.quantize import (
    locks_dequantize_summary,
    locks_pack_basis,
    locks_quantize_summary,
    locks_unpack_basis,
)
from refimpl.locks.summary import locks_build_summary, zero_mode_level

U = 2.0**-53
PARTS = (("centroid", "centroid", -1, 127), ("basis", "basis", -2, None), ("coefficients", "coefficient", -1, 127))


def svd_error(page):
    """Relative backward error of the SVD of a page, and the Frobenius norm E of all errors before and in it."""
    B, d = page.shape
    deviations = page - page.mean(axis=0)
    relative = 24 * min(B, d) * max(B, d) * U
    centring = np.linalg.norm((B + 1) * U * np.abs(page).mean(axis=0) + U * np.abs(deviations))
    return relative, relative * np.linalg.norm(deviations) + centring


def frobenius(rows):
    return mp.sqrt(mp.fsum(x * x for row in rows for x in row))


def minus(a, b):
    return [[x - y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


def product(a, b):
    """[n][k] times [k][m]."""
    return [[mp.fsum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def gram_of_rows(rows, width):
    """sum of v v^T over rows, [width][width]."""
    return [[mp.fsum(v[i] * v[j] for v in rows) for j in range(width)] for i in range(width)]


@cache
def pages_of(name):
    """The reference's and the exact answer of every page of a set of pages."""
    pages, rank = small.PAGES[name]
    summary = locks_build_summary(key_pages=pages, rank=rank)
    where = list(np.ndindex(pages.shape[:2]))
    return [(pages[w], rank, {n: a[w] for n, a in summary.items()}, fifty_digits.page_modes(pages[w])) for w in where]


PAGE_SETS = [name for name, (pages, _) in small.PAGES.items() if pages.size]


@pytest.mark.parametrize("name", PAGE_SETS)
def test_centroids_are_means(name):
    for page, _, summary, (centroid, *_) in pages_of(name):
        bound = len(page) * U * np.abs(page).mean(axis=0) * (1 + 1e-9)  # gamma_B, B adds and the division
        assert fifty_digits.ratio(summary["centroid"], centroid, bound) <= 1


@pytest.mark.parametrize("name", PAGE_SETS)
def test_singular_values_are_within_weyl(name):
    for page, rank, summary, (_, _, sigma, _) in pages_of(name):
        error = svd_error(page)[1] * (1 + svd_error(page)[0])
        sizes = [frobenius(exact_list(column[:, None])) for column in summary["coefficients"].T]
        for size, exact in zip(sizes, [*sigma, *[mpf(0)] * rank], strict=False):
            # a dropped mode is off by its own size, at most the level up to which modes are dropped
            assert abs(size - exact) <= error + (zero_mode_level(page) if size == 0 else 0)


@pytest.mark.parametrize("name", PAGE_SETS)
def test_modes_are_dropped_exactly_up_to_the_level(name):
    for page, _, summary, (_, _, sigma, _) in pages_of(name):
        level, error = zero_mode_level(page), svd_error(page)[1]
        kept = [bool(np.any(column)) for column in summary["basis"].T]
        assert kept == [bool(np.any(column)) for column in summary["coefficients"].T]
        for k, alive in enumerate(kept):
            exact = sigma[k] if k < len(sigma) else mpf(0)
            assert alive or exact <= level + error
            assert not alive or exact >= level - error


@pytest.mark.parametrize("name", PAGE_SETS)
def test_projectors_and_reconstructions_agree_where_a_gap_defines_them(name):
    """Wedin: the sines of the angles have Frobenius norm at most sqrt(2) E / (gap - E), a projector sqrt(2) as much."""
    for page, _, summary, (_, deviations, sigma, right) in pages_of(name):
        relative, error = svd_error(page)
        kept = int(np.count_nonzero(np.any(summary["basis"], axis=0)))
        below = sigma[kept] if kept < len(sigma) else mpf(0)
        if kept == 0 or sigma[kept - 1] - below <= 4 * error:
            assert kept == 0 or name == "equal-singular-values-split"
            continue
        d = page.shape[1]
        turned = 2 * error / (sigma[kept - 1] - below - error)
        columns = exact_list(summary["basis"].T[:kept])
        exact = gram_of_rows(right[:kept], d)
        assert frobenius(minus(gram_of_rows(columns, d), exact)) <= turned + kept * relative
        rebuilt = product(exact_list(summary["coefficients"][:, :kept]), columns)
        size = frobenius(deviations)
        # D P and (D + F) P^: ||F|| + ||D|| ||P^ - P||; U sigma rounds once
        allowed = error + (turned + kept * relative + U) * size
        assert frobenius(minus(rebuilt, product(deviations, exact))) <= allowed


@pytest.mark.parametrize("name", PAGE_SETS)
def test_no_summary_of_the_rank_loses_less_energy(name):
    """Eckart-Young below; above, the best approximation of D + F is at most 2 ||F|| worse for D."""
    for page, rank, summary, (_, deviations, sigma, _) in pages_of(name):
        relative, error = svd_error(page)
        tail = mp.sqrt(mp.fsum(s * s for s in sigma[rank:]))
        rebuilt = product(exact_list(summary["coefficients"]), exact_list(summary["basis"].T))
        lost = frobenius(minus(deviations, rebuilt))
        dropped = zero_mode_level(page) * mp.sqrt(rank)
        assert tail <= lost * (1 + mpf(10) ** -40)
        assert lost <= tail + 2 * error + (relative + U) * frobenius(deviations) + dropped


@pytest.mark.parametrize("name", PAGE_SETS)
def test_kept_columns_are_orthonormal_and_the_others_zero(name):
    for page, rank, summary, _ in pages_of(name):
        columns = exact_list(summary["basis"].T)
        for i in range(rank):
            for j in range(rank):
                inner = mp.fsum(x * y for x, y in zip(columns[i], columns[j], strict=True))
                wanted = 1 if i == j and any(columns[i]) else 0
                assert abs(inner - wanted) <= svd_error(page)[0]


def test_no_pages_have_an_empty_summary():
    pages, rank = small.PAGES["no-pages"]
    shapes = {n: a.shape for n, a in locks_build_summary(key_pages=pages, rank=rank).items()}
    assert shapes == {"centroid": (2, 0, 4), "basis": (2, 0, 4, 3), "coefficients": (2, 0, 6, 3)}


TIES = {
    "centroid": np.array([[[127.0, 0.5, 1.5, -2.5, -0.5, 63.5]]]),
    "basis": np.array([7.0, 2.5, -0.5, 3.5, 0.0, -6.5]).reshape(1, 1, 6, 1),
    "coefficients": np.array([[[[127.0]], [[-254.0]]]]).reshape(1, 1, 2, 1),
}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", [*small.SUMMARIES, "ties"])
def test_codes_are_the_nearest_of_the_exact_quotients(name, bits):
    """scale = fl(absmax / level) errs by u; x / scale by one more u: a code may differ within 2 u |x / s| of a half."""
    summary = TIES if name == "ties" else small.SUMMARIES[name]
    quantized = locks_quantize_summary(**summary, basis_bits=bits)
    for source, result, axis, level in PARTS:
        level = level or fifty_digits.LEVEL[bits]
        lines = np.moveaxis(summary[source], axis, -1).reshape(-1, summary[source].shape[axis])
        codes = np.moveaxis(quantized[f"{result}_codes"], axis, -1).reshape(lines.shape)
        for line, got, scale in zip(lines, codes, quantized[f"{result}_scale"].ravel(), strict=True):
            wanted, exact = fifty_digits.quantize_line(exact_list(line), level)
            assert abs(mpf(float(scale)) - exact) <= U * exact
            for x, code, nearest in zip(line, got.tolist(), wanted, strict=True):
                steps = mpf(float(x)) / exact if exact else mpf(0)
                in_doubt = scale != exact and abs(abs(steps - mp.floor(steps)) - 0.5) <= 2 * U * (abs(steps) + 1)
                assert code == nearest or (in_doubt and abs(code - steps) <= 0.5 + 2 * U * (abs(steps) + 1))


def test_exact_halves_go_to_even():
    quantized = locks_quantize_summary(**TIES, basis_bits=4)
    assert quantized["centroid_codes"].ravel().tolist() == [127, 0, 2, -2, 0, 64]
    assert quantized["basis_codes"].ravel().tolist() == [7, 2, 0, 4, 0, -6]
    assert [half_even(mpf(x) / 2) for x in (1, 3, -5, -1, 127)] == [0, 2, -2, 0, 64]


def test_a_dequantised_value_is_within_half_a_step():
    summary = small.SUMMARIES["random"]
    quantized = locks_quantize_summary(**summary, basis_bits=4)
    back = locks_dequantize_summary(**quantized)
    for source, result, axis, _ in PARTS:
        scale = np.expand_dims(quantized[f"{result}_scale"], axis)
        # half a step; roundings: the quotient's 2 u |x|, the product's u |x|
        bound = 0.5 * scale + 4 * U * np.abs(summary[source])
        assert fifty_digits.ratio(back[source], exact_list(summary[source]), bound) <= 1


def test_every_byte_is_two_twos_complement_nibbles():
    """All 256 pairs: byte = (even channel mod 16) + 16 (odd channel mod 16), and back."""
    pairs = [(low, high) for high in range(-8, 8) for low in range(-8, 8)]
    codes = np.array(pairs).reshape(1, 4, 64, 2)  # [H, P, pairs, channel]
    columns = np.swapaxes(codes.reshape(1, 4, 2, 64), -1, -2)  # [H, P, d = 64, r = 2]
    bytes_ = locks_pack_basis(basis_codes=columns)
    wanted = [low % 16 + 16 * (high % 16) for low, high in pairs]
    assert bytes_.shape == (1, 4, 2, 32)
    assert bytes_.ravel().tolist() == wanted
    assert sorted(wanted) == list(range(256))
    assert np.array_equal(locks_unpack_basis(basis_bytes=bytes_), columns)
