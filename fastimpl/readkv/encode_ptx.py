"""PTX texts of the encoder: vectors of 128 channels to packed bit planes, on matrix units and in registers.

A channel's number has 7 bits c6 .. c0, and H of 128 is a product of seven H of 2, one per bit. Four bits, c6 c5 c3 c0, go
through matrix instructions of 16 x 16 entries +-1; with two more, c2 c1, as signs of those entries; and c4 as one sum
and one difference. Who holds what (lane 4 g + q, tokens g and g + 8 of 16):

    in     two words' pair c0; q = (c6, c3); words by (c5, c4, c2, c1): whole sectors per load
    out    q = (c6, c5); part p = (c2, c1); 8 numbers per token and part: (c4, c3, c0)

    v --v * factor + offset, held to 0..1 --> u = (z + 4) / 8 --> X = floor(2^23 u), cell = floor(CELLS u)
      --4 X + word of the cell--> the code in its third byte      (`tree.cells`: one split per cell at most)
      --> four codes to a word --8 words transposed bit by bit--> 8 plane words

A cell's word stands COPIES times side by side in shared memory, so that lanes meet in few banks.
"""

from __future__ import annotations

import struct

from fastimpl.readkv.tree import CELLS

THREADS = 256
COPIES = 16
"""Copies of the table of cells; two lanes share one."""

FACTORS_AT, SIGNS_AT, MATRIX_AT, EXCHANGE_AT, TABLE_AT = 0, 1024, 1280, 1792, 1792 + 8192
"""Bytes into the shared memory: factors and offsets, signs, the exchange of key codes, the table."""

SHARED = {True: TABLE_AT + (CELLS + 1) * COPIES * 4, False: EXCHANGE_AT}
"""Bytes of a program that keeps the table there, and of one that looks it up in global memory."""

WHOLE = 8388608.0
"""2^23: a number below it, added without rounding up, leaves its whole part in the low bits."""

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"


def setup_text(threads: int, table: bool) -> str:
    """Fill the shared memory of one head. Output: its address.

    Inputs: addresses of the table, means, scales and signs (float32), 1/sqrt(d), 4 words of the matrix.
    """
    lines = [
        f"{{.shared .align 16 .b32 area[{SHARED[table] // 4}];",
        ".reg .b32 t,o,e,w,x<8>; .reg .b64 a,b; .reg .f32 m,s,f,g; .reg .pred p,n;",
        "mov.u32 t, %tid.x; mov.u32 o, area; mov.b32 $0, o;",
    ]
    for i in range(-(-(CELLS + 1) // threads) if table else 0):
        lines += [
            f"add.u32 e, t, {i * threads}; setp.lt.u32 p, e, {CELLS + 1};",
            "mul.wide.u32 a, e, 4; add.s64 a, a, $1; @p ld.global.b32 w, [a];",
            f"mul.lo.u32 e, e, {4 * COPIES}; add.u32 e, e, o;",
        ]
        lines += [f"@p st.shared.v4.b32 [e+{TABLE_AT + 16 * k}], {{w,w,w,w}};" for k in range(COPIES // 4)]
    lines.append(f"setp.lt.u32 p, t, 32; mul.lo.u32 e, t, 16; add.u32 e, e, o; "
                 f"@p st.shared.v4.b32 [e+{MATRIX_AT}], {{$6,$7,$8,$9}};")  # fmt: skip
    for _ in range(-(-128 // threads)):
        lines += _channel_lines()
        lines.append(f"add.u32 t, t, {threads};")
    return "\n".join([*lines, "bar.sync 0;}"])


def _channel_lines() -> list[str]:
    """Sign, factor and offset of channel t, where there is one."""
    lines = ["setp.lt.u32 p, t, 128; mul.wide.u32 a, t, 4;"]
    for register, operand in (("m", 2), ("s", 3), ("f", 4)):
        lines.append(f"add.s64 b, a, ${operand}; @p ld.global.f32 {register}, [b];")
    lines += [f"shr.u32 x{i}, t, {i}; and.b32 x{i}, x{i}, 1;" for i in range(7)]  # c_i

    def place(bits: list[int]) -> list[str]:
        return ["mov.b32 e, 0;", *[f"add.u32 e, e, e; add.u32 e, e, x{bit};" for bit in bits]]

    return [
        *lines,
        *place([5, 4, 6, 3, 2, 1, 0]),
        "setp.lt.f32 n, f, 0f00000000; selp.b32 w, 0x8000, 0, n; add.u32 e, e, e; add.u32 e, e, o;",
        f"@p st.shared.b16 [e+{SIGNS_AT}], w;",
        *place([2, 1, 4, 3, 6, 5, 0]),
        "mul.lo.u32 e, e, 8; add.u32 e, e, o; div.rn.f32 f, $5, s; mul.rn.f32 f, f, 0f3E000000;",
        "div.rn.f32 g, m, s; fma.rn.f32 g, g, 0fBE000000, 0f3F000000;",
        f"@p st.shared.f32 [e+{FACTORS_AT}], f; @p st.shared.f32 [e+{FACTORS_AT + 4}], g;",
    ]


def load_text() -> str:
    """The 16 words of one token on this lane, 0 where there is none. Inputs: address, whether there is one."""
    lines = ["{.reg .pred p; setp.ne.u32 p, $17, 0;"]
    lines += [f"mov.b32 ${i}, 0;" for i in range(16)]
    for i in range(4):  # (c5, c4)
        words = ",".join(f"${4 * i + k}" for k in range(4))
        lines.append(f"@p ld.global.v4.b32 {{{words}}}, [$16+{32 * i}];")
    return "\n".join([*lines, "}"])


def flip_text() -> str:
    """16 words of a token times the signs. Outputs: 16 words; inputs: the signs' address, 16 words."""
    lines = ["{.reg .b32 s<16>;"]
    for i in range(4):
        words = ",".join(f"s{4 * i + k}" for k in range(4))
        lines.append(f"ld.shared.v4.b32 {{{words}}}, [$16+{SIGNS_AT + 64 * i}];")
    lines += [f"xor.b32 ${i}, ${17 + i}, s{i};" for i in range(16)]
    return "\n".join([*lines, "}"])


def _products(part: int, kind: str, words: list[int], sums_of: str) -> list[str]:
    """Sums over blocks c4 = 0 (e) and 1 (o), per c3: four registers each. ``words``: of tokens g and g + 8.

    Blocks (c2, c1) of the input come in an order in which parts 2 i and 2 i + 1 share their first products.
    """
    lines = []
    for name, c4 in (("e", 0), ("o", 1)):
        for c3 in range(2):
            sums = "{" + ",".join(f"{name}{sums_of}{4 * c3 + i}" for i in range(4)) + "}"
            for j in (0, 2, 1, 3):
                odd = (part & j).bit_count() & 1
                a = ",".join(f"${first + 8 * c5 + 4 * c4 + j}" for c5 in range(2) for first in words)
                b = ",".join(f"{'n' if odd else 'b'}{2 * c3 + c5}" for c5 in range(2))
                before = sums if j else "{z,z,z,z}"
                lines.append(f"{MMA.format(kind=kind)} {sums}, {{{a}}}, {{{b}}}, {before};")
    return lines


def _codes(c4: int, c3: int, sums_of: str, shared: bool) -> list[str]:
    """Words s0..s3 with codes of (token g, c0), (token g + 8, c0) in their third byte, from e and o."""
    lines = []
    sign = "add" if c4 == 0 else "sub"
    for i in range(4):
        factor, offset = (("f0", "f1"), ("f2", "f3"))[i % 2]
        at = f"{sums_of}{4 * c3 + i}"
        lines += [
            f"{sign}.rn.f32 v, e{at}, o{at}; fma.rn.sat.f32 v, v, {factor}, {offset};",
            f"fma.rz.f32 u, v, 0f{_bits(float(CELLS))}, 0f{_bits(WHOLE)}; mov.b32 w, u;",
            "add.rz.f32 v, v, 0f3F800000; mov.b32 x, v;",
            f"mad.lo.u32 w, w, {4 * COPIES}, $10; ld.shared.b32 y, [w+{TABLE_AT}];"
            if shared
            else "mul.wide.u32 a, w, 4; add.s64 a, a, $10; ld.global.b32 y, [a];",
            f"mad.lo.u32 s{i}, x, 4, y;",
        ]
    return lines


def _bits(number: float) -> str:
    return struct.pack(">f", number).hex().upper()


def encode_text(pair: int, kind: str, keys: bool, shared: bool = True) -> str:
    """Codes of parts 2 ``pair`` and 2 ``pair`` + 1, four to a word, 4 words per part. ``kind``: bf16 or f16.

    Keys: words by (c4, c3), bytes by (c0, token g or g + 8). Values: words by (token g or g + 8, c0), bytes by (c4, c3).
    Outputs: 8 words; inputs: address of the matrix, of the factors, of the table (``shared`` or global; `table_base`),
    16 words of token g, 16 of g + 8.
    """
    lines = [
        "{.reg .f32 z,u,v,ea<8>,oa<8>,eb<8>,ob<8>,f<4>; .reg .b32 b<4>,n<4>,w,x,y,s<4>,c<16>,d<4>; .reg .b64 a;",
        f"mov.f32 z, 0f00000000; ld.volatile.shared.v4.b32 {{b0,b1,b2,b3}}, [$8+{MATRIX_AT}];",
    ]
    lines += [f"xor.b32 n{i}, b{i}, 0x80008000;" for i in range(4)]
    for name, part in (("a", 2 * pair), ("b", 2 * pair + 1)):
        lines += _products(part, kind, [11, 27], name)
    for name, part in (("a", 2 * pair), ("b", 2 * pair + 1)):
        first = 8 * (part % 2)
        for group in range(4):  # (c4, c3)
            at = FACTORS_AT + (part * 4 + group) * 64
            lines.append(f"ld.shared.v4.f32 {{f0,f1,f2,f3}}, [$9+{at}];")
            lines += _codes(group // 2, group % 2, name, shared)
            if keys:
                lines += [f"prmt.b32 c{first + 2 * group + c0}, s{c0}, s{2 + c0}, 0x0062;" for c0 in range(2)]
            elif group % 2 == 0:
                lines += [f"mov.b32 d{i}, s{i};" for i in range(4)]
            else:  # s and so c by (half, c0); c4 next
                lines += [f"prmt.b32 c{first + 2 * i + group // 2}, d{i}, s{i}, 0x0062;" for i in range(4)]
    lines += [f"prmt.b32 ${i}, c{2 * i}, c{2 * i + 1}, 0x5410;" for i in range(8)]
    return "\n".join([*lines, "}"])


def transpose_lines(names: list[str]) -> list[str]:
    """Turn 8 words over: byte j of word i gets bit k from bit i of byte j of word k."""
    lines = []
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        for low in range(8):
            if not low & shift:
                a, b = names[low], names[low + shift]
                lines.append(
                    f"shl.b32 t, {b}, {shift}; shr.u32 s, {a}, {shift}; "
                    f"lop3.b32 {a}, {a}, t, 0x{mask:08X}, 0xE4; lop3.b32 {b}, s, {b}, 0x{mask:08X}, 0xE4;"
                )
    return lines


def exchange_text() -> str:
    """Key codes of one part: warp a has tokens 8 a + 64 b + g of all 8 channels; it gets all tokens of channel a.

    Outputs: plane words of channel ``warp``, last bit of the code first. Inputs: address to write, address to read,
    whether tokens are there (bytes of ones), 4 words of `encode_text` of tokens b = 0 and 1, 4 of b = 2 and 3.
    """
    lines = ["{.reg .b32 t,s,u<8>;"]
    for i in range(4):
        for c0, halves in ((0, "0x5410"), (1, "0x7632")):
            u = f"u{2 * i + c0}"
            lines.append(
                f"prmt.b32 {u}, ${11 + i}, ${15 + i}, {halves}; and.b32 {u}, {u}, $10;"
                f"st.shared.b32 [$8+{EXCHANGE_AT + 1024 * (2 * i + c0)}], {u};"
            )
    lines.append("bar.sync 0;")
    lines += [f"ld.shared.b32 u{i}, [$9+{EXCHANGE_AT + 128 * i}];" for i in range(8)]
    lines.append("bar.sync 0;")
    lines += transpose_lines([f"u{i}" for i in range(8)])
    return "\n".join([*lines, *[f"mov.b32 ${i}, u{i};" for i in range(8)], "}"])


def values_text() -> str:
    """Value words of one token: per pair of planes, of its groups 2 q and 2 q + 1. Outputs: 8; inputs: 8 words."""
    lines = ["{.reg .b32 t,s,u<8>;", *[f"mov.b32 u{i}, ${8 + i};" for i in range(8)]]
    lines += transpose_lines([f"u{i}" for i in range(8)])
    for pair in range(4):
        first, second = f"u{7 - 2 * pair}", f"u{6 - 2 * pair}"
        lines.append(
            f"prmt.b32 ${2 * pair}, {first}, {second}, 0x5410; prmt.b32 ${2 * pair + 1}, {first}, {second}, 0x7632;"
        )
    return "\n".join([*lines, "}"])


def table_base(step: int) -> int:
    """What is added to a table's address so that ``step`` times the bits of 2^23 + cell leads to the cell's word.

    >>> hex(table_base(64) % 2**32), table_base(4) == -4 * 0x4B000000
    ('0x40000000', True)
    """
    return -0x4B000000 * step if step == 4 else ((-0x4B000000 * step + 2**31) % 2**32) - 2**31
