"""Random inputs at sizes that no other case has, so that a fault of one size alone is met.

Every group size up to 8 and some beyond, head sizes between powers of two, token and page counts at and around tiles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import random_qkv

GROUPS = (1, 2, 4, 5, 6, 7, 8, 12, 16)
WIDTHS = (16, 48, 80, 96, 112, 128, 160, 192, 256, 512)
LENGTHS = (2, 15, 16, 31, 32, 33, 64, 128, 129, 256, 512, 2048)

ONE_GROUP = "{} queries of every KV head, each with its own answer"
ONE_WIDTH = "d = {}: the scale is 1/sqrt(d), and every channel counts"
ONE_LENGTH = "{} tokens that all weigh about the same: none is lost at the end of a tile"

SUMMARIES = (
    (2, 5, 3, 112, 2, 2),
    (1, 6, 4, 64, 5, 3),
    (2, 4, 3, 96, 24, 12),
    (1, 1, 64, 64, 16, 16),
    (2, 7, 128, 32, 16, 4),
    (1, 16, 2, 128, 64, 5),
    (2, 12, 3, 160, 12, 6),
)
"""H, G, P, d, B, r of summaries to be scored."""

KEY_PAGES = (
    (1, 4, 0, 16, 64),
    (2, 7, 1, 15, 128),
    (1, 5, 2, 64, 96),
    (2, 6, 3, 2, 256),
    (1, 1, 64, 16, 48),
    (1, 16, 2, 33, 64),
)
"""H, G, P, tokens of a page, d of pages to be scored exactly."""


def attention_sizes() -> list[Case]:
    """Probes of `attention`."""
    stage = Family("attention", "B")
    return [
        *[stage.size(f"group-of-{G}", "G", ONE_GROUP.format(G), partial(_qkv, 2, G, 9, 64)) for G in GROUPS],
        *[stage.size(f"width-{d}", "A", ONE_WIDTH.format(d), partial(_qkv, 1, 2, 9, d)) for d in WIDTHS],
        *[stage.size(f"tokens-{T}", "A", ONE_LENGTH.format(T), partial(_even, T)) for T in LENGTHS],
    ]


def _qkv(H: int, G: int, T: int, d: int, sharpness: float = 2.0) -> Inputs:
    return dict(random_qkv(generator("varied", f"{H},{G},{T},{d}"), H, G, T, d, sharpness))


def _even(T: int) -> Inputs:
    return _qkv(1, 2, T, 32, 0.25)


def score_sizes() -> list[Case]:
    """Probes of `locks_score_pages`."""
    stage = Family("locks_score_pages", "H")
    why = "{} queries, {} pages of {} tokens, d = {}, rank {}"
    return [
        stage.size(f"G{G}-P{P}-d{d}-B{B}-r{r}", "A", why.format(G, P, B, d, r), partial(_summary, H, G, P, d, B, r))
        for H, G, P, d, B, r in SUMMARIES
    ]


def _summary(H: int, G: int, P: int, d: int, B: int, r: int) -> Inputs:
    rng = generator("varied-score", f"{H},{G},{P},{d},{B},{r}")
    basis, _ = np.linalg.qr(rng.normal(size=(H, P, d, r)))
    return {
        "queries": 2 * rng.normal(size=(H, G, d)),
        "centroid": rng.normal(size=(H, P, d)),
        "basis": basis,
        "coefficients": 2 * rng.normal(size=(H, P, B, r)),
    }


def exact_score_sizes() -> list[Case]:
    """Probes of `exact_page_scores`."""
    stage = Family("exact_page_scores", "B")
    return [
        stage.size(
            f"G{G}-P{P}-n{n}-d{d}",
            "A",
            f"{G} queries, {P} pages of {n} tokens, d = {d}",
            partial(_pages, H, G, P, n, d),
        )
        for H, G, P, n, d in KEY_PAGES
    ]


def _pages(H: int, G: int, P: int, n: int, d: int) -> Inputs:
    rng = generator("varied-exact", f"{H},{G},{P},{n},{d}")
    return {"queries": 2 * rng.normal(size=(H, G, d)), "key_pages": rng.normal(size=(H, P, n, d))}


def share_sizes() -> list[Case]:
    """Probes of `locks_page_shares`."""
    stage = Family("locks_page_shares", "C")
    return [
        *[stage.size(f"group-of-{G}", "G", ONE_GROUP.format(G), partial(_scores, G, 9)) for G in GROUPS],
        *[stage.size(f"P-{P}", "A", f"{P} pages that weigh about the same", partial(_scores, 2, P)) for P in PAGES],
    ]


PAGES = (16, 64, 128, 256, 1024, 4096, 5000)


def _scores(G: int, P: int) -> Inputs:
    return {"scores": generator("varied-shares", f"{G},{P}").normal(size=(2, G, P))}


def with_scale(inputs: Inputs) -> dict[str, Any]:
    """The same under a softmax scale of 1/2."""
    return {**inputs, "softmax_scale": 0.5}
