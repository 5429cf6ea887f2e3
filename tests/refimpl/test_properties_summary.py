"""What a page summary, its codes and its bytes are, whatever the page (Locks Sec. 4, Cor. 1).

float64 slack of the build: E = 24 B d u ||D||_F + centring, derived in test_fifty_digits_summary.py.
"""

import numpy as np
from derived import answer
from draws import Draw, a_few_shapes, every_shape, key_pages
from hypothesis import example, given
from hypothesis import strategies as st
from stage_inputs import locks_build_summary_inputs, locks_quantize_summary_inputs, rank

from refimpl.locks.quantize import LEVELS, locks_dequantize_summary, locks_pack_basis, locks_unpack_basis
from refimpl.locks.summary import locks_build_summary, reconstruct, zero_mode_level

U = 2.0**-53


def page_error(pages):
    """Relative error of the decomposition, and E of every page [H, P]."""
    B, d = pages.shape[-2:]
    deviations = pages - pages.mean(axis=2, keepdims=True)
    relative = 24 * B * d * U
    centring = (B + 2) * U * np.linalg.norm(np.abs(pages).mean(axis=2), axis=-1) * np.sqrt(B)
    return relative, relative * np.linalg.norm(deviations, axis=(-2, -1)) + centring


def norm(pages):
    return np.linalg.norm(pages, axis=(-2, -1))


def spectrum(pages):
    return np.linalg.svd(pages - pages.mean(axis=2, keepdims=True), compute_uv=False)


@a_few_shapes
def test_columns_are_orthonormal_or_zero_and_coefficients_are_centred(drawn):
    pages = key_pages(drawn)
    summary, (relative, error) = locks_build_summary(**locks_build_summary_inputs(drawn)), page_error(pages)
    basis = summary["basis"]
    alive = basis.any(axis=-2)  # [H, P, r]
    gram = np.swapaxes(basis, -1, -2) @ basis
    assert (np.abs(gram - alive[..., None] * np.eye(rank(drawn))) <= relative).all()
    assert np.array_equal(alive, summary["coefficients"].any(axis=-2))
    # sum_i c_i = V^T sum_i delta_i = 0: B numbers, each off by E
    assert (np.abs(summary["coefficients"].sum(axis=-2)) <= drawn.B * error[..., None]).all()


@a_few_shapes
def test_the_lost_energy_is_that_of_the_other_modes(drawn):
    """Cor. 1 with the perturbation bound 2 E; dropped modes lose at most the level each."""
    inputs = locks_build_summary_inputs(drawn)
    pages, r = inputs["key_pages"], inputs["rank"]
    rebuilt = reconstruct(**locks_build_summary(**inputs))
    tail = np.sqrt(np.sum(spectrum(pages)[..., r:] ** 2, axis=-1))
    error, dropped = page_error(pages)[1], zero_mode_level(pages) * np.sqrt(r)
    assert (np.abs(norm(pages - rebuilt) - tail) <= 3 * error + dropped).all()


@a_few_shapes
def test_no_other_subspace_of_the_rank_captures_more(drawn):
    inputs = locks_build_summary_inputs(drawn)
    pages, r = inputs["key_pages"], inputs["rank"]
    deviations = pages - pages.mean(axis=2, keepdims=True)
    other, _ = np.linalg.qr(drawn.rng.normal(size=(drawn.d, r)))
    captured = norm(deviations @ locks_build_summary(**inputs)["basis"])
    slack = 3 * page_error(pages)[1] + zero_mode_level(pages) * np.sqrt(r)
    assert (norm(deviations @ other) <= captured + slack).all()


@a_few_shapes
def test_the_full_rank_rebuilds_the_keys(drawn):
    pages = key_pages(drawn)
    summary = locks_build_summary(key_pages=pages, rank=min(drawn.B, drawn.d))
    lost = norm(pages - reconstruct(**summary))
    assert (lost <= 3 * page_error(pages)[1] + zero_mode_level(pages) * np.sqrt(drawn.B)).all()


@a_few_shapes
def test_a_power_of_two_scales_a_summary_exactly(drawn):
    inputs = locks_build_summary_inputs(drawn)
    one = locks_build_summary(**inputs)
    two = locks_build_summary(**(inputs | {"key_pages": inputs["key_pages"] * 4.0}))
    assert np.array_equal(two["centroid"], 4 * one["centroid"])
    rebuilt = [norm(reconstruct(**s) - s["centroid"][..., None, :]) for s in (one, two)]
    assert (np.abs(rebuilt[1] - 4 * rebuilt[0]) <= 8 * page_error(inputs["key_pages"])[1]).all()


@a_few_shapes
def test_constant_pages_have_no_modes_and_rank_one_pages_one(drawn):
    keys = drawn.rng.normal(size=(drawn.H, 2, 1, drawn.d))
    constant = np.repeat(keys, drawn.B, axis=2)
    summary = locks_build_summary(key_pages=constant, rank=rank(drawn))
    assert not summary["basis"].any()
    assert not summary["coefficients"].any()
    steps = np.arange(drawn.B, dtype=np.float64)[:, None]  # exact multiples of powers of two: rank 1 in float64 too
    line = np.sign(keys) * steps
    sizes = np.linalg.norm(locks_build_summary(key_pages=line, rank=rank(drawn))["coefficients"], axis=-2)
    # sum (i - (B-1)/2)^2 = B (B^2 - 1) / 12, times d channels of +-1
    wanted = np.sqrt(drawn.d * drawn.B * (drawn.B**2 - 1) / 12)
    assert (np.abs(sizes[..., 0] - wanted) <= page_error(line)[1]).all()
    assert not sizes[..., 1:].any()


PARTS = (("centroid", "centroid", -1, 127), ("basis", "basis", -2, None), ("coefficients", "coefficient", -1, 127))


@every_shape
@example(drawn=Draw(1, 64, 8, complete=0, opened=1))  # no pages: once a crash of unpacking, kept for every codec stage
def test_codes_are_nearest_and_use_the_whole_range(drawn):
    inputs = locks_quantize_summary_inputs(drawn)
    codes, back = answer("locks_quantize_summary", inputs), None
    back = locks_dequantize_summary(**codes)
    for name, short, axis, level in PARTS:
        level = level or LEVELS[inputs["basis_bits"]]
        x, integers, scale = inputs[name], codes[f"{short}_codes"], np.expand_dims(codes[f"{short}_scale"], axis)
        largest = np.max(np.abs(x), axis=axis, initial=0.0)
        assert integers.dtype == np.int8
        assert np.array_equal(
            np.max(np.abs(integers.astype(int)), axis=axis, initial=0), np.where(largest > 0, level, 0)
        )
        # half a step; the scale, the quotient and the product round once each
        assert (np.abs(back[name] - x) <= scale / 2 + 4 * U * np.abs(x)).all()
        assert (np.sign(integers) * np.sign(x) >= 0).all()


@every_shape
def test_quantising_a_dequantised_summary_changes_nothing(drawn):
    inputs = locks_quantize_summary_inputs(drawn)
    codes = answer("locks_quantize_summary", inputs)
    again = answer("locks_quantize_summary", locks_dequantize_summary(**codes) | {"basis_bits": inputs["basis_bits"]})
    for name in codes:
        if name.endswith("codes"):
            assert np.array_equal(again[name], codes[name])
        else:  # absmax / level of level * scale: two roundings
            assert (np.abs(again[name] - codes[name]) <= 2 * U * (1 + U) * codes[name]).all()


@every_shape
@example(drawn=Draw(1, 64, 8, complete=0, opened=1))
def test_unpacking_inverts_packing(drawn):
    shape = (drawn.H, drawn.complete, drawn.d, rank(drawn))
    codes = drawn.rng.integers(-8, 8, size=shape).astype(np.int8)
    packed = locks_pack_basis(basis_codes=codes)
    assert packed.shape == (drawn.H, drawn.complete, rank(drawn), drawn.d // 2)
    assert packed.dtype == np.uint8
    assert np.array_equal(locks_unpack_basis(basis_bytes=packed), codes)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=9))
def test_packing_inverts_unpacking(values):
    packed = np.array(values, dtype=np.uint8).reshape(1, 1, 1, -1)
    assert np.array_equal(locks_pack_basis(basis_codes=locks_unpack_basis(basis_bytes=packed)), packed)
