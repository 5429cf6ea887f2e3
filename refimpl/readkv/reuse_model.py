"""Cost models of stored and read bits: cache reuse, crossovers and throughput (App. A.2-A.7). Exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from refimpl.checks import ArgumentError, whole
from refimpl.readkv.budgets import Rate, exact_rate


def historical_reads(*, prompt: int, steps: int) -> int:
    """S(N, L) = L N + L (L - 1) / 2: scalars read from the cache over L decode steps, per scalar stored per token.

    Args: prompt N >= 0 tokens, steps L >= 1. Source: ReadKV App. A.2.

    >>> historical_reads(prompt=2, steps=3)                                # 2 + 3 + 4
    9
    """
    prompt, steps = whole("prompt", prompt, low=0), whole("steps", steps, low=1)
    return steps * prompt + steps * (steps - 1) // 2


def payload_traffic(*, stored: Rate, read: Rate, prompt: int, steps: int, final_insertion: bool = True) -> Fraction:
    """T_{W,R}(N, L) = W (N + L) + R S(N, L): payload bits written and read per scalar; R = W is a fixed-rate codec.

    Args: stored W and read R in bits per scalar; without final_insertion N + L - 1 tokens are written.

    Source: ReadKV App. A.2.

    >>> payload_traffic(stored=8, read=2, prompt=2, steps=3)               # 8 * 5 + 2 * 9
    Fraction(58, 1)
    """
    W, R = exact_rate("stored", stored), exact_rate("read", read)
    reads = historical_reads(prompt=prompt, steps=steps)
    return W * (prompt + steps - (0 if final_insertion else 1)) + R * reads


def extra_write_fraction(*, stored: Rate, fixed: Rate, prompt: int, steps: int) -> Fraction:
    """eta(N, L) = (W - W_0)(N + L) / (W_0 S(N, L)): added writes over the common reads when R = W_0 (no unit).

    Raises ArgumentError unless W > W_0 > 0 and S > 0. Source: ReadKV App. A.3.

    >>> round(float(extra_write_fraction(stored=8, fixed=4, prompt=8192, steps=128)), 7)
    0.0078735
    """
    W, W0 = _widths(stored, fixed)
    reads = historical_reads(prompt=prompt, steps=steps)
    if reads == 0:
        raise ArgumentError("steps: expected at least one historical read, got an empty cache and one step")
    return (W - W0) * (prompt + steps) / (W0 * reads)


def extra_write_limit(*, stored: Rate, fixed: Rate, steps: int) -> Fraction:
    """The limit of eta for N much larger than L: (W - W_0) / (W_0 L). Source: ReadKV App. A.3.

    >>> extra_write_limit(stored=8, fixed=4, steps=128)
    Fraction(1, 128)
    """
    return (capacity_ratio(stored=stored, fixed=fixed) - 1) / whole("steps", steps, low=1)


def steps_for_any_prompt(*, stored: Rate, fixed: Rate, fraction: Rate) -> int:
    """The least L for which eta(N, L) <= fraction at every N >= 0.

    eta falls with N, so N = 0 decides: 2 (W - W_0) / (W_0 (L - 1)) <= fraction.

    Source: ReadKV App. A.3.

    >>> steps_for_any_prompt(stored=8, fixed=4, fraction=0.01)
    201
    """
    W, W0 = _widths(stored, fixed)
    return max(2, 1 + math.ceil(2 * (W - W0) / (W0 * _positive_rate("fraction", fraction))))


def _positive_rate(name: str, rate: Rate) -> Fraction:
    value = exact_rate(name, rate)
    if value == 0:
        raise ArgumentError(f"{name}: expected a positive number, got {rate!r}")
    return value


def _widths(stored: Rate, fixed: Rate) -> tuple[Fraction, Fraction]:
    """W and W_0 with W > W_0 > 0."""
    W, W0 = exact_rate("stored", stored), _positive_rate("fixed", fixed)
    if W <= W0:
        raise ArgumentError(f"stored: expected more than fixed={fixed!r} bits, got {stored!r}")
    return W, W0


def traffic_saving(*, stored: Rate, read: Rate, fixed: Rate, prompt: int, steps: int) -> Fraction:
    """T_{W_0}(N, L) - T_{W,R}(N, L): payload bits per scalar that the progressive codec saves; negative if it loses.

    Source: ReadKV App. A.4.

    >>> traffic_saving(stored=8, read=2, fixed=4, prompt=0, steps=5)       # the crossover from an empty cache
    Fraction(0, 1)
    """
    fixed = exact_rate("fixed", fixed)
    usual = payload_traffic(stored=fixed, read=fixed, prompt=prompt, steps=steps)
    return usual - payload_traffic(stored=stored, read=read, prompt=prompt, steps=steps)


def crossover_steps(*, stored: Rate, read: Rate, fixed: Rate, prompt: int) -> float:
    """The decode length above which a progressive codec (W > W_0, R < W_0) moves fewer bits than a fixed one.

    (-c + sqrt(c^2 + 2 delta a N)) / delta with a = W - W_0, delta = W_0 - R, c = delta (N - 1/2) - a; for N = 0 this is
    1 + 2 a / delta. Raises ArgumentError unless W > W_0 > R.

    Source: ReadKV App. A.4.

    >>> crossover_steps(stored=8, read=2, fixed=4, prompt=0)
    5.0
    """
    (W, W0), R = _widths(stored, fixed), exact_rate("read", read)
    if R >= W0:
        raise ArgumentError(f"read: expected fewer than fixed={fixed!r} bits, got {read!r}")
    a, delta = W - W0, W0 - R
    c = delta * (whole("prompt", prompt, low=0) - Fraction(1, 2)) - a
    root = math.sqrt(c * c + 2 * delta * a * prompt)
    if c > 0:  # the other form of the same root, without cancellation
        return float(2 * a * prompt / (float(c) + root))
    return float((root - float(c)) / delta)


def capacity_ratio(*, stored: Rate, fixed: Rate) -> Fraction:
    """W / W_0, the ratio of payload capacities whatever the length; ArgumentError for W_0 = 0. Source: ReadKV App. A.7.

    >>> capacity_ratio(stored=8, fixed=4)
    Fraction(2, 1)
    """
    return exact_rate("stored", stored) / _positive_rate("fixed", fixed)


def concurrent_requests(*, memory: float, retained: float, request_bytes: float) -> float:
    """U = M / (s c_kv): requests whose caches fit, M and c_kv in bytes, s the retained part of dense (no unit).

    Source: ReadKV App. A.6.

    >>> concurrent_requests(memory=60.0, retained=0.5, request_bytes=0.5)
    240.0
    """
    return memory / (retained * request_bytes)


def step_bytes(*, weights: float, requests: float, fetched: float, request_bytes: float) -> float:
    """B_w + U r c_kv: bytes that one decode step of all requests moves. Source: ReadKV App. A.6.

    >>> step_bytes(weights=15.0, requests=240.0, fetched=0.125, request_bytes=0.5)
    30.0
    """
    return weights + requests * fetched * request_bytes


def relative_throughput(*, fetched: float, retained: float, weights_over_memory: float) -> float:
    """Tokens per time relative to dense when bound by memory traffic: (1 + beta) / (r + s beta), beta = B_w / M.

    Args: fetched r and retained s, parts of dense; no units. Source: ReadKV App. A.6.

    >>> round(relative_throughput(fetched=0.129, retained=0.501, weights_over_memory=0.25), 1)
    4.9
    """
    return (1.0 + weights_over_memory) / (fetched + retained * weights_over_memory)
