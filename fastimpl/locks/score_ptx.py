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
"""What the nibble trick adds to every code; the caller passes -24 times the sum of the query as ``bias``."""

Layout = dict[str, "int | bool"]


class Compute:
    """The text of the arithmetic on one group of eight pages in shared memory."""

    def __init__(self, layout: Layout, query: list[str], bias: str, scale: str) -> None:
        self.layout, self.half, self.words = layout, layout["HALF_SCALES"], query
        self.bias, self.scale = bias, scale

    def query(self, step: int) -> str:
        """The fragment of the query for product ``step`` of 8: rows 8..15 are not used."""
        return f"{{{self.words[2 * step]},z,{self.words[2 * step + 1]},z}}"

    def centroids(self) -> list[str]:
        """Logits of the eight centroids: m0 (page 2q) and m1 (page 2q + 1), in base 2, plus 100."""
        lines = ["mov.f32 m0, zf; mov.f32 m1, zf; mov.f32 m2, zf; mov.f32 m3, zf;"]
        lines += [f"ld.shared.v4.b32 {{mw{i},mw{i + 1},mw{i + 2},mw{i + 3}}}, [am+{4 * i}];" for i in (0, 4)]
        lines.append(f"ld.shared.f32 y0, [as]; ld.shared.f32 y1, [as+{self.layout['BYTES']}];")
        lines += [f"xor.b32 mw{i}, mw{i}, 0x80808080;" for i in range(8)]
        for i in range(4):
            lines += [
                f"prmt.b32 t, mw{2 * i}, mw{2 * i + 1}, 0x5140; prmt.b32 u, mw{2 * i}, mw{2 * i + 1}, 0x7362;",
                _bytes_to_halves("h0", "h1", "t"),
                _bytes_to_halves("h2", "h3", "u"),
                f"{MMA16} {{m0,m1,m2,m3}}, {self.query(2 * i)}, {{h0,h1}}, {{m0,m1,m2,m3}};",
                f"{MMA16} {{m0,m1,m2,m3}}, {self.query(2 * i + 1)}, {{h2,h3}}, {{m0,m1,m2,m3}};",
            ]
        lines.append(
            f"mov.f32 big, 0f42C80000; mul.f32 m0, m0, y0; mul.f32 m1, m1, y1; fma.rn.f32 m0, m0, {self.scale}, big;"
        )
        return [*lines, f"fma.rn.f32 m1, m1, {self.scale}, big; neg.f32 big, big;"]

    def scales(self, at: int) -> list[str]:
        """Token scales f0..f3 and mode scales y0, y1 of the page at byte ``at`` of the group, float32."""
        if not self.half:
            return [f"ld.shared.v4.f32 {{f0,f1,f2,f3}}, [aq+{at}]; ld.shared.v2.f32 {{y0,y1}}, [aq+{at + 16}];"]
        lines = [f"ld.shared.v2.b32 {{t,u}}, [aq+{at}]; ld.shared.b32 x, [aq+{at + 8}];"]
        for word, (low, high) in {"t": ("f0", "f1"), "u": ("f2", "f3"), "x": ("y0", "y1")}.items():
            lines.append(f"mov.b32 {{k0,k1}}, {word}; cvt.f32.f16 {low}, k0; cvt.f32.f16 {high}, k1;")
        return lines

    def page(self, page: int) -> list[str]:
        """Sum of exponentials of this lane's four tokens of one page, into r<page>."""
        at = page * int(self.layout["BYTES"])
        lines = [f"ld.shared.v4.b32 {{v0,v1,v2,v3}}, [av+{at}];"]
        for i in range(4):
            for h, shift in enumerate(
                ("shl.b32 t, v{}, 6", "shl.b32 t, v{}, 2", "shr.u32 t, v{}, 2", "shr.u32 t, v{}, 6")
            ):
                lines.append(f"{shift.format(i)}; lop3.b32 h{h}, t, 0x03C003C0, 0x4E004E00, 0x6A;")
            start = f"{{{self.bias},{self.bias},zf,zf}}" if i == 0 else "{d0,d1,d2,d3}"
            lines.append(f"{MMA16} {{d0,d1,d2,d3}}, {self.query(2 * i)}, {{h0,h1}}, {start};")
            start = "{zf,zf,zf,zf}" if i == 0 else "{q0,q1,q2,q3}"
            lines.append(f"{MMA16} {{q0,q1,q2,q3}}, {self.query(2 * i + 1)}, {{h2,h3}}, {start};")
        lines += [
            *self.scales(at),
            "add.f32 d0, d0, q0; add.f32 d1, d1, q1; mul.f32 d0, d0, y0; mul.f32 d1, d1, y1;",
            "cvt.rn.f16x2.f32 hi, d1, d0; mov.b32 {k0,k1}, hi; cvt.f32.f16 y0, k0; cvt.f32.f16 y1, k1;",
            "sub.f32 d0, d0, y0; sub.f32 d1, d1, y1; cvt.rn.f16x2.f32 lo, d1, d0;",
            f"ld.shared.b32 x, [ac+{at}]; xor.b32 x, x, 0x80808080;",
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


def finish() -> list[str]:
    """Sums over the quad, transposed; then the logarithm and the centroid's logit: g0, g1, base 2."""
    lines = []
    for k in range(4):
        lines.append(f"selp.f32 g{k}, r{4 + k}, r{k}, up; selp.f32 y{k}, r{k}, r{4 + k}, up;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 2, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
    for k in range(2):
        lines.append(f"selp.f32 y{k}, g{k}, g{2 + k}, odd; selp.f32 g{k}, g{2 + k}, g{k}, odd;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 1, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
        lines.append(f"min.f32 g{k}, g{k}, 0f7F7FFFFF; lg2.approx.ftz.f32 g{k}, g{k}; add.f32 g{k}, m{k}, g{k};")
    return lines
