"""The library's ReadKV readers against the second reference, each within the rounding of float64.

Bounds to first order, with u = 2^-53 and gamma_n = n u / (1 - n u); SECOND_ORDER covers products of errors.

Rotation: d signed terms, a root and a division. Reconstruction: one product, one sum. Logit: the error of both factors,
d products and sums, the scale. Weight: e to the change of the exponents, each off by twice the largest logit error and
u times the range, then exp (2u), T sums and a division. Output: weights, reconstruction, T products and sums, and the
rotation back. Allocations must be equal where every bought gain exceeds every next one by more than their errors.
"""

from dataclasses import asdict, dataclass
from itertools import chain

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from proofs_checks.golden.second import reader, tree
from refimpl import port

UNIT = mpf(2) ** -53
SMALLEST_NORMAL = mpf(2) ** -1022
SECOND_ORDER = 1 + mpf(2) ** -20


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def gamma(count):
    return count * UNIT / (1 - count * UNIT)


def real(number):
    return mpf(number.numerator) / number.denominator


def within(got, expected, bounds):
    assert len(got) == len(expected) == len(bounds)
    for x, y, bound in zip(got, expected, bounds, strict=True):
        assert abs(mpf(x) - y) <= bound * SECOND_ORDER, f"{x} is not {y} within {bound}"


@dataclass
class Case:
    """One cache with one query per query head."""

    cache: reader.Cache
    queries: list

    def arrays(self):
        codes = {name: np.array(getattr(self.cache, name), dtype=np.uint8) for name in ("key_codes", "value_codes")}
        return {
            **{k: np.array(v, dtype=float) for k, v in asdict(self.cache).items()},
            **codes,
            "queries": np.array(self.queries),
        }


def draw(seed, shape, query_scale=1.0, spread=1.0):
    """Random codes; calibrations and queries of every size that `spread` (a power of ten) and `query_scale` say."""
    H, G, T, d = shape
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 256, (H, T, d)).tolist() for _ in range(2)]
    stretch = 10.0 ** rng.uniform(-spread, spread, (4, H, d))
    calibration = stretch * [rng.normal(size=(H, d)), np.ones((H, d)), rng.normal(size=(H, d)), np.ones((H, d))]
    signs = rng.choice([-1, 1], (2, d)).tolist()
    queries = query_scale * rng.normal(size=(H, G, d))
    return Case(reader.Cache(*codes, *calibration.tolist(), *signs), queries.tolist())


def reconstruction(codes, depths, mean, scale):
    """One token's channels, and the rounding of mu + sigma z."""
    pairs = [(mpf(m), mpf(s) * real(tree.decode(c, t))) for c, t, m, s in zip(codes, depths, mean, scale, strict=True)]
    return [m + sz for m, sz in pairs], [gamma(2) * (abs(m) + abs(sz)) for m, sz in pairs]


def rotated_queries(case, head):
    """Each rotated query of a head, and the bound of its error in every channel."""
    signs = case.cache.key_signs
    rotated = [reader.rotate(q, signs) for q in case.queries[head]]
    bounds = [gamma(len(signs) + 3) * sum(abs(mpf(x)) for x in q) / mpmath.sqrt(len(signs)) for q in case.queries[head]]
    return list(zip(rotated, bounds, strict=True))


def key_importance_errors(case):
    """Importance of every key channel with its error: (|q'| + dq')^2 - q'^2, squared scale, G + 6 operations."""
    rows = []
    for head, scale in enumerate(case.cache.key_scale):
        row = []
        for c, sigma in enumerate(scale):
            exact = [
                ((abs(q[c]) * sigma) ** 2, ((abs(q[c]) + dq) * sigma) ** 2) for q, dq in rotated_queries(case, head)
            ]
            value, upper = sum(a for a, _ in exact), sum(b for _, b in exact)
            row.append((value, upper - value + gamma(len(exact) + 6) * upper))
        rows.append(row)
    return rows


def logit_errors(case, reading, head):
    """The largest logit error of each query head."""
    cache, size = case.cache, len(case.cache.key_signs)
    calibration = reading.key_depths[head], cache.key_mean[head], cache.key_scale[head]
    keys = [reconstruction(codes, *calibration) for codes in cache.key_codes[head]]
    largest = []
    for q, dq in rotated_queries(case, head):
        errors = [
            sum(dq * abs(k) + abs(x) * dk + gamma(size + 8) * abs(x * k) for x, k, dk in zip(q, key, dkey, strict=True))
            for key, dkey in keys
        ]
        largest.append(max(errors) / mpmath.sqrt(size))
    return largest


def weight_errors(case, reading, head):
    """The relative error of the weights of each query head."""
    relative = []
    for logits, dz in zip(reading.logits[head], logit_errors(case, reading, head), strict=True):
        width = real(max(logits) - min(logits))
        relative.append(mpmath.expm1(2 * dz + 2 * UNIT * width + gamma(len(logits) + 8)))
    return relative


def output_errors(case, reading, head):
    """The error of each query head's output, the same for every channel."""
    cache, size = case.cache, len(case.cache.value_signs)
    rows = zip(cache.value_codes[head], reading.value_depths[head], strict=True)
    calibration = cache.value_mean[head], cache.value_scale[head]
    values = [reconstruction(codes, [depth] * size, *calibration) for codes, depth in rows]
    errors = []
    for alpha, relative in zip(reading.weights[head], weight_errors(case, reading, head), strict=True):
        rounding = relative + gamma(len(alpha) + 1)
        mixed = sum(
            a * (rounding * abs(v) + dv) + gamma(size + 3) * a * abs(v)
            for a, (value, dvalue) in zip(alpha, values, strict=True)
            for v, dv in zip(value, dvalue, strict=True)
        )
        errors.append(mixed / mpmath.sqrt(size))
    return errors


def flat(rows):
    return list(chain.from_iterable(rows))


def separated(importance, depths, gains):
    """Say whether every bought step beats every next one by more than their errors; items are (value, error)."""
    bought, offered = [], []
    for (value, error), depth in zip(importance, depths, strict=True):
        if depth:
            bought.append((value - error) * gains[depth - 1] * (1 - 2 * UNIT))
        if depth < len(gains):
            offered.append((value + error) * gains[depth] * (1 + 2 * UNIT))
    return not bought or not offered or min(bought) > max(offered)


def check_reading(case, got, own):
    """Compare weights and outputs of one reading; depths are compared by the caller."""
    for head in range(len(case.queries)):
        relative = weight_errors(case, own, head)
        for g, (alpha, bound) in enumerate(zip(own.weights[head], relative, strict=True)):
            within(got["weights"][head, g].tolist(), alpha, [bound * a + SMALLEST_NORMAL for a in alpha])
        for g, bound in enumerate(output_errors(case, own, head)):
            output = own.output[head][g]
            within(got["output"][head, g].tolist(), output, [bound] * len(output))


def value_importance_errors(case, own):
    rows = []
    for head, group in enumerate(own.weights):
        errors = weight_errors(case, own, head)
        row = []
        for token in zip(*group, strict=True):
            exact = [(a**2, a**2 * (2 * e + e**2 + gamma(len(group) + 3))) for a, e in zip(token, errors, strict=True)]
            row.append((sum(a for a, _ in exact), sum(e for _, e in exact) + SMALLEST_NORMAL))
        rows.append(row)
    return rows


# name: (shape H, G, T, d), key budget, value budget, stored depth, query scale, spread of the calibration
POOLED = {
    "plain": ((2, 2, 6, 4), 13, 21, 8, 1, 0.3),
    "wide": ((1, 3, 5, 16), 40, 11, 8, 1, 0.5),
    "one channel": ((3, 1, 7, 1), 5, 30, 8, 1, 0.3),
    "two channels": ((2, 1, 4, 2), 9, 9, 8, 1, 0.3),
    "one token": ((2, 2, 1, 4), 17, 4, 8, 1, 0.3),
    "no key bit": ((2, 2, 5, 4), 0, 20, 8, 1, 0.3),
    "no value bit": ((2, 2, 5, 4), 12, 0, 8, 1, 0.3),
    "everything": ((2, 2, 4, 4), 64, 64, 8, 1, 0.3),
    "stored depth 3": ((2, 2, 5, 4), 14, 17, 3, 1, 0.3),
    "stored depth 3, everything": ((2, 2, 5, 4), 24, 30, 3, 1, 0.3),
    "sharp": ((2, 2, 6, 8), 70, 25, 8, 10, 0.5),
    "flat": ((2, 2, 6, 8), 70, 25, 8, 1e-3, 0.3),
    "uneven channels": ((2, 2, 6, 8), 30, 25, 8, 0.1, 2),
}


@pytest.mark.parametrize("name", POOLED)
def test_pooled_readings_agree(name):
    shape, key_budget, value_budget, stored_depth, query_scale, spread = POOLED[name]
    case = draw(sum(map(ord, name)), shape, query_scale, spread)
    own = reader.pooled_reader(case.cache, case.queries, key_budget, value_budget, stored_depth)
    got = port.readkv_attention(
        **case.arrays(), key_budget=key_budget, value_budget=value_budget, stored_depth=stored_depth
    )
    gains = [real(gain) for gain in tree.deployed_tree().gains[:stored_depth]]
    assert separated(flat(key_importance_errors(case)), flat(own.key_depths), gains)
    assert got["key_depths"].tolist() == own.key_depths
    assert separated(flat(value_importance_errors(case, own)), flat(own.value_depths), gains)
    assert got["value_depths"].tolist() == own.value_depths
    check_reading(case, got, own)


# name: (shape H, G, T, d), rate, stored depth, query scale
RESTRICTED = {
    "even tokens": ((2, 2, 6, 4), 2.5, 8, 1),
    "odd tokens": ((2, 2, 7, 4), 2.5, 8, 1),
    "sharp, odd tokens": ((2, 2, 5, 8), 3.25, 8, 8),
    "one token": ((2, 1, 1, 4), 3, 8, 1),
    "a decimal rate": ((1, 2, 5, 4), 1.4, 8, 1),
    "only the minimum": ((2, 2, 5, 4), 1, 8, 1),
    "everything": ((1, 2, 5, 4), 8, 8, 1),
    "stored depth 3": ((2, 2, 7, 4), 2.25, 3, 1),
}


def packets(row):
    """The pairs of neighbouring tokens, an odd last one alone, each with its summed importance and error."""
    return [tuple(map(sum, zip(*row[start : start + 2], strict=True))) for start in range(0, len(row), 2)]


@pytest.mark.parametrize("name", RESTRICTED)
def test_restricted_readings_agree(name):
    shape, rate, stored_depth, query_scale = RESTRICTED[name]
    case = draw(sum(map(ord, name)), shape, query_scale, 0.3)
    own = reader.restricted_reader(case.cache, case.queries, rate, stored_depth)
    got = port.readkv_restricted_attention(**case.arrays(), rate=rate, stored_depth=stored_depth)
    gains = [real(gain) for gain in tree.deployed_tree().gains[:stored_depth]]
    importances = zip(key_importance_errors(case), value_importance_errors(case, own), strict=True)
    for head, (keys, values) in enumerate(importances):
        # Above the minimum depth, which is bought in any case, the same comparison of bought and offered steps.
        above = [depth - 1 for depth in own.key_depths[head]]
        assert separated(keys, above, gains[1:])
        above = [depth - 1 for depth in own.value_depths[head][::2]]
        assert separated(packets(values), above, gains[1:])
    assert got["key_depths"].tolist() == own.key_depths
    assert got["value_depths"].tolist() == own.value_depths
    check_reading(case, got, own)


def test_ties_between_channels_tokens_and_heads_go_the_same_way():
    # Dyadic throughout, d = 4: float64 makes no error before the softmax, and equal logits give equal weights.
    codes = [[[0] * 4, [255] * 4, [0] * 4, [255] * 4, [0] * 4]] * 2
    zero, one = [[0.0] * 4] * 2, [[1.0] * 4] * 2
    case = Case(reader.Cache(codes, codes, zero, one, zero, one, [1] * 4, [1] * 4), [[[2.0, 0.0, 0.0, 0.0]]] * 2)
    for key_budget, value_budget in ((3, 3), (6, 5), (13, 7), (21, 19), (40, 33)):
        own = reader.pooled_reader(case.cache, case.queries, key_budget, value_budget)
        got = port.readkv_attention(**case.arrays(), key_budget=key_budget, value_budget=value_budget)
        assert got["key_depths"].tolist() == own.key_depths
        assert got["value_depths"].tolist() == own.value_depths
        check_reading(case, got, own)


def test_the_comparison_refuses_wrong_readings():
    case = draw(5, (2, 2, 6, 4))
    own = reader.pooled_reader(case.cache, case.queries, 13, 21)
    got = port.readkv_attention(**case.arrays(), key_budget=13, value_budget=21)
    check_reading(case, got, own)
    for name in ("weights", "output"):
        with pytest.raises(AssertionError, match="is not"):
            check_reading(case, {**got, name: got[name] * (1 + 1e-10)}, own)


def test_no_token_gives_no_output_and_reads_nothing():
    case = draw(6, (2, 2, 0, 4))
    arrays = {**case.arrays(), **{name: np.zeros((2, 0, 4), dtype=np.uint8) for name in ("key_codes", "value_codes")}}
    own = reader.pooled_reader(case.cache, case.queries, 5, 0)
    got = port.readkv_attention(**arrays, key_budget=5, value_budget=0)
    assert got["key_depths"].tolist() == own.key_depths
    assert got["value_depths"].tolist() == own.value_depths == [[], []]
    assert got["output"].tolist() == own.output == [[[0] * 4] * 2] * 2
