"""ReadKV Cor. 13.

With residuals inside their calibration envelopes and pairwise coherence mu, kappa <= 1 + (m-1) mu.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import readkv_proposition_12
from proofs_checks.statements.attention_error import attention_error, needs_head, unit_rows
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.readkv_proposition_12 import calibrated, left
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-corollary-13",
    source="ReadKV Cor. 13",
    claim="If every channel's and token's residual energy is within its calibrated prediction, and normalised "
    "residuals "
    "have pairwise products at most mu, the squared output error is at most (1/2)||V_c||^2 [1 + (m_K - 1) mu_K] S_K + "
    "2 [1 + (m_V - 1) mu_V] S_V.",
    hypotheses="sum_j e_jc^2 <= T sigma_c^2 D(t_c) for every channel, ||e_j||^2 <= s D(t_j) for every token; m = 1 has "
    "mu = 0.",
    kind=Kind.UPPER_BOUND,
    tight="Prop. 12's tight instance with the envelopes met exactly: mu_V = 1, m_V = 2, m_K = 1.",
    hazard="An envelope met with equality may be missed by an ulp: the hypothesis admits gamma_{T+d+4}.",
    finding="Sharp; on random residuals at most .69.",
)


def hypotheses(instance: Instance) -> None:
    """A head whose residuals lie within their envelopes."""
    needs_head(instance)
    one = attention_error(instance)
    admitted = 1 + gamma(one.tokens + one.width + 4)
    channels = np.sum(one.key_residual**2, axis=1)
    require(channels <= admitted * one.tokens * instance["key_predicted"], "key residuals within T sigma^2 D")
    tokens = np.sum(one.value_residual**2, axis=-1)
    require(tokens <= admitted * instance["value_predicted"], "value residuals within s D")


def gershgorin(rows: FloatArray) -> FloatArray:
    """1 + (m - 1) mu over the nonzero rows [N, n, m]; 1 if there is at most one. [N].

    >>> gershgorin(np.array([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])).round(6).tolist()
    [1.707107]
    """
    unit = unit_rows(rows)
    count = unit.any(axis=-1).sum(axis=-1)
    products = np.abs(np.einsum("nid,njd->nij", unit, unit))
    size = products.shape[1]
    products[:, np.arange(size), np.arange(size)] = 0.0
    factor: FloatArray = 1 + np.maximum(count - 1, 0) * products.max(axis=(-2, -1), initial=0.0)
    return factor


def right(instance: Instance) -> FloatArray:
    """The coherence certificate. [N]."""
    one = attention_error(instance)
    keys, values = calibrated(instance)
    first = 0.5 * one.value_spread**2 * gershgorin(np.swapaxes(one.key_residual, 1, 2)) * keys
    return first + 2 * gershgorin(one.value_residual) * values


def guard(instance: Instance) -> FloatArray:
    """As Prop. 12, with what the envelope hypothesis admits. [N]."""
    one = attention_error(instance)
    bound = one.output_guard
    relative = 6 * one.norm_relative + 2 * gamma(8 * (one.tokens + one.width) + 100)
    tiny = 8 * one.tokens * one.width * np.finfo(np.float64).tiny * (1 + one.value_spread**2)
    return 2 * one.output_error * bound + bound**2 + relative * right(instance) + tiny


check = checker(ABOUT, hypotheses, left, right, guard)


def envelopes(instance: Instance, slack: FloatArray) -> Instance:
    """The instance with predictions at ``slack`` >= 1 times the realised energies."""
    one = attention_error(instance)
    keys = np.sum(one.key_residual**2, axis=1) / one.tokens * slack
    values = np.sum(one.value_residual**2, axis=-1) * slack
    return {**instance, "key_predicted": keys, "value_predicted": values}


def tight_instance() -> Instance:
    """Prop. 12's, envelopes met.

    >>> check(tight_instance()).tightest > 0.9999998
    True
    """
    return envelopes(readkv_proposition_12.tight_instance(), np.ones((1, 1)))


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Prop. 12's heads with envelopes up to twice the realised energies."""
    return envelopes(readkv_proposition_12.sample(rng, count), 1 + rng.random((count, 1)))


def cases() -> dict[str, Instance]:
    """No residual at all."""
    base = tight_instance()
    exact = {**base, "keys_hat": base["keys"], "values_hat": base["values"]}
    return {"zero-residual": envelopes(exact, np.ones((1, 1)))}


def on_capture(step: Any) -> Instance:
    """ReadKV's reconstruction; its envelopes hold on few real caches, and the hypothesis says so."""
    heads: Instance = step.readkv_heads()
    return heads
