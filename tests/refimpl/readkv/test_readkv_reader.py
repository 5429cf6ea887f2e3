import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.attention import attention
from refimpl.checks import ArgumentError
from refimpl.readkv.allocation import surrogate
from refimpl.readkv.calibration import calibrate_samples
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.optimum import optimum_by_programming
from refimpl.readkv.reader import encode_cache, readkv_attention
from refimpl.readkv.rotation import hadamard_matrix, readkv_rotate
from refimpl.readkv.tree import deployed_table

U = 2.0**-53
ARRAYS = ("key_codes", "value_codes", "key_mean", "key_scale", "value_mean", "value_scale", "key_signs", "value_signs")


def gamma(n):
    return n * U / (1 - n * U)


def instance(seed, H, G, T, d, stored_depth=8):
    """Random keys, values and queries of a layer, its cache, and the reader's arguments without budgets."""
    rng = np.random.default_rng(seed)
    keys, values = rng.normal(size=(2, H, T, d)) * rng.uniform(0.5, 2, size=(2, H, 1, d)) + 0.5
    queries = rng.normal(size=(H, G, d))
    key_signs, value_signs = rng.choice([-1.0, 1.0], size=(2, d))
    k = calibrate_samples(samples=readkv_rotate(x=keys, signs=key_signs), floor=0.1)
    v = calibrate_samples(samples=readkv_rotate(x=values, signs=value_signs), floor=0.1)
    cache = encode_cache(
        keys=keys,
        values=values,
        key_mean=k.mean,
        key_scale=k.scale,
        value_mean=v.mean,
        value_scale=v.scale,
        key_signs=key_signs,
        value_signs=value_signs,
        stored_depth=stored_depth,
    )
    arguments = {name: getattr(cache, name) for name in ARRAYS} | {"queries": queries, "stored_depth": stored_depth}
    return {"keys": keys, "values": values, "cache": cache, "arguments": arguments}


def exact_read(arguments, result):
    """Algorithm 1's decoders in mpmath at the depths that the result chose: output and weights of every head."""
    centroids = deployed_table().centroids
    H, G, d = arguments["queries"].shape
    T = arguments["key_codes"].shape[1]
    S = hadamard_matrix(d)
    root = mpmath.sqrt(d)

    def z_hat(code, depth):
        return mpmath.mpf(float(centroids[depth][int(code) >> (8 - int(depth))]))

    def rotated(vector, signs):
        return [
            mpmath.fsum(S[i, j] * signs[j] * mpmath.mpf(float(vector[j])) for j in range(d)) / root for i in range(d)
        ]

    def entry(kind, h, t, c, depth):
        z = z_hat(arguments[f"{kind}_codes"][h, t, c], depth)
        return (
            mpmath.mpf(float(arguments[f"{kind}_mean"][h, c])) + mpmath.mpf(float(arguments[f"{kind}_scale"][h, c])) * z
        )

    weights = np.empty((H, G, T), dtype=object)
    output = np.empty((H, G, d), dtype=object)
    for h, g in np.ndindex(H, G):
        q = rotated(arguments["queries"][h, g], arguments["key_signs"])
        logits = [
            mpmath.fsum(q[c] * entry("key", h, t, c, result["key_depths"][h, c]) for c in range(d)) / root
            for t in range(T)
        ]
        total = mpmath.fsum(map(mpmath.exp, logits))
        weights[h, g] = [mpmath.exp(x) / total for x in logits]
        mixed = [
            mpmath.fsum(weights[h, g, t] * entry("value", h, t, c, result["value_depths"][h, t]) for t in range(T))
            for c in range(d)
        ]
        for i in range(d):  # U^T: signs after the transform
            output[h, g, i] = arguments["value_signs"][i] * mpmath.fsum(S[i, c] * mixed[c] for c in range(d)) / root
    return output, weights


def bounds(arguments, result):
    """Error bounds in float64 of output [H, G, d] and of the weights' relative error [H, G], from operation counts.

    A rotated coordinate sums d terms in log2(d) roundings and is scaled with two: gamma(L + 2) |q|_1 / sqrt(d). A key
    entry has two roundings, a logit d products, d - 1 sums and the softmax scale (two roundings). A weight is
    exp(z - lse): 2 dz from both logits, u times the size of the arguments, T + 4 roundings of sum, log and exp.
    """
    H, G, d = arguments["queries"].shape
    T, L = arguments["key_codes"].shape[1], math.log2(arguments["queries"].shape[2])
    reach = float(np.abs(deployed_table().centroids[8]).max())
    keys = np.abs(arguments["key_mean"]) + arguments["key_scale"] * reach  # [H, d], no entry is larger
    values = np.abs(arguments["value_mean"]) + arguments["value_scale"] * reach
    q = np.abs(arguments["queries"]).sum(axis=-1) / math.sqrt(d)  # [H, G]
    size = q * keys.sum(axis=-1)[:, None] / math.sqrt(d)  # [H, G], no logit is larger
    relative = np.expm1(2 * gamma(d + L + 6) * size) + gamma(T + 4) + 4 * U * (size + math.log(T))
    mixed = (relative[..., None] + gamma(T + 3)) * values[:, None]  # [H, G, d], the weights sum to 1
    total = mixed.sum(axis=-1) + gamma(L + 2) * values[:, None].sum(axis=-1)  # [H, G]
    return np.broadcast_to(total[..., None] / math.sqrt(d), (H, G, d)), relative


@pytest.mark.parametrize(("H", "G", "T", "d", "budgets"), [(1, 2, 5, 4, (9, 12)), (2, 1, 3, 8, (40, 11))])
@mpmath.workdps(50)
def test_the_decoders_match_50_digits(H, G, T, d, budgets):
    arguments = instance(7, H, G, T, d)["arguments"]
    result = readkv_attention(**arguments, key_budget=budgets[0], value_budget=budgets[1])
    output, weights = exact_read(arguments, result)
    bound, relative = bounds(arguments, result)
    assert (np.abs(output - result["output"]).astype(float) <= bound).all()
    assert (np.abs(weights - result["weights"]).astype(float) <= relative[..., None] * weights.astype(float)).all()
    assert (np.abs(result["output"]).max(axis=-1) > 1e3 * bound[..., 0]).all()  # zeros would not pass


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(0, 64), st.integers(0, 48), st.sampled_from([4, 8]))
def test_both_schedules_are_optimal_for_their_surrogates(seed, key_budget, value_budget, stored):
    H, G, T, d = 2, 2, 3, 4
    arguments = instance(seed, H, G, T, d, stored)["arguments"]
    budgets = {"key_budget": min(key_budget, H * d * stored), "value_budget": min(value_budget, H * T * stored)}
    result = readkv_attention(**arguments, **budgets)
    gains = deployed_table().gains[:stored].astype(float)
    rotated = readkv_rotate(x=arguments["queries"], signs=arguments["key_signs"])
    stages = [
        (readkv_key_importance(rotated_queries=rotated, key_scale=arguments["key_scale"]), "key"),
        (readkv_value_importance(weights=result["weights"]), "value"),
    ]
    for importance, stage in stages:
        depths, budget = result[f"{stage}_depths"], budgets[f"{stage}_budget"]
        assert depths.sum() <= budget
        best = float(optimum_by_programming(importance=importance.ravel(), gains=gains, budget=budget))
        ours = surrogate(importance=importance.ravel(), depths=depths.ravel(), gains=gains)
        # products of a weighted gain carry one rounding, the surrogate sums N terms of a curve of W sums
        assert ours <= best + gamma(importance.size + 2 * stored) * importance.sum()


def test_full_depth_is_attention_over_the_reconstruction():
    case = instance(1, 2, 3, 20, 16)
    arguments, cache = case["arguments"], case["cache"]
    result = readkv_attention(**arguments, key_budget=2 * 16 * 8, value_budget=2 * 20 * 8)
    z = deployed_table().centroids[8].astype(float)
    keys, values = (
        (mean[:, None] + scale[:, None] * z[codes]) @ (hadamard_matrix(16) * signs / 4)  # U^T from the right
        for mean, scale, codes, signs in (
            (cache.key_mean, cache.key_scale, cache.key_codes, cache.key_signs),
            (cache.value_mean, cache.value_scale, cache.value_codes, cache.value_signs),
        )
    )
    dense = attention(queries=arguments["queries"], keys=keys, values=values)["output"]
    bound, _ = bounds(arguments, result)
    assert (np.abs(dense - result["output"]) <= 4 * bound).all()  # the same sums in another order, twice rotated
    assert (result["key_depths"] == 8).all()
    assert (result["value_depths"] == 8).all()


def test_no_budget_reads_the_calibrated_means():
    arguments = instance(2, 2, 2, 6, 8)["arguments"]
    result = readkv_attention(**arguments, key_budget=0, value_budget=0)
    other = arguments | {name: np.zeros_like(arguments[name]) for name in ("key_codes", "value_codes")}
    assert (result["output"] == readkv_attention(**other, key_budget=0, value_budget=0)["output"]).all()
    mean = arguments["value_mean"] @ (hadamard_matrix(8) * arguments["value_signs"] / math.sqrt(8))
    bound, _ = bounds(arguments, result)
    assert (np.abs(result["output"] - mean[:, None]) <= 2 * bound).all()
    assert np.ptp(result["weights"], axis=-1).max() == 0.0  # one logit for all tokens


@pytest.mark.parametrize("stored", [1, 4, 7])
def test_bits_below_the_stored_depth_and_the_chosen_depths_are_never_read(stored):
    arguments = instance(3, 2, 2, 9, 8, stored)["arguments"]
    budgets = {"key_budget": 2 * 8 * stored // 2, "value_budget": 2 * 9 * stored // 2}
    result = readkv_attention(**arguments, **budgets)
    assert result["key_depths"].max() <= stored
    keep_keys = 256 - (256 >> result["key_depths"])[:, None, :]
    keep_values = 256 - (256 >> result["value_depths"])[:, :, None]
    poisoned = arguments | {
        "key_codes": arguments["key_codes"] & keep_keys | 0x55 & ~keep_keys,
        "value_codes": arguments["value_codes"] & keep_values | 0xAA & ~keep_values,
    }
    for name, value in readkv_attention(**poisoned, **budgets).items():
        assert np.array_equal(value, result[name]), name


def test_the_pooled_budget_goes_where_the_weight_is():
    # one query head per KV head, the second three times larger: pooled keys follow it, per-head ones would not
    arguments = instance(4, 2, 1, 8, 8)["arguments"]
    arguments["queries"] = np.stack([arguments["queries"][0], 3 * arguments["queries"][0]])
    arguments["key_scale"] = np.ones((2, 8))
    depths = readkv_attention(**arguments, key_budget=32, value_budget=0)["key_depths"]
    assert depths[1].sum() > depths[0].sum()
    assert depths.sum() == 32


def test_theorem_2_through_the_stage():
    m, T = 8, 2
    c1 = float(deployed_table().centroids[1][1])
    identity = np.ones(m)  # the Hadamard transform is undone by hand: keys and query are given transformed
    query = (5 * math.sqrt(m) / c1) * np.eye(m)[0]
    values = np.random.default_rng(0).uniform(-1, 1, size=(T, m))
    unrotated = query @ hadamard_matrix(m) / math.sqrt(m)
    cache = encode_cache(
        keys=(np.stack([c1 * np.eye(m)[0], -c1 * np.eye(m)[0]]) @ hadamard_matrix(m) / math.sqrt(m))[None],
        values=(values @ hadamard_matrix(m) / math.sqrt(m))[None],
        key_mean=np.zeros((1, m)),
        key_scale=np.ones((1, m)),
        value_mean=np.zeros((1, m)),
        value_scale=np.ones((1, m)),
        key_signs=identity,
        value_signs=identity,
    )
    arguments = {name: getattr(cache, name) for name in ARRAYS}
    result = readkv_attention(queries=unrotated[None, None], **arguments, key_budget=1, value_budget=8)
    assert result["key_depths"].tolist() == [[1] + [0] * (m - 1)]
    assert result["value_depths"].tolist() == [[8, 0]]
    p, rho = 1 / (1 + math.exp(-10)), 1 / (1 + math.exp(10))
    output = readkv_rotate(x=result["output"][0, 0], signs=identity)
    error = p * values[0] + rho * values[1] - output
    assert (np.abs(error) <= p * 0.0097 + rho).all()
    assert np.abs(error).max() > 0  # a lossy read


def test_empty_caches_and_groups():
    arguments = instance(5, 2, 2, 4, 4)["arguments"]
    empty = arguments | {name: np.zeros((2, 0, 4), np.uint8) for name in ("key_codes", "value_codes")}
    result = readkv_attention(**empty, key_budget=8, value_budget=0)
    assert (result["output"] == 0).all()
    assert result["weights"].shape == (2, 2, 0)
    assert result["value_depths"].shape == (2, 0)
    no_queries = arguments | {"queries": np.zeros((2, 0, 4))}
    assert readkv_attention(**no_queries, key_budget=8, value_budget=8)["output"].shape == (2, 0, 4)


def test_a_real_sized_layer_reads_in_under_two_seconds():
    import time

    arguments = instance(6, 3, 3, 2041, 64)["arguments"]
    started = time.process_time()
    result = readkv_attention(**arguments, key_budget=2 * 3 * 64, value_budget=2 * 3 * 2041)
    assert time.process_time() - started < 2.0
    assert result["key_depths"].sum() == 2 * 3 * 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_scale": np.array([[1.0, 0.0, 1.0, 1.0]])}, r"key_scale: .* dead channel 0.0 at \[0, 1\]"),
        ({"value_scale": np.zeros((1, 4))}, "value_scale: .* dead channel"),
        ({"key_codes": np.full((1, 3, 4), 256)}, "key_codes: expected values in 0..255"),
        ({"value_codes": np.zeros((1, 2, 4), int)}, "value_codes: expected shape"),
        ({"key_signs": np.array([1, 1, 2, 1])}, "key_signs: expected"),
        ({"key_budget": -1}, "key_budget: expected at least 0, got -1"),
        ({"value_budget": -1}, "value_budget: expected at least 0, got -1"),
        ({"stored_depth": 9}, "stored_depth: expected in 1..8"),
        ({"queries": np.full((1, 1, 4), np.inf)}, "queries: expected finite"),
        ({"key_mean": np.array([[0.0, np.nan, 0, 0]])}, "key_mean: expected finite"),
        ({"softmax_scale": math.inf}, "softmax_scale: expected a finite"),
    ],
)
def test_bad_arguments(changes, message):
    arguments = instance(0, 1, 1, 3, 4)["arguments"] | {"key_budget": 1, "value_budget": 1} | changes
    with pytest.raises(ArgumentError, match=message):
        readkv_attention(**arguments)


def test_a_width_that_is_no_power_of_two_is_refused():
    arguments = {name: np.zeros((1, 2, 6), int) for name in ("key_codes", "value_codes")}
    arguments |= {name: np.ones((1, 6)) for name in ("key_mean", "key_scale", "value_mean", "value_scale")}
    arguments |= {"key_signs": np.ones(6), "value_signs": np.ones(6), "queries": np.zeros((1, 1, 6))}
    with pytest.raises(ArgumentError, match=r"power of two .* got d=6"):
        readkv_attention(**arguments, key_budget=1, value_budget=1)


def test_equal_logits_get_equal_weights_in_every_head():
    """Else heads that tie would not tie, and the schedule would leave the public order (AMB-19)."""
    arguments = instance(0, 3, 2, 2, 4)["arguments"]
    arguments["key_codes"][:] = 77
    weights = readkv_attention(**arguments, key_budget=0, value_budget=1)["weights"]
    np.testing.assert_array_equal(weights, 0.5)
