"""The attention-output error of one query head per instance, formed without cancellation (ReadKV App. E.3).

The reconstructed logits z^ as computed are taken as exact, and so are the residuals E = k - k^ and V - V^ (one rounding
each). The exact logits are z^ + dz with dz = q.E / sqrt(d), so that the two attention vectors differ by
alpha^ (expm1(dz) - mean) / S even where the difference is far below the rounding of either.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from proofs_checks.statements.guard import UNIT, dot_guard, gamma, softmax_relative
from proofs_checks.statements.statement import Instance, memo, require
from refimpl.checks import FloatArray


def needs_head(instance: Instance) -> None:
    """Hypotheses of the attention bounds: matching shapes, T >= 1, finite numbers.

    >>> needs_head({"queries": np.zeros((1, 2)), "keys": np.zeros((1, 0, 2))})
    Traceback (most recent call last):
    ...
    proofs_checks.statements.statement.HypothesisError: hypothesis 'T >= 1' fails: (1, 0, 2)
    """
    keys = instance["keys"]
    require(keys.shape[1] >= 1, "T >= 1", keys.shape)
    for name in ("keys_hat", "values", "values_hat"):
        require(instance[name].shape[:2] == keys.shape[:2], f"{name} has the keys' tokens", instance[name].shape)
    for name in ("queries", "keys", "keys_hat", "values", "values_hat"):
        require(np.isfinite(instance[name]).all(), f"{name} are finite")


class AttentionError:
    """Residuals, attention vectors and errors of a batch: queries [N, d], keys and values [N, T, d] with hats."""

    def __init__(self, instance: Instance) -> None:
        self.queries = instance["queries"]
        self.width = instance["keys"].shape[2]
        self.tokens = instance["keys"].shape[1]
        self.key_residual = instance["keys"] - instance["keys_hat"]  # E_K [N, T, d]
        self.value_residual = instance["values"] - instance["values_hat"]  # E_V [N, T, d]
        centre = instance["values"].mean(axis=1, keepdims=True)
        self.centred = instance["values"] - centre  # V - 1 c^T with c the mean [N, T, d]
        root = np.sqrt(self.width)
        self.logits_hat = np.einsum("nd,ntd->nt", self.queries, instance["keys_hat"]) / root
        self.step = np.einsum("nd,ntd->nt", self.queries, self.key_residual) / root  # dz [N, T]
        self.step_guard = (1.01 * dot_guard(self.queries[:, None], self.key_residual) / root) + 4 * UNIT * np.abs(
            self.step
        )

    @cached_property
    def weights_hat(self) -> FloatArray:
        """alpha^, softmax of the reconstructed logits. [N, T]."""
        shifted = np.exp(self.logits_hat - self.logits_hat.max(axis=-1, keepdims=True))
        weights: FloatArray = shifted / shifted.sum(axis=-1, keepdims=True)
        return weights

    @property
    def gentle(self) -> FloatArray:
        """Where |dz| <= 1, so that expm1 keeps all digits. Bool [N, 1]."""
        small: FloatArray = np.abs(self.step).max(axis=-1, keepdims=True) <= 1
        return small

    @cached_property
    def weight_change(self) -> FloatArray:
        """alpha - alpha^. [N, T]."""
        growth = np.expm1(np.clip(self.step, -1.0, 1.0))  # clipped rows are replaced below
        mean = np.sum(self.weights_hat * growth, axis=-1, keepdims=True)
        exact = self.logits_hat + self.step
        direct = np.exp(exact - exact.max(axis=-1, keepdims=True))
        direct = direct / direct.sum(axis=-1, keepdims=True) - self.weights_hat
        return np.where(self.gentle, self.weights_hat * (growth - mean) / (1 + mean), direct)

    @cached_property
    def weight_guard(self) -> FloatArray:
        """Rounding of the 1-norm of alpha - alpha^, given z^ and with dz within its own guard. [N].

        |dz| <= 1: |expm1| <= 1.72 |dz| and S >= .37 give 12 |dz| (2 rho + (T + 16) u) + 15 max step guard; else both
        softmaxes' relative errors rho and twice the step guard.
        """
        relative = softmax_relative(self.logits_hat)
        largest = np.abs(self.step).max(axis=-1)
        spread = self.step_guard.max(axis=-1)
        gentle = 12 * largest * (2 * relative + (self.tokens + 16) * UNIT) + 15 * spread
        direct = 2 * (relative + softmax_relative(self.logits_hat + self.step)) + 2.1 * spread + 4 * UNIT * largest
        return np.where(self.gentle[:, 0], gentle, direct)

    @cached_property
    def value_error(self) -> FloatArray:
        """E_V^T alpha^. [N, d]."""
        return np.einsum("nt,ntd->nd", self.weights_hat, self.value_residual)

    @cached_property
    def output_error(self) -> FloatArray:
        """||o - o^|| = ||(V - 1c^T)^T (alpha - alpha^) + E_V^T alpha^||, Lemma 11's identity. [N]."""
        total = np.einsum("nt,ntd->nd", self.weight_change, self.centred) + self.value_error
        norm: FloatArray = np.linalg.norm(total, axis=-1)
        return norm

    @cached_property
    def output_guard(self) -> FloatArray:
        """Rounding of `output_error`, and of ||E_V^T alpha^|| on the other side. [N]."""
        rows = np.linalg.norm(self.centred, axis=-1)
        residuals = np.linalg.norm(self.value_residual, axis=-1)
        changed = np.sum(np.abs(self.weight_change) * rows, axis=-1)
        read = np.sum(self.weights_hat * residuals, axis=-1)
        relative = softmax_relative(self.logits_hat)
        rounding = gamma(2 * self.tokens + self.width + 12)
        return self.weight_guard * rows.max(axis=-1) * 1.01 + 2 * rounding * (changed + read) + 2.1 * relative * read

    @cached_property
    def value_spread(self) -> FloatArray:
        """The operator norm of V - 1 c^T. [N]."""
        norm: FloatArray = np.linalg.svd(self.centred, compute_uv=False)[..., 0]
        return norm

    @property
    def norm_relative(self) -> float:
        """Relative error of an operator norm by SVD: 4 min gamma_{8 max} in the Frobenius norm, times sqrt(min)."""
        shorter, longer = sorted((self.tokens, self.width))
        return 4 * shorter * gamma(8 * longer) * float(np.sqrt(shorter))

    @cached_property
    def step_norm(self) -> FloatArray:
        """||z - z^||. [N]."""
        norm: FloatArray = np.linalg.norm(self.step, axis=-1)
        return norm

    @cached_property
    def step_norm_guard(self) -> FloatArray:
        """Rounding of ||z - z^||. [N]."""
        total: FloatArray = np.linalg.norm(self.step_guard, axis=-1) * 1.01 + gamma(self.tokens + 4) * self.step_norm
        return total

    @cached_property
    def key_energy(self) -> FloatArray:
        """A_K = sum_jc (q_c e_jc)^2 / d. [N]."""
        energy: FloatArray = np.sum((self.queries[:, None] * self.key_residual) ** 2, axis=(-2, -1)) / self.width
        return energy

    @cached_property
    def value_energy(self) -> FloatArray:
        """A_V = sum_j alpha^_j^2 ||e_j||^2. [N]."""
        squares = np.sum(self.value_residual**2, axis=-1)
        energy: FloatArray = np.sum(self.weights_hat**2 * squares, axis=-1)
        return energy

    @cached_property
    def key_coherence(self) -> FloatArray:
        """kappa_K: largest eigenvalue of the normalised Gram of E_K's columns; 1 for E_K = 0. [N]."""
        return coherence(np.swapaxes(self.key_residual, 1, 2))

    @cached_property
    def value_coherence(self) -> FloatArray:
        """kappa_V: largest eigenvalue of the normalised Gram of E_V's rows; 1 for E_V = 0. [N]."""
        return coherence(self.value_residual)


def attention_error(instance: Instance) -> AttentionError:
    """The errors of an instance, formed once."""
    one: AttentionError = memo(instance, "_error", lambda: AttentionError(instance))
    return one


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows scaled to length 1, zero rows kept; scaled by their largest entry first, so nothing under- or overflows.

    >>> unit_rows(np.array([[[3e-200, 4e-200], [0.0, 0.0]]])).round(12).tolist()
    [[[0.6, 0.8], [0.0, 0.0]]]
    """
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    unit: FloatArray = scaled / np.where(length > 0, length, 1.0)
    return unit


def coherence(rows: FloatArray) -> FloatArray:
    """lambda_max of the normalised Gram of nonzero rows [N, n, m] -> [N]; 1 if all rows are zero (E.3.3's convention).

    >>> coherence(np.array([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])).round(12).tolist()
    [2.0, 1.0]
    """
    unit = unit_rows(rows)
    if not unit.any():
        return np.ones(len(rows))
    largest = np.linalg.svd(unit, compute_uv=False)[..., 0] ** 2
    return np.where(unit.any(axis=(-2, -1)), largest, 1.0)
