"""PTX texts of the fast reader's first kernel: its shared memory, the copy of its tables, a product of its rotation.

Shared memory: what `choose_ptx` counts in; channels by rank (channel, from bit 8 on its depth; 0 for none); the tables of
`slots.slot_tables`; queries by pairs of heads (bfloat16, a word per channel), then rotated, then times scales.
"""

from __future__ import annotations

from fastimpl.readkv.choose_ptx import SEARCH_WORDS, TALLY_WORDS

ROW_BYTES = 4 * (128 + 8)
"""Of queries: rows that follow one another begin 8 banks apart."""

TALLY_AT = 4 * SEARCH_WORDS
CHANNELS_AT = TALLY_AT + 4 * TALLY_WORDS
CLEARED_BYTES = CHANNELS_AT + 4 * 132
"""Everything up to the channels is 0 at first: 128 of them, and one that stands for none."""

COEFFICIENTS_AT, COEFFICIENT_BYTES = CLEARED_BYTES, 4 * 9 * 128
LARGEST_AT = COEFFICIENTS_AT + COEFFICIENT_BYTES
PAIRS_AT = LARGEST_AT + 48
QUERIES_AT = PAIRS_AT + 4 * ROW_BYTES
BYTES = QUERIES_AT + 8 * ROW_BYTES

MEMORY = f"{{.shared .align 16 .b32 prepared[{BYTES // 4}]; mov.u32 $0, prepared;}}"
STORE_WORD = "st.shared.b32 [$1], $2; mov.b32 $0, 0;"
STORE_TWO = "st.shared.v2.f32 [$1], {$2,$3}; mov.b32 $0, 0;"
STORE_FLOAT = "st.shared.f32 [$1], $2; mov.b32 $0, 0;"
LOAD_TWO = "ld.shared.v2.b32 {$0,$1}, [$2];"
LOAD_FLOAT = "ld.shared.f32 $0, [$1];"
ARRIVED = "cp.async.wait_all; mov.b32 $0, 0;"
SQUARE = "mul.rn.f32 $0, $1, $1;"
"""Never part of a multiply-add, so that a sum of squares has the roundings of its reduction elsewhere."""

PRODUCT = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$6,$5,$6}, {$7,$8}, {$9,$10,$11,$12};"
"""Rows 8 to 15 of the first operand are 0 ($6)."""


def fill_text() -> str:
    """Clear what is to be 0, and start the copy of the tables. Inputs: addresses of coefficients [9, 16, 8], of largest
    [9], of shared memory; any word per thread.
    """
    lines = ["{.reg .b32 tid,l,t,o,zero; .reg .b64 p; .reg .pred q; mov.u32 tid, %tid.x; shl.b32 l, tid, 4;"]
    lines.append("mov.b32 zero, 0;")
    for at in range(0, COEFFICIENT_BYTES, 2048):
        lines.append(f"add.u32 t, l, {at}; setp.lt.u32 q, t, {COEFFICIENT_BYTES}; cvt.u64.u32 p, t; add.s64 p, p, $1;")
        lines.append(f"add.u32 o, t, $3; @q cp.async.cg.shared.global [o+{COEFFICIENTS_AT}], [p], 16;")
    lines.append("shl.b32 t, tid, 2; setp.lt.u32 q, tid, 9; cvt.u64.u32 p, t; add.s64 p, p, $2;")
    lines.append(f"add.u32 o, t, $3; @q cp.async.ca.shared.global [o+{LARGEST_AT}], [p], 4;")
    for at in range(0, CLEARED_BYTES, 2048):
        lines.append(f"add.u32 t, l, {at}; setp.lt.u32 q, t, {CLEARED_BYTES}; add.u32 o, t, $3;")
        lines.append("@q st.shared.v4.b32 [o], {zero,zero,zero,zero};")
    return "\n".join([*lines, "mov.b32 $0, 0;}"])
