"""The packed record of a page: one run of bytes per page and KV head that scoring reads and nothing else.

    offset                 bytes           content
    0                      r * d / 2       basis codes, int4: column after column, channel 2j in the low nibble of byte
                           (r * d: int8)   j and channel 2j + 1 in the high one, two's complement
    basis                  d               centroid codes, int8
    + d                    B * r2          coefficient codes, int8, interleaved (below); r2 = r rounded up to even
    + B * r2               B * s           coefficient scales, interleaved; s = 4 bytes (float32) or 2 (float16)
    + B * s                r2 * s          basis scales
    + r2 * s               s               centroid scale, then padding to 16 bytes

At B = 16, d = 128, r = 8, int4 and s = 2 that is 512 + 128 + 128 + 32 + 16 + 2 = 818, padded to 832 bytes: 26 whole
32-byte sectors. With float32 scales it is 880.

Coefficients are interleaved so that one lane of a warp finds its operands of an m16n8k8 product in one word: token t
and mode k lie at (t mod B/2) * 2 r2 + (k div 2) * 4 + (t div B/2) * 2 + k mod 2, token t's scale at
(t mod B/2 div 2) * 4 + (t div B/2) * 2 + t mod 2. An odd B is padded by one token of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

SCALES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class Layout:
    """Byte offsets of a record; ``basis_bits`` 2 is stored as int4.

    >>> Layout(16, 128, 8, 4, "float16").bytes, Layout(16, 128, 8, 4, "float32").bytes
    (832, 880)
    """

    page_size: int
    channels: int
    rank: int
    basis_bits: int
    scales: str

    @property
    def tokens(self) -> int:
        """B, rounded up to even."""
        return self.page_size + self.page_size % 2

    @property
    def modes(self) -> int:
        """r, rounded up to even."""
        return self.rank + self.rank % 2

    @property
    def scale_bytes(self) -> int:
        """Bytes of one scale."""
        return SCALES[self.scales].itemsize

    @property
    def column_bytes(self) -> int:
        """Bytes of one basis column."""
        return self.channels if self.basis_bits == 8 else -(-self.channels // 2)

    @property
    def offsets(self) -> dict[str, int]:
        """Where each part begins, as the kernels' compile-time constants."""
        centroid = _even(self.rank * self.column_bytes, 4)
        coefficients = _even(centroid + self.channels, 4)
        scales = _even(coefficients + self.tokens * self.modes, 4)
        basis_scales = scales + self.tokens * self.scale_bytes
        return {
            "CENTROID": centroid,
            "COEFFICIENTS": coefficients,
            "TOKEN_SCALES": scales,
            "MODE_SCALES": basis_scales,
            "CENTROID_SCALE": basis_scales + self.modes * self.scale_bytes,
        }

    @property
    def bytes(self) -> int:
        """Length of a record, a multiple of 16 (32 where the scales are float16)."""
        end = self.offsets["CENTROID_SCALE"] + self.scale_bytes
        return _even(end, 32 if self.scales == "float16" else 16)

    def empty(self, heads: int, blocks: int, device: torch.device) -> torch.Tensor:
        """Memory for records [H, blocks, bytes]."""
        return torch.empty((heads, blocks, self.bytes), dtype=torch.uint8, device=device)


def _even(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


@triton.jit
def coefficient_at(token, mode, TOKENS: tl.constexpr, MODES: tl.constexpr):
    """Offset of a coefficient code within its part of the record."""
    half: tl.constexpr = TOKENS // 2
    return (token % half) * (2 * MODES) + (mode // 2) * 4 + (token // half) * 2 + mode % 2


@triton.jit
def token_scale_at(token, TOKENS: tl.constexpr):
    """Position of a token's scale within its part of the record."""
    half: tl.constexpr = TOKENS // 2
    return (token % half) // 2 * 4 + (token // half) * 2 + token % 2
