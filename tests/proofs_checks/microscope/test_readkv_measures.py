"""ReadKV's measurements: the surrogate is optimal on every row, Eq. (5) is an identity, and codec tables are right."""

from dataclasses import replace

import numpy as np
import pytest

from proofs_checks.bounds.common import gamma
from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.readkv_codec import expected_distortion, measure_codec
from proofs_checks.microscope.readkv_readers import SPLITS, decompose, measure_readers, read_greedy
from proofs_checks.microscope.readkv_setup import encode_layer, rows, standardized, transform_signs
from proofs_checks.microscope.source import LayerTrace
from refimpl.readkv.codec import readkv_encode
from refimpl.readkv.policies import read_uniform

EPS = np.finfo(float).eps


@pytest.fixture
def layer():
    rng = np.random.default_rng(11)
    return LayerTrace(
        capture="synthetic",
        layer=0,
        keys=rng.standard_normal((2, 40, 16)),
        values=rng.standard_normal((2, 40, 16)) + 0.5,
        stored_queries=rng.standard_normal((4, 2, 3, 16)) * 3,
        positions=np.array([30, 33, 36, 39]),
        moments=(np.zeros((2, 2, 16)), np.broadcast_to(np.eye(16), (2, 2, 16, 16))),
    )


def test_greedy_surrogate_is_least_on_every_row_of_the_shipped_capture(shipped):
    """Prop. 8 on real rows; the output error need not follow: 87 to 100% at even splits, always at uneven ones."""
    results = Results()
    for capture in shipped.values():
        for index in range(len(capture.layers)):
            measure_readers(capture.layer(index), results, most_rows=0)
    for split in SPLITS:
        wins = [results["readkv wins", name, split, "surrogate"].value for name in shipped]
        assert wins == [1.0, 1.0]
        better = [results["readkv wins", name, split, "output error"].value for name in shipped]
        assert min(better) >= (0.87 if split in ((2, 2), (4, 4)) else 1.0)


def test_rows_stop_at_their_position_and_can_be_thinned(layer):
    cache = encode_layer(layer)
    assert [row.keys.shape[1] for row in rows(layer, cache)] == [31, 34, 37, 40]
    assert [row.cache.key_codes.shape[1] for row in rows(layer, cache, 2)] == [31, 40]
    assert list(rows(layer, cache, 0)) == []


def test_codes_are_those_of_the_standardised_scalars(layer):
    cache = encode_layer(layer)
    for z, codes in zip(standardized(layer), (cache.key_codes, cache.value_codes), strict=True):
        assert np.array_equal(readkv_encode(z=z), codes)


def test_equation_5_splits_the_error_exactly(layer):
    """Key, value and cross terms are fractions of |o - o_hat|^2 and add to 1."""
    cache = encode_layer(layer)
    for row in rows(layer, cache):
        results = Results()
        decompose(row, read_greedy(row, (2, 2)), "synthetic", results)
        parts = [
            results["readkv decomposition", "synthetic", f"output: {part} term"] for part in ("key", "value", "cross")
        ]
        # two KV heads are two observations, so smallest and largest are both of them
        total = sum(part.smallest + part.largest for part in parts)
        size = sum(abs(part.smallest) + abs(part.largest) for part in parts)
        assert abs(total - 2) <= 1000 * EPS * size  # sums over 40 tokens and 48 channels, three ways


def test_full_depth_leaves_little_and_depth_zero_the_mean(layer):
    cache = encode_layer(layer)
    row = next(iter(rows(layer, cache)))
    full = read_uniform(queries=row.queries, cache=row.cache, key_depth=8, value_depth=8)
    nothing = read_uniform(queries=row.queries, cache=row.cache, key_depth=0, value_depth=0)
    assert row.relative_error(full).max() < row.relative_error(nothing).min()


def test_codec_table_of_gaussian_scalars_follows_the_curve():
    """100,000 Gaussian scalars: a mean square is off by at most 5 of its own standard errors, sqrt(2 / n) relative."""
    rng = np.random.default_rng(4)
    count = 4 * 1600 * 16
    trace = LayerTrace(
        capture="gauss", layer=0, keys=rng.standard_normal((4, 1600, 16)), values=rng.standard_normal((4, 1600, 16)),
        stored_queries=np.zeros((0, 4, 1, 16)), positions=np.zeros(0, int),
        moments=(np.zeros((2, 4, 16)), np.broadcast_to(np.eye(16), (2, 4, 16, 16))),
    )  # fmt: skip
    results = Results()
    measure_codec(trace, results)
    for depth in range(5):
        value = results["readkv codec", "gauss", "keys", f"depth {depth}"].value
        assert abs(value / expected_distortion(depth) - 1) <= 5 * np.sqrt(8 / count)  # squared errors: kurtosis below 8
    assert abs(results["readkv codec", "gauss", "values", "moment 2"].value - 1) <= 5 * np.sqrt(2 / count)


def test_signs_are_reproducible_and_differ_between_keys_and_values():
    first, second = transform_signs(64), transform_signs(64)
    assert np.array_equal(first[0], second[0])
    assert not np.array_equal(first[0], first[1])


def test_without_moments_a_layer_is_calibrated_on_itself(layer):
    keys, values = standardized(replace(layer, moments=None))
    for z in (keys, values):
        # means of T tokens, taken by the calibration and by this test, a difference, a quotient and a square
        rounding = gamma(2 * z.shape[1] + 4, EPS / 2)
        assert np.abs(z.mean(axis=1)).max() <= rounding * np.abs(z).max()
        assert np.abs((z**2).mean(axis=1) - 1).max() <= 2 * rounding
