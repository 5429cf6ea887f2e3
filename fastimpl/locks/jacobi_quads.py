"""Eigenvectors of eight 16 x 16 matrices per warp in PTX: four lanes to a matrix, four rows to a lane.

Row x of a lane holds a[x, x ^ k] in register k and row x of the eigenvectors' transpose, which turns as the matrix's rows
do. Rows are named 0..15; a lane has two pairs of them, P (p, p ^ 1) and Q (p ^ s, p ^ s ^ 1), with the same even s in
all lanes. So the rounds s and s ^ 1 rotate rows within a lane and need no exchange but of angles; in between, pairs
move. With p = A l + B m for lane 2 m + l of four, a sweep is

    s     A, B, S at the start         how the lanes get there
    S, S^A, S^A^B, S^B                 Q to the lane beside (l), across (m), beside
    A, A^B                             regroup across l: one lane keeps P and gets the other's P; then Q across m
    B                                  regroup across m

which meets all seven even s, and 1 within pairs, once: 15 rounds, 384 exchanges of a register for eight matrices
where one row to a lane needs 720 for two. Columns are named relative to their row, so that nothing depends on the lane.
At its end A, B, S have changed; a permutation of registers restores them.

Rotations are without square roots on the matrix (Gentleman 1973): rows and columns carry a factor each, x = d x', and
a rotation by t = tan is x' - t (d_y / d_x) y', one multiply-add instead of two operations; d takes the cosine, and is
multiplied into the matrix after every sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fastimpl.locks.ptx_text import Registers, Text, number

DONE = 1e-10
"""A matrix is done when the squares off its diagonal are at most this share of those on it."""
START = {1: 2, 2: 4}
"""p of a lane: 2 for the lane's lowest bit, 4 for the next."""
DISTANCE = 8
"""s at a sweep's start."""


@dataclass
class Quads:
    """The state of a sweep: names of registers, and how rows lie in lanes."""

    text: Text
    matrix: list[Registers]
    vectors: list[Registers]
    factors: Registers
    upper: dict[int, str]
    """Predicates: the lane's bit is 1."""
    twice: str
    """2; 0 for a matrix that is done, whose rotations are then by nothing: a page's bits depend on no other's."""
    steps: dict[int, int] = field(default_factory=lambda: dict(START))
    distance: int = DISTANCE

    def offsets(self) -> list[int]:
        """Rows of a lane relative to its p."""
        return [0, 1, self.distance, self.distance ^ 1]

    def everywhere(self, own: Registers) -> Registers:
        """Numbers that belong to rows, one per row of this lane -> of all rows, by name relative to p."""
        out = [""] * 16
        for lane in range(4):
            base = (self.steps[1] if lane & 1 else 0) ^ (self.steps[2] if lane & 2 else 0)
            for row, offset in enumerate(self.offsets()):
                out[base ^ offset] = self.text.swapped(own[row], lane) if lane else own[row]
        return out

    def angle(self, x: int, y: int, s: int) -> tuple[str, str]:
        """Factors of y in row x and of x in row y, for the pair of this lane's rows x and y."""
        t = self.text
        dx, dy = self.factors[x], self.factors[y]
        xx, yy, both = t.mul(dx, dx), t.mul(dy, dy), t.mul(dx, dy)
        delta = t.fma(yy, self.matrix[y][0], t.op("neg.f32", t.mul(xx, self.matrix[x][0])))
        cross = t.mul(t.mul(both, self.twice), self.matrix[x][s])
        root = t.op("sqrt.approx.ftz.f32", t.fma(delta, delta, t.mul(cross, cross)))
        size = t.op("max.f32", t.plus(t.op("abs.f32", delta), root), "0f02000000")
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
        self.vectors = [
            [t.fma(turns[x], self.vectors[partner[x]][i], self.vectors[x][i]) for i in range(16)] for x in range(4)
        ]
        of_column = self.everywhere(turns)
        self.matrix = [
            [t.fma(of_column[offset ^ k], rows[x][k ^ s], rows[x][k]) for k in range(16)]
            for x, offset in enumerate(self.offsets())
        ]

    def _all(self, row: int) -> Registers:
        return [*self.matrix[row], *self.vectors[row], self.factors[row]]

    def _set(self, row: int, values: Registers) -> None:
        self.matrix[row], self.vectors[row], self.factors[row] = values[:16], values[16:32], values[32]

    def exchange(self, bit: int) -> None:
        """Q comes from the lane whose number differs in ``bit``."""
        for row in (2, 3):
            self._set(row, [self.text.swapped(value, bit) for value in self._all(row)])
        self.distance ^= self.steps[bit]

    def regroup(self, bit: int) -> None:
        """Lanes with ``bit`` 0 keep P and get the other's P as Q; with 1 keep Q as P and get the other's Q as Q."""
        t, upper = self.text, self.upper[bit]
        for low in (0, 1):
            first, second = self._all(low), self._all(low + 2)
            self._set(low, [t.op("selp.f32", q, p, upper) for p, q in zip(first, second, strict=True)])
            sent = [t.op("selp.f32", p, q, upper) for p, q in zip(first, second, strict=True)]
            self._set(low + 2, [t.swapped(value, bit) for value in sent])
        self.steps[bit], self.distance = self.steps[bit] ^ self.distance, self.steps[bit]

    def sweep(self) -> None:
        """Every pair of rows once, then the factors into the matrix."""
        self.turn(1)
        for move in (None, (self.exchange, 1), (self.exchange, 2), (self.exchange, 1), (self.regroup, 1),
                     (self.exchange, 2), (self.regroup, 2)):  # fmt: skip
            if move:
                move[0](move[1])
            s = self.distance
            self.turn(s)
            self.turn(s ^ 1)
        self.rescale()

    def rescale(self) -> None:
        """Multiply the factors in; they are 1 afterwards."""
        t, all_factors = self.text, self.everywhere(self.factors)
        for x, offset in enumerate(self.offsets()):
            own = self.factors[x]
            self.vectors[x] = [t.mul(value, own) for value in self.vectors[x]]
            self.matrix[x] = [
                t.mul(value, t.mul(own, all_factors[offset ^ k])) for k, value in enumerate(self.matrix[x])
            ]
        self.factors = ["0f3F800000"] * 4

    def renamed(self) -> list[Registers]:
        """The matrix's registers in the order that they have at a sweep's start: A, B, S are 2, 4, 8 again."""
        now = (self.steps[1], self.steps[2], self.distance)
        rows = [[""] * 16 for _ in range(4)]
        for k in range(16):
            old = k & 1
            for bit, value in zip((START[1], START[2], DISTANCE), now, strict=True):
                old ^= value if k & bit else 0
            for x in range(4):
                rows[x][k] = self.matrix[x][old]
        return rows

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


def jacobi(t: Text, matrix: list[Registers], upper: dict[int, str], sweeps: int) -> tuple[Registers, list[Registers]]:
    """Eigenvalues of this lane's four rows and their eigenvectors [4][16], up to length, of matrix [4][16]."""
    loop = [[t.op("mov.f32", value) for value in row] for row in matrix]
    vectors = [[t.new("f") for _ in range(16)] for _ in range(4)]
    left = t.op("mov.u32", 0, kind="b")
    lane = t.op("and.b32", "lane", 3, kind="b")
    for row in range(4):  # the unit matrix: row x of the vectors is 1 in column x
        name = t.op("shl.b32", lane, 1, kind="b")
        name = t.op("xor.b32", name, (0, 1, 8, 9)[row], kind="b")
        for i in range(16):
            here = t.op("setp.eq.u32", name, i, kind="p")
            t.add(f"selp.f32 {vectors[row][i]}, 0f3F800000, 0f00000000, {here};")
    twice = t.op("mov.f32", "0f40000000")
    t.add("SWEEP:")
    state = Quads(t, [list(row) for row in loop], [list(row) for row in vectors], ["0f3F800000"] * 4, upper, twice)
    state.sweep()
    own, some, more = state.unfinished(), t.new("p"), t.new("p")
    t.add(f"selp.f32 {twice}, {twice}, 0f00000000, {own};", f"setp.ne.and.f32 {own}, {twice}, 0f00000000, {own};")
    for old, new in zip([*loop, *vectors], [*state.renamed(), *state.vectors], strict=True):
        for a, b in zip(old, new, strict=True):
            t.add(f"mov.f32 {a}, {b};")
    t.add(f"vote.sync.any.pred {some}, {own}, 0xffffffff;", f"add.u32 {left}, {left}, 1;")
    t.add(f"setp.lt.and.u32 {more}, {left}, {sweeps}, {some};", f"@{more} bra SWEEP;")
    return [row[0] for row in loop], vectors
