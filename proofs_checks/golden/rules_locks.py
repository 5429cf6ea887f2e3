"""What golden cases of Locks are judged by where a bound per element is not all: codes, sets of pages, summaries."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import sparse_attention_bound
from proofs_checks.bounds.common import gamma
from proofs_checks.bounds.locks_build import page_scale
from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.golden import fifty_digits
from proofs_checks.golden.digits import mpf
from proofs_checks.golden.fifty_digits_codes import LEVEL, nearest_codes, rows_of
from proofs_checks.golden.job import Array, GoldenError, Job, Judged, precision, within
from proofs_checks.golden.rounding import rounded, three_digits_up
from proofs_checks.judge.checks.selection import must_and_may
from refimpl.locks.select import pages_within_budget
from refimpl.paging import gather_sequence, page_count

ZERO_MODE = mpf(10) ** -30
"""Singular values below it are those of modes that the page does not have; all others are far above."""

GUARD = 1e-9
"""Relative width by which enclosures are widened before sets are taken: no float64 noise may change a set."""

PARTS = (("centroid", "centroid", -1), ("basis", "basis", -2), ("coefficients", "coefficient", -1))


def quantize_summary(job: Job) -> dict[str, Judged]:
    """`locks_quantize_summary`: scales within two roundings, codes the nearest of the own scale's steps."""
    u = precision("float32").roundoff
    judged = {}
    for source, name, axis in PARTS:
        x = job.inputs[source]
        level = LEVEL[int(job.inputs["basis_bits"])] if name == "basis" else 127
        low, high, scale = np.zeros(x.shape, np.int64), np.zeros(x.shape, np.int64), []
        for index, line in rows_of(x, axis):
            step = max(map(abs, line)) / level
            scale.append(step)
            ends = [nearest_codes(v / step, Fraction(8 * u) * abs(v / step)) if step else (0, 0) for v in line]
            low[index], high[index] = zip(*ends, strict=True)
        exact = rounded(scale).reshape(np.delete(x.shape, axis % x.ndim))
        bound = np.where(exact == 0, np.inf, 2 * u * exact + precision("float32").tiny)  # a line of zeros: AMB-09
        judged[f"{name}_codes"] = Judged("between", {"low": low, "high": high})
        judged[f"{name}_scale"] = within(exact, {"float32": bound})
    return judged


def pages_rule(low: Array, high: Array, kept: int) -> tuple[Array, Array]:
    """Masks [H, P] of the pages that every right selection holds, and of those that some right selection may hold."""
    must, may = np.zeros(low.shape, np.uint8), np.zeros(low.shape, np.uint8)
    for h in range(len(low)):
        for mask, chosen in zip((must, may), must_and_may(low[h], high[h], kept), strict=True):
            mask[h, sorted(chosen)] = 1
    return must, may


def select_pages(job: Job) -> dict[str, Judged]:
    """`locks_select_pages`: shares are given exactly, so that only equal ones leave a choice."""
    shares = job.inputs["shares"]
    kept = pages_within_budget(int(job.inputs["budget_tokens"]), int(job.inputs["page_size"]), shares.shape[1])
    must, may = pages_rule(shares, shares, kept)
    for h, row in enumerate(job.evaluate()["pages"]):
        if not (must[h] <= np.isin(np.arange(shares.shape[1]), row)).all() or not may[h, row].all():
            raise GoldenError(f"{job.case.id}: the pages {row} are none of the sets'")
    return {"pages": Judged("pages", {"must": must, "may": may, "count": np.full(len(shares), kept)})}


def decode_sequence(inputs: dict[str, Any], page_size: int, name: str) -> tuple[Array, Array, Array | None]:
    """Masks of one sequence's pages [H, P], and the pages [H, k] where no choice is left, else None.

    The enclosures are the judge's, for float32 arithmetic; shares in 50 digits must lie inside.
    """
    if inputs["keys"].shape[1] == 0:
        empty = np.zeros((len(inputs["keys"]), 0), np.uint8)
        return empty, empty, empty.astype(np.int64)
    settings = (int(inputs["rank"]), inputs["basis_bits"], page_size, inputs.get("softmax_scale"))
    low, high = decode_enclosure(inputs["queries"], inputs["keys"], *settings, precision("float32"))
    kept = pages_within_budget(int(inputs["budget_tokens"]), page_size, low.shape[1])
    must, may = pages_rule(low, high, kept)
    wide = pages_rule(low - GUARD * np.abs(low), high + GUARD * np.abs(high), kept)
    if not (np.array_equal(must, wide[0]) and np.array_equal(may, wide[1])):
        raise GoldenError(f"{name}: a set of pages hangs on float64 noise")
    for h, (queries, keys) in enumerate(zip(inputs["queries"], inputs["keys"], strict=True)):
        shares = rounded(fifty_digits.decode_shares(queries, keys, *settings))
        if (shares < low[h]).any() or (shares > high[h]).any():
            raise GoldenError(f"{name}: the shares of KV head {h} in 50 digits leave the enclosure")
    pages = np.nonzero(must)[1].reshape(len(must), kept) if np.array_equal(must, may) else None
    return must, may, pages


def attended(job: Job, inputs: dict[str, Any]) -> tuple[Array, dict[str, Array]]:
    """The output over given pages in 50 digits, and its bounds by dtype."""
    names = ("queries", "keys", "values", "pages", "page_size", "softmax_scale")
    call = {n: inputs[n] for n in names if n in inputs}
    state = {n: rounded(v) for n, v in fifty_digits.sparse_attention(**call).items()}
    bounds = {dtype: sparse_attention_bound(call, state, precision(dtype))["output"] for dtype in job.dtypes}
    return state["output"], bounds


def decode(job: Job) -> dict[str, Judged]:
    """`locks_decode`: pages as a set; the output where only one set is right."""
    inputs, page_size = job.inputs, int(job.inputs["page_size"])
    must, may, pages = decode_sequence(inputs, page_size, job.case.id)
    count = pages_within_budget(int(inputs["budget_tokens"]), page_size, must.shape[1])
    judged = {"pages": Judged("pages", {"must": must, "may": may, "count": np.full(len(must), count)})}
    if pages is not None:
        judged["output"] = within(*attended(job, inputs | {"pages": pages}))
    return judged


def decode_paged(job: Job) -> dict[str, Judged]:
    """`locks_decode_paged`: the same for every sequence; the cases leave no choice of pages."""
    inputs, page_size = job.inputs, job.inputs["key_pool"].shape[1]
    tokens = [int(t) for t in inputs["tokens"]]
    widest, (N, H, G, d) = page_count(max(tokens), page_size), inputs["queries"].shape
    masks = np.zeros((2, N, H, widest), np.uint8)
    count, output = np.zeros((N, H), np.int64), np.zeros((N, H, G, d))
    bounds = {dtype: np.zeros(output.shape) for dtype in job.dtypes}
    for n, length in enumerate(tokens):
        gathered = {
            "queries": inputs["queries"][n],
            "keys": gather_sequence(inputs["key_pool"], inputs["block_table"][n], length),
            "values": gather_sequence(inputs["value_pool"], inputs["block_table"][n], length),
        }
        sequence = {**inputs, **gathered, "page_size": page_size}
        must, may, pages = decode_sequence(sequence, page_size, f"{job.case.id}, sequence {n}")
        if pages is None:
            raise GoldenError(f"{job.case.id}: sequence {n} leaves a choice of pages")
        masks[0, n, :, : must.shape[1]], masks[1, n, :, : must.shape[1]], count[n] = must, may, pages.shape[1]
        output[n], own = attended(job, sequence | {"pages": pages})
        for dtype, bound in own.items():
            bounds[dtype][n] = bound
    sets = {"must": masks[0], "may": masks[1], "count": count}
    return {"pages": Judged("pages", sets), "output": within(output, bounds)}


def build_summary(job: Job) -> dict[str, Judged]:
    """`locks_build_summary`: the centroid, and what the kept modes span and rebuild; never the vectors themselves.

    Only columns whose coefficients are longer than ``band`` count (AMB-10). With E the error of the port's
    eigenproblem, s the kept singular values less Weyl's E, a of them, and g the gap of squared ones behind them:
    columns leave the plane by N = E / (g - E) (Davis-Kahan) and their own rounding; they are orthonormal up to
    O = sqrt(sum_ij (E / (s_i s_j) + ...)^2); so the projector errs by O + 2 N^2 + 2 (1 + O) N. The reconstruction
    C V^T errs by sigma_1 times that, and by the coefficients' own error times the columns' norm, sqrt(1 + O).
    """
    pages, rank = job.inputs["key_pages"], int(job.inputs["rank"])
    H, P, B, d = pages.shape
    u = precision("float32").roundoff
    centroid, projector = np.zeros((H, P, d)), np.zeros((H, P, d, d))
    rebuilt = np.zeros(pages.shape)
    limits = np.zeros((3, H, P))  # of the projector, of the reconstruction, and the band
    for h, p in np.ndindex(H, P):
        mean, deviations, sigma, right = fifty_digits.page_modes(pages[h, p])
        sigma = [s for s in sigma if s > ZERO_MODE]
        columns = np.array(right[: min(rank, len(sigma))], dtype=object).reshape(-1, d)
        span = columns.T @ columns if len(columns) else np.zeros((d, d))
        centroid[h, p], projector[h, p] = rounded(mean), rounded(span)
        rebuilt[h, p] = rounded(np.array(deviations, dtype=object) @ span)
        limits[:, h, p] = summary_limits(pages[h, p], [float(s) for s in sigma], rank, u, job.case.id)
    mean_bound = gamma(B + 1, u) * np.abs(pages).mean(axis=2) + precision("float32").tiny
    up = [three_digits_up(limit) for limit in limits]
    summary = {"projector": projector, "reconstruction": rebuilt}
    summary |= {"projector_bound": up[0], "reconstruction_bound": up[1], "band": up[2]}
    return {
        "centroid": within(centroid, {"float32": mean_bound}),
        "basis": Judged("summary", summary),
        "coefficients": Judged("summary"),
    }


def summary_limits(page: Array, sigma: list[float], rank: int, u: float, name: str) -> tuple[float, float, float]:
    """Frobenius bounds of one page's projector and reconstruction, and the band; see `build_summary`."""
    B, d = page.shape
    deviations = page - page.mean(axis=0)
    scale = page_scale(page[None, None], deviations[None, None], u)
    norm, E, band, centring = (
        float(part[0, 0]) for part in (np.sqrt(scale.energy), scale.gram, scale.band, scale.centring)
    )
    alive = min(rank, len(sigma))
    if alive == 0:
        return 0.0, 0.0, band
    gap = sigma[alive - 1] ** 2 - (sigma[alive] ** 2 if alive < len(sigma) else 0.0)
    if gap <= 4 * E or sigma[alive - 1] <= 2 * band:
        raise GoldenError(f"{name}: mode {alive} has too small a gap behind it, or lies near the band")
    s = np.sqrt(np.array(sigma[:alive]) ** 2 - E)
    lengths = norm / s
    pairs = E / np.outer(s, s) + gamma(B + d, u) * (lengths[:, None] + lengths + 1)
    O = float(np.linalg.norm(pairs))  # noqa: E741
    N = E / (gap - E) + gamma(B + d, u) * float(np.linalg.norm(lengths))
    turned = O + 2 * N**2 + 2 * (1 + O) * N
    own = np.linalg.norm(2 * E / s + gamma(B + d + 4, u) * norm + centring)
    return turned, sigma[0] * turned + float(own) * np.sqrt(1 + O), band


RULES = {
    "locks_build_summary": build_summary,
    "locks_quantize_summary": quantize_summary,
    "locks_select_pages": select_pages,
    "locks_decode": decode,
    "locks_decode_paged": decode_paged,
}
