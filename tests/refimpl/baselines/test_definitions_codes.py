"""Codebooks, bases and fixed-rate codes: what their definitions say at zeros, ties and ends."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.baselines.code_accounting import lloyd2_method
from refimpl.baselines.codebook import codebook_state_bytes, codebook_train
from refimpl.baselines.kivi import kivi_dequantize, kivi_quantize
from refimpl.baselines.lloyd2 import lloyd2_decode, lloyd2_encode
from refimpl.baselines.qjl import qjl_encode, qjl_estimate, qjl_projection
from refimpl.baselines.shared_basis import captured_energy, covariance_basis
from refimpl.baselines.turboquant import (
    check_levels,
    turboquant_decode,
    turboquant_encode,
    turboquant_inner_products,
    turboquant_rotation,
)
from refimpl.baselines.turboquant_slot import turboquant_pack_slots
from refimpl.checks import ArgumentError
from refimpl.readkv.codebooks import lloyd_max_codebook

EPS = np.finfo(float).eps
seeds = st.integers(0, 2**32 - 1)


def refusal(function, **arguments):
    with pytest.raises(ArgumentError) as caught:
        function(**arguments)
    return str(caught.value)


def test_a_codeword_that_no_key_chose_keeps_its_place():
    """Both codewords start at 5: the first takes all keys (mean 6), then the second takes the fives back."""
    keys = [[[5.0], [5.0], [5.0], [9.0]]]
    assert codebook_train(keys=keys, entries=2, sweeps=1).tolist() == [[[6.0], [5.0]]]
    assert codebook_train(keys=keys, entries=2).tolist() == [[[9.0], [5.0]]]


def test_codebooks_are_trained_in_ten_sweeps_unasked():
    """On squares the boundary between two means creeps by one key a sweep, from a long way off."""
    keys = (np.arange(400.0) ** 2)[None, :, None]
    sweeps = [codebook_train(keys=keys, entries=3, sweeps=n).ravel().tolist() for n in (9, 10, 11)]
    assert codebook_train(keys=keys, entries=3).ravel().tolist() == sweeps[1]
    assert sweeps[0] != sweeps[1] != sweeps[2]


def test_bits_of_a_codebook_index():
    """ceil(log2 N) bits for each of 16 tokens; 129 entries need the eighth bit, one entry needs none."""
    tables = {n: 2 * n * 8 / 4 for n in (1, 2, 128, 129)}
    for entries, bits in ((1, 0), (2, 1), (128, 7), (129, 8)):
        assert codebook_state_bytes(entries, 16, 8, 4) == 2 * bits + tables[entries]


def test_a_rounded_offset_leaves_codes_inside_their_range():
    """The float16 below 1000.2 is 1000, 510 steps of 0.1 / 255 away; the one above 1000.4 is 1000.5."""
    for low, code in ((1000.2, 255), (1000.4, 0)):
        rows = np.array([[[low, low], [low + 0.1, low + 0.1]]])
        q = kivi_quantize(keys=rows, values=rows, bits=8, group_size=2)
        assert q["key_codes"].tolist() == [[[code, code]] * 2]
    rows = np.array([[[1000.2, 1000.3]]])
    assert kivi_quantize(keys=rows[:, :, :1], values=rows[:, :, :1], bits=8, group_size=1)["value_zero"] == 1000.0


def test_numbers_beyond_the_stored_format_are_named():
    small, large = np.ones((1, 2, 2)), np.full((1, 2, 2), 1e6)
    for name, other in (("keys", "values"), ("values", "keys")):
        message = refusal(kivi_quantize, **{name: large, other: small}, bits=2, group_size=2)
        assert message == f"{name}: expected values within float16, got one of 1e+06"


def test_groups_that_do_not_divide_their_axis():
    codes, ones = np.zeros((1, 6, 8), int), np.ones
    good = {"key_scale": ones((1, 3, 8)), "key_zero": ones((1, 3, 8))}
    good |= {"value_scale": ones((1, 6, 4)), "value_zero": ones((1, 6, 4))}
    kivi_dequantize(key_codes=codes, value_codes=codes, **good)
    for name, axis, length in (("key", 1, 6), ("value", 2, 8)):
        for groups in (0, 5):
            shape = [1, 6, 8]
            shape[axis] = groups
            bad = good | {f"{name}_scale": ones(shape), f"{name}_zero": ones(shape)}
            message = refusal(kivi_dequantize, key_codes=codes, value_codes=codes, **bad)
            assert message == f"{name}_scale: expected a number of groups that divides {length}, got {groups}"


@given(seeds, st.integers(-30, 0))
def test_lloyd2_gives_keys_their_own_length_however_short(seed, power):
    rng = np.random.default_rng(seed)
    state = {"mean": np.zeros((1, 8)), "scale": np.full((1, 8), 2.0**power), "signs": rng.choice([-1.0, 1.0], size=8)}
    x = rng.normal(size=(1, 5, 8)) * 2.0**power
    restored = lloyd2_decode(**lloyd2_encode(x=x, **state), **state)
    # two lengths of 8 squares, a quotient, two products and three rounds of the rotation back: under 40 roundings
    lengths = np.linalg.norm(x, axis=-1)
    assert (np.abs(np.linalg.norm(restored, axis=-1) - lengths) <= 40 * EPS * lengths).all()


def test_lloyd2_leaves_a_vector_of_zeros_alone():
    """The mean is minus the level, so that nothing is left to be rescaled."""
    level = lloyd_max_codebook(bits=2, law="normal", d=1)["levels"][3]
    state = {"mean": np.full((1, 4), -level), "scale": np.ones((1, 4)), "signs": np.ones(4)}
    assert lloyd2_decode(codes=np.full((1, 3, 4), 3), norm=np.full((1, 3), 5.0), **state).tolist() == [[[0.0] * 4] * 3]


def test_lloyd2_keeps_two_tables_of_four_levels_and_three_thresholds():
    method = lloyd2_method()
    assert (method.stored_bits, method.read_bits, method.token_bits, method.table_bits) == (2, 2, 16, 448)


def test_a_slot_needs_an_even_number_of_channels():
    codes, half = np.zeros((2, 3), int), np.ones(2)
    call = {"key_codes": codes, "value_codes": codes, "key_norm": half, "value_scale": half, "value_zero": half}
    assert refusal(turboquant_pack_slots, **call) == "key_codes: expected an even number of channels, got d=3"


def test_qjl_from_one_sign():
    estimate = qjl_estimate(signs=[[-1]], norm=[2.0], projection=[[3.0, 1.0]], queries=[[1.0, 1.0]])
    assert estimate.shape == (1, 1)
    assert abs(estimate[0, 0] + 8 * math.sqrt(math.pi / 2)) <= 8 * 4 * EPS


@given(seeds)
def test_the_largest_entry_of_a_basis_column_is_positive(seed):
    root = np.random.default_rng(seed).normal(size=(3, 6, 6))
    basis = covariance_basis(mean=np.zeros((3, 6)), covariance=root @ np.swapaxes(root, 1, 2), rank=6)["basis"]
    largest = np.take_along_axis(basis, np.argmax(np.abs(basis), axis=1)[:, None], axis=1)
    assert (largest > 0).all()


@given(seeds, st.integers(-300, 300))
def test_captured_energy_has_no_unit(seed, power):
    rng = np.random.default_rng(seed)
    pages, rebuilt = rng.normal(size=(2, 1, 2, 4, 3))
    energy = captured_energy(key_pages=pages, reconstruction=rebuilt)
    scaled = captured_energy(key_pages=pages * 2.0**power, reconstruction=rebuilt * 2.0**power)
    assert np.array_equal(energy, scaled)


def test_levels_are_at_most_256_and_the_first_eight_are_shown():
    assert len(check_levels(np.arange(256.0))) == 256
    shown = "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]"
    message = f"levels: expected 2 to 256 ascending numbers, got {shown}"
    assert refusal(check_levels, levels=np.arange(257.0)) == message
    assert refusal(check_levels, levels=[0.0, 1, 2, 3, 4, 5, 6, 7, 7]) == message


@given(seeds, st.integers(-100, 100))
def test_turboquants_codes_do_not_depend_on_the_length(seed, power):
    rng = np.random.default_rng(seed)
    call = {"rotation": turboquant_rotation(d=8, kind="haar", seed=seed), "levels": [-0.5, -0.1, 0.1, 0.5]}
    x = rng.normal(size=(5, 8))
    codes = turboquant_encode(x=x, **call)["codes"]
    assert np.array_equal(codes, turboquant_encode(x=x * 2.0**power, **call)["codes"])


def test_levels_of_zero_have_no_length_to_divide_by():
    call = {"rotation": np.eye(2), "levels": [-1.0, 0.0, 1.0], "norm_correction": True}
    assert turboquant_decode(codes=[[1, 1]], norm=[5.0], **call).tolist() == [[0.0, 0.0]]


@given(st.integers(0, 1000), st.integers(1, 12))
def test_a_haar_rotation_is_the_orthogonal_factor_whose_triangle_has_a_positive_diagonal(seed, d):
    gaussian = np.random.default_rng(seed).normal(size=(d, d))
    triangle = turboquant_rotation(d=d, kind="haar", seed=seed).T @ gaussian
    assert (np.diag(triangle) > 0).all()
    assert np.abs(np.tril(triangle, -1)).max() <= 40 * d * EPS * np.linalg.norm(gaussian)


@pytest.mark.parametrize(("d", "law"), [(1, "normal"), (3, "normal"), (4, "sphere"), (5, "sphere")])
def test_turboquants_inner_products_are_its_two_parts(d, law):
    """bits - 1 for the levels of a sphere (of a Gaussian below four dimensions), uncorrected; a sign for the rest."""
    rng = np.random.default_rng(d)
    x, queries = rng.normal(size=(6, d)), rng.normal(size=(3, d))
    rotation = turboquant_rotation(d=d, kind="haar", seed=7)
    table = {"rotation": rotation, "levels": lloyd_max_codebook(bits=2, law=law, d=d)["levels"] / math.sqrt(d)}
    near = turboquant_decode(**turboquant_encode(x=x, **table), **table, norm_correction=False)
    projection = qjl_projection(rows=d, d=d, seed=8)
    rest = qjl_estimate(**qjl_encode(x=x - near, projection=projection), projection=projection, queries=queries)
    estimates = turboquant_inner_products(x=x, queries=queries, bits=3, seed=7)
    assert np.array_equal(estimates, queries @ near.T + rest)
