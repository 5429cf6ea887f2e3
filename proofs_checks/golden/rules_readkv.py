"""What golden cases of ReadKV are judged by where a bound per element is not all: trees, paths, depths, reads."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from proofs_checks.bounds import readkv_codec as codec_bounds
from proofs_checks.bounds import readkv_reader as reader_bounds
from proofs_checks.bounds.common import gamma
from proofs_checks.golden import fifty_digits_readkv as digits
from proofs_checks.golden.fifty_digits_codes import nearest_codes, rows_of
from proofs_checks.golden.job import Array, DtypeError, Job, Judged, by_bound, equal, precision, within
from proofs_checks.golden.rounding import rounded
from proofs_checks.judge.checks.quantiser import OF_LEVEL_GAP, OF_TREE_GAP
from proofs_checks.judge.checks.reader import logits_of, read_bounds, reading
from proofs_checks.judge.judgement import Call
from refimpl.readkv.budgets import budget_of_rate
from refimpl.readkv.restricted import pair_costs
from refimpl.readkv.rotation import readkv_rotate


def tree(job: Job) -> dict[str, Judged]:
    """`readkv_tree`: splits and means within 1/1000 of the gap between siblings, gains within 1/1000."""
    exact = job.evaluate()
    centroids = [rounded(level) for level in exact["centroids"]]
    judged = {"centroids_0": equal(np.zeros(1))}
    for level, splits in enumerate(exact["thresholds"]):
        gap = centroids[level + 1][1::2] - centroids[level + 1][0::2]
        judged[f"thresholds_{level}"] = within(rounded(splits), {"float32": OF_TREE_GAP * gap})
        judged[f"centroids_{level + 1}"] = within(centroids[level + 1], {"float32": OF_TREE_GAP * np.repeat(gap, 2)})
    gains = rounded(exact["gains"])
    return judged | {"gains": within(gains, {"float32": OF_TREE_GAP * gains})}


def encode(job: Job) -> dict[str, Judged]:
    """`readkv_encode`: the path, or where z lies on a split, also that of the values just below it (AMB-17)."""
    z = np.asarray(job.inputs["z"])
    high = job.exact()["codes"]
    low = np.array(digits.readkv_encode(np.nextafter(z, -np.inf))["codes"], dtype=np.int64).reshape(z.shape)
    return {"codes": Judged("between", {"low": low, "high": high})}


def decode(job: Job) -> dict[str, Judged]:
    """`readkv_decode`: a look-up, exact in float32."""
    return {"z_hat": equal(job.exact()["z_hat"])}


def key_importance(job: Job) -> dict[str, Judged]:
    """`readkv_key_importance`: within the bound, up to one positive factor on all."""
    return by_bound(job, codec_bounds.key_importance_bound, "within-factor")


def value_importance(job: Job) -> dict[str, Judged]:
    """`readkv_value_importance`: the same."""
    return by_bound(job, codec_bounds.value_importance_bound, "within-factor")


def bought(importance: Any, gains: Any, budget: int, minimum: int, band: Any) -> tuple[Any, Any, int | None]:
    """Least and greatest depth of every item over all right allocations, and how much all of them spend.

    ``band`` is the relative error that a worth may have; a worth below the smallest normal may be lost. A step is
    surely bought where it is worth more than the best step that is left; it may be bought where it can be worth as much
    as the poorest one that is bought. What is spent is None where a bought step may be lost.
    """
    steps = list(digits.steps_in_order(importance, gains, minimum))
    taken = min(budget - minimum * len(importance), len(steps))
    flush = Fraction(precision("float32").tiny)
    best_left = max(steps[taken][0] * (1 + band) if taken < len(steps) else 0, flush)
    poorest = steps[taken - 1][0] * (1 - band) if taken else math.inf
    low, high = [minimum] * len(importance), [minimum] * len(importance)
    for place, (worth, item, depth) in enumerate(steps):
        if place < taken and worth * (1 - band) > best_left:
            low[item] = depth
        if place < taken or worth * (1 + band) >= poorest:
            high[item] = depth
    return low, high, taken + minimum * len(importance) if poorest > flush else None


def choose_depths(job: Job) -> dict[str, Judged]:
    """`readkv_choose_depths`: between the ends of all right allocations, and the sum of all depths."""
    inputs = job.inputs
    band = Fraction(0) if job.case.kind == "exact" else Fraction(gamma(3, precision("float32").roundoff))
    items, gains = ([Fraction(float(x)) for x in inputs[n]] for n in ("importance", "gains"))
    low, high, total = bought(items, gains, int(inputs["budget"]), int(inputs.get("minimum_depth", 0)), band)
    tensors = {"low": _whole(low), "high": _whole(high)}
    return {"depths": Judged("between", tensors if total is None else {**tensors, "total": _whole(total)})}


def _whole(values: Any) -> Array:
    return np.array(values, dtype=np.int64)


def affine_quantize(job: Job) -> dict[str, Judged]:
    """`affine_quantize`: zero exactly, scale within its operations, codes the nearest of the own steps."""
    x, u = job.inputs["x"], precision("float32").roundoff
    levels = 2 ** int(job.inputs["bits"]) - 1
    exact = job.exact()
    low, high = np.zeros(x.shape, np.int64), np.zeros(x.shape, np.int64)
    slack = Fraction(gamma(4, u) * levels)
    for index, row in rows_of(x, -1):
        step = (max(row, default=Fraction(0)) - min(row, default=Fraction(0))) / levels
        for i, value in enumerate(row if step else []):
            ends = nearest_codes((value - min(row)) / step, slack)
            low[(*index[:-1], i)], high[(*index[:-1], i)] = max(ends[0], 0), min(ends[1], levels)
    bound = gamma(3, u) * exact["scale"] + precision("float32").tiny
    return {
        "codes": Judged("between", {"low": low, "high": high}),
        "scale": within(exact["scale"], {"float32": np.where(exact["scale"] == 0, np.inf, bound)}),
        "zero": equal(exact["zero"]),
    }


def codebook(job: Job) -> dict[str, Judged]:
    """`lloyd_max_codebook`: the optimum's levels and thresholds within 3% of the gap to the nearer level."""
    exact = job.exact()
    gaps = np.diff(exact["levels"])
    nearer = np.minimum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    return {
        "levels": within(exact["levels"], {"float32": OF_LEVEL_GAP * nearer}),
        "thresholds": within(exact["thresholds"], {"float32": OF_LEVEL_GAP * gaps}),
    }


def reader(job: Job) -> dict[str, Judged]:
    """Both readers: depths that leave no choice, then weights and output on these depths."""
    answer = job.exact()
    bounds = {dtype: settled_bounds(job, answer, dtype) for dtype in job.dtypes}
    judged = {}
    for name in job.names():
        if name.endswith("depths"):
            judged[name] = equal(answer[name])
        else:
            judged[name] = within(answer[name], {dtype: b[name] for dtype, b in bounds.items()})
    return judged


def settled_bounds(job: Job, answer: dict[str, Array], dtype: str) -> dict[str, Array]:
    """Bounds of weights and output for ports of ``dtype``. Raises DtypeError where depths leave them a choice."""
    inputs, at = job.inputs, precision(dtype)
    read = reading(Call(job.stage.name, inputs, {}, answer, at))
    rotated = readkv_rotate(x=read.queries, signs=read.cache.key_signs)
    error = reader_bounds.rotated_query_error(read.queries, rotated, at)
    keys = reader_bounds.key_importance_range(rotated, error, read.cache.key_scale, at)
    logits, spread = logits_of(read, rotated, error, at)
    bounds = read_bounds(read, logits, spread, answer["output"], at)
    least, most = np.maximum(answer["weights"] - bounds["weights"], 0.0), answer["weights"] + bounds["weights"]
    values = tuple(reader_bounds.value_importance_range(w, logits, at)[i] for i, w in enumerate((least, most)))
    for name, (low, high) in (("key_depths", keys), ("value_depths", values)):
        if not settled(job, name, answer[name], low, high, read.cache.gains):
            raise DtypeError(f"{job.case.id}: {name} leave a port of {dtype} a choice", dtype)
    return bounds


def settled(job: Job, name: str, depths: Array, low: Array, high: Array, gains: Array) -> bool:
    """Whether steps of items worth between ``low`` and ``high`` [H, N] times a gain can only buy ``depths`` [H, N]."""
    if "rate" not in job.inputs:
        budget = int(job.inputs[name.replace("depths", "budget")])
        return _settled(depths.ravel(), low.ravel(), high.ravel(), gains, np.ones(depths.size), budget, 0)
    N = depths.shape[1]
    costs = pair_costs(N) if name == "value_depths" else np.ones(N, dtype=np.int64)
    starts = np.cumsum(costs) - costs
    budget = budget_of_rate(rate=job.inputs["rate"], items=N, stored_depth=len(gains))
    rows = zip(depths, low, high, strict=True)
    return N == 0 or all(
        _settled(t[starts], np.add.reduceat(a, starts), np.add.reduceat(b, starts), gains, costs, budget, 1)
        for t, a, b in rows
    )


def _settled(depths: Array, low: Array, high: Array, gains: Array, costs: Array, budget: int, least: int) -> bool:
    bought, open_ = depths > least, depths < len(gains)
    worst = np.min(low[bought] * gains[depths[bought] - 1], initial=np.inf)
    rest, ceiling = (end[open_] * gains[depths[open_]] for end in (low, high))
    fits = costs[open_] <= budget - int(np.sum(depths * costs))
    blocked = np.max(rest[~fits], initial=0.0)  # what surely comes next and does not fit
    return bool(worst > np.max(ceiling, initial=0.0) and np.max(ceiling[fits], initial=0.0) <= blocked)


RULES = {
    "readkv_tree": tree,
    "readkv_encode": encode,
    "readkv_decode": decode,
    "readkv_key_importance": key_importance,
    "readkv_value_importance": value_importance,
    "readkv_choose_depths": choose_depths,
    "readkv_attention": reader,
    "readkv_restricted_attention": reader,
    "lloyd_max_codebook": codebook,
    "affine_quantize": affine_quantize,
}
