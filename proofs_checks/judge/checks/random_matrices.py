"""Judging what is drawn at random: no reference has the same draw, so its law is judged, with tails that are proved.

Each test alone fails a right port with probability at most `ALARM`, whatever its generator; a port draws the same
numbers from the same seeds every time, so an alarm would be once and for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import beta

from proofs_checks.bounds.common import gamma
from proofs_checks.judge.case import Calls, Inputs
from proofs_checks.judge.judgement import Fault, Judgement, compare
from refimpl.checks import FloatArray

ALARM = 1e-9
"""Probability with which one test fails a port that is right."""

NAPIER = math.log(2 / ALARM)


def hoeffding(count: int) -> float:
    """How far the share of one of two equally likely outcomes of ``count`` independent draws may be from 1/2.

    >>> round(hoeffding(1024), 3)
    0.102
    """
    return math.sqrt(NAPIER / (2 * count))


def gaussian_mean(lipschitz: float, count: int) -> float:
    """How far the mean of ``count`` independent values, each ``lipschitz`` in its normals, may be from expectation.

    Gaussian concentration: P(|mean - E| > t) <= 2 exp(-count t^2 / (2 L^2)).

    >>> round(gaussian_mean(1.0, 4096), 3)
    0.102
    """
    return lipschitz * math.sqrt(2 * NAPIER / count)


def orthogonality_bound(d: int, u: float) -> float:
    """|Q Q^T - I| of a Householder QR in precision u: sqrt(d) gamma_{6d} each side (Higham, Theorem 19.4), doubled."""
    return float(2 * math.sqrt(d) * gamma(6 * d, u))


def drawn(calls: Calls, inputs: Inputs, seeds: int, shape: tuple[int, ...], result: str) -> FloatArray:
    """The port's results for seeds 0, 1, ..., stacked."""
    answers = [calls.ask({**inputs, "seed": seed}, {result: shape})[result] for seed in range(seeds)]
    return np.stack([np.asarray(answer, dtype=np.float64) for answer in answers])


def rotations_judged(seeds: int) -> Callable[[Calls, Inputs], Judgement]:
    """A trial of `turboquant_rotation`: orthogonal, the same for the same seed, and of the law that was asked for."""

    def trial(calls: Calls, inputs: Inputs) -> Judgement:
        d, judgement = int(inputs["d"]), Judgement()
        every = drawn(calls, inputs, seeds, (d, d), "rotation")
        product = np.einsum("nij,nkj->nik", every, every)
        identity = np.broadcast_to(np.eye(d), product.shape)
        compare(judgement, "rotation @ rotation.T", product, identity, orthogonality_bound(d, calls.precision.roundoff))
        again = drawn(calls, inputs, 1, (d, d), "rotation")[0]
        if not np.array_equal(again, every[0]):
            judgement.faults.append(Fault("rotation", None, "rotation: seed 0 gave two different matrices"))
        if not judgement.faults:
            (_haar if inputs["kind"] == "haar" else _hadamard)(judgement, every, calls.precision.roundoff)
        return judgement

    return trial


def _haar(judgement: Judgement, every: FloatArray, u: float) -> None:
    """Signs along the diagonal and the first row are independent fair coins; an entry is a sphere's coordinate."""
    d = every.shape[-1]
    diagonal = np.diagonal(every, axis1=1, axis2=2)
    _fair(judgement, diagonal, "diagonal")
    _fair(judgement, every[:, 0], "first row")
    for i, j in ((0, 0), (d // 3, d // 2)):
        _distributed(judgement, every[:, i, j], (i, j), d)


def _hadamard(judgement: Judgement, every: FloatArray, u: float) -> None:
    """All entries +-1/sqrt(d), signs of the first row independent fair coins."""
    d = every.shape[-1]
    compare(judgement, "|rotation|", np.abs(every), np.full(every.shape, d**-0.5), gamma(2 * d, u) * d**-0.5)
    _fair(judgement, every[:, 0], "first row")


def _fair(judgement: Judgement, signs: FloatArray, where: str) -> None:
    """Half of independent signs are negative."""
    share, room = float(np.mean(signs < 0)), hoeffding(signs.size)
    judgement.see(abs(share - 0.5) / room)
    if abs(share - 0.5) > room:
        text = (
            f"rotation: {share:.3f} of the {signs.size} entries of the {where} of {len(signs)} matrices are negative, "
            f"expected 0.5 within {room:.3f}; their mean is {signs.mean():.3f}"
        )
        judgement.faults.append(Fault("rotation", None, text, abs(share - 0.5) / room))


def _distributed(judgement: Judgement, entries: FloatArray, where: tuple[int, int], d: int) -> None:
    """Independent draws of one entry against the law of a unit vector's coordinate (Dvoretzky-Kiefer-Wolfowitz)."""
    entries, count = np.sort(entries), len(entries)
    law = beta.cdf((entries + 1) / 2, (d - 1) / 2, (d - 1) / 2)
    steps = np.arange(count + 1) / count
    distance = float(max(np.max(steps[1:] - law), np.max(law - steps[:-1])))
    room = hoeffding(count)  # the same number: sqrt(log(2 / alarm) / (2 n))
    judgement.see(distance / room)
    if distance > room:
        text = (
            f"rotation: entry {list(where)} of {count} matrices is not distributed as a coordinate of a unit vector of "
            f"R^{d}: the distribution functions differ by {distance:.3f}, at most {room:.3f} expected"
        )
        judgement.faults.append(Fault("rotation", where, text, distance / room))


def unbiased(seeds: int, rest: float) -> Callable[[Calls, Inputs], Judgement]:
    """A trial of estimates of inner products: their mean over seeds is the inner product.

    Given all else, a row of the projection contributes sqrt(pi/2) |r| sign(s.r) (s.q), sqrt(pi/2) |r| |q|-Lipschitz in
    the normals s; ``rest`` bounds |r| / |x|. Many ports draw the rotation from a seed and the projection from the next,
    so that one call's projection is the next call's rotation: the deviations are then a martingale's, each as bounded
    given those before, and the tail of their mean is the same.
    """

    def trial(calls: Calls, inputs: Inputs) -> Judgement:
        x, queries = (np.asarray(inputs[n], dtype=np.float64) for n in ("x", "queries"))
        d, judgement = x.shape[1], Judgement()
        every = drawn(calls, inputs, seeds, (len(queries), len(x)), "estimates")
        sizes = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(x, axis=1)
        room = gaussian_mean(math.sqrt(math.pi / 2) * rest, seeds * d) * sizes
        room = room + gamma(4 * d + 20, calls.precision.roundoff) * 4 * math.sqrt(d) * sizes
        mean, right = every.mean(axis=0), queries @ x.T
        compare(judgement, f"mean of {seeds} seeds of estimates", mean, right, room)
        if judgement.faults and judgement.faults[0].index is not None:
            at: Any = judgement.faults[0].index
            if abs(right[at]) > room[at]:
                text = f"{judgement.faults[0].message}; the mean is {mean[at] / right[at]:.4f} of the inner product"
                judgement.faults[0] = Fault("estimates", at, text, judgement.faults[0].ratio)
        return judgement

    return trial


def linear_in_queries(calls: Calls, inputs: Inputs) -> Judgement:
    """With the same seed, the estimate for the sum of two queries is the sum of their estimates."""
    x, queries = (np.asarray(inputs[n], dtype=np.float64) for n in ("x", "queries"))
    d, judgement = x.shape[1], Judgement()
    both = calls.ask({**inputs, "queries": inputs["queries"][:2]}, {"estimates": (2, len(x))})["estimates"]
    total = (inputs["queries"][:1] + inputs["queries"][1:2]).astype(inputs["queries"].dtype)
    one = calls.ask({**inputs, "queries": total}, {"estimates": (1, len(x))})["estimates"]
    # the largest row of a projection has about sqrt(d) + 6, and its estimate that times |q| |x| sqrt(pi/2)
    sizes = 2 * (math.sqrt(d) + 6) * np.linalg.norm(queries[:2], axis=1).sum() * np.linalg.norm(x, axis=1)
    bound = gamma(4 * d + 20, calls.precision.roundoff) * sizes
    compare(judgement, "estimates", np.asarray(one, float)[0], np.asarray(both, float).sum(axis=0), bound)
    return judgement
