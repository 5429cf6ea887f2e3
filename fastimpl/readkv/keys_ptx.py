"""PTX texts of the fast reader's key pass: bits as bytes of integer matrix instructions, exact 16-bit weights.

A product takes 32 slots on its inner axis, 8 query heads on the columns and 16 tokens on the rows. Lane 4 g + q has
slots 8q .. 8q + 7 as eight words of 32 tokens; a warp takes two bytes of each word, so byte j of four words, put
together, is one operand:

    (operand & 0x01010101 << b)   bit b of four slots' bytes, worth 2^b each: 4 masks for 512 bits
    all of the byte               bits 0 .. 7 at once; the seven sums of the others leave 128 times the last: no mask

A weight is 256 high + low, both signed bytes, and each of the two has sums of its own. Sums are integers: no order of
adding changes them.
"""

from __future__ import annotations

MMA = "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"
SUMS = 64
"""Accumulators of a lane: high at 4 b + 2 r + i for bit b (7: the whole byte), row half r, column i; low 32 later."""


def block_text() -> str:
    """Sums += bits x weights of one block of 32 slots.

    Outputs: 64 sums. Inputs: eight words, the selector of two bytes (0x5140: the lower two, 0x7362: the upper), four
    words of weights (high of slots 0-3 and 4-7, low likewise), the sums before.
    """
    word = [f"${SUMS + i}" for i in range(8)]
    selector, weight = f"${SUMS + 8}", [f"${SUMS + 9 + i}" for i in range(4)]
    before, after = _sums(SUMS + 13), _sums(0)
    lines = ["{.reg .b32 u,v; .reg .b32 t<4>; .reg .b32 a<4>;"]
    for k in range(2):
        w = word[4 * k : 4 * k + 4]
        lines += [
            f"prmt.b32 u, {w[0]}, {w[1]}, {selector}; prmt.b32 v, {w[2]}, {w[3]}, {selector};",
            f"prmt.b32 t{2 * k}, u, v, 0x5410; prmt.b32 t{2 * k + 1}, u, v, 0x7632;",
        ]
    for b in range(8):
        if b < 7:
            lines += [f"and.b32 a{i}, t{i}, 0x{0x01010101 << b:08X};" for i in range(4)]
        operand = "{a0,a1,a2,a3}" if b < 7 else "{t0,t1,t2,t3}"
        lines.append(f"{MMA} {after[b]}, {operand}, {{{weight[0]},{weight[1]}}}, {before[b]};")
        lines.append(f"{MMA} {after[8 + b]}, {operand}, {{{weight[2]},{weight[3]}}}, {before[8 + b]};")
    return "\n".join([*lines, "}"])


def _sums(first: int) -> list[str]:
    return ["{" + ",".join(f"${first + 4 * b + i}" for i in range(4)) + "}" for b in range(16)]


def block_constraints() -> str:
    """The operands of `block_text`; outputs are written before all inputs are read."""
    return ",".join(["=&r"] * SUMS + ["r"] * (13 + SUMS))


def read_text(words: int) -> str:
    """Eight words of a lane from a group of 32 rows in shared memory: row i of its quad lies 128 bytes after row i - 1."""
    return "\n".join(f"ld.shared.b32 ${i}, [${words}+{128 * i}];" for i in range(words))


def weights_text() -> str:
    """A lane's four words of a block's weights: out of shared memory where a last input is not 0, else of global memory.

    Inputs: both addresses, and what decides.
    """
    words = "{$0,$1,$2,$3}"
    return (
        f"{{.reg .pred p,q; setp.ne.s32 p, $6, 0; setp.eq.s32 q, $6, 0; @p ld.shared.v4.b32 {words}, [$4];"
        f"@q ld.global.v4.b32 {words}, [$5];}}"
    )
