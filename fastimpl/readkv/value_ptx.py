"""PTX texts of the value pass: its shared memory, running counts, and the loads and stores of a group of 16 tokens.

Shared memory of a program: tables of deep prefixes, every warp's counts, every lane's places, then the lists of tokens,
whose place the sums take in the end.

A token's place in the lists' order is a sum of counts before it: over lanes by shuffles, over warps through memory.
"""

from __future__ import annotations

WARPS = 4
"""Of a program."""

MOST_TOKENS = 2048
"""Of a program."""

PAIRS_AT = 2048
"""After four tables (depth 5 to 8) of 256 float16: one of 256 pairs of depth 4."""

TABLE_BYTES = 3072

COUNT_BYTES = 256
PLACES_AT = TABLE_BYTES + COUNT_BYTES
LISTS_AT = PLACES_AT + 5 * 128 * WARPS
SUM_BYTES = 4096
"""32 float32 of each lane of a warp."""

TOKEN_BITS = 26
"""A list's entry: a token, its depth above, and the sign bit, which an entry that only fills a group has not."""

ENDS = 80
"""Entries that fill five lists up to whole groups of 16."""


def memory_text(warps: int) -> str:
    """Output: the address of a program's shared memory; input: any word."""
    lists = max(4 * (MOST_TOKENS + ENDS), SUM_BYTES * warps)
    return f"{{.shared .align 16 .b8 value_pass[{LISTS_AT + lists}]; mov.u32 $0, value_pass;}}"


def warp_text() -> str:
    """Output: this warp's number, the same in a warp's lanes for the assembler too; input: any word."""
    return "{.reg .b32 t; mov.u32 t, %tid.x; shr.u32 t, t, 5; shfl.sync.idx.b32 $0, t, 0, 0x1f, 0xffffffff;}"


def fill_text(warps: int) -> str:
    """Copy the tables. Inputs: their address in global memory, and in shared memory."""
    lines = ["{.reg .b32 l,t,o,x<4>; .reg .b64 p; .reg .pred q; mov.u32 l, %tid.x; shl.b32 l, l, 4;"]
    for at in range(0, TABLE_BYTES, 512 * warps):
        lines.append(f"add.u32 t, l, {at}; setp.lt.u32 q, t, {TABLE_BYTES}; cvt.u64.u32 p, t; add.u64 p, p, $1;")
        lines.append(
            "add.u32 o, t, $2; @q ld.global.v4.b32 {x0,x1,x2,x3}, [p]; @q st.shared.v4.b32 [o], {x0,x1,x2,x3};"
        )
    return "\n".join([*lines, "mov.b32 $0, 0;}"])


def running_text(words: int) -> str:
    """Sums over the lanes up to one's own. Outputs: ``words`` sums; inputs: as many words."""
    lines = ["{.reg .pred p; .reg .b32 t;"]
    for i in range(words):
        lines.append(f"mov.b32 ${i}, ${words + i};")
        for step in (1, 2, 4, 8, 16):
            lines.append(f"shfl.sync.up.b32 t|p, ${i}, {step}, 0, 0xffffffff; @p add.s32 ${i}, ${i}, t;")
    return "\n".join([*lines, "}"])


def words_text(count: int, stride: int, kind: str = "b32") -> str:
    """Words of tokens that lie ``stride`` bytes apart. Outputs: ``count`` words; inputs: the first token, the address of
    token 0's word.
    """
    lines = [f"{{.reg .b64 a; mad.wide.u32 a, ${count}, {stride}, ${count + 1};"]
    lines += [f"ld.global.{kind} ${i}, [a+{stride * i}];" for i in range(count)]
    return "\n".join([*lines, "}"])


def words_if_text(count: int, stride: int) -> str:
    """`words_text` where a last input is not negative; else the words are anything."""
    lines = [f"{{.reg .b64 a; .reg .pred p; setp.ge.s32 p, ${count + 2}, 0;"]
    lines += [f"mad.wide.u32 a, ${count}, {stride}, ${count + 1};"]
    lines += [f"@p ld.global.b32 ${i}, [a+{stride * i}];" for i in range(count)]
    return "\n".join([*lines, "}"])


def weights_text() -> str:
    """Four weights as two words of float16. Outputs: the words; inputs: four logits (float16 in the low half), what is
    taken off them, and the tokens' four entries, of which the sign bit keeps the weight.
    """
    lines = ["{.reg .b16 h,u; .reg .f32 w<4>; .reg .b32 m,x;"]
    for i in range(4):
        lines.append(
            f"mov.b32 {{h,u}}, ${2 + i}; cvt.f32.f16 w{i}, h; sub.f32 w{i}, w{i}, $6; ex2.approx.ftz.f32 w{i}, w{i};"
        )
    for word in range(2):
        one, two = 2 * word, 2 * word + 1  # bytes B and F: the sign of the first and the second entry
        lines.append(f"prmt.b32 m, ${7 + one}, ${7 + two}, 0xFFBB;")
        lines.append(f"cvt.rn.f16x2.f32 x, w{two}, w{one}; and.b32 ${word}, x, m;")
    return "\n".join([*lines, "}"])


def items_text(count: int) -> str:
    """Importances of neighbours. Outputs: ``count`` float32, 0 where not wanted; inputs: their address, what wants them."""
    lines = [f"{{.reg .pred p; setp.ne.s32 p, ${count + 1}, 0;", *(f"mov.f32 ${i}, 0f00000000;" for i in range(count))]
    size = min(count, 4)
    for first in range(0, count, size):
        found = ",".join(f"${first + i}" for i in range(size))
        vector, found = (f".v{size}", f"{{{found}}}") if size > 1 else ("", found)
        lines.append(f"@p ld.global{vector}.f32 {found}, [${count}+{4 * first}];")
    return "\n".join([*lines, "}"])


def store_depths_text(pairs: int) -> str:
    """Store depths of ``pairs`` pairs of tokens. Inputs: their address, what wants it, words of two pairs."""
    store = {1: "u16 [$1], $3", 2: "b32 [$1], $3", 4: "v2.b32 [$1], {$3,$4}", 8: "v4.b32 [$1], {$3,$4,$5,$6}"}[pairs]
    if pairs == 1:
        return "{.reg .pred p; .reg .b16 h,u; setp.ne.s32 p, $2, 0; mov.b32 {h,u}, $3; @p st.global.u16 [$1], h; mov.b32 $0, 0;}"
    return f"{{.reg .pred p; setp.ne.s32 p, $2, 0; @p st.global.{store}; mov.b32 $0, 0;}}"


def depths_text(levels: int) -> str:
    """A depth. Output: it; inputs: an item's importance, the bits above which a product of it is bought, the least depth,
    ``levels`` gains.
    """
    lines = ["{.reg .f32 x; .reg .b32 b; .reg .pred p; mov.b32 $0, $3;"]
    for level in range(levels):
        lines.append(f"mul.rn.f32 x, $1, ${4 + level}; mov.b32 b, x; setp.gt.s32 p, b, $2; @p add.s32 $0, $0, 1;")
    return "\n".join([*lines, "}"])


ASK = "{.reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.b32 $0, 0;}"
LOAD_WORD = "ld.shared.b32 $0, [$1];"
LOAD_SHARED = "ld.shared.v4.b32 {$0,$1,$2,$3}, [$4];"
LOAD_SUMS = "ld.shared.v4.f32 {$0,$1,$2,$3}, [$4];"
STORE_COUNTS = "{.reg .pred p; setp.ne.s32 p, $5, 0; @p st.shared.v4.b32 [$1], {$2,$3,$4,$4}; mov.b32 $0, 0;}"
STORE_ENTRY = "{.reg .pred p; setp.ne.s32 p, $3, 0; @p st.shared.b32 [$1], $2; mov.b32 $0, 0;}"
STORE_PAIR = "{.reg .pred p; setp.ne.s32 p, $4, 0; @p st.shared.v2.b32 [$1], {$2,$3}; mov.b32 $0, 0;}"
STORE_SUMS = "st.shared.v4.f32 [$1], {$2,$3,$4,$5}; mov.b32 $0, 0;"
STORE_FOUR = "{.reg .pred p; setp.ne.s32 p, $6, 0; @p st.global.v4.f32 [$1], {$2,$3,$4,$5}; mov.b32 $0, 0;}"
