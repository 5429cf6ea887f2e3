"""The packed record of a page: one run of bytes per page and KV head that scoring reads, and nothing else.

    part            bytes               content
    basis           r * d / 2           int4: column after column, channel 2j in the low nibble of byte j and 2j + 1 in
                    (int8: r * d)       the high one, two's complement
    centroid        d                   int8
    coefficients    B4 * r2             int8, interleaved (below); B4 = B up to a multiple of 4, r2 = r up to even
    scale quads     Q * (6 s + 4)       Q = max(B4 / 4, r2 / 2); s = 2 (float16) or 4 (float32); quad q holds
                                          4 token scales   2q, 2q + 1, B4/2 + 2q, B4/2 + 2q + 1
                                          2 mode scales    2q, 2q + 1
                                          the centroid scale, float32, the same in every quad

At B = 16, d = 128, r = 8, int4: 512 + 128 + 128 + 4 * 16 = 832 bytes with float16 scales, 26 whole 32-byte sectors;
float32 scales (quads of 32 bytes) make it 896, 28 sectors.

Why so: in the scoring kernel lane 4 n + q of a warp owns channels of mode n, coefficients of token n and modes 2q and
2q + 1. Its share of a page is then three loads: 16 bytes of basis, 4 of coefficients, one quad. Token t and mode k lie
at (t mod B4/2) * 2 r2 + (k div 2) * 4 + (t div B4/2) * 2 + k mod 2 of the coefficients.

A float16 scale cuts a value by up to 2^-11 of itself, and the largest float16, 65504, stands for a larger one (keys
beyond eight million); float32 scales keep the reference's arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

SCALE_BYTES = {"float32": 4, "float16": 2}


@dataclass(frozen=True)
class Layout:
    """Byte offsets of a record; ``basis_bits`` 2 is stored as int4.

    >>> Layout(16, 128, 8, 4, "float16").bytes, Layout(16, 128, 8, 4, "float32").bytes
    (832, 896)
    """

    page_size: int
    channels: int
    rank: int
    basis_bits: int
    scales: str

    @property
    def tokens(self) -> int:
        """B, rounded up to a multiple of 4."""
        return _up(self.page_size, 4)

    @property
    def modes(self) -> int:
        """r, rounded up to even."""
        return _up(self.rank, 2)

    @property
    def quads(self) -> int:
        """Scale quads."""
        return max(self.tokens // 4, self.modes // 2)

    @property
    def constants(self) -> dict[str, int | bool]:
        """The layout as the kernels' compile-time constants."""
        s = SCALE_BYTES[self.scales]
        column = self.channels if self.basis_bits == 8 else -(-self.channels // 2)
        centroid = _up(self.rank * column, 16)
        coefficients = _up(centroid + self.channels, 16)
        quads = _up(coefficients + self.tokens * self.modes, 16)
        quad_bytes = _up(6 * s + 4, 16)
        return {
            "INT8": self.basis_bits == 8,
            "HALF_SCALES": s == 2,
            "CENTROID": centroid,
            "COEFFICIENTS": coefficients,
            "QUADS": quads,
            "QUAD_BYTES": quad_bytes,
            "BYTES": quads + self.quads * quad_bytes,
            "TOKENS": self.tokens,
            "MODES": self.modes,
        }

    @property
    def bytes(self) -> int:
        """Length of a record, a multiple of 16."""
        return self.constants["BYTES"]

    def empty(self, heads: int, blocks: int, device: torch.device) -> torch.Tensor:
        """Memory for records [H, blocks, bytes]."""
        return torch.empty((heads, blocks, self.bytes), dtype=torch.uint8, device=device)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


@triton.jit
def coefficient_at(token, mode, TOKENS: tl.constexpr, MODES: tl.constexpr):
    """Offset of a coefficient code within its part of the record."""
    return (token % (TOKENS // 2)) * (2 * MODES) + (mode // 2) * 4 + (token // (TOKENS // 2)) * 2 + mode % 2


@triton.jit
def token_scale_at(token, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr, HALF: tl.constexpr):
    """Offset of a token's scale from the first quad."""
    width: tl.constexpr = 2 if HALF else 4
    return (token % (TOKENS // 2)) // 2 * QUAD_BYTES + ((token // (TOKENS // 2)) * 2 + token % 2) * width


@triton.jit
def mode_scale_at(mode, QUAD_BYTES: tl.constexpr, HALF: tl.constexpr):
    """Offset of a mode's scale from the first quad."""
    width: tl.constexpr = 2 if HALF else 4
    return mode // 2 * QUAD_BYTES + (4 + mode % 2) * width


@triton.jit
def load_scale(address, mask, HALF: tl.constexpr):
    """Scales at byte addresses, as float32."""
    element: tl.constexpr = tl.float16 if HALF else tl.float32
    return tl.load(address.to(tl.pointer_type(element)), mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_scale(address, scale, mask, HALF: tl.constexpr):
    """Scales to byte addresses: float16 (the largest finite value at most) or float32."""
    if HALF:
        tl.store(address.to(tl.pointer_type(tl.float16)), tl.minimum(scale, 65504.0).to(tl.float16), mask=mask)
    else:
        tl.store(address.to(tl.pointer_type(tl.float32)), scale, mask=mask)
