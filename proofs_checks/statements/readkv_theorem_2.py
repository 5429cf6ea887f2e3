"""ReadKV Thm. 2, upper bound: the two-stage reader's squared error per coordinate is at most (p eps_8 + rho)^2."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import greedy
from proofs_checks.statements.guard import UNIT
from proofs_checks.statements.nested_codes import gains, reconstruct, worst_point
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray, IntArray
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT
from refimpl.readkv.tree import deployed_table

ABOUT = About(
    id="readkv-theorem-2",
    source="ReadKV Thm. 2, upper bound",
    claim="On the two-token family the reader with key budget 1 and value budget 8 reads all eight levels of the "
    "attended "
    "value and nothing of the other, and its squared error per coordinate is at most (p eps_8 + rho)^2 < 9.50e-5.",
    hypotheses="Keys +-c_1 exactly (c_1 the stored float32 entry); values in [-1, 1]^m; signs +-1.",
    kind=Kind.UPPER_BOUND,
    tight="The attended value at the code's worst point, the other at -1 or 1 so that both errors add: 1 - 4e-14.",
    hazard="c_1 must stay unrounded: bf16(c_1) breaks 'reconstructs exactly'.",
    finding="Sharp. The schedule is (8, 0) or (0, 8) in every instance tried.",
)


def hypotheses(instance: Instance) -> None:
    """The two-token family."""
    require(np.abs(instance["values"]) <= 1, "values in [-1, 1]^m")
    require((np.abs(instance["b"]) == 1) & (np.abs(instance["eta"]) == 1), "signs are +-1")
    require(instance["c_1"] == float(deployed_table().centroids[1][1]), "keys are +-c_1 exactly", instance["c_1"])


def attention_weights(instance: Instance) -> FloatArray:
    """Stage one: one refinement of key channel 0, the keys' reconstruction, and the attention. [N, 2]."""
    c_1 = instance["c_1"]
    width = instance["values"].shape[2]
    keys = instance["b"][:, None] * c_1 * np.array([1.0, -1.0])  # [N, 2], channel 0; the others are 0
    query = instance["eta"] * (5 * np.sqrt(width) / c_1)
    importance = np.zeros((len(keys), width))
    importance[:, 0] = query**2
    depths = greedy(importance[..., None] * gains("lloyd"), 1)
    read = reconstruct("lloyd", keys, depths[:, :1])
    logits = query[:, None] * read / np.sqrt(width)
    weights: FloatArray = np.exp(logits - log_sum_exp(logits)[:, None])
    return weights


def value_depths(instance: Instance) -> IntArray:
    """Stage two: eight refinements by the squared attention. [N, 2]."""
    return greedy(attention_weights(instance)[..., None] ** 2 * gains("lloyd"), 8)


def left(instance: Instance) -> FloatArray:
    """||o - o^||^2 / m. [N]."""
    values, weights = instance["values"], attention_weights(instance)
    high = (instance["b"] * instance["eta"] > 0)[:, None]
    exact = np.where(high, [HIGH_WEIGHT, LOW_WEIGHT], [LOW_WEIGHT, HIGH_WEIGHT])  # [N, 2]
    read = reconstruct("lloyd", values, value_depths(instance)[:, :, None])
    error = np.einsum("nt,ntm->nm", exact, values) - np.einsum("nt,ntm->nm", weights, read)
    mean: FloatArray = np.mean(error**2, axis=-1)
    return mean


def right(instance: Instance) -> FloatArray:
    """(p eps_8 + rho)^2. [N]."""
    epsilon = float(worst_point("lloyd", 8)[1])
    return np.full(len(instance["values"]), (HIGH_WEIGHT * epsilon + LOW_WEIGHT) ** 2)


def guard(instance: Instance) -> FloatArray:
    """Weights within 80 roundings (logits of 5), sums of two products below 1, squares of errors below .01. [N]."""
    width = instance["values"].shape[2]
    rounding = 120 * UNIT
    return np.full(len(instance["values"]), 2 * 0.01 * rounding + rounding**2 + (width + 4) * UNIT * 1e-4)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """One coordinate: v_1 at the worst point below, v_2 at its sign's end.

    >>> check(tight_instance()).tightest > 1 - 1e-11
    True
    """
    point = worst_point("lloyd", 8)[0]
    error = point - float(reconstruct("lloyd", np.array(point), np.array(8)))
    values = np.array([[[point], [np.sign(error)]]])
    return {"values": values, "b": np.ones(1), "eta": np.ones(1), "c_1": float(deployed_table().centroids[1][1])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random values, some at worst points, all signs."""
    width = small(rng, 1, 16)
    values = rng.uniform(-1, 1, (count, 2, width))
    if rng.random() < 0.4:
        values = np.sign(values) * abs(worst_point("lloyd", 8)[0])
    signs = rng.choice([-1.0, 1.0], (2, count))
    return {"values": values, "b": signs[0], "eta": signs[1], "c_1": float(deployed_table().centroids[1][1])}
