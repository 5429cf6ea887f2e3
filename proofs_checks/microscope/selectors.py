"""Selectors: a page summary and the score read from it. The paper's families, and the hook for one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proofs_checks.microscope.source import Rope
from refimpl.attention import log_sum_exp
from refimpl.baselines.centroid import centroid_scores, centroid_state_bytes
from refimpl.baselines.codebook import codebook_decode, codebook_encode, codebook_state_bytes, codebook_train
from refimpl.baselines.moment_core import moment_build_summary, moment_scores, moment_state_bytes
from refimpl.baselines.quest import quest_build_summary, quest_scores, quest_state_bytes
from refimpl.baselines.shared_basis import (
    covariance_basis,
    sequence_basis,
    shared_basis_pages,
    shared_state_bytes,
)
from refimpl.checks import ArgumentError, FloatArray, IntArray
from refimpl.locks.accounting import payload_bytes
from refimpl.locks.quantize import locks_dequantize_summary, locks_quantize_summary
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.summary import locks_build_summary


@dataclass
class PageContext:
    """What a summary may be built from: the complete pages of one KV head, and what is known offline."""

    key_pages: FloatArray
    """[P, B, d], post-RoPE."""
    positions: IntArray
    """[P, B], positions of the keys."""
    rope: Rope | None = None
    key_moments: tuple[FloatArray, FloatArray] | None = None
    """Held-out mean [d] and covariance [d, d]: a global basis is fitted to them."""
    first_head_keys: FloatArray | None = None
    """[P * B, d], keys of the layer's KV head 0: Fig. 1's global basis is fitted to them (AMB-28)."""
    _full: dict[str, FloatArray] = field(default_factory=dict, repr=False)

    @property
    def keys(self) -> FloatArray:
        """[P * B, d]."""
        return self.key_pages.reshape(-1, self.key_pages.shape[-1])

    def spectral(self, rank: int) -> dict[str, FloatArray]:
        """The Locks summary of ``rank``, cut from one build at full rank; every array has a leading axis of one head.

        The build keeps modes in falling order, so its first columns are the build at a smaller rank.
        """
        if not self._full:
            most = min(self.key_pages.shape[1:])
            self._full.update(locks_build_summary(key_pages=self.key_pages[None], rank=most))
        return {
            "centroid": self._full["centroid"],
            "basis": self._full["basis"][..., :rank],
            "coefficients": self._full["coefficients"][..., :rank],
        }


@dataclass(frozen=True)
class Selector:
    """A way to rank pages: ``build`` sees the keys once, ``score`` sees only queries and what build returned.

    ``score`` maps queries [n, d] to scores [n, P]; larger is better, and shares are their softmax over pages.
    ``bytes_per_page`` is the state it keeps per page and KV head; None leaves it out of the traffic table.
    """

    name: str
    build: Callable[[PageContext], Any]
    score: Callable[[FloatArray, Any], FloatArray]
    bytes_per_page: Callable[[PageContext], float] | None = None
    energy: Callable[[Any, PageContext], FloatArray] | None = None
    """Keys [P, B, d] that the summary stands for, where captured energy is defined."""


def rebuilt_scores(queries: FloatArray, key_pages: FloatArray) -> FloatArray:
    """Log-masses [n, P] of given (reconstructed) pages [P, B, d] for queries [n, d]."""
    return exact_page_scores(queries=queries[None], key_pages=key_pages[None])[0]


def factor_scores(queries: FloatArray, summary: dict[str, Any]) -> FloatArray:
    """Eq. (1) for one KV head: queries [n, d] and a summary with a leading axis of one head -> [n, P]."""
    return locks_score_pages(queries=queries[None], **summary)[0]


EXACT = Selector("exact LSE", lambda context: context.key_pages, rebuilt_scores, lambda c: 2.0 * c.key_pages[0].size)
"""The ceiling: reads every key, 2 B d bytes per page."""


def locks_selector(rank: int, basis_bits: int | str | None) -> Selector:
    """Locks at a rank and basis precision: 2, 4, 8, "fp" (only coefficients and centroid int8) or None (all exact)."""
    suffix = " unquantised" if basis_bits is None else "fp" if basis_bits == "fp" else f"i{basis_bits}"

    def build(context: PageContext) -> dict[str, FloatArray]:
        summary = context.spectral(rank)
        if basis_bits is None:
            return summary
        codes = locks_quantize_summary(**summary, basis_bits=basis_bits if isinstance(basis_bits, int) else 8)
        deployed = locks_dequantize_summary(**codes)
        return deployed | {"basis": summary["basis"]} if basis_bits == "fp" else deployed

    def size(context: PageContext) -> float:
        page_size, d = context.key_pages.shape[1:]
        return payload_bytes(rank, basis_bits if isinstance(basis_bits, int) else 16, page_size, d)

    return Selector(f"Locks r{rank}{suffix}", build, factor_scores, size)


def _centroid(queries: FloatArray, pages: FloatArray) -> FloatArray:
    return centroid_scores(queries=queries[None], centroid=pages.mean(1)[None], page_tokens=pages.shape[1])[0]


CENTROID = Selector(
    "centroid only", lambda c: c.key_pages, _centroid, lambda c: centroid_state_bytes(c.key_pages.shape[2])
)


def _quest(queries: FloatArray, envelope: dict[str, FloatArray]) -> FloatArray:
    scores: FloatArray = quest_scores(queries=queries[None], **envelope)[0] / np.sqrt(queries.shape[-1])
    return scores


QUEST = Selector(
    "min/max envelope (Quest)",
    lambda c: quest_build_summary(key_pages=c.key_pages[None]),
    _quest,
    lambda c: quest_state_bytes(c.key_pages.shape[2]),
)


def moment_selector(rank: int) -> Selector:
    """The moment core of Eq. (A.2) at a rank (COBS form)."""

    def score(queries: FloatArray, core: dict[str, Any]) -> FloatArray:
        return moment_scores(queries=queries[None], **core)[0]

    def build(context: PageContext) -> dict[str, Any]:
        core = moment_build_summary(key_pages=context.key_pages[None], rank=rank)
        return core | {"page_tokens": context.key_pages.shape[1]}

    return Selector(f"moment core r{rank}", build, score, lambda c: moment_state_bytes(rank, c.key_pages.shape[2]))


def shared_scopes(context: PageContext) -> list[str]:
    """The shared scopes that a capture allows: "global" needs held-out moments, "head-0" a second KV head."""
    known = {"global": context.key_moments, "head-0": context.first_head_keys, "sequence": context.key_pages}
    return [scope for scope, needed in known.items() if needed is not None]


def shared_fit(context: PageContext, scope: str, rank: int) -> dict[str, FloatArray]:
    """Mean [1, d] and basis [1, d, r] of a shared scope.

    "sequence" is fitted to this head's keys (ShadowKV), "head-0" to those of the layer's first KV head (Fig. 1's
    global), "global" to held-out moments (Loki). Raises ArgumentError where the capture lacks what the scope needs.
    """
    if scope == "global" and context.key_moments is not None:
        mean, covariance = context.key_moments
        return covariance_basis(mean=mean[None], covariance=covariance[None], rank=rank)
    keys = {"sequence": context.keys, "head-0": context.first_head_keys}.get(scope)
    if keys is None:
        raise ArgumentError(f"scope: expected one of {shared_scopes(context)}, got {scope!r}")
    return sequence_basis(keys=keys[None], rank=rank)


def shared_selector(scope: str, rank: int, form: str) -> Selector:
    """One basis for all pages: a scope of `shared_fit`, read in a form of AMB-28."""

    def build(context: PageContext) -> FloatArray:
        fit = shared_fit(context, scope, rank)
        return shared_basis_pages(key_pages=context.key_pages[None], form=form, **fit)[0]

    def size(context: PageContext) -> float:
        pages, page_size, d = context.key_pages.shape
        centroid = d if form == "projected" else 0  # int8, as in the Locks record
        return shared_state_bytes(rank, page_size, d, pages) + centroid

    return Selector(f"{scope} basis r{rank} ({form})", build, rebuilt_scores, size, lambda rebuilt, _: rebuilt)


def codebook_selector(entries: int) -> Selector:
    """One table of ``entries`` codewords for the sequence, trained on it."""

    def build(context: PageContext) -> FloatArray:
        keys = context.keys[None]
        words = codebook_train(keys=keys, entries=entries, sweeps=5)
        codes = codebook_encode(keys=keys, codewords=words)
        return codebook_decode(codes=codes, codewords=words)[0].reshape(context.key_pages.shape)

    def size(context: PageContext) -> float:
        pages, page_size, d = context.key_pages.shape
        return codebook_state_bytes(entries, page_size, d, pages)

    return Selector(f"codebook-{entries}", build, rebuilt_scores, size)


def group_scores(queries: FloatArray, selector: Selector, summary: Any) -> FloatArray:
    """Scores [n, G, P] of queries [n, G, d]."""
    n, G, d = queries.shape
    return selector.score(queries.reshape(n * G, d), summary).reshape(n, G, -1)


def open_page_score(queries: FloatArray, keys: FloatArray) -> FloatArray:
    """Exact log-mass [n] of the open page's keys [m, d] for queries [n, d]; no keys give -inf."""
    return log_sum_exp(queries @ keys.T / np.sqrt(queries.shape[-1]))
