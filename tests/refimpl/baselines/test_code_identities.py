"""Small identities of KIVI, TurboQuant, QJL and Lloyd-2, worked out by hand or in another way."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofs_checks.bounds.common import gamma
from refimpl.baselines.kivi import kivi_dequantize, kivi_quantize
from refimpl.baselines.lloyd2 import lloyd2_decode, lloyd2_encode
from refimpl.baselines.qjl import qjl_encode, qjl_estimate, qjl_inner_products
from refimpl.baselines.turboquant import (
    turboquant_decode,
    turboquant_encode,
    turboquant_inner_products,
    turboquant_rotation,
)
from refimpl.baselines.turboquant_slot import turboquant_pack_slots, turboquant_unpack_slots
from refimpl.checks import ArgumentError
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.rotation import readkv_rotate

seeds = st.integers(0, 10**6)
U = 2.0**-53
PRINTED = 1e-5
"""Twice how far Lloyd-2's levels and cells may be from their printed digits, so that rounding has as much room."""


def rng_of(seed):
    return np.random.default_rng(seed)


def test_kivi_groups_keys_by_channel_and_values_by_token():
    block = np.array([[[0.0, 4.0], [3.0, 7.0]]])  # two tokens, two channels
    q = kivi_quantize(keys=block, values=block, bits=2, group_size=2)
    assert q["key_zero"].tolist() == [[[0.0, 4.0]]]  # of each channel, over tokens
    assert q["key_scale"].tolist() == [[[1.0, 1.0]]]
    assert q["value_zero"].tolist() == [[[0.0], [3.0]]]  # of each token, over channels
    assert q["value_scale"].tolist() == np.float16([[[4 / 3], [4 / 3]]]).tolist()
    assert q["key_codes"].tolist() == [[[0, 0], [3, 3]]]


def test_kivi_codes_follow_the_rounded_scale():
    """Range 15 (1 + 2^-12) at 4 bits: the scale rounds to 1, and 7.501 steps of it are 7.4992 of the exact one."""
    x = 7.501
    group = np.array([0.0, 15 * (1 + 2.0**-12), x, 0.0])
    q = kivi_quantize(
        keys=np.tile(group[:, None], (1, 4))[None], values=np.tile(group, (4, 1))[None], bits=4, group_size=4
    )
    assert q["value_scale"][0, 0, 0] == 1.0
    assert q["value_codes"][0, 0].tolist() == [0, 15, 8, 0]
    exact = kivi_quantize(
        keys=np.tile(group[:, None], (1, 4))[None],
        values=np.tile(group, (4, 1))[None],
        bits=4,
        group_size=4,
        scale_format="float64",
    )
    assert exact["value_codes"][0, 0].tolist() == [0, 15, 7, 0]


@given(seeds, st.sampled_from([2, 4]))
def test_kivi_is_within_half_a_step(seed, bits):
    rng = rng_of(seed)
    keys, values = rng.normal(size=(2, 64, 32)), rng.normal(size=(2, 64, 32))
    q = kivi_quantize(keys=keys, values=values, bits=bits, scale_format="float64")
    back = kivi_dequantize(**q)
    for name, axis in (("key", 1), ("value", 2)):
        x, scale = {"key": keys, "value": values}[name], np.repeat(q[f"{name}_scale"], 32, axis=axis)
        # five roundings of up to 2^bits - 1 steps (two of the scale, difference, quotient, product), one of the sum
        rounding = 6 * U * 2**bits * scale + 2 * U * np.abs(x).max()
        assert np.all(np.abs(back[f"{name}s"] - x) <= 0.5 * scale + rounding)


def test_a_constant_group_comes_back():
    block = np.full((1, 4, 4), -7.25)
    q = kivi_quantize(keys=block, values=block, bits=2, group_size=4)
    assert (q["key_codes"] == 0).all()
    assert all((x == -7.25).all() for x in kivi_dequantize(**q).values())


@pytest.mark.parametrize("kind", ["haar", "hadamard"])
@pytest.mark.parametrize("d", [1, 2, 16, 64])
def test_rotations_are_orthogonal_and_repeatable(kind, d):
    rotation = turboquant_rotation(d=d, kind=kind, seed=5)
    # d reflections of d entries leave a Q within sqrt(d) gamma(6 d^2) of an orthogonal one (Higham 2002, Thm. 19.4)
    bound = 2 * math.sqrt(d) * 6 * d**2 * U + d * U
    assert np.abs(rotation @ rotation.T - np.eye(d)).max() <= 2 * bound  # twice: gamma(n) < 2 n u here
    assert np.array_equal(rotation, turboquant_rotation(d=d, kind=kind, seed=5))
    assert d == 1 or not np.array_equal(rotation, turboquant_rotation(d=d, kind=kind, seed=6))


def test_haar_moments():
    """E trace = 0, E trace^2 = 1 and E q^4 = 3 / (d (d + 2)) over 4000 matrices of O(4), within six deviations."""
    every = np.stack([turboquant_rotation(d=4, kind="haar", seed=s) for s in range(4000)])
    traces = np.trace(every, axis1=1, axis2=2)
    assert abs(traces.mean()) < 6 / math.sqrt(4000)
    assert abs((traces**2).mean() - 1) < 6 * math.sqrt(2.0) / math.sqrt(4000)  # E trace^4 = 3 for d >= 2
    assert abs((every**4).mean() - 3 / 24) < 6 * 0.2 / math.sqrt(4000)  # an entry's fourth power has deviation < 0.2


@given(seeds, st.sampled_from([1, 2, 3, 4]))
def test_turboquant_takes_the_nearest_level(seed, bits):
    rng, d = rng_of(seed), 8
    x, rotation = rng.normal(size=(5, d)), turboquant_rotation(d=d, kind="haar", seed=seed)
    levels = np.sort(rng.normal(size=2**bits))
    q = turboquant_encode(x=x, rotation=rotation, levels=levels)
    for i, c in product(range(5), range(d)):
        y = float(np.dot(rotation[c], x[i]) / math.sqrt(np.dot(x[i], x[i])))
        chosen = abs(levels[q["codes"][i, c]] - y)
        # y on either side: a unit vector's d products, its length, a division; then a midpoint and two differences
        slack = 4 * gamma(2 * d + 8, U) + 8 * U * (1 + np.abs(levels).max())
        assert chosen <= min(abs(level - y) for level in levels) + slack


@pytest.mark.parametrize(("bits", "optimum"), [(1, 0.36338023), (2, 0.11748185), (3, 0.03454776), (4, 0.00950101)])
def test_distortion_of_a_long_vector_is_the_codebooks(bits, optimum):
    """A Gaussian vector of 2^14 coordinates has them independent N(0, 1): its relative error is the law's optimum."""
    d = 2**14
    x = rng_of(bits).normal(size=d)
    x /= np.linalg.norm(x)
    levels = lloyd_max_codebook(bits=bits, law="normal", d=d)["levels"] / math.sqrt(d)
    q = np.searchsorted((levels[1:] + levels[:-1]) / 2, x)
    assert abs(np.sum((levels[q] - x) ** 2) - optimum) < 6 * 1.5 * optimum / math.sqrt(d)


def test_norm_correction_keeps_the_norm_and_the_direction():
    rotation = turboquant_rotation(d=16, kind="haar", seed=1)
    levels = lloyd_max_codebook(bits=4, law="sphere", d=16)["levels"] / 4
    x = rng_of(3).normal(size=(6, 16)) * 5
    q = turboquant_encode(x=x, rotation=rotation, levels=levels)
    plain, kept = (turboquant_decode(**q, rotation=rotation, levels=levels, norm_correction=c) for c in (False, True))
    norms, skew = np.linalg.norm(x, axis=1), np.linalg.norm(rotation @ rotation.T - np.eye(16))
    # four norms of 16 numbers, two factors, and 16 products per entry of the way back (sqrt(16) times that in norm)
    room = skew + gamma(16, U) * 16 + gamma(4 * 10 + 4 + 4 * 16, U)
    assert (np.abs(np.linalg.norm(kept, axis=1) - norms) <= room * norms).all()
    ratio = np.linalg.norm(plain, axis=1, keepdims=True) / np.linalg.norm(kept, axis=1, keepdims=True)
    assert (np.abs(plain - kept * ratio) <= 2 * room * np.linalg.norm(plain, axis=1, keepdims=True)).all()


def test_a_zero_vector_decodes_to_zero():
    rotation, levels = np.eye(4), [-0.5, 0.5]
    q = turboquant_encode(x=np.zeros((1, 4)), rotation=rotation, levels=levels)
    assert q["norm"].tolist() == [0.0]
    for correction in (False, True):
        assert (turboquant_decode(**q, rotation=rotation, levels=levels, norm_correction=correction) == 0).all()


@given(seeds, st.sampled_from([2, 8, 128]))
def test_slots_hold_what_was_packed(seed, d):
    rng = rng_of(seed)
    given_codes = rng.integers(0, 16, size=(2, 3, d))
    numbers = {n: np.float16(rng.normal(size=3)).astype(float) for n in ("key_norm", "value_scale", "value_zero")}
    slots = turboquant_pack_slots(key_codes=given_codes[0], value_codes=given_codes[1], **numbers)
    assert slots.shape == (3, d + 6)
    back = turboquant_unpack_slots(slots=slots)
    assert np.array_equal(back["key_codes"], given_codes[0])
    assert np.array_equal(back["value_codes"], given_codes[1])
    assert all(np.array_equal(back[n], v) for n, v in numbers.items())


def test_qjl_estimate_by_hand():
    """Two rows (1, 0) and (0, 1), x = (3, -4), q = (2, 1): sqrt(pi/2)/2 * 5 * (2 - 1)."""
    coded = qjl_encode(x=[[3.0, -4.0]], projection=np.eye(2))
    assert coded["signs"].tolist() == [[1, -1]]
    estimate = qjl_estimate(**coded, projection=np.eye(2), queries=[[2.0, 1.0]])
    assert estimate[0, 0] == pytest.approx(math.sqrt(math.pi / 2) * 2.5, rel=4 * U)  # two roundings on either side


def test_qjl_is_unbiased_over_the_directions_of_a_row():
    """A row's direction on 2^16 points of the circle, its length by its mean sqrt(pi/2): x.q within the grid's step."""
    angle = (np.arange(2**16) + 0.5) * 2 * math.pi / 2**16
    rows = math.sqrt(math.pi / 2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x, q = np.array([[3.0, 4.0]]), np.array([[1.0, -2.0], [3.0, 4.0], [-4.0, 3.0]])
    estimates = qjl_estimate(**qjl_encode(x=x, projection=rows), projection=rows, queries=q)
    assert np.allclose(estimates[:, 0], q @ x[0], atol=2e-3)


@pytest.mark.parametrize("function", [qjl_inner_products, lambda **k: turboquant_inner_products(**k, bits=2)])
def test_estimates_over_seeds_average_to_the_inner_product(function):
    x, q = rng_of(1).normal(size=(1, 32)), rng_of(2).normal(size=(1, 32))
    q = np.concatenate([q, x])
    mean = np.mean([function(x=x, queries=q, seed=s) for s in range(400)], axis=0)
    sizes = np.linalg.norm(q, axis=1, keepdims=True) * np.linalg.norm(x)
    assert np.all(np.abs(mean - q @ x.T) < 6 * math.sqrt(math.pi / 2) * sizes / math.sqrt(400 * 32))


@given(seeds)
def test_lloyd2_cells_and_norms(seed):
    rng, d = rng_of(seed), 16
    x, mean, scale = rng.normal(size=(2, 5, d)), rng.normal(size=(2, d)), np.exp(rng.normal(size=(2, d)))
    signs = rng.choice([-1.0, 1.0], size=d)
    q = lloyd2_encode(x=x, mean=mean, scale=scale, signs=signs)
    z = (readkv_rotate(x=x, signs=signs) - mean[:, None]) / scale[:, None]
    by_hand = (z > -0.98160).astype(int) + (z > 0) + (z > 0.98160)
    clear = np.min(np.abs(np.stack([z + 0.98160, z, z - 0.98160])), axis=0) > PRINTED
    assert (q["codes"] == by_hand)[clear].all()
    back = lloyd2_decode(**q, mean=mean, scale=scale, signs=signs)
    # two norms of 16 numbers, their quotient, and the rotation's 16 products per entry (sqrt(16) times that in norm)
    norms = np.linalg.norm(x, axis=-1)
    assert (np.abs(np.linalg.norm(back, axis=-1) - norms) <= gamma(2 * 10 + 4 + 4 * 16, U) * norms).all()
    values = lloyd2_decode(**q, mean=mean, scale=scale, signs=signs, norm_correction=False)
    level = np.array([-1.51042, -0.45278, 0.45278, 1.51042])[q["codes"]]
    assert np.allclose(
        readkv_rotate(x=values, signs=signs), mean[:, None] + scale[:, None] * level, rtol=0, atol=PRINTED * scale.max()
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kivi_quantize(keys=np.zeros((1, 3, 2)), values=np.zeros((1, 3, 2)), bits=2, group_size=2),
            "divisor of T",
        ),
        (
            lambda: kivi_quantize(keys=np.full((1, 1, 1), 7e4), values=np.zeros((1, 1, 1)), bits=2, group_size=1),
            "keys: expected values within float16",
        ),
        (lambda: turboquant_rotation(d=6, kind="hadamard", seed=0), "power of two"),
        (lambda: turboquant_rotation(d=4, kind="uniform", seed=0), "kind: expected"),
        (lambda: turboquant_encode(x=[[1.0]], rotation=[[1.0]], levels=[0.5, 0.5]), "levels: expected"),
        (
            lambda: turboquant_decode(
                codes=[[2]], norm=[1.0], rotation=[[1.0]], levels=[-0.5, 0.5], norm_correction=False
            ),
            "codes: expected values in 0..1",
        ),
        (lambda: qjl_estimate(signs=[[0]], norm=[1.0], projection=[[1.0]], queries=[[1.0]]), "signs: expected"),
        (lambda: turboquant_inner_products(x=[[1.0] * 4], queries=[[1.0] * 4], bits=1, seed=0), "bits: expected in 2"),
        (lambda: turboquant_unpack_slots(slots=[[0] * 7]), "slots: expected d \\+ 6 bytes"),
        (
            lambda: turboquant_pack_slots(
                key_codes=[[1, 1]], key_norm=[1e6], value_codes=[[1, 1]], value_scale=[1.0], value_zero=[0.0]
            ),
            "key_norm: expected numbers within float16",
        ),
        (
            lambda: lloyd2_encode(x=np.ones((1, 1, 2)), mean=np.zeros((1, 2)), scale=np.zeros((1, 2)), signs=[1, 1]),
            "scale: expected positive scales",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
