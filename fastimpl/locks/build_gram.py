"""The build's first and second part in PTX: centroids and Gram matrices of a warp's eight pages, then eigenvectors.

    centroid   lane l sums channels 4 l .. of 16 tokens; what it writes to shared memory is minus the centroid
    Gram       lane 4 g + q reads tokens g and g + 8, a quarter of the channels; deviations as two TF32 parts each, whose
               three larger products the matrix unit sums in float32: D D^T [16, 16], to shared memory
    vectors    page g to lanes 4 g .. 4 g + 3 (`jacobi_quads.py`), sorted by eigenvalue, to where the matrix was

All in a unit, a power of two, that brings the page's largest key to 1..2.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastimpl.locks.jacobi_quads import jacobi
from fastimpl.locks.ptx_text import MAGIC, Registers, Text, number

PAGES = 8
PITCH = 80
"""Bytes from row to row of a matrix in shared memory; 16 more than its row, so that lanes meet fewer banks."""
MATRIX = 16 * PITCH + 16
EVERY = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Pages:
    """What the texts are made for: key type, channels (64, 128 or 256), and how results are written."""

    dtype: str
    channels: int
    rank: int
    sweeps: int
    drop: float
    level: float
    pack: bool
    layout: dict[str, int | bool]

    @property
    def key_bytes(self) -> int:
        """Bytes of a channel."""
        return 4 if self.dtype == "float32" else 2


def load_keys(t: Text, pages: Pages, n: int, address: str, at: int) -> Registers:
    """``n`` keys of one token from byte ``at`` on, as float32."""
    words, out = n * pages.key_bytes // 4, Registers()
    for first in range(0, words, 4):
        width = min(4, words - first)
        for word in t.load(width, f"{address}+{at + 4 * first}", "global.nc", "b"):
            if pages.dtype == "float32":
                out.append(word)
            elif pages.dtype == "bfloat16":
                out += [t.op("shl.b32", word, 16, kind="b"), t.op("and.b32", word, "0xffff0000", kind="b")]
            else:
                low, high = t.new("h"), t.new("h")
                t.add(f"mov.b32 {{{low},{high}}}, {word};")
                out += [t.op("cvt.f32.f16", low), t.op("cvt.f32.f16", high)]
    return out


def bytes_of(t: Text, codes: Registers) -> str:
    """The lowest bytes of four words as one word."""
    low, high = (t.op("prmt.b32", codes[i], codes[i + 1], "0x0040", kind="b") for i in (0, 2))
    return t.op("prmt.b32", low, high, "0x5410", kind="b")


def factor(t: Text, largest: str, level: float) -> str:
    """level / largest; 0 for a line without content."""
    some = t.op("setp.gt.f32", largest, "0f0DA24260", kind="p")  # 1e-30, where the page's largest key is 1 to 2
    return t.op("selp.f32", t.op("div.full.f32", number(level), largest), "0f00000000", some)


def page_address(t: Text, lane_of_page: str, name: str) -> str:
    """The 64-bit address that lane ``lane_of_page`` holds in register ``name``."""
    low, high, out = t.new("b"), t.new("b"), t.new("d")
    t.add(f"mov.b64 {{{low},{high}}}, {name};")
    low, high = t.of_lane(low, lane_of_page), t.of_lane(high, lane_of_page)
    t.add(f"mov.b64 {out}, {{{low},{high}}};")
    return out


class Gram:
    """The text up to the sorted eigenvectors.

    It leaves in shared memory minus the centroids ("centres") and eigenvectors ("matrices") of all pages, and in
    registers of the quad of every page ``unit``, ``norm`` (of the page, squared) and ``centroid_scale``.
    """

    def __init__(self, t: Text, pages: Pages) -> None:
        self.t, self.pages = t, pages
        t.shared |= {"matrices": PAGES * MATRIX, "centres": PAGES * 4 * pages.channels}

    def start(self) -> None:
        """Lane numbers and addresses that stay."""
        self.t.add(
            ".reg .b32 lane,g,q,j,quad,matrix,centre; .reg .f32 unit,norm,centroid_scale; .reg .pred mine,here,upper1,upper2;",
            ".reg .b64 keys,out0,out1,out2,stride;",
            "mov.u32 lane, %laneid; and.b32 q, lane, 3; shr.u32 g, lane, 2;",
            "mov.b64 keys, $1; mov.b64 out0, $2; mov.b64 out1, $3; mov.b64 out2, $4; cvt.s64.s32 stride, $5;",
            "setp.ne.u32 here, $6, 0; mov.f32 unit, 0f00000000; mov.f32 norm, unit; mov.f32 centroid_scale, unit;",
        )
        for bit, name in ((1, "upper1"), (2, "upper2")):
            self.t.add(f"setp.ne.u32 {name}, {self.t.op('and.b32', 'lane', bit, kind='b')}, 0;")

    def page_start(self, label: str) -> tuple[str, str, str]:
        """Open the loop over pages: the quad's first lane, addresses of matrix and centre."""
        self.t.add("mov.u32 j, 0;", f"{label}:", "shl.b32 quad, j, 2;")
        self.t.add(f"mov.u32 matrix, matrices; mad.lo.u32 matrix, j, {MATRIX}, matrix;")
        self.t.add(f"mov.u32 centre, centres; mad.lo.u32 centre, j, {4 * self.pages.channels}, centre;")
        return "quad", "matrix", "centre"

    def centroid(self, base: str) -> tuple[str, str]:
        """Centre of a page in shared memory, its codes or itself written; returns the unit and its inverse."""
        t, pages, width = self.t, self.pages, self.pages.channels // 32
        address = t.new("d")
        t.add(f"mad.wide.u32 {address}, lane, {width * pages.key_bytes}, {base};")
        sums, peaks = t.zeros(width), t.zeros(width)
        for token in range(16):
            for i, key in enumerate(load_keys(t, pages, width, address, 0)):
                sums[i] = t.plus(sums[i], key)
                peaks[i] = t.op("max.f32", peaks[i], t.op("abs.f32", key))
            if token < 15:
                address = t.op("add.s64", address, "stride", kind="d")
        peak = t.over_lanes(t.largest([*peaks, "0f0DA24260"]), EVERY, "max.f32")
        power = t.op("and.b32", peak, "0x7F800000", kind="b")
        inverse = t.op("sub.u32", "0x7F000000", power, kind="b")
        mean = [t.mul(value, "0f3D800000") for value in sums]
        minus = [t.mul(value, t.op("neg.f32", inverse)) for value in mean]
        t.store(minus, t.op("mad.lo.u32", "lane", 4 * width, "centre", kind="b"))
        square = "0f00000000"
        for value in minus:
            square = t.fma(value, value, square)
        square = t.mul(t.over_lanes(square, EVERY, "add.f32"), "0f41800000")
        largest = t.over_lanes(t.largest(minus), EVERY, "max.f32")
        scale = t.mul(t.mul(largest, number(1 / 127)), power)
        self.write_centroid(mean, minus, largest)
        t.add("setp.eq.u32 mine, g, j;", f"@mine mov.f32 unit, {power}; @mine mov.f32 norm, {square};")
        t.add(f"@mine mov.f32 centroid_scale, {scale};", "bar.warp.sync 0xffffffff;")
        return power, inverse

    def write_centroid(self, mean: Registers, minus: Registers, largest: str) -> None:
        """Codes of the centroid into the record, or itself."""
        t, width = self.t, len(mean)
        out, address = page_address(t, "quad", "out0"), t.new("d")
        live = self.live_page()
        if not self.pages.pack:
            t.add(f"mad.wide.u32 {address}, lane, {4 * width}, {out};")
            t.store(mean, address, "global", live)
            return
        t.add(f"mad.wide.u32 {address}, lane, {width}, {out};")
        turned = t.op("neg.f32", factor(t, largest, 127.0))
        codes = [t.op("fma.rn.f32", value, turned, MAGIC, kind="b") for value in minus]
        if width == 2:  # even lanes write for two
            codes += [t.swapped(code, 1) for code in codes]
            even = t.op("and.b32", "lane", 1, kind="b")
            live = t.op("setp.eq.and.u32", even, 0, live, kind="p")
        words = [bytes_of(t, codes[i : i + 4]) for i in range(0, len(codes), 4)]
        t.store(words, f"{address}+{self.pages.layout['CENTROID']}", "global", live)

    def live_page(self) -> str:
        """Whether page j is there."""
        t = self.t
        flag = t.of_lane(t.op("selp.u32", 1, 0, "here", kind="b"), "quad")
        return t.op("setp.ne.u32", flag, 0, kind="p")

    def gram(self, base: str, inverse: str) -> None:
        """D D^T of page j to shared memory."""
        t, pages = self.t, self.pages
        chunk = 8 * pages.key_bytes
        first, second, row = t.new("d"), t.new("d"), t.op("cvt.u64.u32", "g", kind="d")
        t.add(f"mad.lo.s64 {first}, {row}, stride, {base};", f"mad.wide.u32 {first}, q, {chunk}, {first};")
        t.add(f"shl.b64 {second}, stride, 3;", f"add.s64 {second}, {second}, {first};")
        main, small, more = ([t.zeros(4) for _ in range(2)] for _ in range(3))
        spot = t.op("mad.lo.u32", "q", 32, "centre", kind="b")
        for i in range(pages.channels // 32):
            keys = [load_keys(t, pages, 8, address, 4 * chunk * i) for address in (first, second)]
            minus = [*t.load(4, f"{spot}+{128 * i}"), *t.load(4, f"{spot}+{128 * i + 16}")]
            away = [[t.fma(key, inverse, m) for key, m in zip(token, minus, strict=True)] for token in keys]
            split = [[t.parts(value) for value in token] for token in away]
            for c in range(0, 8, 2):
                a = [[split[token][c + odd][n] for odd in (0, 1) for token in (0, 1)] for n in (0, 1)]
                for side in (0, 1):
                    b = [[split[side][c + odd][n] for odd in (0, 1)] for n in (0, 1)]
                    for sums, x, y in ((main, 0, 0), (small, 0, 1), (more, 1, 0)):
                        t.product(sums[side], a[x], b[y])
        at = t.op("mad.lo.u32", "q", 8, t.op("mad.lo.u32", "g", PITCH, "matrix", kind="b"), kind="b")
        for side in range(2):
            total = [t.plus(x, t.plus(y, z)) for x, y, z in zip(main[side], small[side], more[side], strict=True)]
            t.store(total[:2], f"{at}+{32 * side}")
            t.store(total[2:], f"{at}+{32 * side + 8 * PITCH}")

    def all_pages(self) -> None:
        """Centroids and Gram matrices, page by page."""
        self.page_start("GRAM")
        base = page_address(self.t, "quad", "keys")
        _unit, inverse = self.centroid(base)
        self.gram(base, inverse)
        self.t.repeat("GRAM", "j", PAGES)
        self.t.add("bar.warp.sync 0xffffffff;")

    def vectors(self) -> None:
        """Eigenvectors of this lane's quad, sorted, in place of the matrices."""
        t = self.t
        t.add(f"mov.u32 matrix, matrices; mad.lo.u32 matrix, g, {MATRIX}, matrix;")
        matrix = []
        for offset in (0, 1, 8, 9):
            name = t.op("xor.b32", t.op("shl.b32", "q", 1, kind="b"), offset, kind="b")
            row = t.op("mad.lo.u32", name, PITCH, "matrix", kind="b")
            name = t.op("shl.b32", name, 2, kind="b")
            columns = [t.op("add.u32", row, t.op("xor.b32", name, 4 * k, kind="b"), kind="b") for k in range(16)]
            matrix.append([t.load(1, column)[0] for column in columns])
        trace = t.plus(t.plus(matrix[0][0], matrix[1][0]), t.plus(matrix[2][0], matrix[3][0]))
        t.add(f"add.f32 norm, norm, {t.over_lanes(trace, (1, 2), 'add.f32')};", "bar.warp.sync 0xffffffff;")
        state, values = jacobi(t, matrix, self.pages.sweeps)
        spot = t.op("mad.lo.u32", "q", 16, "matrix", kind="b")
        for place, vector in zip(state.by_name(self.places(values), "b"), state.vectors, strict=True):
            square = t.mul(vector[0], vector[0])
            for value in vector[1:]:
                square = t.fma(value, value, square)
            square = t.over_lanes(square, (1, 2), "add.f32")
            root = t.op("rsqrt.approx.ftz.f32", square)
            # one Newton step: r (1.5 - 0.5 s r^2)
            root = t.mul(root, t.fma(t.mul(square, "0fBF000000"), t.mul(root, root), "0f3FC00000"))
            at = t.op("mad.lo.u32", place, PITCH, spot, kind="b")
            t.store([t.mul(value, root) for value in vector], at)
        t.add("bar.warp.sync 0xffffffff;")

    def places(self, values: Registers) -> Registers:
        """How many of the matrix's eigenvalues stand before each of this lane's four; equals by row and lane."""
        t = self.t
        places = [t.op("mov.u32", 0, kind="b") for _ in values]
        for lane in range(4):
            beside = [t.swapped(value, lane) if lane else value for value in values]
            for row, own in enumerate(values):
                for other_row, other in enumerate(beside):
                    if lane == 0 and row == other_row:
                        continue
                    ahead = t.op("setp.ge.f32" if other_row < row else "setp.gt.f32", other, own, kind="p")
                    t.add(f"@{ahead} add.u32 {places[row]}, {places[row]}, 1;")
                    if row == other_row:
                        first = "upper2" if lane & 2 else "upper1"  # the other lane's number is the lower one
                        equal = t.op("setp.eq.and.f32", other, own, first, kind="p")
                        t.add(f"@{equal} add.u32 {places[row]}, {places[row]}, 1;")
        return places
