"""LazyEviction: tokens kept by when they were last looked at and how long they may rest (Locks App. C.2).

The paper does not say how the two factors combine nor what an interval of 0 means, and no code is at hand: both are
parameters (AMB-67), and no golden file depends on them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from refimpl.checks import FloatArray, IntArray, Sizes, choice, integers, number, real, whole

COMBINES = ("product", "sum")

WINDOW_SHARE = Fraction(363, 1492)
"""Published recent window over published capacity, about 0.243."""


def lazyeviction_track(*, last: Any, interval: Any, weights: Any, threshold: float, step: int) -> dict[str, IntArray]:
    """One step's bookkeeping: a token whose weight exceeds the threshold was looked at now.

    Args:
        last, interval: [H, G, T], step of the last look and longest rest so far. weights: [H, G, T] softmax weights.
        threshold: alpha, 1e-4 (Qwen3-4B) or 5e-4 (Llama). step: now.

    Returns:
        ``last`` and ``interval`` [H, G, T] after the step.

    Raises:
        ArgumentError: a shape, a non-finite weight, or a last look after ``step``.

    Source: Locks App. C.2.

    >>> state = lazyeviction_track(last=[[[2, 5]]], interval=[[[1, 1]]], weights=[[[0.5, 0.0]]], threshold=1e-4, step=9)
    >>> state["last"].tolist(), state["interval"].tolist()
    ([[[9, 5]]], [[[7, 1]]])
    """
    sizes = Sizes()
    step = whole("step", step, low=0)
    last = integers("last", last, "H G T", sizes, high=step)
    interval = integers("interval", interval, "H G T", sizes, low=0)
    seen = real("weights", weights, "H G T", sizes) > number("threshold", threshold)
    return {
        "last": np.where(seen, step, last),
        "interval": np.where(seen, np.maximum(interval, step - last), interval),
    }


def lazyeviction_scores(
    *, last: Any, interval: Any, step: int, combine: str = "product", least_interval: float = 1.0
) -> FloatArray:
    """Scores [H, G, T] from H1 = 2 sigmoid(-(t - last) / m) and H2 = 2 sigmoid(-1 / m), m = max(interval, least).

    H2 as written grows with the interval, although the text says that short intervals rank higher (AMB-67).

    Args:
        last, interval: [H, G, T], last look and longest rest in steps. step: t, not before any ``last``.
        combine: "product" or "sum" of the two. least_interval: what an interval is raised to, above 0.

    Raises:
        ArgumentError: a shape, a last look after ``step``, a negative interval, or a parameter out of range.

    Source: Locks App. C.2; arXiv 2506.15969.

    >>> lazyeviction_scores(last=[[[8]]], interval=[[[0]]], step=8).round(6).tolist()
    [[[0.537883]]]
    """
    sizes = Sizes()
    step = whole("step", step, low=0)
    last = integers("last", last, "H G T", sizes, high=step)
    interval = integers("interval", interval, "H G T", sizes, low=0)
    rest = np.maximum(interval, number("least_interval", least_interval, above=0))
    recent, rhythm = twice_sigmoid((last - step) / rest), twice_sigmoid(-1 / rest)
    both: FloatArray = recent * rhythm if choice("combine", combine, COMBINES) == "product" else recent + rhythm
    return both


def twice_sigmoid(x: FloatArray) -> FloatArray:
    """2 / (1 + e^-x) for x <= 0, written so that nothing overflows.

    >>> float(twice_sigmoid(np.array(0.0)))
    1.0
    """
    power = np.exp(x)
    result: FloatArray = 2 * power / (1 + power)
    return result


def lazyeviction_window(budget_tokens: int) -> int:
    """W, recent tokens that always stay: the published 363 of 1492 as a share of b, about 0.243 b (Locks C.2).

    >>> [lazyeviction_window(b) for b in (64, 1024, 1492)]
    [16, 249, 363]
    """
    return round(WINDOW_SHARE * whole("budget_tokens", budget_tokens, low=1))


def lazyeviction_resident_tokens(budget_tokens: int, group: int) -> tuple[int, int]:
    """Fewest and most tokens of a KV head whose G query heads each keep b: b and G b (Locks C.2).

    >>> lazyeviction_resident_tokens(512, 4)
    (512, 2048)
    """
    budget = whole("budget_tokens", budget_tokens, low=1)
    return budget, whole("group", group, low=1) * budget
