"""ReadKV's readers on captured attention: output error by reader and split, and App. F.6 to F.8's comparisons."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from proofs_checks.microscope.accumulate import Histogram, LogHistogram, Mean, Results
from proofs_checks.microscope.readkv_setup import Row, encode_layer, rows
from proofs_checks.microscope.source import LayerTrace
from refimpl.checks import FloatArray
from refimpl.readkv.allocation import surrogate
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.policies import read_two_depth, read_uniform
from refimpl.readkv.reader import pooled_chooser, read_two_stages, reconstructed_keys, reconstructed_values
from refimpl.readkv.restricted import Restrictions, read_restricted
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import LEAF_DEPTH, effective_distortions

SPLITS = ((2, 2), (3, 1), (4, 4), (5, 3))
"""(R_K, R_V): the even splits, and the uneven ones that development data chose at the same mean."""
FACTORIAL = {2: (3, 1), 4: (5, 3)}
"""F.8: the flexible reader's split at each mean rate; with equal rates it becomes (R, R)."""


def read_greedy(row: Row, split: tuple[int, int]) -> dict[str, Any]:
    """The current-query reader at a split, budgets pooled over the layer's heads."""
    H, T, d = row.cache.key_codes.shape
    choose = [pooled_chooser(row.cache.gains, rate * H * n) for rate, n in zip(split, (d, T), strict=True)]
    return read_two_stages(row.queries, row.cache, *choose)


def measure_readers(trace: LayerTrace, results: Results, most_rows: int) -> None:
    """Add one layer: splits on every row, the factorial and two-depth comparisons on at most ``most_rows`` rows."""
    cache = encode_layer(trace)
    for row in rows(trace, cache):
        _splits(row, trace.capture, results)
        full = read_uniform(queries=row.queries, cache=row.cache, key_depth=LEAF_DEPTH, value_depth=LEAF_DEPTH)
        results.at(LogHistogram, "readkv readers", trace.capture, (8, 8), "full").add(row.relative_error(full))
    for row in rows(trace, cache, most_rows):
        _two_depths(row, trace.capture, results)
        _factorial(row, trace.capture, results)


def _splits(row: Row, capture: str, results: Results) -> None:
    for split in SPLITS:
        greedy = read_greedy(row, split)
        uniform = read_uniform(queries=row.queries, cache=row.cache, key_depth=split[0], value_depth=split[1])
        errors = {"greedy": row.relative_error(greedy), "uniform": row.relative_error(uniform)}
        for name, error in errors.items():
            results.at(LogHistogram, "readkv readers", capture, split, name).add(error)
        key = ("readkv wins", capture, split)
        results.at(Mean, *key, "output error").add((errors["greedy"] < errors["uniform"]).astype(float))
        results.at(Mean, *key, "surrogate").add(np.float64(_surrogate_is_least(row, greedy, split)))
        if split == (2, 2):
            decompose(row, greedy, capture, results)


def _surrogate_is_least(row: Row, greedy: dict[str, Any], split: tuple[int, int]) -> bool:
    """Whether both greedy objectives are at most those of uniform depths, for the same importances.

    Proposition 8 makes this a theorem; sums of N weights in float64 are allowed N roundings.
    """
    rotated = readkv_rotate(x=row.queries, signs=row.cache.key_signs)
    importances = (
        readkv_key_importance(rotated_queries=rotated, key_scale=row.cache.key_scale),
        readkv_value_importance(weights=greedy["weights"]),
    )
    least = True
    for importance, depths, rate in zip(
        importances, (greedy["key_depths"], greedy["value_depths"]), split, strict=True
    ):
        ours = surrogate(importance=importance, depths=depths, gains=row.cache.gains)
        even = surrogate(importance=importance, depths=np.full(importance.shape, rate), gains=row.cache.gains)
        least &= ours <= even * (1 + 2 * importance.size * float(np.finfo(float).eps))
    return bool(least)


def decompose(row: Row, result: dict[str, Any], capture: str, results: Results) -> None:
    """F.7: what the diagonal objectives leave out, and the error's key, value and cross terms, per KV head.

    The exact squared logit error and attention-weighted value error minus their diagonals, as signed fractions of the
    exact ones; the output error of Eq. (5) as key term, value term and twice their inner product; and the ratio of the
    diagonal energies A_K, A_V to the calibrated objectives S_K, S_V of App. E.3.
    """
    cache, d = row.cache, row.queries.shape[-1]
    rotated = readkv_rotate(x=row.queries, signs=cache.key_signs)  # [H, G, d]
    key_residual = readkv_rotate(x=row.keys, signs=cache.key_signs) - reconstructed_keys(cache, result["key_depths"])
    logit_error = np.einsum("hgd,htd->hgt", rotated, key_residual, optimize=True)
    exact_key = (logit_error**2).sum(axis=(1, 2)) / d  # [H]
    diagonal_key = np.einsum("hgd,htd->h", rotated**2, key_residual**2, optimize=True) / d
    values = readkv_rotate(x=row.values, signs=cache.value_signs)
    value_residual = values - reconstructed_values(cache, result["value_depths"])
    weights = result["weights"]
    value_term = np.einsum("hgt,htd->hgd", weights, value_residual, optimize=True)
    exact_value = (value_term**2).sum(axis=(1, 2))
    diagonal_value = np.einsum("hgt,htd->h", weights**2, value_residual**2, optimize=True)
    total = readkv_rotate(x=row.output, signs=cache.value_signs) - readkv_rotate(
        x=result["output"], signs=cache.value_signs
    )
    key_term = total - value_term  # V^T (alpha - alpha_hat), by Eq. (5)
    squared = (total**2).sum(axis=(1, 2))
    curve, T = effective_distortions(), row.keys.shape[1]
    objective_key = (
        T / d * ((rotated * cache.key_scale[:, None]) ** 2 * curve[result["key_depths"]][:, None]).sum((1, 2))
    )
    scale = (cache.value_scale**2).sum(axis=1)[:, None]
    objective_value = (scale * (weights**2).sum(axis=1) * curve[result["value_depths"]]).sum(axis=1)
    shares = {
        "key interactions": 1 - diagonal_key / exact_key,
        "value interactions": 1 - diagonal_value / exact_value,
        "output: key term": (key_term**2).sum(axis=(1, 2)) / squared,
        "output: value term": exact_value / squared,
        "output: cross term": 2 * (key_term * value_term).sum(axis=(1, 2)) / squared,
        "key diagonal over objective": diagonal_key / objective_key,
        "value diagonal over objective": diagonal_value / objective_value,
    }
    for name, share in shares.items():
        _add_signed(results, ("readkv decomposition", capture, name), share)


def _add_signed(results: Results, key: tuple[Any, ...], observations: FloatArray) -> None:
    """Medians of signed fractions: a histogram of 1e-4 between -50 and 50."""
    results.at(lambda: Histogram(-50.0, 50.0, 1_000_000), *key).add(observations)


def _two_depths(row: Row, capture: str, results: Results) -> None:
    H, T, d = row.cache.key_codes.shape
    free = row.relative_error(read_greedy(row, (2, 2)))
    for lower in (0, 1):
        result = read_two_depth(
            queries=row.queries, cache=row.cache, key_budget=2 * H * d, value_budget=2 * H * T,
            key_lower=lower, value_lower=lower,
        )  # fmt: skip
        worse = row.relative_error(result) > free
        results.at(Mean, "readkv two depths", capture, lower).add(worse.astype(float))


def _factorial(row: Row, capture: str, results: Results) -> None:
    for rate, uneven in FACTORIAL.items():
        for equal, per_head, minimum, paired in product((False, True), (False, True), (0, 1), (False, True)):
            keys, values = (rate, rate) if equal else uneven
            switches = Restrictions(equal_rates=equal, per_head=per_head, minimum_depth=minimum, paired_values=paired)
            error = row.relative_error(read_restricted(row.queries, row.cache, keys, values, switches))
            results.at(Mean, "readkv factorial", capture, rate, (equal, per_head, minimum, paired)).add(error)
