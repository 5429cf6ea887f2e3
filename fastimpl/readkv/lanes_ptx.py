"""PTX texts of the fast reader: bits as float16 operands of matrix instructions, one warp at a time.

A warp holds 16 items (slots of key channels, or value tokens) on the products' inner axis, 8 query heads on the columns
and 16 positions (tokens, or channels) on the rows. Lane 4 g + q has items 4q .. 4q + 3 and, of each, the 16 bits of its
positions; ``x0`` holds the bits of items 4q and 4q + 1 in its halves, ``x1`` those of 4q + 2 and 4q + 3.

    bit k of a half, masked, IS a float16: 2^(k-24) below bit 10, then 2^-14, 2^-13, 2^-11, 2^-7, 2; bit 15 with
    0x3C00 is 1 - 2 bit. Row g is bit b and row g + 8 bit b + 8 of product b: 4 masks and 1 product for 256 bits.

The weights on the columns are the caller's; the value of a bit is undone once, in the caller's last step (`unit`).
"""

from __future__ import annotations

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SUMS = 32
"""Accumulators of a lane: product b, row half r, column i at 4 b + 2 r + i."""


def unit(bit: int) -> float:
    """What bit ``bit`` of a half is worth as a float16 (bit 15: minus twice its sign's half, see `last_factor`).

    >>> unit(0) == 2.0**-24, unit(9) == 2.0**-15, unit(10) == 2.0**-14, unit(14)
    (True, True, True, 2.0)
    """
    return 2.0 ** (bit - 24) if bit < 10 else 2.0 ** (2 ** (bit - 10) - 15)


def last_factor(index: int) -> float:
    """Factor that turns accumulator ``index`` into twice the sum over set bits; -1 where it is 1 - 2 bit.

    >>> last_factor(0) == 2.0**25, last_factor(31)
    (True, -1.0)
    """
    bit = index // 4 + 8 * (index // 2 % 2)
    return -1.0 if bit == 15 else 2.0 / unit(bit)


def _mask(target: str, source: str, bit: int) -> str:
    both = f"0x{(1 << bit) * 0x10001:08X}"
    if bit == 15:
        return f"lop3.b32 {target}, {source}, {both}, 0x3C003C00, 0xEA;"  # (source & mask) | one
    return f"and.b32 {target}, {source}, {both};"


def _sums(first: int) -> list[str]:
    return ["{" + ",".join(f"${first + 4 * b + i}" for i in range(4)) + "}" for b in range(8)]


def bits_text() -> str:
    """Sums += bits x weights. Outputs: 32 sums and 4 of the weights alone; inputs: x0, x1, two words of weights, then
    the sums before.
    """
    outputs = SUMS + 4
    x0, x1, w = f"${outputs}", f"${outputs + 1}", f"{{${outputs + 2},${outputs + 3}}}"
    before, after = _sums(outputs + 4), _sums(0)
    lines = ["{.reg .b32 a<4>;"]
    for b in range(8):
        lines += [_mask("a0", x0, b), _mask("a1", x0, b + 8), _mask("a2", x1, b), _mask("a3", x1, b + 8)]
        lines.append(f"{MMA} {after[b]}, {{a0,a1,a2,a3}}, {w}, {before[b]};")
    four = ["{" + ",".join(f"${first + i}" for i in range(4)) + "}" for first in (SUMS, outputs + 4 + SUMS)]
    lines.append(f"mov.b32 a0, 0x3C003C00; {MMA} {four[0]}, {{a0,a0,a0,a0}}, {w}, {four[1]};")
    return "\n".join([*lines, "}"])


def bits_constraints() -> str:
    """The operands of `bits_text`; outputs are written before all inputs are read."""
    count = SUMS + 4
    return ",".join(["=&f"] * count + ["r"] * 4 + ["f"] * count)


def _transpose(planes: int) -> list[str]:
    """Turn u0, u1, .. (8 planes, or 4) into codes: byte (nibble) j of u_i gets bit p from bit i of byte j of plane p."""
    lines = []
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F))[: planes.bit_length() - 1]:
        for low in range(planes):
            if low & shift:
                continue
            a, b = f"u{low}", f"u{low + shift}"
            lines.append(
                f"shl.b32 t, {b}, {shift}; shr.u32 s, {a}, {shift};"
                f"lop3.b32 {a}, {a}, t, 0x{mask:08X}, 0xE4; lop3.b32 {b}, s, {b}, 0x{mask:08X}, 0xE4;"
            )
    return lines


def codes_text() -> str:
    """Whole codes. Outputs: 8 words, byte j of word i has bit p from bit i of byte j of plane p; inputs: the 8 planes."""
    lines = ["{.reg .b32 t,s; .reg .b32 u<8>;", *(f"mov.b32 u{p}, ${8 + p};" for p in range(8)), *_transpose(8)]
    return "\n".join([*lines, *(f"mov.b32 ${i}, u{i};" for i in range(8)), "}"])


def table_text() -> str:
    """Sums += centroids x weights, centroids looked up by whole codes in shared memory.

    Outputs: 32 sums; inputs: codes of items 4q and 4q + 1 (8 words of `codes_text`), of items 4q + 2 and 4q + 3,
    addresses of the four items' tables (float16, 256 entries, bit p of the index is plane p), two words of weights, the
    sums before.
    """
    lines = ["{.reg .b32 t; .reg .b32 a<4>; .reg .b32 h<4>;"]
    address = [f"${SUMS + 16 + k}" for k in range(4)]
    weights, before, after = f"{{${SUMS + 20},${SUMS + 21}}}", _sums(SUMS + 22), _sums(0)
    for b in range(8):
        for half in range(2):
            code = f"${SUMS + 8 * half + b}"
            for byte in range(4):  # item, row half: (0, 0), (0, 1), (1, 0), (1, 1)
                lines.append(
                    f"bfe.u32 t, {code}, {8 * byte}, 8; mad.lo.u32 t, t, 2, {address[2 * half + byte // 2]};"
                    f"ld.shared.u16 h{byte}, [t];"
                )
            lines.append(f"mad.lo.u32 a{2 * half}, h2, 65536, h0; mad.lo.u32 a{2 * half + 1}, h3, 65536, h1;")
        lines.append(f"{MMA} {after[b]}, {{a0,a1,a2,a3}}, {weights}, {before[b]};")
    return "\n".join([*lines, "}"])


def table_constraints() -> str:
    """The operands of `table_text`."""
    return ",".join(["=&f"] * SUMS + ["r"] * 22 + ["f"] * SUMS)


def pair_codes_text() -> str:
    """Codes of four planes, two items at a time. Outputs: 8 words; inputs: the 4 planes.

    Byte j of word 2 i + k has the codes of bit i + 4 k + 8 j: the low half's item in the low nibble, the other above.
    """
    lines = ["{.reg .b32 t,s; .reg .b32 u<4>;", *(f"mov.b32 u{p}, ${8 + p};" for p in range(4)), *_transpose(4)]
    for i in range(4):
        lines.append(f"shr.u32 t, u{i}, 12; lop3.b32 ${2 * i}, u{i}, t, 0x0F0F0F0F, 0xE4;")
        lines.append(f"shr.u32 s, u{i}, 4; shr.u32 t, u{i}, 16; lop3.b32 ${2 * i + 1}, s, t, 0x0F0F0F0F, 0xE4;")
    return "\n".join([*lines, "}"])


def pair_table_text() -> str:
    """Sums += centroids of depth 4 x weights, two items per look-up.

    Outputs: 32 sums; inputs: 8 words of `pair_codes_text` of items 4q and 4q + 1, 8 of items 4q + 2 and 4q + 3, the
    table's address (256 pairs of float16), two words of weights, the sums before.
    """
    lines = ["{.reg .b32 t; .reg .b32 a<4>;"]
    weights, before, after = f"{{${SUMS + 17},${SUMS + 18}}}", _sums(SUMS + 19), _sums(0)
    for b in range(8):
        for half in range(2):
            code = f"${SUMS + 8 * half + b % 4 * 2 + b // 4}"
            for byte in range(2):
                lines.append(
                    f"bfe.u32 t, {code}, {8 * byte}, 8; mad.lo.u32 t, t, 4, ${SUMS + 16};"
                    f"ld.shared.b32 a{2 * half + byte}, [t];"
                )
        lines.append(f"{MMA} {after[b]}, {{a0,a1,a2,a3}}, {weights}, {before[b]};")
    return "\n".join([*lines, "}"])


def pair_table_constraints() -> str:
    """The operands of `pair_table_text`."""
    return ",".join(["=&f"] * SUMS + ["r"] * 19 + ["f"] * SUMS)
