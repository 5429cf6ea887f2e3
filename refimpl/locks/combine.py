"""Combine: fold a GQA group's page scores into one share per page (Locks Sec. 4, Table D.17)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, real

COMBINES = ("share_average", "group_max", "group_mass")


def head_shares(scores: FloatArray) -> FloatArray:
    """Each query head's page-mass shares, softmax over pages: [..., P] -> [..., P]; all -inf gives 0.

    >>> head_shares(np.log([[1.0, 3.0]])).round(12).tolist()
    [[0.25, 0.75]]
    """
    total = log_sum_exp(scores)[..., None]
    shares: FloatArray = np.exp(scores - np.where(np.isneginf(total), 0.0, total))
    return shares


def locks_page_shares(*, scores: Any, combine: str = "share_average") -> FloatArray:
    """One share per page and KV head from the scores of its G query heads.

    Args:
        scores: [H, G, P], log-masses in nats of all P pages, the open page's exact score last (AMB-01); -inf is an
            empty page. Nothing is forced here.
        combine: "share_average" (the mean over the group of each head's shares), "group_max" (their maximum; it does
            not sum to 1) or "group_mass" (softmax over pages of the group's pooled mass), AMB-29.

    Returns:
        shares [H, P]. A head whose scores are all -inf contributes 0.

    Raises:
        ArgumentError: a shape, NaN, +inf, G = 0, or an unknown rule.

    Source: Locks Sec. 4 (share average), Table D.17 (the other rules).

    Head 0 gives shares (3/4, 1/4), head 1 gives (1/2, 1/2).

    >>> scores = np.log([[[3.0, 1.0], [5.0, 5.0]]])
    >>> locks_page_shares(scores=scores).round(12).tolist()
    [[0.625, 0.375]]
    >>> locks_page_shares(scores=scores, combine="group_max").round(12).tolist()
    [[0.75, 0.5]]
    >>> locks_page_shares(scores=scores, combine="group_mass").round(12).tolist()
    [[0.571428571429, 0.428571428571]]
    """
    sizes = Sizes()
    scores = real("scores", scores, "H G P", sizes, minus_infinity=True)
    rule = choice("combine", combine, COMBINES)
    if sizes["G"] == 0:
        raise ArgumentError("scores: expected at least one query head, got G=0")
    if rule == "group_mass":
        return head_shares(log_sum_exp(np.moveaxis(scores, 1, -1)))  # [H, P]
    shares = head_shares(scores)  # [H, G, P]
    return shares.mean(axis=1) if rule == "share_average" else shares.max(axis=1)
