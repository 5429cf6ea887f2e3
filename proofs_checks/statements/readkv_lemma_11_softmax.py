"""ReadKV Lemma 11, softmax stability: ||alpha - alpha^|| <= (1/2) ||z - z^||."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.attention_error import AttentionError
from proofs_checks.statements.sampling import magnitudes, normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-lemma-11-softmax",
    source="ReadKV App. E.3.1, softmax",
    claim="Softmax is 1/2-Lipschitz in the Euclidean norm.",
    hypotheses="Finite logits, T >= 1.",
    kind=Kind.UPPER_BOUND,
    tight="T = 2, logits 0 against +-1e-3: ratio .9999997.",
    hazard="As Lemma 11.",
    finding="Sharp.",
)
SEARCH = ("logits", "step")


def hypotheses(instance: Instance) -> None:
    """Finite logits."""
    require(instance["logits"].shape[1] >= 1, "T >= 1", instance["logits"].shape)
    require(np.isfinite(instance["logits"]).all() and np.isfinite(instance["step"]).all(), "finite logits")


def head(instance: Instance) -> AttentionError:
    """The instance as a head of one channel with query 1: keys z^ + dz, reconstructed keys z^."""
    logits = instance["logits"][..., None]
    zero = np.zeros_like(logits)
    one = AttentionError(
        {
            "queries": np.ones((len(logits), 1)),
            "keys": logits,
            "keys_hat": logits,
            "values": zero,
            "values_hat": zero,
        }
    )
    one.step, one.step_guard = instance["step"], np.zeros_like(instance["step"])  # dz is given, not derived
    return one


def left(instance: Instance) -> FloatArray:
    """||alpha - alpha^||. [N]."""
    norm: FloatArray = np.linalg.norm(head(instance).weight_change, axis=-1)
    return norm


def right(instance: Instance) -> FloatArray:
    """(1/2) ||dz||. [N]."""
    return 0.5 * head(instance).step_norm


def guard(instance: Instance) -> FloatArray:
    """The weights' guard and two norms. [N]."""
    one = head(instance)
    return one.weight_guard + one.step_norm_guard


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two tokens at a tie, dz = +-1e-3.

    >>> check(tight_instance()).tightest > 0.9999996
    True
    """
    return {"logits": np.zeros((1, 2)), "step": np.array([[1e-3, -1e-3]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random logits and steps over sixteen decades, antisymmetric pairs included."""
    tokens = small(rng, 1, 8)
    step = magnitudes(rng, count, 1, -15, 1.3) * rng.standard_normal((count, tokens))
    logits = normal(rng, count, tokens)
    if rng.random() < 0.3 and tokens > 1:
        step[:, 2:], step[:, 1], logits[:, 2:], logits[:, :2] = 0.0, -step[:, 0], -40.0, 0.0
    return {"logits": logits, "step": step}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls."""
    from proofs_checks.statements.rigorous import balls, norm, softmax

    logits, step = balls(instance["logits"][0]), balls(instance["step"][0])
    return norm(softmax(logits + step) - softmax(logits)), norm(step) / 2
