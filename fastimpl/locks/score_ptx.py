"""The scoring kernel's inner loop in PTX: one warp scores eight pages with matrix instructions and no barrier.

Lane 4 n + q of a warp. For every page three loads bring all that the page adds (`record.py`): 16 bytes of basis (mode
n, channels 32 q ..), 4 bytes of coefficients (tokens n and n + 8, modes 2q and 2q + 1), one quad of scales. Then

    basis      nibble (two's complement) -> float16 24 + code by one shift and one lop3: code in bits 6..9 of 16.0
               m16n8k16, rows = query heads, columns = modes: 8 products, the 24 taken off in the accumulator's start
    mode scale two multiplications; the float32 result splits into float16 high and low parts, so no bit is lost
    tokens     m16n8k8, columns = tokens 0..7 and 8..15, high and low part: 4 products
    exponent   token scale, minus the centroid's logit: no maximum needed; deviations sum to 0 over a page, so the
               sum is at least about 16, and 2^-100 leaves room for a logit 157 nats above the centroid's
    centroid   one set of 8 products for all eight pages, columns = pages

The sums over a quad's lanes are transposed on the way (three exchanges for eight pages), so lane 4 n + q ends with the
scores of pages 2q and 2q + 1 for query head n. Loading and computing are two texts, so that the kernel can have one
group's loads in flight while it computes another's.
"""

from __future__ import annotations

PAGES_PER_WARP = 8
MMA16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MMA8 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
BIAS = 24
"""What the nibble trick adds to every code; the caller passes -24 times the sum of the query as operand 20."""


Layout = dict[str, "int | bool"]


def _words(layout: Layout) -> list[str]:
    """Names of the words that loading hands to computing, in order."""
    scales = (0, 1, 2) if layout["HALF_SCALES"] else (0, 1, 2, 3, 4, 5)
    names = []
    for p in range(PAGES_PER_WARP):
        names += [*(f"v{p}_{i}" for i in range(4)), f"c{p}", *(f"s{p}_{i}" for i in scales)]
    return [*names, *(f"mw{i}" for i in range(8)), "us0", "us1"]


def word_count(layout: Layout) -> int:
    """How many 32-bit words a lane loads for eight pages."""
    return len(_words(layout))


def load_text(layout: Layout) -> str:
    """Outputs: the words. Inputs: base of the records (64 bits), block id of page lane % 8."""
    names = _words(layout)
    at = {name: f"${i}" for i, name in enumerate(names)}
    base, block = f"${len(names)}", f"${len(names) + 1}"
    size, quads, half = layout["BYTES"], layout["QUADS"], layout["HALF_SCALES"]

    def vector(words: list[str]) -> str:
        return "{" + ",".join(at.get(w, "sink") for w in words) + "}"

    lines = [
        "{.reg .b32 lane,j,n,own,t,sink; .reg .b32 b<8>; .reg .b64 w,av,ac,aq,am,as,x;",
        "mov.u32 lane, %laneid; and.b32 j, lane, 3; shr.u32 n, lane, 2;",
        f"mul.wide.u32 w, lane, 16; add.s64 av, {base}, w;",
        f"mul.wide.u32 w, lane, 4; add.s64 ac, {base}, w; add.s64 ac, ac, {layout['COEFFICIENTS']};",
        f"mul.wide.u32 w, j, {layout['QUAD_BYTES']}; add.s64 aq, {base}, w; add.s64 aq, aq, {quads};",
        f"mul.wide.u32 w, j, 32; add.s64 am, {base}, w; add.s64 am, am, {layout['CENTROID']};",
        f"add.s64 as, {base}, {quads + (12 if half else 24)};",
    ]
    for p in range(PAGES_PER_WARP):
        lines.append(f"shfl.sync.idx.b32 b{p}, {block}, {p}, 0x1f, 0xffffffff; mad.wide.u32 x, b{p}, {size}, av;")
        lines.append(f"ld.global.nc.v4.b32 {vector([f'v{p}_{i}' for i in range(4)])}, [x];")
    lines.append(f"shfl.sync.idx.b32 own, {block}, n, 0x1f, 0xffffffff; mad.wide.u32 x, own, {size}, am;")
    for i in (0, 4):
        lines.append(f"ld.global.nc.v4.b32 {vector([f'mw{i + k}' for k in range(4)])}, [x+{4 * i}];")
    for k in range(2):
        lines.append(f"mad.lo.u32 t, j, 2, {k}; shfl.sync.idx.b32 own, {block}, t, 0x1f, 0xffffffff;")
        lines.append(f"mad.wide.u32 x, own, {size}, as; ld.global.nc.b32 {at[f'us{k}']}, [x];")
    for p in range(PAGES_PER_WARP):
        lines.append(f"mad.wide.u32 x, b{p}, {size}, ac; ld.global.nc.b32 {at[f'c{p}']}, [x];")
        lines.append(
            f"mad.wide.u32 x, b{p}, {size}, aq; ld.global.nc.v4.b32 {vector([f's{p}_{i}' for i in range(4)])}, [x];"
        )
        if not half:
            lines.append(f"ld.global.nc.v2.b32 {vector([f's{p}_4', f's{p}_5'])}, [x+16];")
    return "\n".join([*lines, "}"])


def load_constraints(layout: Layout) -> str:
    """The operands of `load_text`."""
    return ",".join(["=r"] * word_count(layout) + ["l", "r"])


class _Compute:
    """The text of the arithmetic: $0, $1 scores in base 2; then the words, 16 words of query, bias, scale."""

    def __init__(self, layout: Layout) -> None:
        self.half = layout["HALF_SCALES"]
        self.words = {name: f"${2 + i}" for i, name in enumerate(_words(layout))}
        self.first_query = 2 + len(self.words)
        self.bias, self.scale = f"${self.first_query + 16}", f"${self.first_query + 17}"

    def query(self, step: int) -> str:
        """The fragment of the query for product ``step`` of 8: rows 8..15 are not used."""
        return f"{{${self.first_query + 2 * step},z,${self.first_query + 2 * step + 1},z}}"

    def centroids(self) -> list[str]:
        """Logits of the eight centroids: m0 (page 2q) and m1 (page 2q + 1), in base 2, plus 100."""
        lines = ["mov.f32 m0, zf; mov.f32 m1, zf; mov.f32 m2, zf; mov.f32 m3, zf;"]
        lines += [f"xor.b32 mw{i}, {self.words[f'mw{i}']}, 0x80808080;" for i in range(8)]
        for i in range(4):
            lines += [
                f"prmt.b32 t, mw{2 * i}, mw{2 * i + 1}, 0x5140; prmt.b32 u, mw{2 * i}, mw{2 * i + 1}, 0x7362;",
                _bytes_to_halves("h0", "h1", "t"),
                _bytes_to_halves("h2", "h3", "u"),
                f"{MMA16} {{m0,m1,m2,m3}}, {self.query(2 * i)}, {{h0,h1}}, {{m0,m1,m2,m3}};",
                f"{MMA16} {{m0,m1,m2,m3}}, {self.query(2 * i + 1)}, {{h2,h3}}, {{m0,m1,m2,m3}};",
            ]
        lines.append(f"mov.b32 y0, {self.words['us0']}; mov.b32 y1, {self.words['us1']}; mov.f32 big, 0f42C80000;")
        lines.append(f"mul.f32 m0, m0, y0; mul.f32 m1, m1, y1; fma.rn.f32 m0, m0, {self.scale}, big;")
        return [*lines, f"fma.rn.f32 m1, m1, {self.scale}, big; neg.f32 big, big;"]

    def scales(self, page: int) -> list[str]:
        """Token scales f0..f3 and mode scales y0, y1 of a page, float32."""
        names = ("f0", "f1", "f2", "f3", "y0", "y1")
        if not self.half:
            return [f"mov.b32 {name}, {self.words[f's{page}_{i}']};" for i, name in enumerate(names)]
        return [
            f"mov.b32 {{k0,k1}}, {self.words[f's{page}_{i}']};"
            f"cvt.f32.f16 {names[2 * i]}, k0; cvt.f32.f16 {names[2 * i + 1]}, k1;"
            for i in range(3)
        ]

    def page(self, page: int) -> list[str]:
        """Sum of exponentials of this lane's four tokens of one page, into r<page>."""
        lines = []
        for i in range(4):
            word = self.words[f"v{page}_{i}"]
            for h, shift in enumerate(("shl.b32 t, {}, 6", "shl.b32 t, {}, 2", "shr.u32 t, {}, 2", "shr.u32 t, {}, 6")):
                lines.append(f"{shift.format(word)}; lop3.b32 h{h}, t, 0x03C003C0, 0x4E004E00, 0x6A;")
            start = f"{{{self.bias},{self.bias},zf,zf}}" if i == 0 else "{d0,d1,d2,d3}"
            lines.append(f"{MMA16} {{d0,d1,d2,d3}}, {self.query(2 * i)}, {{h0,h1}}, {start};")
            start = "{zf,zf,zf,zf}" if i == 0 else "{q0,q1,q2,q3}"
            lines.append(f"{MMA16} {{q0,q1,q2,q3}}, {self.query(2 * i + 1)}, {{h2,h3}}, {start};")
        lines += [
            *self.scales(page),
            "add.f32 d0, d0, q0; add.f32 d1, d1, q1; mul.f32 d0, d0, y0; mul.f32 d1, d1, y1;",
            "cvt.rn.f16x2.f32 hi, d1, d0; mov.b32 {k0,k1}, hi; cvt.f32.f16 y0, k0; cvt.f32.f16 y1, k1;",
            "sub.f32 d0, d0, y0; sub.f32 d1, d1, y1; cvt.rn.f16x2.f32 lo, d1, d0;",
            f"xor.b32 x, {self.words[f'c{page}']}, 0x80808080;",
            _bytes_to_halves("h0", "h1", "x"),
        ]
        for h, out in (("h0", "t"), ("h1", "u")):
            four = f"{{{out}0,{out}1,{out}2,{out}3}}"
            lines.append(
                f"{MMA8} {four}, {{hi,z}}, {{{h}}}, {{zf,zf,zf,zf}}; {MMA8} {four}, {{lo,z}}, {{{h}}}, {four};"
            )
        for value, scale in (("t0", "f0"), ("t1", "f1"), ("u0", "f2"), ("u1", "f3")):
            lines.append(f"mul.f32 {scale}, {scale}, {self.scale}; fma.rn.f32 {value}, {value}, {scale}, big;")
            lines.append(f"ex2.approx.ftz.f32 {value}, {value};")
        return [*lines, f"add.f32 t0, t0, t1; add.f32 u0, u0, u1; add.f32 r{page}, t0, u0;"]


def _bytes_to_halves(low: str, high: str, word: str) -> str:
    """Four bytes, each code + 128, as four exact float16 codes: 0x6400 | byte is 1024 + byte."""
    return (
        f"prmt.b32 {low}, {word}, K, 0x4140; prmt.b32 {high}, {word}, K, 0x4342;"
        f"sub.f16x2 {low}, {low}, M; sub.f16x2 {high}, {high}, M;"
    )


def _finish() -> list[str]:
    """Sums over the quad, transposed; then the logarithm and the centroid's logit."""
    lines = [
        "mov.u32 lane, %laneid; and.b32 t, lane, 2; setp.ne.u32 up, t, 0; and.b32 t, lane, 1; setp.ne.u32 odd, t, 0;"
    ]
    for k in range(4):
        lines.append(f"selp.f32 g{k}, r{4 + k}, r{k}, up; selp.f32 y{k}, r{k}, r{4 + k}, up;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 2, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
    for k in range(2):
        lines.append(f"selp.f32 y{k}, g{k}, g{2 + k}, odd; selp.f32 g{k}, g{2 + k}, g{k}, odd;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 1, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
        lines.append(f"min.f32 g{k}, g{k}, 0f7F7FFFFF; lg2.approx.ftz.f32 g{k}, g{k}; add.f32 ${k}, m{k}, g{k};")
    return lines


def compute_text(layout: Layout) -> str:
    """Outputs: base-2 scores of pages 2q and 2q + 1. Inputs: the words, query, bias, scale."""
    compute = _Compute(layout)
    lines = [
        "{.reg .b32 lane,z,t,u,x,K,M,h0,h1,h2,h3,hi,lo; .reg .b16 k0,k1; .reg .pred up,odd; .reg .b32 mw<8>;",
        ".reg .f32 zf,big,d0,d1,d2,d3,q0,q1,q2,q3,m0,m1,m2,m3,t0,t1,t2,t3,u0,u1,u2,u3,f0,f1,f2,f3;",
        ".reg .f32 g0,g1,g2,g3,y0,y1,y2,y3; .reg .f32 r<8>;",
        "mov.b32 z, 0; mov.f32 zf, 0f00000000; mov.b32 K, 0x64646464; mov.b32 M, 0x64806480;",
        *compute.centroids(),
    ]
    for page in range(PAGES_PER_WARP):
        lines += compute.page(page)
    return "\n".join([*lines, *_finish(), "}"])


def compute_constraints(layout: Layout) -> str:
    """The operands of `compute_text`."""
    return ",".join(["=f", "=f"] + ["r"] * (word_count(layout) + 16) + ["f", "f"])
