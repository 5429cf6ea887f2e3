"""ReadKV Prop. 12: the squared output error is at most (1/2)||V_c||^2 kappa_K gamma_K S_K + 2 kappa_V gamma_V S_V."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import readkv_lemma_11
from proofs_checks.statements.attention_error import attention_error, needs_head
from proofs_checks.statements.sampling import magnitudes
from proofs_checks.statements.statement import About, Instance, Kind, VacuousError, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-12",
    source="ReadKV Prop. 12",
    claim="||o - o^||^2 <= (1/2) ||V - 1c^T||^2 kappa_K gamma_K S_K + 2 kappa_V gamma_V S_V with the realised "
    "correlation "
    "factors kappa and calibration ratios gamma.",
    hypotheses="gamma_K and gamma_V finite: no realised energy where the calibrated objective is 0.",
    kind=Kind.UPPER_BOUND,
    tight="T = 2, d = 1: equal key and value contributions a = b, so that (a + b)^2 = 2a^2 + 2b^2: ratio .9999998.",
    hazard="At dk = 1e-16 plain float64 gives 1.125 (balls: .5): errors are formed with expm1. G_cc may underflow: "
    "rows "
    "are scaled before they are normalised.",
    finding="Sharp. gamma S is the realised energy A, so calibration drops out of the certified number altogether.",
)
SEARCH = ("queries", "keys", "values")


def calibrated(instance: Instance) -> tuple[FloatArray, FloatArray]:
    """S_K and S_V. [N].

    ``key_predicted`` [N, d] is sigma_c^2 D(t_c), ``value_predicted`` [N, T] is s D(t_j).
    """
    one = attention_error(instance)
    keys = one.tokens / one.width * np.sum(one.queries**2 * instance["key_predicted"], axis=-1)
    values = np.sum(one.weights_hat**2 * instance["value_predicted"], axis=-1)
    return keys, values


def ratio(energy: FloatArray, objective: FloatArray) -> FloatArray:
    """gamma: A / S; 0 for A = S = 0; +inf for S = 0 < A (AMB-23). [N].

    >>> ratio(np.array([1.0, 0.0, 1.0]), np.array([2.0, 0.0, 0.0])).tolist()
    [0.5, 0.0, inf]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(energy == 0, 0.0, energy / objective)


def factors(instance: Instance) -> dict[str, FloatArray]:
    """kappa_K, gamma_K, kappa_V, gamma_V, S_K and S_V of every instance. [N]."""
    one = attention_error(instance)
    keys, values = calibrated(instance)
    return {
        "kappa_K": one.key_coherence,
        "gamma_K": ratio(one.key_energy, keys),
        "S_K": keys,
        "kappa_V": one.value_coherence,
        "gamma_V": ratio(one.value_energy, values),
        "S_V": values,
    }


def hypotheses(instance: Instance) -> None:
    """A head, nonnegative calibrated energies, finite ratios."""
    needs_head(instance)
    require(instance["key_predicted"] >= 0, "sigma^2 D >= 0")
    require(instance["value_predicted"] >= 0, "s D >= 0")
    found = factors(instance)
    for stage in ("K", "V"):
        finite = np.isfinite(found[f"gamma_{stage}"])
        require(finite, f"gamma_{stage} is finite", f"S_{stage} = 0 < A_{stage}", VacuousError)


def left(instance: Instance) -> FloatArray:
    """||o - o^||^2. [N]."""
    return attention_error(instance).output_error ** 2


def right(instance: Instance) -> FloatArray:
    """The certificate. [N]."""
    one, found = attention_error(instance), factors(instance)
    keys = 0.5 * one.value_spread**2 * found["kappa_K"] * found["gamma_K"] * found["S_K"]
    return keys + 2 * found["kappa_V"] * found["gamma_V"] * found["S_V"]


def guard(instance: Instance) -> FloatArray:
    """2 |e| g + g^2 for the left side; two norms and two coherences squared, and the energies, for the right. [N].

    Squares below the normal range lose their relative accuracy: T d of the smallest normal number.
    """
    one = attention_error(instance)
    bound = one.output_guard
    relative = 6 * one.norm_relative + 8 * (one.tokens + one.width + 12) * 2.0**-53
    tiny = 8 * one.tokens * one.width * np.finfo(np.float64).tiny * (1 + one.value_spread**2)
    return 2 * one.output_error * bound + bound**2 + relative * right(instance) + tiny


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two tokens of one channel at a near tie; values +-1 off by 1e-3 each, keys off by 1e-3 each.

    a = (1/2) sqrt(2) * sqrt(2) 1e-3 = 1e-3 = b.

    >>> check(tight_instance()).tightest > 0.9999998
    True
    """
    keys = np.array([[[6.7e-4], [-6.7e-4]]])
    values = np.array([[[1.0], [-1.0]]])
    return {
        "queries": np.ones((1, 1)),
        "keys": keys,
        "keys_hat": keys - np.array([[[1e-3], [-1e-3]]]),
        "values": values,
        "values_hat": values - 1e-3,
        "key_predicted": np.full((1, 1), 1e-6),
        "value_predicted": np.full((1, 2), 1e-6),
    }


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Lemma 11's heads with positive calibrated energies."""
    instance = readkv_lemma_11.sample(rng, count)
    tokens, width = instance["keys"].shape[1:]
    return {
        **instance,
        "key_predicted": magnitudes(rng, count, 1, -6, 2) * (0.1 + rng.random((count, width))),
        "value_predicted": magnitudes(rng, count, 1, -6, 2) * (0.1 + rng.random((count, tokens))),
    }


def cases() -> dict[str, Instance]:
    """No residual with no calibrated energy (gamma = 0); one token; key errors of 1e-16."""
    base = tight_instance()
    none = {**base, "keys_hat": base["keys"], "key_predicted": np.zeros((1, 1))}
    tiny = {**base, "keys_hat": base["keys"] - np.array([[[1e-16], [-1e-16]]]), "values_hat": base["values"]}
    return {"zero-residual": none, "key-error-1e-16": {**tiny, "value_predicted": np.zeros((1, 2))}}


def on_capture(step: Any) -> Instance:
    """ReadKV's reconstruction of the capture at the run's rates, one entry per query head."""
    return step.readkv_heads()


def vacuous(instance: Instance) -> Any:
    """No better than what bounds any two averages of the exact and the reconstructed values. Bool [N]."""
    return right(instance) >= trivial(instance)


def trivial(instance: Instance) -> FloatArray:
    """(max |v_i - c| + max |v^_j - c|)^2, c the values' mean: bounds ||o - o^||^2 for any two averages. [N]."""
    centre = instance["values"].mean(axis=1, keepdims=True)
    reach = [np.linalg.norm(instance[name] - centre, axis=-1).max(axis=-1) for name in ("values", "values_hat")]
    bound: FloatArray = (reach[0] + reach[1]) ** 2
    return bound


def describe(instance: Instance) -> dict[str, FloatArray]:
    """The factors that decide how much the certificate says."""
    found = {name: value for name, value in factors(instance).items() if name[0] in "kg"}
    return {**found, "error": np.sqrt(left(instance)), "bound": np.sqrt(right(instance))}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls; gamma S is the realised energy A."""
    from proofs_checks.statements import readkv_lemma_11
    from proofs_checks.statements.rigorous import ball, balls, norm, softmax, symmetric_norm, total

    query, keys, hats, values, values_hat = (
        balls(instance[name][0]) for name in ("queries", "keys", "keys_hat", "values", "values_hat")
    )
    width = keys.shape[1]
    key_residual, value_residual = keys - hats, values - values_hat
    weights = softmax((hats @ query) / ball(width).sqrt())

    def kappa(rows: Any) -> Any:
        lengths = [(row, norm(row)) for row in rows if any(x != 0 for x in row)]
        if not lengths:
            return ball(1.0)
        unit = np.array([row / length for row, length in lengths], dtype=object)
        return symmetric_norm(unit @ unit.T if len(unit) <= unit.shape[1] else unit.T @ unit)

    key_energy = total((query[None] * key_residual) ** 2) / width
    value_energy = total((weights[:, None] * value_residual) ** 2)
    spread = readkv_lemma_11.spread_ball(values)
    bound = spread**2 / 2 * kappa(key_residual.T) * key_energy + 2 * kappa(value_residual) * value_energy
    return readkv_lemma_11.enclose(instance)[0] ** 2, bound
