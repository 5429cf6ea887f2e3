"""ReadKV Lemma 11, Eq. (6).

The output error is at most half the value spread times the logit error, and the value error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.attention_error import attention_error, needs_head
from proofs_checks.statements.sampling import magnitudes, normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-lemma-11",
    source="ReadKV Lemma 11, Eq. (6)",
    claim="||o - o^|| <= (1/2) ||V - 1 c^T|| ||z - z^|| + ||E_V^T alpha^|| for any centre c, here the values' mean.",
    hypotheses="T >= 1 finite keys, values and reconstructions of one query head.",
    kind=Kind.UPPER_BOUND,
    tight="T = 2, logits +-5e-5 against +-1.5e-4 (differences far below 1), values +-1: ratio .99999998.",
    hazard="For |dz| < 1e-15 the difference of two softmaxes is noise (1127 false violations of 30000): it is formed "
    "with "
    "expm1; guard 2(4T + 30) u Vmax sqrt(d) at most.",
    finding="Sharp as the logits meet at a tie of two tokens.",
)
SEARCH = ("queries", "keys", "values")
hypotheses = needs_head


def left(instance: Instance) -> FloatArray:
    """||o - o^||. [N]."""
    return attention_error(instance).output_error


def right(instance: Instance) -> FloatArray:
    """(1/2) ||V_c|| ||dz|| + ||E_V^T alpha^||. [N]."""
    one = attention_error(instance)
    return 0.5 * one.value_spread * one.step_norm + np.linalg.norm(one.value_error, axis=-1)


def guard(instance: Instance) -> FloatArray:
    """The error's rounding, the spread's and the logit error's. [N]."""
    one = attention_error(instance)
    spread = 0.5 * one.value_spread * (one.norm_relative * one.step_norm + 1.1 * one.step_norm_guard)
    return one.output_guard + spread


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """One channel, two tokens around a tie; values reconstructed exactly.

    >>> check(tight_instance()).tightest > 0.9999999
    True
    """
    keys = np.array([[[1.5e-4], [-1.5e-4]]])
    values = np.array([[[1.0], [-1.0]]])
    return {"queries": np.ones((1, 1)), "keys": keys, "keys_hat": keys / 3, "values": values, "values_hat": values}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random heads with residuals over fifteen decades, sometimes none."""
    tokens, width = small(rng, 1, 8), small(rng, 1, 5)
    keys, values = normal(rng, count, tokens, width), normal(rng, count, tokens, width)
    errors = [magnitudes(rng, count, 2, -15, 0) * rng.standard_normal(keys.shape) for _ in range(2)]
    if rng.random() < 0.2:
        errors[rng.integers(2)] *= 0.0
    return {
        "queries": normal(rng, count, width),
        "keys": keys,
        "keys_hat": keys - errors[0],
        "values": values,
        "values_hat": values - errors[1],
    }


def cases() -> dict[str, Instance]:
    """One token (attention is 1 whatever the key); no residual at all; a key error of 1e-16."""
    one = {name: np.ones((1, 1, 1)) for name in ("keys", "values", "values_hat")}
    tiny = tight_instance()
    exact = {**tiny, "keys_hat": tiny["keys"]}
    return {
        "one-token": {"queries": np.ones((1, 1)), "keys_hat": np.zeros((1, 1, 1)), **one},
        "zero-residual": exact,
        "key-error-1e-16": {**tiny, "keys_hat": tiny["keys"] - np.array([[[1e-16], [-1e-16]]])},
    }


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls; the operator norm by a certified power trace."""
    from proofs_checks.statements.rigorous import ball, balls, norm, softmax

    query, keys, keys_hat = (balls(instance[name][0]) for name in ("queries", "keys", "keys_hat"))
    values, values_hat = balls(instance["values"][0]), balls(instance["values_hat"][0])
    root = ball(keys.shape[1]).sqrt()
    z, z_hat = (keys @ query) / root, (keys_hat @ query) / root
    weights, weights_hat = softmax(z), softmax(z_hat)
    error = norm(weights @ values - weights_hat @ values_hat)
    return error, spread_ball(values) * norm(z - z_hat) / 2 + norm(weights_hat @ (values - values_hat))


def spread_ball(values: Any) -> Any:
    """The operator norm of the centred values [T, d] as a ball, 0 for equal values."""
    from proofs_checks.statements.rigorous import ball, symmetric_norm, total

    tokens, width = values.shape
    mean = np.array([total(values[:, c]) / tokens for c in range(width)], dtype=object)
    centred = values - mean[None]
    if all(abs(x) < 1e-40 for x in centred.ravel()):
        return ball(0.0)
    return symmetric_norm(centred @ centred.T if tokens <= width else centred.T @ centred).sqrt()


def on_capture(step: Any) -> Instance:
    """ReadKV's reconstruction at the run's rates, one batch entry per query head."""
    heads: Instance = step.readkv_heads()
    return heads
