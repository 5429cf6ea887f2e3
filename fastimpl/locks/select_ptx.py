"""The threshold of a selection in PTX: eight bits of it per round, counted in shared memory.

A thread reads n keys, whatever the layout of the caller's tensors. The largest and the least ordinary key
(0 <= key < FORCED) bound the threshold; then, round by round:

    bucket of a key in lo .. hi - 1   (key - lo) >> shift, 256 of them        one atomic addition in shared memory
    every warp reads all 256 counts   sums from the top, lane 0 first         finds the bucket that the k-th key is in
    lo .. hi - 1 becomes that bucket; the end is one bucket = one value, or a bucket's edge with exactly k above it

Four rounds at most, mostly two, with one barrier each; searching two bits per round took fifteen, with two each.
"""

from __future__ import annotations

import functools

FORCED = 0x7FFFFFFF
ABSENT = -0x80000000
ROUNDS, BUCKETS = 4, 256


OPERANDS = "=&r,=&r,l,r,r"


@functools.cache
def threshold_text(items: int, warps: int) -> str:
    """Outputs: the threshold, and its room: how many keys equal to it are kept. Inputs: address of the keys, how many
    there are (at most ``items``), how many to keep. Keys are 32-bit integers; negative ones are never kept.
    """
    threads = 32 * warps
    keys = -(-items // threads)
    key = [f"k{i}" for i in range(keys)]
    kept = "$4"
    lines = [
        "{",
        ".reg .b32 lane,warp,tid,t,u,lo,hi,range,shift,above,sum,own,mask,bin,reached,in,at,base,most,least,forced;",
        f".reg .b32 edge,room; .reg .b32 c<8>,k<{keys}>; .reg .b64 from; .reg .pred p,ok,done;",
        f".shared .align 16 .b32 counts[{ROUNDS * BUCKETS}]; .shared .align 16 .b32 ends[{3 * warps}];",
        "mov.u32 lane, %laneid; mov.u32 tid, %tid.x; shr.u32 warp, tid, 5; mov.u32 base, counts; mov.u32 t, 0;",
        "mul.wide.u32 from, tid, 4; add.s64 from, from, $2;",
    ]
    for i, k in enumerate(key):
        lines.append(f"add.u32 u, tid, {i * threads}; setp.lt.s32 p, u, $3; mov.b32 {k}, {ABSENT};")
        lines.append(f"@p ld.global.b32 {k}, [from+{4 * i * threads}];")
    for first in range(0, ROUNDS * BUCKETS, 4 * threads):
        lines.append(f"shl.b32 u, tid, 4; add.u32 u, u, base; setp.lt.u32 p, tid, {(ROUNDS * BUCKETS - first) // 4};")
        lines.append(f"@p st.shared.v4.b32 [u+{4 * first}], {{t,t,t,t}};")
    lines.append("mov.b32 most, -1; mov.b32 least, -1; mov.b32 forced, 0;")
    for k in key:  # as unsigned numbers, absent keys are above all others
        lines.append(f"setp.eq.s32 p, {k}, {FORCED}; selp.b32 t, -1, {k}, p; max.s32 most, most, t;")
        lines.append(f"@p add.u32 forced, forced, 1; min.u32 least, least, {k};")
    lines += [
        "redux.sync.max.s32 most, most, 0xffffffff; redux.sync.min.u32 least, least, 0xffffffff;",
        "redux.sync.add.u32 forced, forced, 0xffffffff; setp.eq.u32 p, lane, 0;",
        "mov.u32 u, ends; shl.b32 t, warp, 2; add.u32 t, t, u;",
        f"@p st.shared.b32 [t], most; @p st.shared.b32 [t+{4 * warps}], least; @p st.shared.b32 [t+{8 * warps}], forced;",
        "bar.sync 0; mov.b32 above, 0;",
    ]
    for w in range(warps):
        lines.append(f"ld.shared.b32 t, [u+{4 * w}]; max.s32 most, most, t;")
        lines.append(f"ld.shared.b32 t, [u+{4 * (warps + w)}]; min.u32 least, least, t;")
        lines.append(f"ld.shared.b32 t, [u+{4 * (2 * warps + w)}]; add.u32 above, above, t;")
    lines += [
        "add.s32 hi, most, 1; mov.b32 lo, least;",
        f"mov.b32 room, {kept}; mov.b32 edge, {FORCED}; setp.ge.s32 done, above, {kept}; @done bra FOUND;",
        "mov.b32 edge, 0; setp.lt.s32 done, most, 0; @done bra FOUND;",  # forced pages alone
        "ROUND:",
        "sub.u32 range, hi, lo; sub.u32 t, range, 1; clz.b32 t, t; sub.s32 shift, 24, t; max.s32 shift, shift, 0;",
    ]
    for k in key:
        lines.append(f"sub.u32 t, {k}, lo; setp.lt.u32 ok, t, range; shr.u32 t, t, shift; shl.b32 t, t, 2;")
        lines.append("add.u32 t, t, base; @ok red.shared.add.u32 [t], 1;")
    lines += [
        "bar.sync 0; sub.u32 in, 31, lane; shl.b32 in, in, 3; shl.b32 t, in, 2; add.u32 t, t, base;",
        "ld.shared.v4.b32 {c0,c1,c2,c3}, [t]; ld.shared.v4.b32 {c4,c5,c6,c7}, [t+16];",
        "add.u32 own, c0, c1; add.u32 own, own, c2; add.u32 own, own, c3; add.u32 own, own, c4; add.u32 own, own, c5;",
        "add.u32 own, own, c6; add.u32 own, own, c7; mov.b32 sum, own;",
    ]
    for step in (1, 2, 4, 8, 16):
        lines.append(f"shfl.sync.up.b32 t|p, sum, {step}, 0, 0xffffffff; @p add.u32 sum, sum, t;")
    lines += [
        f"add.u32 sum, sum, above; setp.ge.s32 p, sum, {kept}; vote.sync.ballot.b32 mask, p, 0xffffffff;",
        "mov.b32 edge, 0; setp.eq.u32 done, mask, 0; @done bra FOUND;",  # fewer items than are kept: all of them
        "sub.u32 sum, sum, own; mov.b32 bin, -1; mov.b32 reached, 0; mov.b32 at, 0;",
    ]
    for i in range(7, -1, -1):  # the first bucket from the top with which enough are reached
        lines.append(f"add.u32 sum, sum, c{i}; setp.ge.s32 p, sum, {kept}; setp.lt.s32 ok, bin, 0; and.pred p, p, ok;")
        lines.append(f"@p add.u32 bin, in, {i}; @p mov.b32 reached, sum; @p mov.b32 at, c{i};")
    lines += [
        "brev.b32 mask, mask; clz.b32 t, mask; shfl.sync.idx.b32 bin, bin, t, 0x1f, 0xffffffff;",
        "shfl.sync.idx.b32 reached, reached, t, 0x1f, 0xffffffff; shfl.sync.idx.b32 at, at, t, 0x1f, 0xffffffff;",
        "shl.b32 bin, bin, shift; add.u32 lo, lo, bin; mov.b32 edge, lo;",
        f"setp.eq.s32 done, reached, {kept}; @done bra FOUND;",  # whatever equals the bar is kept
        f"sub.u32 above, reached, at; sub.u32 room, {kept}, above; setp.eq.u32 done, shift, 0; @done bra FOUND;",
        f"mov.b32 room, {kept}; mov.b32 t, 1; shl.b32 t, t, shift; add.u32 t, t, lo; min.u32 hi, hi, t;",
        f"add.u32 base, base, {4 * BUCKETS}; bra ROUND;",
        "FOUND:",
    ]
    return "\n".join([*lines, "mov.b32 $0, edge; mov.b32 $1, room;", "}"])
