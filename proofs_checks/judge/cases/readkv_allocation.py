"""Cases of ChooseDepths."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.readkv_inputs import captured_cache, gains_of, rotated_queries
from refimpl.readkv.importance import readkv_key_importance

EXCHANGE = "a = (4, 1), gains (1/2, 1/4), 3 refinements: depths (2, 1)"
MINIMUM = "a = (1024, 1), 5 refinements, 2 of them the minimum: (4, 1)"
CLOSE_GAINS = "gains 1/2 and 1/4 + 2^-12: a second step of weight 1 is worth more than a first of 1/2, by 2^-12"
CLOSE = "importances 1 and 1 + 2^-12: equal in half precision, not in float32"


STAGE = Family("readkv_choose_depths", "C")


def choose_cases() -> list[Case]:
    """Cases of `readkv_choose_depths`."""
    return [*_exact_cases(), *_range_cases(), *_drawn_cases(STAGE)]


def exact(name: str, why: str, importance: Any, gains: Any, budget: int, suspect: str = "C", **more: Any) -> Case:
    """A probe on inputs whose gains compare exactly."""

    def inputs() -> Inputs:
        return {"importance": np.asarray(importance), "gains": np.asarray(gains), "budget": budget, **more}

    return STAGE.exact(name, suspect, why, inputs)


def _exact_cases() -> list[Case]:
    one, tree = [1.0, 0.0, 0.0, 0.0], gains_of()
    return [
        exact("largest-first", EXCHANGE, [4.0, 1.0], [0.5, 0.25], 3),
        exact("in-turn", "a = (3, 1), gains (1/2, 1/4, 1/8): (2, 1), not (3, 0)", [3.0, 1.0], [0.5, 0.25, 0.125], 3),
        exact("ties", "three equal items, 2 refinements: any two of the first steps", np.ones(3), [0.5, 0.25, 0.25], 2),
        exact(
            "tied-levels", "gains (1/2, 1/2, 1/4): a second step ties with first ones", np.ones(3), [0.5, 0.5, 0.25], 2
        ),
        exact("equal-weights", "128 equal items, 256 refinements: 2 each", np.ones(128), tree, 256),
        exact("zero-gain", "one live item, 20 refinements: depths (8, 0, 0, 0), 12 unspent", one, tree, 20),
        exact("zero-levels", "gains that end in 0 are not bought", [2.0, 1.0], [0.5, 0.25, 0.0, 0.0], 7),
        exact("no-budget", "0 refinements: all depths 0", [4.0, 1.0], tree, 0),
        exact("whole-budget", "N W refinements: all depths W", [4.0, 1.0, 2.0], tree, 24),
        exact("last-refinement", "N W - 1: only the poorest last step is missing", [4.0, 1.0, 2.0], tree, 23),
        exact("one-level", "W = 1: the two largest of four", [1.0, 3.0, 2.0, 4.0], [0.5], 2),
        exact("minimum-bought-first", "minimum_depth 1 counts against the budget", one, tree, 20, minimum_depth=1),
        exact("minimum-and-more", MINIMUM, [1024.0, 1.0], tree, 5, minimum_depth=1),
        exact("minimum-only", "the budget is the minimum", [1.0, 2.0], tree, 4, minimum_depth=2),
        exact("minimum-at-the-top", "minimum_depth W", [1.0, 2.0], tree[:3], 6, minimum_depth=3),
        STAGE.illegal("minimum-beyond-budget", "C", "3 items at minimum_depth 2 need 6, not 5: refused", _beyond),
        exact("tied-levels-odd", "the same with 3 refinements", np.ones(3), [0.5, 0.5, 0.25], 3),
        exact("close-gains", CLOSE_GAINS, [0.5, 1.0], [0.5, 0.25 + 2.0**-12], 2, "I"),
        exact("one-item", "N = 1: all it can take", [0.5], tree, 5),
        *[exact(f"{W}-levels", f"W = {W}: all depths W", [4.0, 1.0, 2.0], tree[:W], 3 * W) for W in (2, 3, 4, 5, 6, 7)],
        exact("no-items", "N = 0 is legal", np.zeros(0), tree, 0, suspect="A"),
    ]


def _range_cases() -> list[Case]:
    """Importances that lie far apart, or next to each other."""
    tree = gains_of()
    return [
        exact("light-item-waits", "a = (2^-40, 1), 9: the heavy item is full first", [2.0**-40, 1.0], tree, 9, "I"),
        exact("close-importances", CLOSE, [1.0, 1.0 + 2.0**-12], [0.5, 0.25], 1, "I"),
        exact(
            "importances-one-ulp-apart",
            "(1, 1 + 2^-23): all 32 bits of a worth count",
            [1.0, 1.0 + 2.0**-23],
            [0.5, 0.25],
            1,
            "I",
        ),
        exact(
            "tiny-importances", "2^-70 and less are still worth something", 2.0 ** -np.arange(70.0, 90), tree, 40, "I"
        ),
        exact("large-importances", "2^100 does not overflow", 2.0 ** np.arange(100.0, 80, -1), tree, 37, "I"),
    ]


def _drawn_cases(stage: Family) -> list[Case]:
    """Cases whose depths are judged by what they buy."""

    def drawn(name: str, why: str, make: Any, **more: Any) -> Case:
        return stage.general(name, why, make, kind="set", **more)

    return [
        drawn("random", "random importances, a third of the budget", partial(_random, 96, 256)),
        drawn("random-3000", "3000 items", partial(_random, 3000, 7001)),
        drawn("heavy-tail", "squared softmax weights over 60 decades, dead tokens", _heavy_tail),
        drawn("capture-keys", "real importances of 3 heads, rate 2", _captured),
        drawn(
            "ties-524288", "4 x 131,072 equal weights, one refinement more than items", _many_ties, profile="default"
        ),
        drawn("random-524288", "4 x 131,072 weights, rate 2", partial(_random, 524288, 1048576), profile="default"),
    ]


def _beyond() -> Inputs:
    return {"importance": np.ones(3), "gains": gains_of(), "budget": 5, "minimum_depth": 2}


def _random(N: int, budget: int) -> Inputs:
    return {"importance": generator("choose", f"{N}").random(N) ** 4, "gains": gains_of(), "budget": budget}


def _heavy_tail() -> Inputs:
    logits = generator("choose", "tail").normal(size=400) * 30
    weights = np.exp(logits - logits.max()) ** 2
    weights[::7] = 0.0
    return {"importance": weights, "gains": gains_of(), "budget": 800}


def _captured() -> Inputs:
    scale = captured_cache(2)["key_scale"]
    importance = readkv_key_importance(rotated_queries=rotated_queries(2, 4), key_scale=scale)
    return {"importance": importance.ravel(), "gains": gains_of(), "budget": 2 * importance.size}


def _many_ties() -> Inputs:
    return {"importance": np.ones(524288), "gains": gains_of(), "budget": 524289}
