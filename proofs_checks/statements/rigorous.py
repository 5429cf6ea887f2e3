"""Ball arithmetic as the arbiter: both sides of a statement enclosed, so that no false violation is ever reported.

python-flint is loaded only when this module's functions are called. Balls live in NumPy object arrays, so that @, *
and - work; the working precision is set around each decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

BITS = 200


@contextmanager
def precision(bits: int = BITS) -> Iterator[None]:
    """Run flint at ``bits`` of working precision, then restore what was set.

    >>> with precision(100):
    ...     (ball(1.0) / 3).rad() < 1e-29
    True
    """
    import flint

    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def available() -> bool:
    """Whether python-flint can be loaded."""
    try:
        import flint  # noqa: F401
    except ImportError:  # pragma: no cover - depends on the machine
        return False
    return True


def ball(value: float) -> Any:
    """The exact ball of one float64 (a dyadic rational)."""
    import flint

    return flint.arb(float(value))


def balls(array: Any) -> Any:
    """An object array of exact balls with the shape of ``array``."""
    source = np.asarray(array, dtype=np.float64)
    result = np.empty(source.shape, dtype=object)
    for index, value in np.ndenumerate(source):
        result[index] = ball(value)
    return result


def each(function: Callable[[Any], Any], array: Any) -> Any:
    """``function`` of every entry, as an object array."""
    result = np.empty(array.shape, dtype=object)
    for index, value in np.ndenumerate(array):
        result[index] = function(value)
    return result


def each_row(function: Callable[[Any], Any], matrix: Any) -> Any:
    """``function`` of every row of an object array [n, m], as an object array [n]."""
    result = np.empty(matrix.shape[0], dtype=object)
    for index in range(matrix.shape[0]):
        result[index] = function(matrix[index])
    return result


def softmax(logits: Any) -> Any:
    """Softmax of an object array [n] of balls."""
    shift = max(float(x.mid()) for x in logits)
    weights = each(lambda x: (x - shift).exp(), logits)
    return weights / total(weights)


def log_sum_exp(logits: Any) -> Any:
    """Log-sum-exp of an object array [n] of balls."""
    shift = max(float(x.mid()) for x in logits)
    return total(each(lambda x: (x - shift).exp(), logits)).log() + shift


def total(array: Any) -> Any:
    """Sum of all entries of an object array; an empty one gives the ball 0."""
    result = ball(0.0)
    for value in array.ravel():
        result += value
    return result


def norm(vector: Any) -> Any:
    """Euclidean (Frobenius) norm of an object array of balls; the radicand is cut at 0, where it cannot go below."""
    import flint

    squares = total(vector * vector)
    return flint.arb.sqrt(squares) if squares > 0 else flint.arb(squares.abs_upper()).sqrt().union(flint.arb(0))


def largest(array: Any) -> Any:
    """An enclosure of the maximum entry."""
    result = array.ravel()[0]
    for value in array.ravel()[1:]:
        result = result.max(value)
    return result


def symmetric_norm(matrix: Any) -> Any:
    """An enclosure of the largest eigenvalue of a symmetric positive semidefinite object array [n, n].

    Lower end: a Rayleigh quotient at the float64 eigenvector. Upper end: the trace of a high power's root, which
    exceeds the eigenvalue by at most n^(1/power).
    """
    import flint

    size = matrix.shape[0]
    middle = np.array([[float(matrix[i, j].mid()) for j in range(size)] for i in range(size)])
    vector = balls(np.linalg.eigh(middle)[1][:, -1])
    lower = total(vector * (matrix @ vector)) / total(vector * vector)
    power, doublings = flint.arb_mat(size, size, list(matrix.ravel())), 30
    scale_log = flint.arb(0)
    for _ in range(doublings):  # trace(A^(2^k))^(1/2^k), rescaled so that nothing overflows
        trace = sum((power[i, i] for i in range(size)), start=flint.arb(0))
        if not trace > 0:
            return lower.union(flint.arb(0)).union(flint.arb(trace.abs_upper()))
        power = power * (1 / flint.arb(trace.mid()))
        scale_log += flint.arb(trace.mid()).log()
        power, scale_log = power * power, 2 * scale_log
    trace = sum((power[i, i] for i in range(size)), start=flint.arb(0))
    upper = ((trace.log() + scale_log) / flint.arb(2) ** doublings).exp()
    return lower.union(upper)
