"""PTX texts of the choice of key depths, where a thread has a channel: its steps bought, its place among the depths.

    bought_text   the bar as in `locks/select_ptx.py`: 256 buckets of keys a round, counted in shared memory; mostly two
                  rounds part exactly what is bought from the rest; equals of the bar go by channel
    tally_text    ballots count the channels of each depth; the largest of each head's query times its coefficient

Both know what `choose.bought_steps` and `slots.count_groups` find by reductions over all of a program, whose barriers
hang on one another: a search of two bits a round has fifteen rounds of two.
"""

from __future__ import annotations

from fastimpl.locks.select_ptx import BUCKETS, REGISTERS, ROUNDS, bucket_lines, lane_sums

WARPS = 4
"""Of a program: 128 threads."""

COUNT_WORDS = ROUNDS * BUCKETS
"""Counts of buckets, all 0 before; then largest and least keys by warp, then numbers of equals by warp."""

SEARCH_WORDS = COUNT_WORDS + 3 * WARPS
HEADS = 8
TALLY_WORDS = 2 * WARPS + HEADS * WARPS
"""By warp: numbers of channels of depth 1 to 4 and 5 to 8, a byte each; then by head and warp, the largest."""


def bought_text(levels: int) -> str:
    """Output: how many of a thread's keys are bought. Inputs: its ``levels`` keys (falling, 0 is never bought), how many
    are bought in all, and the address of `SEARCH_WORDS` words of shared memory.
    """
    keys = [f"${1 + i}" for i in range(levels)]
    left, memory = f"${1 + levels}", f"${2 + levels}"
    lines = ["{", REGISTERS, "mov.u32 lane, %laneid; mov.u32 tid, %tid.x; shr.u32 warp, tid, 5; mov.u32 base, 0;"]
    lines += ["setp.eq.u32 first, lane, 0;", f"add.u32 base, base, {memory};", *_ends(keys)]
    lines += [
        f"add.s32 hi, most, 1; add.u32 lo, least, 1; mov.b32 above, 0; mov.b32 room, {left};",
        f"mov.b32 edge, 0x7FFFFFFF; setp.le.s32 done, {left}, 0; @done bra FOUND;",
        "setp.le.s32 done, most, 0; @done bra FOUND;",
        "ROUND:",
        "sub.u32 range, hi, lo; sub.u32 t, range, 1; clz.b32 t, t; sub.s32 shift, 24, t; max.s32 shift, shift, 0;",
    ]
    for key in keys:
        lines.append(f"sub.u32 t, {key}, lo; setp.lt.u32 ok, t, range; shr.u32 t, t, shift; shl.b32 t, t, 2;")
        lines.append("add.u32 t, t, base; @ok red.shared.add.u32 [t], 1;")
    lines += [
        *bucket_lines(left, 1),
        "shl.b32 bin, bin, shift; add.u32 lo, lo, bin; mov.b32 edge, lo;",
        f"setp.eq.s32 done, reached, {left}; @done bra FOUND;",  # whatever equals the edge is bought
        f"sub.u32 above, reached, at; sub.u32 room, {left}, above; setp.eq.u32 done, shift, 0; @done bra TIES;",
        f"mov.b32 room, {left}; mov.b32 t, 1; shl.b32 t, t, shift; add.u32 t, t, lo; min.u32 hi, hi, t;",
        f"add.u32 base, base, {4 * BUCKETS}; bra ROUND;",
        "FOUND:",
        "mov.b32 own, 0;",
    ]
    lines += [f"setp.ge.s32 p, {key}, edge; @p add.u32 own, own, 1;" for key in keys]
    lines += ["bra END;", "TIES:", *_ties(keys, memory), "END:", "mov.b32 $0, own;", "}"]
    return "\n".join(lines)


def _ends(keys: list[str]) -> list[str]:
    """The largest key (most), and the least above 0, less 1."""
    at = f"add.u32 u, base, {4 * COUNT_WORDS}; shl.b32 t, warp, 2; add.u32 t, t, u;"
    lines = [f"mov.b32 most, {keys[0]}; sub.u32 least, {keys[0]}, 1;"]
    lines += [f"sub.u32 t, {key}, 1; min.u32 least, least, t;" for key in keys[1:]]  # 0 becomes the largest
    return [
        *lines,
        "redux.sync.max.s32 most, most, 0xffffffff; redux.sync.min.u32 least, least, 0xffffffff;",
        f"{at} @first st.shared.b32 [t], most; @first st.shared.b32 [t+{4 * WARPS}], least; bar.sync 0;",
        f"ld.shared.v4.b32 {{c0,c1,c2,c3}}, [u]; ld.shared.v4.b32 {{c4,c5,c6,c7}}, [u+{4 * WARPS}];",
        "max.s32 c0, c0, c1; max.s32 c2, c2, c3; max.s32 most, c0, c2;",
        "min.u32 c4, c4, c5; min.u32 c6, c6, c7; min.u32 least, c4, c6;",
    ]


def _ties(keys: list[str], memory: str) -> list[str]:
    """Keys above the edge, and those equal to it that there is still room for: earlier channels first."""
    lines = ["mov.b32 own, 0; mov.b32 at, 0;"]
    for key in keys:
        lines.append(f"setp.gt.s32 p, {key}, edge; @p add.u32 own, own, 1;")
        lines.append(f"setp.eq.s32 p, {key}, edge; @p add.u32 at, at, 1;")
    lines += ["mov.b32 sum, at;", *lane_sums("sum"), f"add.u32 u, {memory}, {4 * (COUNT_WORDS + 2 * WARPS)};"]
    lines += ["shl.b32 t, warp, 2; add.u32 t, t, u; setp.eq.u32 p, lane, 31; @p st.shared.b32 [t], sum; bar.sync 0;"]
    lines += ["ld.shared.v4.b32 {c0,c1,c2,c3}, [u]; sub.u32 sum, sum, at;"]
    lines += [f"setp.gt.u32 p, warp, {i}; @p add.u32 sum, sum, c{i};" for i in range(WARPS - 1)]
    return [*lines, "sub.s32 room, room, sum; max.s32 room, room, 0; min.s32 at, at, room; add.u32 own, own, at;"]


def tally_text() -> str:
    """Output: how many earlier channels of the warp have this thread's depth. Inputs: its depth, eight numbers whose
    largest of each is wanted (not negative, float32), the address of `TALLY_WORDS` words of shared memory.
    """
    lines = [
        "{.reg .b32 lane,warp,below,own,t,n,m,a,b; .reg .pred p,first; mov.u32 lane, %laneid; mov.u32 warp, %tid.x;"
    ]
    lines += ["shr.u32 warp, warp, 5; mov.u32 below, %lanemask_lt; setp.eq.u32 first, lane, 0; mov.b32 own, 0;"]
    for depth in range(1, 9):
        into = "ab"[depth > 4]
        lines.append(f"setp.eq.s32 p, $1, {depth}; vote.sync.ballot.b32 t, p, 0xffffffff; popc.b32 n, t;")
        shifted = f"shl.b32 n, n, {8 * ((depth - 1) % 4)}; or.b32 {into}, {into}, n;"
        lines.append(f"mov.b32 {into}, n;" if depth in (1, 5) else shifted)
        lines.append("@p and.b32 own, t, below;")
    lines += [f"shl.b32 t, warp, 3; add.u32 t, t, ${2 + HEADS}; @first st.shared.v2.b32 [t], {{a,b}};"]
    lines += [f"shl.b32 t, warp, 2; add.u32 t, t, ${2 + HEADS};"]
    for head in range(HEADS):
        lines.append(f"redux.sync.max.u32 m, ${2 + head}, 0xffffffff;")
        lines.append(f"@first st.shared.b32 [t+{4 * (2 * WARPS + head * WARPS)}], m;")
    return "\n".join([*lines, "popc.b32 own, own; mov.b32 $0, own;", "bar.sync 0;}"])
