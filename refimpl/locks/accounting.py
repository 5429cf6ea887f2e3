"""Accounting: what a page summary occupies, and what one decode step reads (Locks App. D, Fig. 4c, Table 2)."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.checks import ArgumentError, choice, number, whole
from refimpl.paging import page_count

BASIS_WIDTHS = (2, 4, 8, 16)
"""Bits of one stored basis element; 16 is the unquantised bf16 basis."""


def page_kv_bytes(page_size: int, head_size: int) -> int:
    """Bytes of one page's bf16 keys and values of one KV head, 4 B d.

    >>> page_kv_bytes(16, 128)
    8192
    """
    return 4 * whole("page_size", page_size, low=1) * whole("head_size", head_size, low=1)


def payload_bytes(rank: int, basis_bits: int, page_size: int, head_size: int) -> int:
    """Logical payload of one page summary in bytes: basis d r, int8 coefficients B r, int8 centroid d.

    Quantisation scales, alignment and metadata are not in it. Raises ArgumentError for a width other than 2, 4, 8, 16
    bits or a basis that does not fill whole bytes. Source: Locks App. D, Table D.10.

    >>> payload_bytes(8, 4, 16, 128), payload_bytes(8, 8, 16, 128)
    (768, 1280)
    """
    rank, page_size = whole("rank", rank, low=1), whole("page_size", page_size, low=1)
    head_size = whole("head_size", head_size, low=1)
    basis_bits = choice("basis_bits", basis_bits, BASIS_WIDTHS)
    if head_size * basis_bits % 8:
        raise ArgumentError(
            f"head_size: expected a basis column of whole bytes, got {head_size} elements of {basis_bits} bits"
        )
    return head_size * basis_bits // 8 * rank + page_size * rank + head_size


def scale_bytes(rank: int, page_size: int, basis_bits: int = 4, bytes_per_scale: int = 2) -> int:
    """Bytes of a summary's scales: one per basis column, one per token row, one for the centroid (AMB-08).

    A bf16 basis (16 bits) has no column scales. Source: Locks App. D ("about 10%").

    >>> scale_bytes(8, 16)
    50
    """
    columns = 0 if choice("basis_bits", basis_bits, BASIS_WIDTHS) == 16 else whole("rank", rank, low=1)
    return whole("bytes_per_scale", bytes_per_scale, low=1) * (columns + whole("page_size", page_size, low=1) + 1)


def record_bytes(rank: int, basis_bits: int, page_size: int, head_size: int, *, tag: int = 0, align: int = 1) -> int:
    """Bytes of one stored summary: payload, bf16 scales, ``tag`` bytes, rounded up to a multiple of ``align``.

    Source: Locks Sec. 4 ("about a tenth once the quantization scales are counted"); 818 B are 9.99% of a bf16 page.
    The public package adds a 16 B content tag, or pads the record to 64 B.

    >>> record_bytes(8, 4, 16, 128), record_bytes(8, 4, 16, 128, tag=16), record_bytes(8, 4, 16, 128, align=64)
    (818, 834, 832)
    """
    raw = payload_bytes(rank, basis_bits, page_size, head_size) + scale_bytes(rank, page_size, basis_bits)
    return -(-(raw + whole("tag", tag, low=0)) // whole("align", align, low=1)) * align


@dataclass(frozen=True)
class StepTraffic:
    """Bytes that one decode step reads for one (layer, KV head)."""

    summary: int
    """Scan over the summaries of all complete pages."""
    selected: int
    """Keys and values of the attended tokens."""
    dense: int
    """What full attention would read."""

    @property
    def total(self) -> int:
        """Summary scan plus selected keys and values."""
        return self.summary + self.selected

    @property
    def saving(self) -> float:
        """How many times fewer bytes than full attention."""
        return self.dense / self.total


def step_traffic(
    context_tokens: int, budget_tokens: int, page_size: int, head_size: int, summary_bytes: float
) -> StepTraffic:
    """Bytes per decode step and (layer, KV head): summaries of the complete pages plus the selected pages' bf16 KV.

    The traffic excludes outputs, queries and page tables. Source: Locks Fig. 4c and Table D.14's caption.

    One million tokens, the shipped budget of 2048 and the 818-byte record: 9.8 times fewer bytes than dense.

    >>> [round(step_traffic(2**20, 2048, 16, 128, size).saving, 2) for size in (818, 768)]
    [9.82, 10.45]
    """
    tokens = whole("context_tokens", context_tokens, low=0)
    kept = min(whole("budget_tokens", budget_tokens, low=1), tokens)
    page_size, head_size = whole("page_size", page_size, low=1), whole("head_size", head_size, low=1)
    summary_bytes = number("summary_bytes", summary_bytes, low=0)
    return StepTraffic(
        summary=round(tokens // page_size * summary_bytes),
        selected=4 * head_size * min(page_count(kept, page_size) * page_size, tokens),
        dense=4 * head_size * tokens,
    )


@dataclass(frozen=True)
class Deployment:
    """A model on one accelerator, as Table 2's memory frontier needs it."""

    memory_bytes: float
    utilisation: float
    weight_bytes: float
    layers: int
    kv_heads: int
    head_size: int

    def sequence_bytes(self, context_tokens: int, page_size: int, summary_bytes: float) -> float:
        """Resident bytes of one sequence: its full bf16 cache and the summaries of its pages."""
        pages = page_count(context_tokens, page_size)
        heads = self.layers * self.kv_heads
        return heads * (4 * self.head_size * context_tokens + pages * summary_bytes)

    def largest_batch(self, context_tokens: int, page_size: int, summary_bytes: float) -> int:
        """The largest power of two of sequences that fit beside the weights; 0 if not even one does.

        Source: Locks App. C.6 (weights, the full resident cache and the selector state at 0.90 utilisation).
        """
        free = self.memory_bytes * self.utilisation - self.weight_bytes
        tokens = whole("context_tokens", context_tokens, low=1)
        fitting = max(0, int(free // self.sequence_bytes(tokens, page_size, summary_bytes)))
        return 1 << (fitting.bit_length() - 1) if fitting else 0


GLM_4_9B_1M_ON_H200 = Deployment(141e9, 0.90, 2 * 9.5e9, 40, 4, 128)
"""Table 2's machine as a model: 141 GB at 0.90, about 9.5 G bf16 parameters (our figures), 40 layers, 4 KV heads."""
