"""Dialects: what the public package locks-kv 0.1.4 does differently from the paper, as switches of the same functions.

`PAPER` gives exactly the results of `refimpl.locks`; `LOCKS_KV_0_1_4` sets every switch as that package does (grouped
query attention, page builds by the default eigensolver). `departures` gives the paper with one switch thrown at a time,
so that the cost of each can be measured in the paper's own terms.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from refimpl.attention import sparse_attention
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, choice, number, real, whole
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.quantize import LEVELS, locks_dequantize_summary, locks_quantize_summary
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.select import locks_select_pages, pages_within_budget
from refimpl.locks.summary import column_signs, locks_build_summary
from refimpl.paging import PagedCache, page_count, split_pages


@dataclass(frozen=True)
class Profile:
    """A dialect of Locks; the defaults are the paper."""

    name: str = "paper"
    query_int8: bool = False
    """Round every query head to int8 with one scale before scoring (the paper's Eq. (1) takes the exact query)."""
    scale_bf16: bool = False
    """Store scales in bf16 after the codes were computed with the exact scale."""
    eigenvalue_floor: float | None = None
    """Raise Gram eigenvalues to this floor and keep all modes; None drops zero modes."""
    scale_floor: float = 0.0
    """The smallest scale; 0 leaves a line of zeros with scale 0."""
    ascending: bool = False
    """Store the largest mode in the last column."""
    combine: str = "share_average"
    """"share_average", or "peak_normalised": the sum over the group of exp(score - largest score)."""
    forced_inside_budget: bool = True
    """Count sink and most recent page inside the budget."""


PAPER = Profile()
LOCKS_KV_0_1_4 = Profile("locks-kv-0.1.4", True, True, 1e-10, 1e-8, True, "peak_normalised", False)


def departures(profile: Profile) -> dict[str, Profile]:
    """The paper's profile with one switch at a time set as ``profile`` has it, by switch name.

    >>> sorted(departures(LOCKS_KV_0_1_4))[:3]
    ['ascending', 'combine', 'eigenvalue_floor']
    """
    names = [f.name for f in fields(Profile) if f.name != "name" and getattr(profile, f.name) != getattr(PAPER, f.name)]
    return {name: replace(PAPER, name=name, **{name: getattr(profile, name)}) for name in names}


def to_bf16(x: FloatArray) -> FloatArray:
    """Round to float32, then to bfloat16, each to nearest even, and give the value in float64; finite input.

    >>> to_bf16(np.array([1.0, 1.00390625, 1.01171875, -3.0])).tolist()         # 1 + 2^-8 and 1 + 3 2^-8 are halves
    [1.0, 1.0, 1.015625, -3.0]
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64).reshape(np.shape(x))


def build_summary(profile: Profile, *, key_pages: Any, rank: int) -> dict[str, FloatArray]:
    """`locks_build_summary` in a dialect; arguments, shapes and errors are its own.

    With a floor the page's Gram matrix is diagonalised, lambda is raised to the floor, and C = U sqrt(lambda),
    V = D^T U / sqrt(lambda) for the top r modes: a zero mode leaves a column that is not of unit length.

    >>> flat = build_summary(LOCKS_KV_0_1_4, key_pages=[[[[1.0], [1.0]]]], rank=1)
    >>> float(flat["basis"][0, 0, 0, 0]), round(float(np.linalg.norm(flat["coefficients"])), 9)
    (0.0, 1e-05)
    """
    if profile.eigenvalue_floor is None:
        built = locks_build_summary(key_pages=key_pages, rank=rank)
    else:
        sizes = Sizes()
        pages = real("key_pages", key_pages, "H P B d", sizes)
        rank = whole("rank", rank, low=1, high=min(sizes["B"], sizes["d"]))
        centroid = pages.mean(axis=2)
        deviations = pages - centroid[:, :, None]
        energies, left = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))  # ascending
        sigma = np.sqrt(np.maximum(energies[..., ::-1][..., :rank], profile.eigenvalue_floor))[..., None, :]
        left = left[..., ::-1][..., :rank]  # [H, P, B, r], falling
        basis = np.swapaxes(deviations, -1, -2) @ left / sigma
        sign = column_signs(basis)[..., None, :]
        built = {"centroid": centroid, "basis": basis * sign, "coefficients": left * sigma * sign}
    if profile.ascending:
        built |= {name: built[name][..., ::-1] for name in ("basis", "coefficients")}
    return built


def quantize_summary(
    profile: Profile, *, centroid: Any, basis: Any, coefficients: Any, basis_bits: int
) -> dict[str, Any]:
    """`locks_quantize_summary` in a dialect: codes by the exact scale, scales stored with their floor and precision.

    >>> codes = quantize_summary(LOCKS_KV_0_1_4, centroid=[[[1.0]]], basis=[[[[0.0]]]], coefficients=[[[[0.0]]]],
    ...                          basis_bits=4)
    >>> codes["centroid_codes"].tolist(), float(codes["centroid_scale"][0, 0]), codes["basis_codes"].tolist()
    ([[[127]]], 0.00787353515625, [[[[0]]]])
    """
    codes = locks_quantize_summary(centroid=centroid, basis=basis, coefficients=coefficients, basis_bits=basis_bits)
    if profile.scale_floor:
        values = {"centroid": (centroid, -1, 8), "basis": (basis, -2, basis_bits), "coefficient": (coefficients, -1, 8)}
        for name, (x, axis, bits) in values.items():
            scale = np.maximum(codes[f"{name}_scale"], profile.scale_floor)
            ratio = np.rint(np.asarray(x, dtype=np.float64) / np.expand_dims(scale, axis))
            codes[f"{name}_codes"] = np.clip(ratio, -LEVELS[bits], LEVELS[bits]).astype(np.int8)
            codes[f"{name}_scale"] = scale
    if profile.scale_bf16:
        codes |= {name: to_bf16(array) for name, array in codes.items() if name.endswith("_scale")}
    return codes


def round_queries(queries: FloatArray) -> FloatArray:
    """Queries [..., d] rounded to int8 codes with one scale per head, as values again; a zero query stays zero.

    >>> round_queries(np.array([[127.0, 0.4, -2.5]])).tolist()
    [[127.0, 0.0, -2.0]]
    """
    scale = np.maximum(np.abs(queries).max(axis=-1, keepdims=True, initial=0.0), 1e-8) / 127
    rounded: FloatArray = np.rint(queries / scale) * scale
    return rounded


def score_pages(
    profile: Profile, *, queries: Any, centroid: Any, basis: Any, coefficients: Any, softmax_scale: float | None = None
) -> FloatArray:
    """`locks_score_pages` in a dialect: with ``query_int8`` the same rounded query meets basis and centroid.

    >>> score_pages(LOCKS_KV_0_1_4, queries=[[[127.0, 0.4]]], centroid=[[[0.0, 1.0]]], basis=[[[[0.0], [0.0]]]],
    ...             coefficients=[[[[0.0]]]], softmax_scale=1.0).tolist()
    [[[0.0]]]
    """
    queries = real("queries", queries, "H G d", Sizes())
    return locks_score_pages(
        queries=round_queries(queries) if profile.query_int8 else queries,
        centroid=centroid,
        basis=basis,
        coefficients=coefficients,
        softmax_scale=softmax_scale,
    )


def page_values(profile: Profile, *, scores: Any) -> FloatArray:
    """Ranking value [H, P] of every page from scores [H, G, P] of all pages, the most recent page last.

    "share_average" is `locks_page_shares`. "peak_normalised" sums exp(score - peak) over the group, where the peak of a
    head is taken over all pages but the most recent one, whose own value is not used and is 0.

    >>> scores = np.log([[[4.0, 2.0, 8.0], [1.0, 2.0, 8.0]]])
    >>> page_values(LOCKS_KV_0_1_4, scores=scores).round(12).tolist()
    [[1.5, 1.5, 0.0]]
    """
    if choice("combine", profile.combine, ("share_average", "peak_normalised")) == "share_average":
        return locks_page_shares(scores=scores)
    sizes = Sizes()
    scored = real("scores", scores, "H G P", sizes, minus_infinity=True)[..., :-1]
    if sizes["G"] == 0:
        raise ArgumentError("scores: expected at least one query head, got G=0")
    peak = scored.max(axis=-1, keepdims=True, initial=-np.inf)
    values = np.zeros((sizes["H"], sizes["P"]))
    values[:, :-1] = np.exp(scored - np.where(np.isneginf(peak), 0.0, peak)).sum(axis=1)
    return values


def select_pages(profile: Profile, *, values: Any, budget_tokens: int, page_size: int) -> IntArray:
    """`locks_select_pages` in a dialect; values [H, P] -> pages [H, K], ascending.

    With ``forced_inside_budget`` off the budget counts ceil(b/B) >= 1 pages between sink and most recent page, which
    are kept besides; with at most one page between them everything is kept.

    >>> shares = [[0.0, 0.1, 0.4, 0.3, 0.0]]
    >>> select_pages(LOCKS_KV_0_1_4, values=shares, budget_tokens=16, page_size=16).tolist()
    [[0, 2, 4]]
    """
    values = real("values", values, "H P", Sizes())
    if profile.forced_inside_budget:
        return locks_select_pages(shares=values, budget_tokens=budget_tokens, page_size=page_size)
    free = page_count(whole("budget_tokens", budget_tokens, low=1), page_size)
    return locks_select_pages(shares=values, budget_tokens=(free + 2) * page_size, page_size=page_size)


def decode(
    profile: Profile,
    *,
    queries: Any,
    keys: Any,
    values: Any,
    rank: int,
    basis_bits: int,
    budget_tokens: int,
    page_size: int,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`locks_decode` in a dialect, basis_bits 2, 4 or 8, T may be 0. Arguments, results and errors are its own.

    The package casts softmax weights and values to float16 before their product; that is rounding, not another
    function, and is not repeated here.

    >>> keys = [[[0.0], [0.0], [5.0], [0.0], [0.0]]]
    >>> decode(LOCKS_KV_0_1_4, queries=[[[9.0]]], keys=keys, values=keys, rank=1, basis_bits=4, budget_tokens=1,
    ...        page_size=1)["pages"].tolist()
    [[0, 2, 4]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G d", sizes), real("keys", keys, "H T d", sizes)
    page_size = whole("page_size", page_size, low=1)
    if sizes["G"] == 0:
        raise ArgumentError("queries: expected at least one query head, got G=0")
    if sizes["T"] == 0:
        return {"output": np.zeros(queries.shape), "pages": np.zeros((sizes["H"], 0), np.int64)}
    complete, open_page = split_pages(keys, page_size)
    built = build_summary(profile, key_pages=complete, rank=rank)
    deployed = locks_dequantize_summary(**quantize_summary(profile, **built, basis_bits=basis_bits))
    scores = score_pages(profile, queries=queries, **deployed, softmax_scale=softmax_scale)
    if open_page.shape[1]:
        last = exact_page_scores(queries=queries, key_pages=open_page[:, None], softmax_scale=softmax_scale)
        scores = np.concatenate([scores, last], axis=-1)
    pages = select_pages(
        profile, values=page_values(profile, scores=scores), budget_tokens=budget_tokens, page_size=page_size
    )
    attended = sparse_attention(
        queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, softmax_scale=softmax_scale
    )
    return {"output": attended["output"], "pages": pages}


def decode_paged(
    profile: Profile,
    *,
    queries: Any,
    key_pool: Any,
    value_pool: Any,
    block_table: Any,
    tokens: Any,
    rank: int,
    basis_bits: int,
    budget_tokens: int,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`locks_decode_paged` in a dialect; arguments, results and errors are its own, -1 ends the shorter rows.

    >>> pool = np.zeros((2, 1, 1, 1))
    >>> decode_paged(LOCKS_KV_0_1_4, queries=np.ones((2, 1, 1, 1)), key_pool=pool, value_pool=pool,
    ...     block_table=[[1, 0], [0, -1]], tokens=[2, 1], rank=1, basis_bits=4, budget_tokens=1)["pages"].tolist()
    [[[0, 1]], [[0, -1]]]
    """
    cache = PagedCache(queries, key_pool, value_pool, block_table, tokens)
    settings = {"rank": rank, "basis_bits": basis_bits, "budget_tokens": budget_tokens, "page_size": cache.page_size}
    steps = []
    for n in range(cache.sizes["N"]):
        keys, values = cache.sequence(n)
        one = decode(
            profile, queries=cache.queries[n], keys=keys, values=values, **settings, softmax_scale=softmax_scale
        )
        steps.append(one)
    widest = max((one["pages"].shape[1] for one in steps), default=0)
    output = np.zeros(cache.queries.shape)  # [N, H, G, d]
    pages = np.full((cache.sizes["N"], cache.sizes["H"], widest), -1, dtype=np.int64)
    for n, one in enumerate(steps):
        output[n], pages[n, :, : one["pages"].shape[1]] = one["output"], one["pages"]
    return {"output": output, "pages": pages}


def budget_of_package(tokens: int, page_size: int, budget_pages: int, fraction: float = 0.1) -> int:
    """Pages that the package keeps of a sequence, forced ones included; budget_pages = 0 falls back to the fraction.

    >>> [budget_of_package(1024, 16, pages) for pages in (4, 0)]
    [6, 9]
    """
    budget_pages, fraction = whole("budget_pages", budget_pages, low=0), number("fraction", fraction, low=0)
    pages = page_count(tokens, page_size)
    between = pages - 2
    if between <= 1:
        return pages
    wanted = budget_pages if budget_pages > 0 else int(np.ceil(between * fraction))
    return pages_within_budget((min(max(wanted, 1), between) + 2) * page_size, page_size, pages)
