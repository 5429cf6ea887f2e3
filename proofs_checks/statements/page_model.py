"""One page seen through its unquantised rank-r summary, with every quantity that the Locks statements speak of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from proofs_checks.statements.guard import UNIT, dot_guard, gamma, log_sum_exp_guard
from proofs_checks.statements.statement import Instance, memo, require
from refimpl.checks import FloatArray
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.summary import locks_build_summary


@dataclass(frozen=True)
class PageModel:
    """A batch of pages [N, B, d] with one query each [N, d], at one rank r. Source: Locks Sec. 4, App. A.2."""

    queries: FloatArray  # [N, d]
    keys: FloatArray  # [N, B, d]
    centroid: FloatArray  # [N, d]
    deviations: FloatArray  # [N, B, d]
    basis: FloatArray  # [N, d, r]
    coefficients: FloatArray  # [N, B, r]
    residuals: FloatArray  # [N, B, d], delta_i - V c_i
    sigma: FloatArray  # [N, min(B, d)]
    root: float  # sqrt(d)

    @cached_property
    def tail(self) -> FloatArray:
        """tau_r, the energy beyond the r-th singular value. [N]."""
        energy: FloatArray = np.sum(self.sigma[:, self.basis.shape[-1] :] ** 2, axis=-1)
        return energy

    @cached_property
    def next_sigma(self) -> FloatArray:
        """sigma_{r+1}, 0 beyond the last one. [N]."""
        rank = self.basis.shape[-1]
        return self.sigma[:, rank] if rank < self.sigma.shape[1] else np.zeros(len(self.sigma))

    @cached_property
    def outside(self) -> FloatArray:
        """q_perp = q - V V^T q. [N, d]."""
        inside = np.einsum("ndr,nr->nd", self.basis, np.einsum("ndr,nd->nr", self.basis, self.queries))
        return self.queries - inside

    @cached_property
    def exact_score(self) -> FloatArray:
        """s_j(q) in nats. [N]."""
        return exact_page_scores(queries=self.queries[:, None], key_pages=self.keys[:, None])[:, 0, 0]

    @cached_property
    def estimated_score(self) -> FloatArray:
        """The score of Eq. (1) from the unquantised summary, in nats. [N]."""
        scores = locks_score_pages(
            queries=self.queries[:, None],
            centroid=self.centroid[:, None],
            basis=self.basis[:, None],
            coefficients=self.coefficients[:, None],
        )
        return scores[:, 0, 0]


def needs_page(instance: Instance) -> None:
    """The hypotheses that every statement about one page shares: matching shapes, 1 <= r <= min(B, d), finite numbers.

    >>> needs_page({"queries": np.zeros((1, 2)), "keys": np.zeros((1, 3, 2)), "rank": 3})
    Traceback (most recent call last):
    ...
    proofs_checks.statements.statement.HypothesisError: hypothesis '1 <= r <= min(B, d)' fails: r = 3, B = 3, d = 2
    """
    queries, keys, rank = instance["queries"], instance["keys"], instance["rank"]
    count, size, width = keys.shape
    require(queries.shape == (count, width), "one query of the page's width", f"{queries.shape} against {keys.shape}")
    require(1 <= rank <= min(size, width), "1 <= r <= min(B, d)", f"r = {rank}, B = {size}, d = {width}")
    require(np.isfinite(queries).all() and np.isfinite(keys).all(), "finite queries and keys")


def model(instance: Instance) -> PageModel:
    """The summary of every page of the batch, built with the reference once per instance.

    >>> page = model({"queries": np.array([[1.0, 1.0]]), "keys": np.array([[[0.0, 3.0], [4.0, 3.0]]]), "rank": 1})
    >>> page.centroid.tolist(), page.tail.tolist(), float(np.abs(page.residuals).max().round(12))
    ([[2.0, 3.0]], [0.0], 0.0)
    """
    page: PageModel = memo(instance, "_page", lambda: build_model(instance))
    return page


def build_model(instance: Instance) -> PageModel:
    """`model` without its memory."""
    keys, queries = instance["keys"], instance["queries"]
    built = locks_build_summary(key_pages=keys[:, None], rank=instance["rank"])
    centroid, basis, coefficients = (built[name][:, 0] for name in ("centroid", "basis", "coefficients"))
    deviations = keys - centroid[:, None]
    residuals = deviations - coefficients @ np.swapaxes(basis, -1, -2)
    sigma = np.linalg.svd(deviations, compute_uv=False)
    root = float(np.sqrt(keys.shape[-1]))
    return PageModel(queries, keys, centroid, deviations, basis, coefficients, residuals, sigma, root)


def svd_guard(page: PageModel) -> FloatArray:
    """Backward error of the SVD in the Frobenius norm, with the modes that the reference drops as zero. [N].

    Golub-Kahan: 2 min(B, d) Householder reflections of length at most max(B, d), each gamma_{8 max} (Higham, Lemma
    19.3 with c = 8), as much again for the rotations. A dropped mode has sigma <= max(B, d) eps ||page||_F (AMB-10).
    """
    shorter, longer = sorted(page.keys.shape[1:])
    size = np.linalg.norm(page.keys, axis=(-2, -1))
    bound: FloatArray = (2 * 2 * shorter * gamma(8 * longer) + shorter * longer * 2 * UNIT) * size
    return bound


def score_guard(page: PageModel) -> FloatArray:
    """Rounding of |estimated - exact| for the summary as computed: both dot products and both log-sum-exps. [N]."""
    d, r = page.basis.shape[1:]
    q, sizes = np.abs(page.queries), np.abs(page.centroid)
    exact = dot_guard(page.queries[:, None], page.keys).max(axis=-1)
    along = np.einsum("nd,ndr->nr", q, np.abs(page.basis))
    summary = np.einsum("nd,nd->n", q, sizes) + np.einsum("nr,nbr->nb", along, np.abs(page.coefficients)).max(axis=-1)
    centring = 2 * UNIT * np.einsum("nd,nbd->nb", q, np.abs(page.keys) + sizes[:, None]).max(axis=-1)
    logits = np.einsum("nd,nbd->nb", page.queries, page.keys) / page.root
    kept = np.einsum("nd,nbd->nb", page.queries, page.keys - page.residuals) / page.root
    dots = (exact + 1.01 * gamma(d + r + 4) * summary + centring) / page.root * (1 + 4 * UNIT)
    scaling = 3 * UNIT * (np.abs(logits).max(axis=-1) + np.abs(kept).max(axis=-1))
    return dots + scaling + log_sum_exp_guard(logits) + 1.01 * log_sum_exp_guard(kept)


def residual_guard(page: PageModel) -> FloatArray:
    """How far |q_perp . residual| / sqrt(d) as computed may stand from |q . (V c_i - delta_i)| / sqrt(d). [N].

    The computed basis is not exactly orthonormal nor exactly orthogonal to the residuals: |V^T q| |V^T residual|.
    """
    d, r = page.basis.shape[1:]
    inside = np.linalg.norm(np.einsum("ndr,nd->nr", page.basis, page.queries), axis=-1)
    leak = np.linalg.norm(np.einsum("ndr,nbd->nbr", page.basis, page.residuals), axis=-1).max(axis=-1)
    size = np.linalg.norm(page.queries, axis=-1)
    parts = np.linalg.norm(page.deviations, axis=-1).max(axis=-1) + np.linalg.norm(page.coefficients, axis=-1).max(
        axis=-1
    )
    rounding = gamma(2 * (d + r) + 8) * size * parts * (1 + r)
    bound: FloatArray = 1.01 * (inside * leak + rounding) / page.root
    return bound
