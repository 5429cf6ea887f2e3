"""Storage and reads of the fixed-rate codes, as percentages of a dense 16-bit cache. Every query reads all of them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from refimpl.baselines.kivi import kivi_residual
from refimpl.baselines.turboquant_slot import turboquant_slot_bytes
from refimpl.checks import ArgumentError, whole
from refimpl.readkv.accounting import DENSE_BITS, Method, call_lengths

PARAMETER_BITS = 2 * 16
"""A group's scale and offset, fp16 each."""


def kivi_bits(*, tokens: int, bits: int, rule: str = "readkv", group_size: int = 32, residual: int = 128) -> Fraction:
    """Bits of one channel's keys and values of ``tokens`` tokens, a channel's part of its groups' parameters included.

    A quantised scalar costs ``bits`` and its share of scale and offset; a residual one 16.

    Source: ReadKV App. F.2 (KIVI); AMB-47.

    >>> kivi_bits(tokens=256, bits=2) == 2 * (128 * 3 + 128 * 16)
    True
    """
    scalar = whole("bits", bits, low=1, high=8) + Fraction(PARAMETER_BITS, whole("group_size", group_size, low=1))
    dense = sum(kivi_residual(tokens=tokens, rule=rule, residual=residual))
    return scalar * (2 * tokens - dense) + DENSE_BITS * dense


def kivi_percent(*, lengths: Iterable[int], bits: int, rule: str = "readkv") -> Fraction:
    """Bits over the dense cache's, summed over cache lengths: one length for capacity, all calls' for reads.

    Source: ReadKV App. A.1; Tables 2, 3, 6 to 8.

    >>> float(round(kivi_percent(lengths=[2048], bits=2), 4)), float(round(kivi_percent(lengths=[2048], bits=4), 4))
    (23.8281, 35.5469)
    """
    lengths = call_lengths(lengths)
    held = sum((kivi_bits(tokens=length, bits=bits, rule=rule) for length in lengths), Fraction(0))
    return 100 * held / sum(2 * DENSE_BITS * length for length in lengths)


def turboquant_percent(*, layers: int, channels: int = 128, edge: int = 2) -> Fraction:
    """TurboQuant K4/V4: slots of channels + 6 bytes, the first and the last ``edge`` layers dense; of any length.

    Source: ReadKV App. F.2 (TurboQuant); Tables 2, 3, 7 and 8.

    >>> float(round(turboquant_percent(layers=28), 2)), float(round(turboquant_percent(layers=28, edge=0), 2))
    (36.72, 26.17)
    """
    layers, dense = whole("layers", layers, low=1), 2 * whole("edge", edge, low=0)
    if dense > layers:
        raise ArgumentError(f"edge: expected at most half of {layers} layers, got {edge}")
    d = whole("channels", channels, low=2)
    slot = Fraction(100 * 8 * turboquant_slot_bytes(d), 2 * DENSE_BITS * d)
    return (100 * dense + slot * (layers - dense)) / layers


def lloyd2_method() -> Method:
    """Two bits stored and read, a key norm of 16 bits per token and head, and two tables of 4 levels and 3 thresholds.

    Source: ReadKV App. F.2 (Lloyd-2, norm-corrected).

    >>> lloyd2_method().token_bits
    16
    """
    return Method(2, 2, token_bits=16, table_bits=2 * (4 + 3) * 32)
