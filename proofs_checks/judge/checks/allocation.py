"""Judging allocations: range, budget and minimum depth exactly, and what was bought against what was left (AMB-19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma
from proofs_checks.judge.checks.general import BoundFunction, Check, exactly, within
from proofs_checks.judge.judgement import Call, Fault, Judgement, compare, compare_exactly
from refimpl.checks import FloatArray, IntArray


@dataclass(frozen=True)
class Purchase:
    """One allocation problem. A step of item i is worth between low_i and high_i times its level's gain.

    ``low``, ``high`` [N] enclose the importances that an honest port may rank by; ``costs`` [N] is what one step of an
    item costs; a step worth less than ``flush`` may have underflowed to nothing.
    """

    low: FloatArray
    high: FloatArray
    gains: FloatArray
    budget: int
    minimum_depth: int
    costs: IntArray
    flush: float
    shape: tuple[int, ...] = ()
    """What the items are an array of, for messages; a list where it is empty."""

    def place(self, item: int) -> tuple[int, ...]:
        """The item's index in that array.

        >>> none = np.zeros(0)
        >>> Purchase(none, none, none, 0, 0, none, 0.0, (2, 3)).place(4)
        (1, 1)
        """
        return tuple(int(i) for i in np.unravel_index(item, self.shape)) if self.shape else (item,)


def single_costs(items: int) -> IntArray:
    """The costs of items whose steps cost one refinement each."""
    return np.ones(items, dtype=np.int64)


def judge_purchase(judgement: Judgement, name: str, depths: IntArray, problem: Purchase) -> bool:
    """Judge depths [N]; returns whether they are in range, so that they can be read.

    Right are all results of buying steps in falling order of some worths within the enclosures: no step that was left
    is surely worth more than one that was bought, and budget is left only where nothing of worth remains or where the
    next step in order costs more. Then the objective is the optimum's up to the rounding of the worths.
    """
    W, least = len(problem.gains), problem.minimum_depth
    bad = (depths < least) | (depths > W)
    if bad.any():
        item = int(np.argmax(bad))
        judgement.faults.append(
            Fault(name, problem.place(item), f"{_item(name, problem, item)} is {depths[item]}, expected {least}..{W}")
        )
        return False
    spent = int(np.sum(depths * problem.costs))
    if spent > problem.budget:
        text = f"{name}: {spent} refinements are spent, the budget is {problem.budget}"
        judgement.faults.append(Fault(name, None, text))
        return True
    _judge_order(judgement, name, depths, problem, problem.budget - spent)
    return True


def _judge_order(judgement: Judgement, name: str, depths: IntArray, problem: Purchase, left: int) -> None:
    W = len(problem.gains)
    bought, open_items = np.flatnonzero(depths > problem.minimum_depth), np.flatnonzero(depths < W)
    last = problem.gains[depths[bought] - 1]
    worth = problem.high[bought] * last  # at most, of each item's last step
    if (worth == 0).any():
        item = int(bought[np.argmax(worth == 0)])
        text = f"{_item(name, problem, item)} is {depths[item]}, but its last step gains nothing and is never bought"
        judgement.faults.append(Fault(name, problem.place(item), text))
        return
    following = problem.gains[depths[open_items]]
    low, high = problem.low[open_items] * following, problem.high[open_items] * following
    best = int(np.argmax(low)) if low.size else -1
    if best >= 0 and worth.size and low[best] > max(float(worth.min()), problem.flush):
        item, poor = int(open_items[best]), int(bought[np.argmin(worth)])
        text = (
            f"{_item(name, problem, item)} is {depths[item]} and its next step is worth {low[best]:.6g}, while "
            f"{_item(name, problem, poor)} is {depths[poor]}, whose last step is worth {worth.min():.6g}"
        )
        judgement.faults.append(Fault(name, problem.place(item), text))
        return
    fits = problem.costs[open_items] <= left
    wanted = float(np.max(low[fits], initial=0.0))
    if wanted > problem.flush and wanted > np.max(high[~fits], initial=0.0):
        item = int(open_items[fits][np.argmax(low[fits])])
        where = _item(name, problem, item)
        text = f"{name}: {left} refinements are left, but the next step of {where} fits and is worth {wanted:.6g}"
        judgement.faults.append(Fault(name, problem.place(item), text))


def _item(name: str, problem: Purchase, item: int) -> str:
    return f"{name}{list(problem.place(item))}"


def ranked(bound_function: BoundFunction) -> Check:
    """The check of importances: equal or within the bound, up to one positive factor on all of them.

    Only their ranks matter, so a mean over the group or a scale folded in is as right as the sum.
    """

    def check(call: Call) -> Judgement:
        judgement = exactly(call) if call.kind == "exact" else within(bound_function)(call)
        reference = call.reference["importance"]
        answer: Any = np.asarray(call.answer["importance"], dtype=np.float64)
        total, own = float(np.sum(reference)), float(np.sum(answer))
        if judgement.faults and total > 0 and own > 0:
            factor = own / total
            bound = bound_function(call.inputs, call.reference, call.precision)["importance"]
            known = gamma(answer.size + 4, call.precision.roundoff) * factor * reference  # of the factor itself
            again = Judgement()
            compare(again, "importance", answer, factor * reference, factor * bound + known + call.precision.tiny)
            return judgement if again.faults else again
        return judgement

    return check


def chosen(call: Call) -> Judgement:
    """`readkv_choose_depths`: legal ties are free unless the port declares ``TIES = "lowest_index"``.

    On exact inputs every product importance times gain is representable and ranks exactly; otherwise products carry the
    rounding of an importance's factor, of a gain and of their product.
    """
    judgement = Judgement()
    importance, exact = call.inputs["importance"], call.kind == "exact"
    band = 0.0 if exact else gamma(3, call.precision.roundoff)
    problem = Purchase(
        importance * (1 - band),
        importance * (1 + band),
        call.inputs["gains"],
        int(call.inputs["budget"]),
        int(call.inputs.get("minimum_depth", 0)),
        single_costs(len(importance)),
        call.precision.tiny,
    )
    depths: Any = np.asarray(call.answer["depths"], dtype=np.int64)
    judge_purchase(judgement, "depths", depths, problem)
    if exact and call.lowest_index and not judgement.faults:
        compare_exactly(judgement, "depths", depths, call.reference["depths"])
    return judgement
