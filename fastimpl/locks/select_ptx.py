"""A selection in PTX: its threshold, eight bits of it per round, counted in shared memory; then every item's place.

A thread reads n keys, whatever the layout of the caller's tensors. The largest and the least ordinary key
(0 <= key < FORCED) bound the threshold; then, round by round:

    bucket of a key in lo .. hi - 1   (key - lo) >> shift, 256 of them        one atomic addition in shared memory
    every warp reads all 256 counts   sums from the top, lane 0 first         finds the bucket that the k-th key is in
    lo .. hi - 1 becomes that bucket; the end is one bucket = one value, or a bucket's edge with exactly k above it

Four rounds at most, mostly two, with one barrier each; searching two bits per round took fifteen, with two each.

Item i * threads + t is thread t's key i, so 32 neighbours vote together. Their counts of keys above the threshold and
equal to it go into a tally in shared memory; after one barrier every warp adds it up, and an item's place among the kept
is what stands before it. Triton's own cumulative sum has six barriers for every four keys of a thread.
"""

from __future__ import annotations

FORCED = 0x7FFFFFFF
ABSENT = -0x80000000
ROUNDS, BUCKETS = 4, 256
TALLY = 128
"""Groups of 32 neighbours in a program: keys of a thread times warps."""

REGISTERS = """\
.reg .b32 lane,warp,tid,t,u,lo,hi,range,shift,above,sum,own,mask,bin,reached,in,at,base,most,least,forced,written;
.reg .b32 edge,room,tall,list0,e0,e1,e2,e3,total,below,place,earlier,x,y; .reg .b32 c<8>; .reg .b64 from,w,v;
.reg .pred p,ok,done,first,more,same,here;"""


FIRST = "=&r,l,r,r,l,l,l,l,r"
"""Operands of a first pass: out how many are kept; in the keys' address, their number, how many to keep, the addresses
of kept keys, ids and blocks and of the block table, the first item's id."""

LAST = "=&r,l,r,r,l,l,l,r,r"
"""Operands of the last pass: out how many are kept (from bit 18 on) and the shared address of the list of blocks; in as
above up to how many to keep, then the addresses of ids, blocks (or table) and the list of pages, and the places from ..
to that are written."""


class Choice:
    """The text of one pass over at most ``items`` keys (32-bit integers; negative ones are never kept).

    A first pass (``places`` 0) writes kept keys, ids and blocks in order, then absent ones. The last pass writes a part of
    the list of pages, -1 past its end, and that part's blocks to shared memory, at most ``places`` of them. There ids are
    the items' own numbers where ``own_ids``. ``block_bytes``: size of a block id where it is read, 0 where pages are their
    own blocks.
    """

    def __init__(self, items: int, warps: int, block_bytes: int, places: int = 0, own_ids: bool = False) -> None:
        self.warps, self.threads, self.places = warps, 32 * warps, places
        self.keys = [f"k{i}" for i in range(-(-items // self.threads))]
        self.own_ids, self.block_bytes = own_ids, block_bytes

    def text(self) -> str:
        """All of it."""
        n = len(self.keys)
        lines = ["{", REGISTERS, f".reg .b32 k<{n}>,id<{n}>,b<{n}>;", *self.load(), *self.ends(), *self.search()]
        lines += [*self.tally(), *self.put(), *self.fill()]
        if self.places:
            lines.append("bar.sync 0; shl.b32 t, written, 18; or.b32 written, t, list0;")
        return "\n".join([*lines, "mov.b32 $0, written;", "}"])

    def load(self) -> list[str]:
        """Shared memory, cleared, and this thread's keys."""
        lines = [
            f".shared .align 16 .b32 counts[{ROUNDS * BUCKETS}]; .shared .align 16 .b32 tallies[{TALLY}];",
            f".shared .align 16 .b32 ends[{3 * self.warps}];",
            "mov.u32 lane, %laneid; mov.u32 tid, %tid.x; shr.u32 warp, tid, 5; mov.u32 base, counts; mov.u32 t, 0;",
            "mul.wide.u32 from, tid, 4; add.s64 from, from, $1; mov.u32 tall, tallies; setp.eq.u32 first, lane, 0;",
        ]
        if self.places:
            lines.append(f".shared .align 16 .b32 list[{self.places}]; mov.u32 list0, list;")
        for i, k in enumerate(self.keys):
            at = i * self.threads
            lines.append(f"add.u32 u, tid, {at}; setp.lt.s32 p, u, $2; mov.b32 {k}, {ABSENT}; mov.b32 b{i}, 0;")
            lines.append(f"@p ld.global.b32 {k}, [from+{4 * at}];")
            lines += self.names(i)
        for array, size in (("base", ROUNDS * BUCKETS), ("tall", TALLY)):
            for at in range(0, size, 4 * self.threads):
                lines.append(f"shl.b32 u, tid, 4; add.u32 u, u, {array}; setp.lt.u32 p, tid, {(size - at) // 4};")
                lines.append(f"@p st.shared.v4.b32 [u+{4 * at}], {{t,t,t,t}};")
        return lines

    def names(self, i: int) -> list[str]:
        """The id and the block of item u, key ``i`` of this thread, where there is one (p)."""
        table = "$7"
        if not self.places:
            lines = [f"add.u32 id{i}, u, $8;"]
        elif self.own_ids:
            lines, table = [f"mov.b32 id{i}, u;"], "$5"
        else:
            lines = [f"mul.wide.u32 w, u, 4; add.s64 v, w, $4; mov.b32 id{i}, 0; @p ld.global.b32 id{i}, [v];"]
            if self.block_bytes:
                return [*lines, f"add.s64 v, w, $5; @p ld.global.b32 b{i}, [v];"]
        if self.block_bytes:
            lines.append(
                f"mul.wide.s32 w, id{i}, {self.block_bytes}; add.s64 w, w, {table}; @p ld.global.b32 b{i}, [w];"
            )
        return lines if self.block_bytes else [*lines, f"mov.b32 b{i}, id{i};"]

    def ends(self) -> list[str]:
        """The largest and the least ordinary key, and how many forced ones there are (above)."""
        lines = ["mov.b32 most, -1; mov.b32 least, -1; mov.b32 forced, 0;"]
        for k in self.keys:  # as unsigned numbers, absent keys are above all others
            lines.append(f"setp.eq.s32 p, {k}, {FORCED}; selp.b32 t, -1, {k}, p; max.s32 most, most, t;")
            lines.append(f"@p add.u32 forced, forced, 1; min.u32 least, least, {k};")
        step = 4 * self.warps
        lines += [
            "redux.sync.max.s32 most, most, 0xffffffff; redux.sync.min.u32 least, least, 0xffffffff;",
            "redux.sync.add.u32 forced, forced, 0xffffffff; mov.u32 u, ends; shl.b32 t, warp, 2; add.u32 t, t, u;",
            f"@first st.shared.b32 [t], most; @first st.shared.b32 [t+{step}], least;",
            f"@first st.shared.b32 [t+{2 * step}], forced; bar.sync 0; mov.b32 above, 0;",
        ]
        for w in range(0, step, 4):
            lines.append(f"ld.shared.b32 t, [u+{w}]; max.s32 most, most, t;")
            lines.append(f"ld.shared.b32 t, [u+{step + w}]; min.u32 least, least, t;")
            lines.append(f"ld.shared.b32 t, [u+{2 * step + w}]; add.u32 above, above, t;")
        return lines

    def search(self) -> list[str]:
        """The threshold (edge), and its room: how many keys equal to it are kept."""
        lines = [
            "add.s32 hi, most, 1; mov.b32 lo, least;",
            f"mov.b32 room, $3; mov.b32 edge, {FORCED}; setp.ge.s32 done, above, $3; @done bra FOUND;",
            "mov.b32 edge, 0; setp.lt.s32 done, most, 0; @done bra FOUND;",  # forced pages alone
            "ROUND:",
            "sub.u32 range, hi, lo; sub.u32 t, range, 1; clz.b32 t, t; sub.s32 shift, 24, t; max.s32 shift, shift, 0;",
        ]
        for k in self.keys:
            lines.append(f"sub.u32 t, {k}, lo; setp.lt.u32 ok, t, range; shr.u32 t, t, shift; shl.b32 t, t, 2;")
            lines.append("add.u32 t, t, base; @ok red.shared.add.u32 [t], 1;")
        return [
            *lines,
            *bucket_lines("$3", 0),
            "shl.b32 bin, bin, shift; add.u32 lo, lo, bin; mov.b32 edge, lo;",
            "setp.eq.s32 done, reached, $3; @done bra FOUND;",  # whatever equals the edge is kept
            "sub.u32 above, reached, at; sub.u32 room, $3, above; setp.eq.u32 done, shift, 0; @done bra FOUND;",
            "mov.b32 room, $3; mov.b32 t, 1; shl.b32 t, t, shift; add.u32 t, t, lo; min.u32 hi, hi, t;",
            f"add.u32 base, base, {4 * BUCKETS}; bra ROUND;",
            "FOUND:",
        ]

    def votes(self, key: str) -> str:
        """Who of the 32 neighbours is above the edge (t) and at it (u)."""
        return (
            f"setp.gt.s32 more, {key}, edge; setp.eq.s32 same, {key}, edge;"
            "vote.sync.ballot.b32 t, more, 0xffffffff; vote.sync.ballot.b32 u, same, 0xffffffff;"
        )

    def tally(self) -> list[str]:
        """Counts of 32 neighbours into shared memory; then, in every warp, what stands before each of its own groups.

        A count is two numbers of 16 bits: above, and equal. Lane i keeps the sums before its four groups; those of one
        warp have the same place among the four.
        """
        lines = ["shl.b32 y, warp, 2; add.u32 y, y, tall;"]
        for i, k in enumerate(self.keys):
            lines.append(f"{self.votes(k)} popc.b32 t, t; popc.b32 u, u; shl.b32 u, u, 16; or.b32 t, t, u;")
            lines.append(f"@first st.shared.b32 [y+{4 * i * self.warps}], t;")
        return [
            *lines,
            "bar.sync 0; shl.b32 t, lane, 4; add.u32 t, t, tall; ld.shared.v4.b32 {c0,c1,c2,c3}, [t];",
            "add.u32 c1, c1, c0; add.u32 c2, c2, c1; add.u32 c3, c3, c2; mov.b32 sum, c3;",
            *lane_sums("sum"),
            "shfl.sync.idx.b32 total, sum, 31, 0x1f, 0xffffffff; sub.u32 e0, sum, c3;",
            "add.u32 e1, e0, c0; add.u32 e2, e0, c1; add.u32 e3, e0, c2; and.b32 t, warp, 1; setp.ne.u32 p, t, 0;",
            "selp.b32 e0, e1, e0, p; selp.b32 e2, e3, e2, p; and.b32 t, warp, 2; setp.ne.u32 p, t, 0;",
            "selp.b32 e0, e2, e0, p; shr.u32 e1, warp, 2;",
            "and.b32 written, total, 0xffff; shr.u32 t, total, 16; min.s32 t, t, room; add.u32 written, written, t;",
        ]

    def put(self) -> list[str]:
        """The place of every kept item, and what is written there."""
        lines = ["mov.u32 below, %lanemask_lt;"]
        for i, k in enumerate(self.keys):
            lines += [
                f"{self.votes(k)} add.u32 x, e1, {i * self.warps // 4}; shfl.sync.idx.b32 y, e0, x, 0x1f, 0xffffffff;",
                "and.b32 t, t, below; popc.b32 t, t; and.b32 u, u, below; popc.b32 u, u; shr.u32 earlier, y, 16;",
                "add.u32 earlier, earlier, u; and.b32 place, y, 0xffff; add.u32 place, place, t;",
                "min.s32 t, earlier, room; add.u32 place, place, t; setp.lt.s32 here, earlier, room;",
                "and.pred here, here, same; or.pred here, here, more;",
                *(self.write_last(i) if self.places else self.write_first(i, k)),
            ]
        return lines

    def write_first(self, i: int, key: str) -> list[str]:
        """Key, id and block."""
        return [
            f"mul.wide.u32 w, place, 4; add.s64 v, w, $4; @here st.global.b32 [v], {key};",
            f"add.s64 v, w, $5; @here st.global.b32 [v], id{i}; add.s64 v, w, $6; @here st.global.b32 [v], b{i};",
        ]

    def write_last(self, i: int) -> list[str]:
        """Page and block, where this program's part of the list has the place."""
        return [
            "setp.ge.s32 ok, place, $7; and.pred here, here, ok; setp.lt.s32 ok, place, $8; and.pred here, here, ok;",
            f"mul.wide.u32 w, place, 4; add.s64 v, w, $6; @here st.global.b32 [v], id{i};",
            f"sub.u32 x, place, $7; shl.b32 x, x, 2; add.u32 x, x, list0; @here st.shared.b32 [x], b{i};",
        ]

    def fill(self) -> list[str]:
        """Places past the end: absent keys and -1."""
        lines = [f"mov.b32 x, -1; mov.b32 y, {ABSENT};"]
        for i in range(len(self.keys)):
            lines.append(f"add.u32 t, tid, {i * self.threads}; setp.ge.s32 here, t, written; mul.wide.u32 w, t, 4;")
            if self.places:
                lines.append("setp.ge.s32 ok, t, $7; and.pred here, here, ok; setp.lt.s32 ok, t, $8;")
                lines.append("and.pred here, here, ok; add.s64 v, w, $6; @here st.global.b32 [v], x;")
            else:
                lines.append("setp.lt.s32 ok, t, $3; and.pred here, here, ok; add.s64 v, w, $5;")
                lines.append("@here st.global.b32 [v], x; add.s64 v, w, $4; @here st.global.b32 [v], y;")
        return lines


def bucket_lines(wanted: str, everything: int) -> list[str]:
    """Which bucket (bin) the key of rank ``wanted`` is in, how many keys reach it and how many it has (reached, at).

    Jumps to FOUND where all keys are fewer than wanted: the edge is then ``everything``.
    """
    lines = [
        "bar.sync 0; sub.u32 in, 31, lane; shl.b32 in, in, 3; shl.b32 t, in, 2; add.u32 t, t, base;",
        "ld.shared.v4.b32 {c0,c1,c2,c3}, [t]; ld.shared.v4.b32 {c4,c5,c6,c7}, [t+16];",
        "add.u32 own, c0, c1; add.u32 own, own, c2; add.u32 own, own, c3; add.u32 own, own, c4; add.u32 own, own, c5;",
        "add.u32 own, own, c6; add.u32 own, own, c7; mov.b32 sum, own;",
        *lane_sums("sum"),
        f"add.u32 sum, sum, above; setp.ge.s32 p, sum, {wanted}; vote.sync.ballot.b32 mask, p, 0xffffffff;",
        f"mov.b32 edge, {everything}; setp.eq.u32 done, mask, 0; @done bra FOUND;",
        "sub.u32 sum, sum, own; mov.b32 bin, -1; mov.b32 reached, 0; mov.b32 at, 0;",
    ]
    for i in range(7, -1, -1):  # the first bucket from the top with which enough are reached
        lines.append(
            f"add.u32 sum, sum, c{i}; setp.ge.s32 p, sum, {wanted}; setp.lt.s32 ok, bin, 0; and.pred p, p, ok;"
        )
        lines.append(f"@p add.u32 bin, in, {i}; @p mov.b32 reached, sum; @p mov.b32 at, c{i};")
    return [
        *lines,
        "brev.b32 mask, mask; clz.b32 t, mask; shfl.sync.idx.b32 bin, bin, t, 0x1f, 0xffffffff;",
        "shfl.sync.idx.b32 reached, reached, t, 0x1f, 0xffffffff; shfl.sync.idx.b32 at, at, t, 0x1f, 0xffffffff;",
    ]


def lane_sums(register: str) -> list[str]:
    """Sums over the lanes up to each."""
    return [
        f"shfl.sync.up.b32 t|p, {register}, {step}, 0, 0xffffffff; @p add.u32 {register}, {register}, t;"
        for step in (1, 2, 4, 8, 16)
    ]


def constants(choice: Choice | None, warps: int) -> dict[str, int | str]:
    """The PTX as a kernel's compile-time constants; empty where the branch is not used."""
    if choice is None:
        return {"WARPS": warps, "TEXT": "", "OPERANDS": ""}
    return {"WARPS": warps, "TEXT": choice.text(), "OPERANDS": LAST if choice.places else FIRST}
