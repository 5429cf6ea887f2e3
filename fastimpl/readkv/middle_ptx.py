"""The serial steps between the passes in PTX, for one program: its bins in shared memory, the bracket, the list, the bar.

    clear, flush     own bins -> 0; own bins -> the pool's, one addition to memory per bin that is not empty
    meet, wait       this program's count is up, with all it wrote; until all programs of the pool have come
    bracket          the pool's bins -> sums from the top, in shared memory -> 64 edges at a time, one pair of edge and
                     gain per thread: two rounds of two barriers that count threads
    place            entries of this thread -> the first of its places in the pool's list
    search           listed keys -> the bar, eight bits per round counted in shared memory (256 counts, the bound found by
                     every warp for itself); then the same among the items that equal it

Shared memory: 16 KB (own bins, then sums, then counts of the search) and a few words for sums of warps. Texts take
scalars: every thread of the program runs them, and all get the same results, but for ``place``.
"""

from __future__ import annotations

from fastimpl.locks.select_ptx import lane_sums

BINS, FIRST_BIN, SHIFT = 4096, (127 - 124) << 5, 18
SCRATCH = 4 * BINS
"""Where the words of warps begin: two for each, and one for the program."""

BYTES = SCRATCH + 4 * (2 * 32 + 1)
MEMORY = f"{{.shared .align 16 .b8 middle_memory[{BYTES}]; mov.u32 $0, middle_memory;}}"
COUNTS, ROUNDS = 256, 8
"""Counts of a round of the search, and rounds at most: 20 bits of a key, 31 of an item's number."""

KEYS = 8
"""Listed keys of a thread at a time; a longer list is read again in every round."""

INFINITY, ALL = 0x7F800000, 0x7FFFFFFF
MORE, LESS = "0f3F800008", "0f3F7FFFF0"
"""1 + 2^-20 and 1 - 2^-20: more than the rounding of edge times rounded inverse and of importance times gain."""

WHO = "mov.u32 tid, %tid.x; mov.u32 lane, %laneid; shr.u32 warp, tid, 5;"
WHO_REGISTERS = ".reg .b32 tid,lane,warp;"


def clear_text(warps: int) -> str:
    """Own bins are 0. Operands: out a word, in the shared address."""
    lines = ["{", ".reg .b32 tid,t,z;", "mov.u32 tid, %tid.x; shl.b32 t, tid, 4; add.u32 t, t, $1; mov.b32 z, 0;"]
    for at in range(0, 4 * BINS, 512 * warps):
        lines.append(f"st.shared.v4.b32 [t+{at}], {{z,z,z,z}};")
    return "\n".join([*lines, "mov.b32 $0, z;", "}"])


def flush_text(warps: int) -> str:
    """Own bins are added to the pool's. Operands: out a word, in the shared address and the pool's bins."""
    lines = ["{", ".reg .b32 tid,t,c; .reg .b64 w; .reg .pred p;", "mov.u32 tid, %tid.x; shl.b32 t, tid, 2;"]
    lines.append("add.u32 t, t, $1; mul.wide.u32 w, tid, 4; add.s64 w, w, $2;")
    for at in range(0, 4 * BINS, 128 * warps):
        lines.append(f"ld.shared.b32 c, [t+{at}]; setp.ne.u32 p, c, 0;")
        lines.append(f"@p red.relaxed.gpu.global.add.u32 [w+{at}], c;")
    return "\n".join([*lines, "mov.b32 $0, c;", "}"])


MEET = """{ .reg .b32 t; .reg .pred p;
bar.sync 0; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; @p red.release.gpu.global.add.u32 [$1], 1; mov.b32 $0, t; }"""
"""Operands: out a word, in the address of the pool's count."""

WAIT = """{ .reg .b32 t; .reg .pred p;
mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra MET;
AGAIN: ld.acquire.gpu.global.b32 t, [$1]; setp.lt.s32 p, t, $2; @p bra AGAIN;
MET: bar.warp.sync 0xffffffff; bar.sync 0; mov.b32 $0, t; }"""
"""Operands: out a word, in the address of the pool's count and how many programs come."""


def warp_sums(warps: int, at: int, total: str, before: str | None) -> list[str]:
    """Sum over the words of all warps at ``at`` past $4 (total), and over those before this one; needs t, u and p."""
    lines = [f"shl.b32 u, lane, 2; add.u32 u, u, $4; mov.b32 t, 0; setp.lt.u32 p, lane, {warps};"]
    lines.append(f"@p ld.shared.b32 t, [u+{at}]; redux.sync.add.u32 {total}, t, 0xffffffff;")
    if before:
        lines.append("setp.lt.u32 p, lane, warp; selp.b32 t, t, 0, p;")
        lines.append(f"redux.sync.add.u32 {before}, t, 0xffffffff;")
    return lines


class Bracket:
    """Text that brackets a pool's bar by its bins.

    Operands: out low, high and the cost of one step of every item; in the pool's bins, the shared address, the first
    gain's address, how many gains there are (8 at most), and what is left. Low is 1 below the first edge.
    """

    OPERANDS = "=&r,=&r,=&r,l,r,l,r,r"

    def __init__(self, warps: int) -> None:
        self.warps, self.run = warps, BINS // (32 * warps)

    def text(self) -> str:
        """All of it."""
        names = ",".join(f"b{i}" for i in range(self.run))
        registers = f""".reg .b32 t,u,own,sum,total,before,edge,near,pair,surely,perhaps,last,first,{names};
.reg .f32 gain,inverse,need,x; .reg .b64 from,w; .reg .pred p,q,some,lead;"""
        lines = ["{", WHO_REGISTERS, registers, WHO, *self.sums(), *self.search(), "mov.b32 $2, total;", "}"]
        return "\n".join(lines)

    def sums(self) -> list[str]:
        """Costs of the bins from each on, in shared memory."""
        lines = ["and.b32 t, tid, 7; mov.b32 gain, 0f00000000; setp.lt.s32 p, t, $6; mul.wide.u32 w, t, 4;"]
        lines.append("add.s64 w, w, $5; @p ld.global.b32 gain, [w]; setp.eq.u32 lead, t, 0;")
        lines.append(f"mul.wide.u32 from, tid, {4 * self.run}; add.s64 from, from, $3;")
        for i in range(0, self.run, 4):
            lines.append(f"ld.global.cg.v4.b32 {{b{i},b{i + 1},b{i + 2},b{i + 3}}}, [from+{4 * i}];")
        lines.append("setp.lt.f32 some, 0f00000000, gain; rcp.approx.ftz.f32 inverse, gain; mov.b32 own, b0;")
        lines += [f"add.u32 own, own, b{i};" for i in range(1, self.run)]
        lines += ["mov.b32 sum, own;", *lane_sums("sum"), "shl.b32 u, warp, 2; add.u32 u, u, $4;"]
        lines.append(f"setp.eq.u32 p, lane, 31; @p st.shared.b32 [u+{SCRATCH}], sum; bar.sync 0;")
        lines += warp_sums(self.warps, SCRATCH, "total", "before")
        lines.append("sub.u32 sum, sum, own; add.u32 sum, sum, before; sub.u32 sum, total, sum;")
        for i in range(self.run):  # bin i becomes the sum from it on
            lines.append(f"sub.u32 t, sum, b{i}; mov.b32 b{i}, sum; mov.b32 sum, t;")
        lines.append(f"mul.lo.u32 u, tid, {4 * self.run}; add.u32 u, u, $4;")
        for i in range(0, self.run, 4):
            lines.append(f"st.shared.v4.b32 [u+{4 * i}], {{b{i},b{i + 1},b{i + 2},b{i + 3}}};")
        return [*lines, "bar.sync 0;"]

    def search(self) -> list[str]:
        """One edge of 64 first, then each; costs fall from edge to edge, so those past a bound are counted."""
        return [
            *self.round("shl.b32 edge, pair, 6; mov.b32 near, edge;"),
            "sub.s32 last, last, 1; max.s32 last, last, 0; shl.b32 last, last, 6; sub.s32 first, 64, first;",
            "shl.b32 first, first, 6; mov.b32 before, last; mov.b32 own, first;",
            *self.round("add.s32 edge, before, pair; sub.s32 near, own, 63; add.s32 near, near, pair;"),
            f"add.s32 t, before, last; add.s32 t, t, {FIRST_BIN - 1}; shl.b32 t, t, {SHIFT};",
            f"setp.gt.s32 p, last, 0; selp.b32 $0, t, 1, p; min.s32 t, own, {BINS - 1}; sub.s32 t, t, first;",
            f"add.s32 t, t, 1; max.s32 t, t, 0; add.s32 t, t, {FIRST_BIN}; shl.b32 t, t, {SHIFT};",
            f"setp.gt.s32 p, first, 0; selp.b32 $1, t, {INFINITY}, p;",
        ]

    def round(self, edges: str) -> list[str]:
        """How many of 64 edges cost more than is left whatever the rounding (last), and how many do not (first)."""
        lines = ["mov.b32 sum, 0; mov.b32 u, 0;"]
        for at in range(0, 512, 32 * self.warps):
            lines += [
                f"shr.u32 pair, tid, 3; add.u32 pair, pair, {at // 8}; {edges}",
                *self.cost("edge", MORE, 1, "surely"),
                "mov.b32 edge, near; max.s32 edge, edge, 0;",
                *self.cost("edge", LESS, 0, "perhaps"),
            ]
            for step in (1, 2, 4):
                for name in ("surely", "perhaps"):
                    lines.append(f"shfl.sync.bfly.b32 t, {name}, {step}, 0x1f, 0xffffffff; add.u32 {name}, {name}, t;")
            lines += [
                "setp.gt.s32 p, surely, $7; and.pred p, p, lead; bar.red.popc.u32 t, 0, p; add.u32 sum, sum, t;",
                f"setp.le.s32 p, perhaps, $7; and.pred p, p, lead; setp.lt.s32 q, near, {BINS}; and.pred p, p, q;",
                "bar.red.popc.u32 t, 0, p; add.u32 u, u, t;",
            ]
        return [*lines, "mov.b32 last, sum; mov.b32 first, u;"]

    def cost(self, edge: str, factor: str, past: int, into: str) -> list[str]:
        """Cost of the items whose step of this thread's gain reaches an edge, from the bin ``past`` the edge's own on."""
        lines = [
            f"min.s32 t, {edge}, {BINS - 1}; add.s32 t, t, {FIRST_BIN}; shl.b32 t, t, {SHIFT}; mov.b32 need, t;",
            f"mul.rn.f32 need, need, inverse; mul.rn.f32 x, need, {factor}; mov.b32 t, x; shr.s32 t, t, {SHIFT};",
            f"sub.s32 t, t, {FIRST_BIN - past}; max.s32 t, t, {past}; mov.b32 {into}, 0;",
        ]
        if past:
            lines.append(f"setp.lt.s32 p, t, {BINS}; and.pred p, p, some;")
        else:
            lines.append(f"min.s32 t, t, {BINS - 1}; and.pred p, some, some;")
        return [*lines, f"shl.b32 t, t, 2; add.u32 t, t, $4; @p ld.shared.b32 {into}, [t];"]


PLACE_OPERANDS = "=&r,r,r,l,r"


def place_text(warps: int) -> str:
    """The first place of this thread's entries in the pool's list, and costs added to the pool's.

    Operands: out the place; in how many entries, the cost of the steps above them, the address of the pool's numbers of
    entries and cost (two words), the shared address.
    """
    lines = ["{", WHO_REGISTERS, ".reg .b32 t,u,sum,cost,total,before,all; .reg .pred p,lead;", WHO, "mov.b32 sum, $1;"]
    lines += [*lane_sums("sum"), "redux.sync.add.u32 cost, $2, 0xffffffff; shl.b32 u, warp, 2; add.u32 u, u, $4;"]
    lines.append(f"setp.eq.u32 p, lane, 31; @p st.shared.b32 [u+{SCRATCH}], sum;")
    lines.append(f"@p st.shared.b32 [u+{SCRATCH + 128}], cost; bar.sync 0;")
    lines += warp_sums(warps, SCRATCH, "total", "before") + warp_sums(warps, SCRATCH + 128, "all", None)
    lines.append("setp.eq.u32 lead, tid, 0; @lead atom.relaxed.gpu.global.add.u32 t, [$3], total;")
    lines.append(f"@lead red.relaxed.gpu.global.add.u32 [$3+4], all; @lead st.shared.b32 [$4+{SCRATCH + 256}], t;")
    lines.append(f"bar.sync 0; ld.shared.b32 t, [$4+{SCRATCH + 256}]; add.u32 t, t, before; add.u32 t, t, sum;")
    return "\n".join([*lines, "sub.u32 $0, t, $1;", "}"])


class Search:
    """Text that finds the bar among listed keys: the largest key such that what reaches it costs more than is left.

    Operands: out the bar and the cut (equals of items before it are bought); in the keys' and the items' addresses, how
    many there are, low, high, what is left, items of a row, of all rows, cost of an item's step, of the last item's, the
    shared address. All keys lie in low .. high - 1, and together they cost more than is left.
    """

    OPERANDS = "=&r,=&r,l,l,r,r,r,r,r,r,r,r,r"

    def __init__(self, warps: int) -> None:
        self.warps, self.threads = warps, 32 * warps

    def text(self) -> str:
        """All of it."""
        names = ",".join(f"{name}{i}" for name in "kic" for i in range(KEYS))
        registers = f""".reg .b32 t,u,lo,hi,range,shift,above,left,sum,own,mask,bin,in,at,base,start,bar,{names};
.reg .b32 n<8>; .reg .b64 w,v; .reg .pred p,ok,second,few;"""
        lines = ["{", WHO_REGISTERS, registers, WHO, "mov.b32 t, 0; shl.b32 u, tid, 4; add.u32 u, u, $12;"]
        for at in range(0, 4 * COUNTS * ROUNDS, 16 * self.threads):
            lines.append(f"setp.lt.u32 p, tid, {(4 * COUNTS * ROUNDS - at) // 16};")
            lines.append(f"@p st.shared.v4.b32 [u+{at}], {{t,t,t,t}};")
        lines.append("mov.b32 lo, $5; mov.b32 hi, $6; mov.b32 left, $7; mov.b32 above, 0; mov.b32 base, $12;")
        lines.append(f"setp.ne.u32 second, tid, tid; setp.le.s32 few, $4, {KEYS * self.threads}; mov.b32 bar, -1;")
        lines += ["mov.b32 start, 0;", *self.load("FIRST"), "bar.sync 0;", "ROUND:", *self.count(), *self.find()]
        lines.append("setp.ne.u32 p, shift, 0; @p bra ROUND;")
        return "\n".join([*lines, *self.equals(), "}"])

    def load(self, label: str) -> list[str]:
        """Keys, items and costs from ``start`` on; a key of -1 where there is none."""
        lines = [f"mov.b32 k{i}, -1; mov.b32 i{i}, 0; mov.b32 c{i}, 0;" for i in range(KEYS)]
        for i in range(KEYS):
            lines += [self.until(i, f"{label}_LOADED"), "add.s32 u, u, tid; setp.lt.s32 ok, u, $4;"]
            lines.append("mul.wide.u32 w, u, 4; add.s64 v, w, $2; add.s64 w, w, $3;")
            lines.append(f"@ok ld.global.cg.b32 k{i}, [v]; @ok ld.global.cg.b32 i{i}, [w];")
        lines.append(f"{label}_LOADED: sub.s32 range, $8, 1;")
        for i in range(KEYS):
            lines += [self.until(i, f"{label}_COST"), f"rem.u32 t, i{i}, $8; setp.eq.u32 p, t, range;"]
            lines.append(f"selp.b32 c{i}, $11, $10, p;")
        return [*lines, f"{label}_COST:"]

    def until(self, i: int, label: str) -> str:
        """Leave a run of steps where no thread has an ``i``-th key; u is the first thread's."""
        return f"add.s32 u, start, {i * self.threads}; setp.ge.s32 p, u, $4; @p bra {label};"

    def count(self) -> list[str]:
        """Costs of the keys (of equal items, in the second search) in lo .. hi - 1, by bucket."""
        lines = ["mov.b32 start, 0; @few bra HERE;", "PIECE:", *self.load("PIECE"), "HERE: sub.u32 range, hi, lo;"]
        lines.append("sub.u32 t, range, 1; clz.b32 t, t; sub.s32 shift, 24, t; max.s32 shift, shift, 0;")
        for i in range(KEYS):
            lines.append(self.until(i, "COUNTED"))
            lines.append(f"sub.u32 t, {ALL}, i{i}; setp.eq.u32 p, k{i}, bar; selp.b32 t, t, -1, p;")
            lines.append(f"selp.b32 t, t, k{i}, second; sub.u32 t, t, lo; setp.lt.u32 ok, t, range;")
            lines.append(f"shr.u32 t, t, shift; shl.b32 t, t, 2; add.u32 t, t, base; @ok red.shared.add.u32 [t], c{i};")
        lines.append(f"COUNTED: add.s32 start, start, {KEYS * self.threads}; setp.lt.s32 p, start, $4;")
        return [*lines, "@p bra PIECE;", "bar.sync 0;"]

    def find(self) -> list[str]:
        """The bucket from the top with which more than is left is reached becomes lo .. hi - 1."""
        lines = [
            "sub.u32 in, 31, lane; shl.b32 in, in, 3; shl.b32 t, in, 2; add.u32 t, t, base;",
            "ld.shared.v4.b32 {n0,n1,n2,n3}, [t]; ld.shared.v4.b32 {n4,n5,n6,n7}, [t+16]; add.u32 own, n0, n1;",
            *(f"add.u32 own, own, n{i};" for i in range(2, 8)),
            "mov.b32 sum, own;",
            *lane_sums("sum"),
            "add.u32 sum, sum, above; setp.gt.s32 p, sum, left; vote.sync.ballot.b32 mask, p, 0xffffffff;",
            "sub.u32 sum, sum, own; mov.b32 bin, -1; mov.b32 at, 0;",
        ]
        for i in range(7, -1, -1):
            lines.append(f"add.u32 t, sum, n{i}; setp.gt.s32 p, t, left; setp.lt.s32 ok, bin, 0; and.pred p, p, ok;")
            lines.append(f"@p add.u32 bin, in, {i}; @p mov.b32 at, sum; mov.b32 sum, t;")
        return [
            *lines,
            "brev.b32 mask, mask; clz.b32 t, mask; shfl.sync.idx.b32 bin, bin, t, 0x1f, 0xffffffff;",
            "shfl.sync.idx.b32 above, at, t, 0x1f, 0xffffffff; shl.b32 bin, bin, shift; add.u32 lo, lo, bin;",
            "mov.b32 t, 1; shl.b32 t, t, shift; add.u32 t, t, lo; min.u32 hi, hi, t;",
            f"add.u32 base, base, {4 * COUNTS};",
        ]

    def equals(self) -> list[str]:
        """After the first search: the second one, for the item at which what is left for equals of the bar ends."""
        return [
            "@second bra FOUND;",
            "mov.b32 bar, lo; sub.s32 left, left, above; min.s32 t, $10, $11; setp.lt.s32 p, left, t;",
            f"mov.b32 lo, {ALL}; @p bra FOUND;",
            f"sub.u32 lo, {ALL + 1}, $9; mov.b32 hi, {ALL + 1}; mov.b32 above, 0; setp.eq.u32 second, tid, tid;",
            "bra ROUND;",
            f"FOUND: mov.b32 $0, bar; sub.u32 $1, {ALL}, lo;",
        ]
