"""The scoring kernel's outer loop in PTX: a warp's ring of page groups in shared memory, filled while it computes.

    turn i        wait for slot i mod STAGES; score its eight pages (`score_ptx.py`); refill the slot with the group of
                  turn i + STAGES, whose block ids were read a turn ago; read the ids of the turn after
    slot          8 records, one behind the other

A record that waits in registers costs 74 to 98 of them for eight pages, so few warps fit and each waits for its own
reads. In shared memory it costs none, and two slots per warp keep 100 to 200 KB per multiprocessor on their way.

How records are copied: "bulk", one instruction per record, complete on a barrier in shared memory (Hopper and later);
or "async", 16 bytes per lane (cp.async, from compute capability 8.0).
"""

from __future__ import annotations

from fastimpl.locks.score_ptx import PAGES_PER_WARP, Compute, Layout, finish

QUERY_WORDS = 16

START = ("base", "table", "first", "stride", "length", "width")
"""Inputs of the first text: two addresses, then pages: the warp's first, from group to group, and how many block ids
may be read; ``length`` is in tokens. Outputs: shared addresses of the ring and its gates, the next block id, and the page
that it is read for."""

MAIN = (
    "base",
    "table",
    "scores",
    "first",
    "stride",
    "steps",
    "length",
    "width",
    "live",
    "ring",
    "gates",
    "own",
    "page",
)
"""Inputs of the second text, before the query's words, the bias and the scale: three addresses, numbers as above, the
groups to score, whether the lane's head exists, and the outputs of the first. Outputs: the lane's largest score (base 2)
and its sum of exponentials."""

START_OPERANDS = ",".join(["=r"] * 4 + ["l", "l"] + ["r"] * 4)
MAIN_OPERANDS = ",".join(["=f", "=f", "l", "l", "l"] + ["r"] * (10 + QUERY_WORDS) + ["f", "f"])

REGISTERS = """\
.reg .b32 lane,warp,q,n,slot,slot0,end,gate,gate0,own,page,first,turn,ahead,phase,z,t,u,x,K,M,h0,h1,h2,h3,hi,lo;
.reg .b32 av,ac,aq,am,as,ov,oc,oq,om,os,p0,p1,complete; .reg .b32 mw<8>,v<4>,c<16>; .reg .b16 k0,k1; .reg .b64 w,from;
.reg .pred up,odd,leader,copier,ok,ok0,ok1,live,more,done;
.reg .f32 zf,big,d0,d1,d2,d3,q0,q1,q2,q3,m0,m1,m2,m3,t0,t1,t2,t3,u0,u1,u2,u3,f0,f1,f2,f3;
.reg .f32 g0,g1,g2,g3,y0,y1,y2,y3,top,sum,higher,fade; .reg .f32 r<8>;"""


class Ring:
    """The two texts of one warp's work: the first starts the copies, the second scores.

    Between them the caller reads the query, while the records are on their way. ``table_bytes`` is the size of a block
    id, 0 where there is no table.
    """

    def __init__(self, layout: Layout, warps: int, stages: int, table_bytes: int, copy: str) -> None:
        self.layout, self.stages, self.table_bytes, self.bulk = layout, stages, table_bytes, copy == "bulk"
        self.bytes = int(layout["BYTES"])
        self.group = PAGES_PER_WARP * self.bytes
        self.warps = warps
        self.operand: dict[str, str] = {}

    def lanes(self) -> list[str]:
        """What both texts need: lane numbers, predicates, and for 16-byte copies which record and where in it."""
        lines = [
            "mov.u32 lane, %laneid; mov.u32 t, %tid.x; shr.u32 warp, t, 5; and.b32 q, lane, 3; shr.u32 n, lane, 2;",
            "setp.eq.u32 leader, lane, 0; setp.lt.u32 copier, lane, 8;",
        ]
        for i in range(0 if self.bulk else self._chunks()):
            lines += [
                f"add.u32 t, lane, {32 * i}; mul.hi.u32 u, t, {-(-(1 << 32) // (self.bytes // 16))};",
                f"mul.lo.u32 x, u, {self.bytes}; shl.b32 t, t, 4; sub.u32 t, t, x; shl.b32 u, u, 16; or.b32 c{i}, t, u;",
            ]
        return lines

    def start(self) -> str:
        """The text that makes the ring, and starts the copies of its first groups."""
        self.operand = {name: f"${4 + i}" for i, name in enumerate(START)}
        lines = [
            "{",
            REGISTERS,
            f".shared .align 128 .b8 ring[{self.warps * self.stages * self.group}];",
            f".shared .align 8 .b64 gates[{self.warps * self.stages}];",
            f".reg .b32 id<{self.stages + 1}>,page_of<{self.stages + 1}>;",
            *self.lanes(),
            f"mov.u32 slot0, ring; mad.lo.u32 slot0, warp, {self.stages * self.group}, slot0; mov.u32 gate0, 0;",
            f"and.b32 t, lane, 7; add.u32 page, {self.operand['first']}, t;",
        ]
        if self.bulk:
            lines.append(f"mov.u32 gate0, gates; mad.lo.u32 gate0, warp, {8 * self.stages}, gate0;")
            lines += [f"@leader mbarrier.init.shared::cta.b64 [gate0+{8 * s}], 1;" for s in range(self.stages)]
            lines.append("fence.mbarrier_init.release.cluster; bar.warp.sync 0xffffffff;")
        for s in range(self.stages + 1):  # block ids before the length, which then is waited for once
            lines += [f"mov.u32 page_of{s}, page;", *self.read_id(), f"mov.b32 id{s}, own;"]
        lines.append(f"shr.s32 complete, {self.operand['length']}, 4;")
        for s in range(self.stages):
            lines += [f"mov.b32 own, id{s};", *self.drop(f"page_of{s}"), f"add.u32 slot, slot0, {s * self.group};"]
            lines += [f"add.u32 gate, gate0, {8 * s};", *self.copy()]
        lines.append(f"mov.b32 own, id{self.stages};")
        lines += [*self.drop(f"page_of{self.stages}"), "mov.u32 $0, slot0; mov.u32 $1, gate0; mov.u32 $2, own;"]
        return "\n".join([*lines, "mov.u32 $3, page;", "}"])

    def prepare(self) -> list[str]:
        """Everything of the second text that stays the same over the turns."""
        quads, quad = self.layout["QUADS"], self.layout["QUAD_BYTES"]
        return [
            *self.lanes(),
            f"mov.u32 slot0, {self.operand['ring']}; mov.u32 slot, slot0; add.u32 end, slot0, {self.stages * self.group};",
            f"mov.u32 gate0, {self.operand['gates']}; mov.u32 gate, gate0; mov.u32 phase, 0; mov.u32 turn, 0;",
            f"mov.u32 own, {self.operand['own']}; mov.u32 page, {self.operand['page']};",
            f"and.b32 t, lane, 2; setp.ne.u32 up, t, 0; shr.s32 complete, {self.operand['length']}, 4;",
            f"and.b32 t, lane, 1; setp.ne.u32 odd, t, 0; setp.ne.u32 live, {self.operand['live']}, 0;",
            f"shl.b32 ov, lane, 4; shl.b32 oc, lane, 2; add.u32 oc, oc, {self.layout['COEFFICIENTS']};",
            f"mad.lo.u32 oq, q, {quad}, {quads}; shl.b32 om, q, 5; mad.lo.u32 om, n, {self.bytes}, om;",
            f"add.u32 om, om, {self.layout['CENTROID']}; mad.lo.u32 os, q, {2 * self.bytes}, "
            f"{int(quads) + (12 if self.layout['HALF_SCALES'] else 24)};",
            f"mov.u32 first, {self.operand['first']};",
            "mov.b32 z, 0; mov.f32 zf, 0f00000000; mov.b32 K, 0x64646464; mov.b32 M, 0x64806480;",
            "mov.f32 top, 0fF149F2CA; mov.f32 sum, zf;",  # -1e30
        ]

    def _chunks(self) -> int:
        return self.group // 512

    def read_id(self) -> list[str]:
        """Read the block id of this lane's page (lane mod 8) of the next group into own; go on to the group after."""
        lines = [f"setp.lt.s32 ok, page, {self.operand['width']}; mov.b32 own, -1;"]
        if self.table_bytes:
            lines.append(f"mul.wide.s32 w, page, {self.table_bytes}; add.s64 w, w, {self.operand['table']};")
            lines.append("@ok ld.global.nc.b32 own, [w];")
        else:
            lines.append("@ok mov.b32 own, page;")
        return [*lines, f"add.u32 page, page, {self.operand['stride']};"]

    def drop(self, page: str) -> list[str]:
        """-1 into own where ``page`` is not complete: table entries past the end are undefined."""
        return [f"setp.lt.s32 ok, {page}, complete; selp.b32 own, own, -1, ok;"]

    def copy(self) -> list[str]:
        """Start the copies of the group whose ids are in own into the slot."""
        base = self.operand["base"]
        if self.bulk:
            return [
                "setp.ge.s32 ok, own, 0; and.pred ok, ok, copier; vote.sync.ballot.b32 t, ok, 0xffffffff;",
                f"popc.b32 t, t; mul.lo.u32 t, t, {self.bytes};",
                "@leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], t;",
                f"mad.lo.u32 u, lane, {self.bytes}, slot; mad.wide.u32 from, own, {self.bytes}, {base};",
                "@ok cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[u], [from], {self.bytes}, [gate];",
            ]
        lines = ["shl.b32 h0, lane, 4; add.u32 h0, h0, slot;"]
        for i in range(self._chunks()):
            lines += [
                f"shr.u32 t, c{i}, 16; and.b32 u, c{i}, 0xffff; shfl.sync.idx.b32 x, own, t, 0x1f, 0xffffffff;",
                "setp.ge.s32 ok, x, 0; selp.b32 h1, 16, 0, ok; max.s32 x, x, 0; cvt.u64.u32 w, u; add.s64 w, w, "
                f"{base}; mad.wide.u32 from, x, {self.bytes}, w;",
                f"cp.async.cg.shared.global [h0+{512 * i}], [from], 16, h1;",
            ]
        return [*lines, "cp.async.commit_group;"]

    def wait(self) -> list[str]:
        """Until the slot's records have arrived, for every lane."""
        if self.bulk:
            return [
                "ARRIVED: mbarrier.try_wait.parity.shared::cta.b64 done, [gate], phase;",
                "@!done bra ARRIVED;",
            ]
        return [f"cp.async.wait_group {self.stages - 1}; bar.warp.sync 0xffffffff;"]

    def turn(self) -> list[str]:
        """One group: wait, compute, refill, store."""
        lines = [
            *self.wait(),
            "add.u32 av, slot, ov; add.u32 ac, slot, oc; add.u32 aq, slot, oq; add.u32 am, slot, om;",
        ]
        lines += ["add.u32 as, slot, os;", *self.compute.centroids()]
        for page in range(PAGES_PER_WARP):
            lines += self.compute.page(page)
        refill = [*self.copy(), "mov.u32 p0, page;", *self.read_id(), *self.drop("p0")]
        lines += [
            "bar.warp.sync 0xffffffff;",
            f"add.u32 ahead, turn, {self.stages}; setp.lt.u32 more, ahead, {self.operand['steps']}; @!more bra FULL;",
            *refill,
            "FULL:",
        ]
        if not self.bulk:
            lines.append("@!more cp.async.commit_group;")
        return [*lines, *finish(), *self.store()]

    def store(self) -> list[str]:
        """The two scores of this lane in nats, and the running mass."""
        return [
            "shl.b32 t, q, 1; add.u32 p0, first, t; add.u32 p1, p0, 1;",
            "setp.lt.s32 ok0, p0, complete; setp.lt.s32 ok1, p1, complete;",
            "selp.f32 g0, g0, 0fF149F2CA, ok0; selp.f32 g1, g1, 0fF149F2CA, ok1;",
            f"mul.wide.s32 w, p0, 4; add.s64 w, w, {self.operand['scores']};",
            "and.pred ok0, ok0, live; and.pred ok1, ok1, live;",
            "mul.f32 y0, g0, 0f3F317218; mul.f32 y1, g1, 0f3F317218;",  # ln 2
            "@ok0 st.global.f32 [w], y0; @ok1 st.global.f32 [w+4], y1;",
            "max.f32 higher, g0, g1; max.f32 higher, higher, top; sub.f32 fade, top, higher; ex2.approx.ftz.f32 fade, fade;",
            "sub.f32 g0, g0, higher; ex2.approx.ftz.f32 g0, g0; sub.f32 g1, g1, higher; ex2.approx.ftz.f32 g1, g1;",
            "fma.rn.f32 sum, sum, fade, g0; add.f32 sum, sum, g1; mov.f32 top, higher;",
            f"add.u32 first, first, {self.operand['stride']};",
        ]

    def main(self) -> str:
        """The text that scores, group by group."""
        self.operand = {name: f"${2 + i}" for i, name in enumerate(MAIN)}
        first = 2 + len(MAIN)
        self.scale = f"${first + QUERY_WORDS + 1}"
        query = [f"${first + i}" for i in range(QUERY_WORDS)]
        self.compute = Compute(self.layout, query, f"${first + QUERY_WORDS}", self.scale)
        lines = ["{", REGISTERS, *self.prepare(), "TURN:", *self.turn(), f"add.u32 slot, slot, {self.group};"]
        lines.append("setp.eq.u32 done, slot, end; @done mov.u32 slot, slot0;")
        if self.bulk:
            lines.append("add.u32 gate, gate, 8; @done mov.u32 gate, gate0; @done xor.b32 phase, phase, 1;")
        lines.append(f"add.u32 turn, turn, 1; setp.lt.u32 more, turn, {self.operand['steps']}; @more bra TURN;")
        return "\n".join([*lines, "mov.f32 $0, top; mov.f32 $1, sum;", "}"])
