"""Eigenvectors of eight 16 x 16 matrices per warp in PTX: four lanes to a matrix, four rows to a lane.

Row x of a lane holds a[x, x ^ k] in register k. Rows are named 0..15; a lane has two pairs of them, P (p, p ^ 1) and
Q (p ^ s, p ^ s ^ 1), with the same even s in all lanes. So the rounds s and s ^ 1 rotate rows within a lane and need no
exchange but of angles. With p = A l + B m for the lane 2 m + l of four, lanes then regroup:

    l = 0 keeps P and gets the other's P as Q     l, m, A, B, s -> m, l, B, A ^ s, A
    l = 1 keeps Q as P and gets the other's Q     (l and m change places)

From A, B, s = 2, 4, 8 that gives s = 8, 2, 4, 10, 6, 14, 12 and then 8 again: with round 1 within pairs a sweep of 15
rounds. New names, the same permutation every time, make A, B, s 2, 4, 8 again: one short text in a loop, which stays in
the instruction cache (the sweep unrolled, 75 KB, did not). Columns are named relative to their row, so that nothing
depends on the lane. Of the eigenvectors a lane holds four tokens of all sixteen: they turn and change names, and never
move.

Rotations are without square roots on the matrix (Gentleman 1973): rows and columns carry a factor each, x = d x', and
a rotation by t = tan is x' - t (d_y / d_x) y', one multiply-add instead of two operations; d takes the cosine, and is
multiplied into the matrix after every sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastimpl.locks.ptx_text import Registers, Text, number

DONE = 1e-12
"""A matrix is done when the squares off its diagonal are at most this share of those on it."""
START = (2, 4, 8)
"""A, B and s whenever the lanes have regrouped."""
MEETINGS = 7


@dataclass
class Quads:
    """The state of a sweep: names of registers, and how rows lie in lanes."""

    text: Text
    matrix: list[Registers]
    vectors: list[Registers]
    factors: Registers
    twice: str
    """2; 0 for a matrix that is done, whose rotations are then by nothing: a page's bits depend on no other's."""
    near: str
    far: str
    """The distances of the lanes that differ in l and in m."""
    steps: tuple[int, int] = START[:2]
    distance: int = START[2]

    def offsets(self) -> list[int]:
        """Rows of a lane relative to its p."""
        return [0, 1, self.distance, self.distance ^ 1]

    def everywhere(self, own: Registers) -> Registers:
        """Numbers that belong to rows, one per row of this lane -> of all rows, by name relative to p."""
        out = [""] * 16
        for lane, distance in enumerate(("", self.near, self.far, "3")):
            base = (self.steps[0] if lane & 1 else 0) ^ (self.steps[1] if lane & 2 else 0)
            for row, offset in enumerate(self.offsets()):
                out[base ^ offset] = self.text.swapped(own[row], distance) if distance else own[row]
        return out

    def by_name(self, own: Registers, kind: str = "f") -> Registers:
        """Numbers that belong to rows, one per row of this lane -> of all rows, by name."""
        out = [""] * 16
        for lane, source in enumerate(("0", self.near, self.far, "3")):
            base = (self.steps[0] if lane & 1 else 0) ^ (self.steps[1] if lane & 2 else 0)
            for row, offset in enumerate(self.offsets()):
                out[base ^ offset] = self.text.of_quad(own[row], source, kind)
        return out

    def angle(self, x: int, y: int, s: int) -> tuple[str, str]:
        """Factors of y in row x and of x in row y, for the pair of this lane's rows x and y."""
        t = self.text
        dx, dy = self.factors[x], self.factors[y]
        xx, yy, both = t.mul(dx, dx), t.mul(dy, dy), t.mul(dx, dy)
        delta = t.fma(yy, self.matrix[y][0], t.op("neg.f32", t.mul(xx, self.matrix[x][0])))
        cross = t.mul(t.mul(both, self.twice), self.matrix[x][s])
        root = t.op("sqrt.approx.ftz.f32", t.fma(delta, delta, t.mul(cross, cross)))
        # |tan| is at most 1 where squares vanish, too: else d would shrink without end
        size = t.op("max.f32", t.plus(t.op("abs.f32", delta), root), t.op("abs.f32", cross))
        size = t.op("max.f32", size, "0f02000000")
        sign = t.op("and.b32", delta, "0x80000000", kind="b")
        tangent = t.mul(t.op("xor.b32", cross, sign), t.op("rcp.approx.ftz.f32", size))
        cosine = t.op("rsqrt.approx.ftz.f32", t.fma(tangent, tangent, "0f3F800000"))
        self.factors[x], self.factors[y] = t.mul(dx, cosine), t.mul(dy, cosine)
        ratio = t.mul(tangent, t.op("rcp.approx.ftz.f32", both))
        return t.op("neg.f32", t.mul(ratio, yy)), t.mul(ratio, xx)

    def turn(self, s: int) -> None:
        """One round: the pairs of rows whose names differ by ``s``, then the same pairs of columns."""
        t, turns = self.text, [""] * 4
        for x in range(4):
            y = self.offsets().index(self.offsets()[x] ^ s)
            if x < y:
                turns[x], turns[y] = self.angle(x, y, s)
        partner = [self.offsets().index(offset ^ s) for offset in self.offsets()]
        rows = [
            [t.fma(turns[x], self.matrix[partner[x]][k ^ s], self.matrix[x][k]) for k in range(16)] for x in range(4)
        ]
        of_column, of_row = self.everywhere(turns), self.by_name(turns)
        self.vectors = [
            [t.fma(of_row[k], self.vectors[k ^ s][i], self.vectors[k][i]) for i in range(4)] for k in range(16)
        ]
        self.matrix = [
            [t.fma(of_column[offset ^ k], rows[x][k ^ s], rows[x][k]) for k in range(16)]
            for x, offset in enumerate(self.offsets())
        ]

    def meet(self) -> None:
        """Both rounds of rows that lie together in a lane, and on to the next."""
        self.turn(self.distance)
        self.turn(self.distance ^ 1)
        self.regroup()

    def _all(self, row: int) -> Registers:
        return [*self.matrix[row], self.factors[row]]

    def _set(self, row: int, values: Registers) -> None:
        self.matrix[row], self.factors[row] = values[:16], values[16]

    def regroup(self) -> None:
        """New pairs of rows to every lane."""
        t = self.text
        upper = t.op("setp.ne.u32", t.op("and.b32", "lane", self.near, kind="b"), 0, kind="p")
        for low in (0, 1):
            first, second = self._all(low), self._all(low + 2)
            self._set(low, [t.op("selp.f32", q, p, upper) for p, q in zip(first, second, strict=True)])
            sent = [t.op("selp.f32", p, q, upper) for p, q in zip(first, second, strict=True)]
            self._set(low + 2, [t.swapped(value, self.near) for value in sent])
        (a, b), s = self.steps, self.distance
        self.steps, self.distance = (b, a ^ s), a
        self.rename()

    def rescale(self) -> None:
        """Multiply the factors in; they are 1 afterwards."""
        t, all_factors = self.text, self.everywhere(self.factors)
        of_row = self.by_name(self.factors)
        self.vectors = [[t.mul(value, of_row[k]) for value in row] for k, row in enumerate(self.vectors)]
        for x, offset in enumerate(self.offsets()):
            own = self.factors[x]
            self.matrix[x] = [
                t.mul(value, t.mul(own, all_factors[offset ^ k])) for k, value in enumerate(self.matrix[x])
            ]
        self.factors = ["0f3F800000"] * 4

    def rename(self) -> None:
        """Name rows, and registers after them, so that A, B, s are 2, 4, 8 again."""
        old = []
        for k in range(16):
            name = k & 1
            for bit, value in zip(START, (*self.steps, self.distance), strict=True):
                name ^= value if k & bit else 0
            old.append(name)
        self.matrix = [[row[name] for name in old] for row in self.matrix]
        self.vectors = [self.vectors[name] for name in old]
        self.steps, self.distance = START[:2], START[2]

    def unfinished(self) -> str:
        """A predicate: more than rounding is left off the diagonal of this quad's matrix."""
        t = self.text
        sums = []
        for k in (range(1, 16), range(1)):
            part = "0f00000000"
            for x in range(4):
                for register in k:
                    part = t.fma(self.matrix[x][register], self.matrix[x][register], part)
            sums.append(t.over_lanes(part, (1, 2), "add.f32"))
        rest = t.fma(sums[1], number(-DONE), sums[0])
        return t.op("setp.gt.f32", rest, "0f00000000", kind="p")


def unit_matrix(t: Text) -> list[Registers]:
    """This lane's four columns of the unit matrix, [16][4]."""
    ours = [t.op("setp.eq.u32", "q", lane, kind="p") for lane in range(4)]
    one = [t.op("selp.f32", "0f3F800000", "0f00000000", here) for here in ours]
    return [[one[k // 4] if i == k % 4 else "0f00000000" for i in range(4)] for k in range(16)]


def copied(t: Text, rows: list[Registers]) -> list[Registers]:
    """The same in registers of their own, which a loop may write."""
    return [[t.op("mov.f32", value) for value in row] for row in rows]


def copy_back(t: Text, old: list[Registers], new: list[Registers]) -> None:
    """What a loop's next turn begins with."""
    for a, b in zip((x for row in old for x in row), (x for row in new for x in row), strict=True):
        t.add(f"mov.f32 {a}, {b};")


def jacobi(t: Text, matrix: list[Registers], sweeps: int) -> tuple[Quads, Registers]:
    """The eigenvectors' transpose in the state's ``vectors``, up to length, and eigenvalues of this lane's rows.

    ``matrix`` [4][16]: row x of lane q is row 2 q ^ (0, 1, 8, 9)[x]; column k of it stands in place x ^ k.
    """
    kept = copied(t, matrix), copied(t, unit_matrix(t))
    left, near, far, twice = (t.op("mov.b32", value, kind="b") for value in (0, 1, 2, "0f40000000"))
    own, some, more = (t.new("p") for _ in range(3))
    t.add("SWEEP:")
    state = Quads(t, *([list(row) for row in rows] for rows in kept), ["0f3F800000"] * 4, twice, near, far)
    state.turn(1)
    turned = copied(t, state.matrix), copied(t, state.vectors), copied(t, [state.factors])
    count = t.op("mov.u32", 0, kind="b")
    t.add("MEET:")
    state.matrix, state.vectors = ([list(row) for row in rows] for rows in turned[:2])
    state.factors = list(turned[2][0])
    state.meet()
    for old, new in zip(turned, (state.matrix, state.vectors, [state.factors]), strict=True):
        copy_back(t, old, new)
    t.add(f"xor.b32 {near}, {near}, 3; xor.b32 {far}, {far}, 3;")
    t.repeat("MEET", count, MEETINGS)
    state.matrix, state.vectors = ([list(row) for row in rows] for rows in turned[:2])
    state.factors = list(turned[2][0])
    state.rescale()
    unfinished = state.unfinished()
    t.add(f"selp.f32 {twice}, {twice}, 0f00000000, {unfinished};", f"setp.ne.f32 {own}, {twice}, 0f00000000;")
    for old, new in zip(kept, (state.matrix, state.vectors), strict=True):
        copy_back(t, old, new)
    t.add(f"vote.sync.any.pred {some}, {own}, 0xffffffff;", f"add.u32 {left}, {left}, 1;")
    t.add(f"setp.lt.and.u32 {more}, {left}, {sweeps}, {some};", f"@{more} bra SWEEP;")
    state.matrix, state.vectors = kept
    return state, [row[0] for row in state.matrix]
