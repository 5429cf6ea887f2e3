"""Wrong page scores by other summaries, and wrong choices of Quest's pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.attention import tf32_rounded
from proofs_checks.mutants.registry import mutant
from refimpl.attention import scale_of
from refimpl.baselines.centroid import centroid_scores
from refimpl.baselines.codebook import codebook_scores
from refimpl.baselines.moment_core import moment_scores
from refimpl.baselines.quest import quest_envelope, quest_pages, quest_scores
from refimpl.baselines.shared_basis import shared_basis_scores

E = "quest_envelope"


@mutant("envelope-open-page-padded", E, "A", "the open page is padded with keys of 0 that count")
def padded_open_page(*, keys: Any, page_size: int) -> Any:
    """Minimum of a page of positive keys becomes 0."""
    pad = -keys.shape[1] % page_size
    return quest_envelope(keys=np.pad(keys, ((0, 0), (0, pad), (0, 0))), page_size=page_size)


@mutant("envelope-swapped", E, "H", "minimum and maximum are swapped")
def swapped(*, keys: Any, page_size: int) -> Any:
    """Named the wrong way round."""
    right = quest_envelope(keys=keys, page_size=page_size)
    return {"minimum": right["maximum"], "maximum": right["minimum"]}


@mutant("envelope-maximum-from-0", E, "A", "a running maximum that starts at 0")
def from_zero(*, keys: Any, page_size: int) -> Any:
    """Right where every channel has a positive key."""
    right = quest_envelope(keys=keys, page_size=page_size)
    return {**right, "maximum": np.maximum(right["maximum"], 0)}


S = "quest_scores"


@mutant("quest-scaled", S, "B", "the score is divided by sqrt(d)")
def quest_scaled(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """Ranks alike, but is no envelope score."""
    return quest_scores(queries=queries, minimum=minimum, maximum=maximum) / np.sqrt(queries.shape[-1])


@mutant("quest-maximum-only", S, "H", "every channel takes the maximum")
def maximum_only(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """Right for positive queries."""
    return np.einsum("hgd,hpd->hgp", queries, maximum)


@mutant("quest-larger-sum", S, "H", "the larger of q.u and q.l as a whole, not channel by channel")
def larger_sum(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """max outside the sum."""
    return np.maximum(np.einsum("hgd,hpd->hgp", queries, maximum), np.einsum("hgd,hpd->hgp", queries, minimum))


@mutant("quest-clamped-at-0", S, "H", "negative products are clamped to 0")
def clamped(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """max(q u, q l, 0)."""
    q = queries[:, :, None]
    return np.maximum(np.maximum(q * maximum[:, None], q * minimum[:, None]), 0).sum(axis=-1)


@mutant("quest-tf32", S, "I", "the products run in TF32")
def quest_tf32(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """Ten bits."""
    return quest_scores(queries=tf32_rounded(queries), minimum=tf32_rounded(minimum), maximum=tf32_rounded(maximum))


@mutant("quest-heads-tiled", S, "G", "query head h is scored on KV head h mod H")
def quest_tiled(*, queries: Any, minimum: Any, maximum: Any) -> Any:
    """The tiled map."""
    heads, group, d = queries.shape
    order = np.tile(np.arange(heads), group)
    flat = quest_scores(queries=queries.reshape(heads * group, 1, d), minimum=minimum[order], maximum=maximum[order])
    return flat.reshape(heads, group, -1)


P = "quest_pages"


@mutant("quest-pages-fewer-than-three", P, "C", "a small budget keeps fewer than three pages")
def fewer(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> Any:
    """floor(b / B) alone."""
    kept = min(max(budget_tokens // page_size, 1), scores.shape[-1])
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :kept]
    return _with_union(scores, order)


@mutant("quest-pages-ceiling", P, "C", "the budget is rounded up to pages")
def ceiling(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> Any:
    """Right for multiples."""
    budget = -(-budget_tokens // page_size) * page_size
    return quest_pages(scores=scores, budget_tokens=budget, page_size=page_size, recent_pages=recent_pages)


@mutant("quest-pages-no-union", P, "C", "a KV head reads the pages of its group's first query head only")
def no_union(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> Any:
    """The union is missing."""
    right = quest_pages(scores=scores, budget_tokens=budget_tokens, page_size=page_size, recent_pages=recent_pages)
    first = _with_union(scores[:, :1], right["pages"][:, :1])
    return {"pages": right["pages"], "read": first["read"]}


@mutant("quest-pages-of-group", P, "C", "one selection by the group's mean for all its query heads")
def of_group(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> Any:
    """Per KV head, as the others do."""
    pooled = np.broadcast_to(scores.mean(axis=1, keepdims=True), scores.shape)
    return quest_pages(scores=pooled, budget_tokens=budget_tokens, page_size=page_size, recent_pages=recent_pages)


@mutant("quest-pages-recent-forced", P, "C", "the last page is always kept")
def recent_forced(*, scores: Any, budget_tokens: int, page_size: int) -> Any:
    """The CUDA path's rule as the default."""
    return quest_pages(scores=scores, budget_tokens=budget_tokens, page_size=page_size, recent_pages=1)


@mutant("quest-pages-recent-on-top", P, "C", "the recent page comes on top of the budget")
def recent_on_top(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> Any:
    """One page more."""
    more = budget_tokens + recent_pages * page_size
    return quest_pages(scores=scores, budget_tokens=more, page_size=page_size, recent_pages=recent_pages)


def _with_union(scores: Any, pages: Any) -> Any:
    read = np.zeros((len(scores), scores.shape[-1]), dtype=np.uint8)
    np.put_along_axis(read, pages.reshape(len(scores), -1), 1, axis=1)
    return {"pages": np.sort(pages, axis=-1), "read": read}


C = "centroid_scores"


@mutant("centroid-log-16", C, "B", "ln 16 for a page of any length")
def centroid_log_16(*, queries: Any, centroid: Any, page_tokens: int, softmax_scale: float | None = None) -> Any:
    """A ragged page counts as a full one."""
    return centroid_scores(queries=queries, centroid=centroid, page_tokens=16, softmax_scale=softmax_scale)


@mutant("centroid-no-log", C, "B", "the log of the page's length is left out")
def centroid_no_log(*, queries: Any, centroid: Any, page_tokens: int, softmax_scale: float | None = None) -> Any:
    """Ranks alike among pages of equal length."""
    return centroid_scores(queries=queries, centroid=centroid, page_tokens=1, softmax_scale=softmax_scale)


@mutant("centroid-unscaled", C, "B", "1/sqrt(d) is left out")
def centroid_unscaled(*, queries: Any, centroid: Any, page_tokens: int, softmax_scale: float = 1.0) -> Any:
    """q.mu itself."""
    return centroid_scores(queries=queries, centroid=centroid, page_tokens=page_tokens, softmax_scale=softmax_scale)


M = "moment_scores"


@mutant("moment-no-half", M, "H", "the second cumulant is not halved")
def no_half(*, energies: Any, **rest: Any) -> Any:
    """sigma^2 for sigma^2 / 2."""
    return moment_scores(energies=2 * energies, **rest)


@mutant("moment-no-mean", M, "H", "the scatter is not divided by the page's length")
def no_mean(*, energies: Any, page_tokens: int, **rest: Any) -> Any:
    """A sum for a mean."""
    return moment_scores(energies=page_tokens * energies, page_tokens=page_tokens, **rest)


@mutant("moment-unbiased", M, "H", "the scatter is divided by n - 1")
def unbiased(*, energies: Any, page_tokens: int, **rest: Any) -> Any:
    """The sample variance."""
    return moment_scores(energies=energies * page_tokens / max(page_tokens - 1, 1), page_tokens=page_tokens, **rest)


@mutant("moment-scale-once", M, "H", "the scale enters the second term once, not squared")
def scale_once(*, queries: Any, energies: Any, softmax_scale: float | None = None, **rest: Any) -> Any:
    """scale for scale^2."""
    scale = scale_of(softmax_scale, queries.shape[-1])
    return moment_scores(queries=queries, energies=energies / scale, softmax_scale=softmax_scale, **rest)


@mutant("moment-log-16", M, "B", "ln 16 for a page of any length")
def moment_log_16(*, page_tokens: int, **rest: Any) -> Any:
    """A ragged page counts as a full one."""
    return moment_scores(page_tokens=page_tokens, **rest) - np.log(page_tokens) + np.log(16)


@mutant("moment-amplitudes", M, "H", "singular values stand for their squares")
def amplitudes(*, energies: Any, **rest: Any) -> Any:
    """sigma for sigma^2."""
    return moment_scores(energies=np.sqrt(energies), **rest)


B = "shared_basis_scores"


@mutant("shared-mean-forgotten", B, "H", "the mean that the basis was fitted about is left out")
def shared_no_mean(*, mean: Any, **rest: Any) -> Any:
    """The basis part only."""
    return shared_basis_scores(mean=np.zeros_like(mean), **rest)


@mutant("shared-log-mean-exp", B, "B", "the sum is divided by the page's length")
def shared_log_mean(*, coordinates: Any, **rest: Any) -> Any:
    """ln B off."""
    return shared_basis_scores(coordinates=coordinates, **rest) - np.log(coordinates.shape[2])


@mutant("shared-maximum", B, "B", "the largest logit stands for the log-sum-exp")
def shared_maximum(*, queries: Any, mean: Any, basis: Any, coordinates: Any, softmax_scale: Any = None) -> Any:
    """One token."""
    parts = [
        shared_basis_scores(
            queries=queries, mean=mean, basis=basis, coordinates=coordinates[:, :, [i]], softmax_scale=softmax_scale
        )
        for i in range(coordinates.shape[2])
    ]
    return np.max(parts, axis=0)


@mutant("shared-one-basis-for-all", B, "G", "KV head 0's basis serves every KV head")
def one_basis(*, basis: Any, **rest: Any) -> Any:
    """Right for one KV head."""
    return shared_basis_scores(basis=np.broadcast_to(basis[:1], basis.shape), **rest)


K = "codebook_scores"


@mutant("codebook-seven-bits", K, "D", "indices are kept in seven bits")
def seven_bits(*, codes: Any, **rest: Any) -> Any:
    """Right up to 128 codewords."""
    return codebook_scores(codes=codes & 127, **rest)


@mutant("codebook-words-once", K, "B", "a codeword counts once, however many tokens name it")
def once(*, queries: Any, codes: Any, codewords: Any, softmax_scale: float | None = None) -> Any:
    """A set of words for a list."""
    logits = scale_of(softmax_scale, queries.shape[-1]) * np.einsum("hgd,hnd->hgn", queries, codewords)
    scores = np.empty((*queries.shape[:2], codes.shape[1]))
    for h, page in np.ndindex(codes.shape[:2]):
        picked = logits[h][:, np.unique(codes[h, page])]
        top = picked.max(axis=-1)
        scores[h, :, page] = np.log(np.exp(picked - top[:, None]).sum(axis=-1)) + top
    return scores


@mutant("codebook-one-table", K, "G", "KV head 0's codebook serves every KV head")
def one_table(*, codewords: Any, **rest: Any) -> Any:
    """Right for one KV head."""
    return codebook_scores(codewords=np.broadcast_to(codewords[:1], codewords.shape), **rest)
