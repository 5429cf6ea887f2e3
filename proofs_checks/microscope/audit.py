"""Audit: the papers' proven bounds on every captured page and query; zero violations are expected (Locks App. B).

Every check allows for the float64 rounding of its two sides and for nothing else. With u = 2^-53, a dot product of n
terms is off by at most gamma_n times the sum of the terms' magnitudes, an eigenvalue by a small multiple of u lambda_1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.selectors import PageContext, factor_scores
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import blocks
from refimpl.attention import log_sum_exp
from refimpl.baselines.quest import quest_build_summary, quest_scores
from refimpl.checks import FloatArray
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.coverage import coverage_identity
from refimpl.locks.select import locks_select_pages

U = float(np.finfo(np.float64).eps) / 2


@dataclass
class Tally:
    """How often a bound was checked, how often it failed beyond rounding, and how close it came.

    >>> tally = Tally()
    >>> tally.add(np.array([1.0, 3.0]), np.array([2.0, 2.0]), 1e-9)
    >>> tally.checked, tally.violated, tally.tightest
    (2, 1, 1.5)
    """

    checked: int = 0
    violated: int = 0
    tightest: float = 0.0

    def add(self, left: FloatArray, right: FloatArray, guard: FloatArray | float) -> None:
        """Check left <= right + guard; the ratio left / right counts where right is above its own rounding."""
        left, right, guard = np.broadcast_arrays(left, right, guard)
        self.checked += left.size
        self.violated += int((left > right + guard).sum())
        clear = right > 1e3 * guard if np.any(guard) else right > 0
        if clear.any():
            self.tightest = max(self.tightest, float((left[clear] / right[clear]).max()))

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.checked += other.checked
        self.violated += other.violated
        self.tightest = max(self.tightest, other.tightest)


def gamma(n: int) -> float:
    """Higham's gamma_n = n u / (1 - n u) in float64."""
    return n * U / (1 - n * U)


def audit_pages(context: PageContext, rank: int, tally: Tally) -> None:
    """Lemma 3, second half: sigma_{r+1}^2 <= lambda_r of the page without one key, for every key.

    Eigenvalues of a Gram matrix of B keys are off by at most gamma_d |D|_F^2 (forming it) and B u lambda_1 (solving).
    """
    pages = context.key_pages
    B, d = pages.shape[1:]
    deviations = pages - pages.mean(axis=1, keepdims=True)
    gram = deviations @ np.swapaxes(deviations, 1, 2)
    energies = np.linalg.eigvalsh(gram)[:, ::-1]  # falling, [P, B]
    size = np.trace(gram, axis1=1, axis2=2)
    if rank >= B:
        return
    for key in range(B):
        rest = np.delete(np.delete(gram, key, axis=1), key, axis=2)
        tally.add(energies[:, rank], np.linalg.eigvalsh(rest)[:, ::-1][:, rank - 1], (2 * gamma(d) + 2 * B * U) * size)


def audit_queries(
    queries: FloatArray, exact: FloatArray, context: PageContext, rank: int, results: Results, capture: str
) -> None:
    """Lemma 2, Prop. 2 (both inequalities) and Lemma 3 (first half) for queries [G, d] with exact scores [G, P]."""
    pages = context.key_pages[: exact.shape[1]]
    B, d = pages.shape[1:]
    root = np.sqrt(d)
    summary = {k: v[:, : len(pages)] for k, v in context.spectral(rank).items()}
    centroid, basis, coefficients = (summary[k][0] for k in ("centroid", "basis", "coefficients"))
    deviations = pages - centroid[:, None]
    lost = deviations - coefficients @ np.swapaxes(basis, 1, 2)  # [P, B, d]
    length = np.linalg.norm(queries, axis=1)  # [G]
    logits = np.einsum("gd,pbd->gpb", queries, pages, optimize=True)

    envelope = quest_build_summary(key_pages=pages[None])
    ceiling = quest_scores(queries=queries[None], **envelope)[0]
    reach = np.einsum("gd,pd->gp", np.abs(queries), np.abs(pages).max(axis=1), optimize=True)
    results.at(Tally, "audit", capture, "Lemma 2").add(logits.max(axis=2), ceiling, 2 * gamma(d) * reach)

    projected = np.einsum("gd,pdr->gpr", queries, basis, optimize=True)
    outside = queries[:, None] - np.einsum("gpr,pdr->gpd", projected, basis, optimize=True)  # [G, P, d]
    missed = np.abs(np.einsum("gpd,pbd->gpb", outside, lost, optimize=True)).max(axis=2) / root  # [G, P]
    tail = np.sqrt((lost**2).sum(axis=(1, 2)))  # [P]
    product = np.linalg.norm(outside, axis=2) * tail / root
    relative = gamma(2 * d + B + 8)  # Cauchy-Schwarz holds for any two vectors; only dots and norms are rounded
    results.at(Tally, "audit", capture, "Prop. 2, second").add(missed, product, relative * product)

    estimated = factor_scores(queries, summary)
    leak = np.abs(np.einsum("pbd,pdr->pbr", lost, basis, optimize=True)).sum(axis=2).max(axis=1)  # V^T of the residual
    scale = np.linalg.norm(centroid, axis=1) + np.sqrt(rank) * np.linalg.norm(deviations, axis=2).max(axis=1)  # [P]
    size = length[:, None] * scale / root  # no logit, exact or estimated, has terms that add up to more
    guard = 2 * gamma(2 * d + rank + 8) * size + U * (4 * size + 2 * B + 20 + 4 * np.abs(exact))
    guard = guard + length[:, None] * leak / root
    results.at(Tally, "audit", capture, "Prop. 2, first").add(np.abs(estimated - exact), missed, guard)

    held = np.einsum("gpr,pr->gp", projected**2, (coefficients**2).sum(axis=1), optimize=True)
    audit_dominant_key(queries, deviations, held, rank, results, capture)


def audit_dominant_key(
    queries: FloatArray, deviations: FloatArray, held: FloatArray, rank: int, results: Results, capture: str
) -> None:
    """Lemma 3 (first half): no key's squared logit exceeds what the ``rank`` kept modes hold, [G, P], and the next one.

    Args: queries [G, d], deviations [P, B, d], held [G, P].
    """
    B, d = deviations.shape[1:]
    length = np.linalg.norm(queries, axis=1)  # [G]
    full = np.linalg.eigvalsh(deviations @ np.swapaxes(deviations, 1, 2))[:, ::-1]
    following = full[:, rank] if rank < B else np.zeros(len(deviations))
    single = (np.einsum("gd,pbd->gpb", queries, deviations, optimize=True) ** 2).max(axis=2)
    allowance = 64 * U * d * full[:, 0] * np.maximum(1.0, length[:, None] ** 2)
    results.at(Tally, "audit", capture, "Lemma 3, first").add(
        single, held + following * length[:, None] ** 2, allowance
    )


def audit_selection(
    queries: FloatArray,
    trace: HeadTrace,
    seen: int,
    scores: tuple[FloatArray, FloatArray],
    budget: int,
    results: Results,
) -> None:
    """Lemma 1(i) and Theorem 1(ii) on the pages that estimated scores select; scores are (exact, estimated) [G, P].

    Lemma 1(i)'s means are computed inside each set, so its sides are off by at most 2 (2n + 20) u R per coordinate.
    """
    exact, estimated = scores
    page_size = -(-seen // exact.shape[1])
    chosen, best = (
        locks_select_pages(shares=locks_page_shares(scores=s[None]), budget_tokens=budget, page_size=page_size)
        for s in (estimated, exact)
    )
    sides = coverage_identity(
        queries=queries[None], keys=trace.keys[None, :seen], values=trace.values[None, :seen], pages=chosen,
        page_size=page_size,
    )  # fmt: skip
    radius = float(np.linalg.norm(trace.values[:seen], axis=1).max())
    guard = 2 * (2 * seen + 20) * U * radius * np.sqrt(trace.head_size)
    epsilon = sides["dropped_mass"][..., None]
    gap = sides["difference"] - epsilon * (sides["dropped_mean"] - sides["kept_mean"])
    results.at(Tally, "audit", trace.capture, "Lemma 1(i), identity").add(
        np.linalg.norm(gap, axis=-1), guard * 1.0, 0.0
    )
    results.at(Tally, "audit", trace.capture, "Lemma 1(i), bound").add(
        np.linalg.norm(sides["difference"], axis=-1), sides["bound"], guard
    )
    log_shares = exact - log_sum_exp(exact)[:, None]
    kept, ideal = (float(np.exp(log_shares[:, p[0]]).sum(axis=1).mean()) for p in (chosen, best))
    eta = float(np.abs(estimated - exact).max())
    rounding = gamma(4 * exact.shape[1] + 40)
    results.at(Tally, "audit", trace.capture, "Theorem 1(ii)").add(
        np.array([np.exp(-4 * eta) * ideal]), np.array([kept]), rounding
    )


def measure_audit(trace: HeadTrace, context: PageContext, rank: int, budget: int, results: Results) -> None:
    """Add one KV head to the audit: every complete page, every step, every query head."""
    page_size = context.key_pages.shape[1]
    audit_pages(context, rank, results.at(Tally, "audit", trace.capture, "Lemma 3, second"))
    summary = context.spectral(rank)
    for block in blocks(trace, context):
        for step, seen in enumerate(block.tokens):
            pages = seen // page_size
            exact, queries = block.exact[step, :, :pages], block.queries[step]
            audit_queries(queries, exact, context, rank, results, trace.capture)
            estimated = factor_scores(queries, {k: v[:, :pages] for k, v in summary.items()})
            if seen % page_size:
                last = block.open_scores[step, :, None]
                exact, estimated = (np.concatenate([x, last], axis=1) for x in (exact, estimated))
            if 2 * page_size <= budget < seen - page_size:
                audit_selection(queries, trace, seen, (exact, estimated), budget, results)
