"""The inner loop of the scoring kernel in PTX: one warp scores eight pages with matrix instructions and no barrier.

Lane 4 n + q of a warp. For every page three loads bring all that the page adds (`record.py`): 16 bytes of basis (mode n,
channels 32 q ..), 4 bytes of coefficients (tokens n and n + 8, modes 2q and 2q + 1), one quad of scales. Then

    basis      nibble (two's complement) -> float16 24 + code by one shift and one lop3: code in bits 6..9 of 16.0
               m16n8k16, rows = query heads, columns = modes: 8 products, the 24 taken off in the accumulator's start
    mode scale two multiplications; the float32 result splits into float16 high and low parts, so no bit is lost
    tokens     m16n8k8, columns = tokens 0..7 and 8..15, high and low part: 4 products
    exponent   token scale, minus the centroid's logit: no maximum needed; deviations sum to 0 over a page, so the sum
               is at least about 16, and 2^-100 leaves room for a logit 157 nats above the centroid's before it saturates
    centroid   one set of 8 products for all eight pages, columns = pages

The sums over a quad's lanes are transposed on the way (three exchanges for eight pages), so lane 4 n + q ends with the
scores of pages 2q and 2q + 1 for query head n.
"""

from __future__ import annotations

import triton.language as tl

PAGES_PER_WARP = 8
MMA16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MMA8 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
BIAS = 24
"""What the nibble trick adds to every code; the caller passes -24 times the sum of the query as operand 20."""


def _query(step: int) -> str:
    """The fragment of the query for product ``step`` of 8: rows 8..15 are not used."""
    return f"{{${4 + 2 * step},z,${5 + 2 * step},z}}"


def _declare() -> list[str]:
    pages = range(PAGES_PER_WARP)
    words = [f".reg .b32 v{p}_0,v{p}_1,v{p}_2,v{p}_3,c{p},s{p}_0,s{p}_1,s{p}_2,s{p}_3,s{p}_4,s{p}_5,s{p}_6,s{p}_7,b{p};"
             for p in pages]  # fmt: skip
    return [
        ".reg .b32 lane,j,n,own,z,t,u,x,K,M,h0,h1,h2,h3,hi,lo; .reg .b16 k0,k1; .reg .pred e0,e1,e2,e3,up,odd;",
        ".reg .b64 w,pv,pc,pq,pm,av,ac,aq,am; .reg .f32 zf,big,d0,d1,d2,d3,q0,q1,q2,q3,m0,m1,m2,m3,us0,us1;",
        ".reg .f32 t0,t1,t2,t3,u0,u1,u2,u3,f0,f1,f2,f3,g0,g1,g2,g3,y0,y1,y2,y3,mu,sm; .reg .b32 mw<8>;",
        *words,
        ".reg .f32 " + ",".join(f"r{p}" for p in pages) + ";",
    ]


def _load(layout: dict[str, int | bool]) -> list[str]:
    """Addresses and all loads of eight pages, first things first."""
    size, half = layout["BYTES"], layout["HALF_SCALES"]
    lines = [
        "mov.u32 lane, %laneid; and.b32 j, lane, 3; shr.u32 n, lane, 2; mov.b32 z, 0; mov.f32 zf, 0f00000000;",
        "mul.wide.u32 w, lane, 16; add.s64 av, $2, w;",
        f"mul.wide.u32 w, lane, 4; add.s64 ac, $2, w; add.s64 ac, ac, {layout['COEFFICIENTS']};",
        f"mul.wide.u32 w, j, {layout['QUAD_BYTES']}; add.s64 aq, $2, w; add.s64 aq, aq, {layout['QUADS']};",
        f"mul.wide.u32 w, j, 32; add.s64 am, $2, w; add.s64 am, am, {layout['CENTROID']};",
    ]
    for p in range(PAGES_PER_WARP):
        lines += [
            f"shfl.sync.idx.b32 b{p}, $3, {p}, 0x1f, 0xffffffff; mad.wide.u32 pv, b{p}, {size}, av;",
            f"ld.global.nc.v4.b32 {{v{p}_0,v{p}_1,v{p}_2,v{p}_3}}, [pv];",
        ]
    lines += [
        f"shfl.sync.idx.b32 own, $3, n, 0x1f, 0xffffffff; mad.wide.u32 pm, own, {size}, am;",
        "ld.global.nc.v4.b32 {mw0,mw1,mw2,mw3}, [pm]; ld.global.nc.v4.b32 {mw4,mw5,mw6,mw7}, [pm+16];",
    ]
    for p in range(PAGES_PER_WARP):
        lines += [
            f"mad.wide.u32 pc, b{p}, {size}, ac; ld.global.nc.b32 c{p}, [pc]; mad.wide.u32 pq, b{p}, {size}, aq;",
            f"ld.global.nc.v4.b32 {{s{p}_0,s{p}_1,s{p}_2,s{p}_3}}, [pq];",
        ]
        if not half:
            lines.append(f"ld.global.nc.v4.b32 {{s{p}_4,s{p}_5,s{p}_6,s{p}_7}}, [pq+16];")
    return lines


def _bytes_to_halves(low: str, high: str, word: str) -> str:
    """Four bytes, each code + 128, as four exact float16 codes: 0x6400 | byte is 1024 + byte."""
    return (
        f"prmt.b32 {low}, {word}, K, 0x4140; prmt.b32 {high}, {word}, K, 0x4342;"
        f"sub.f16x2 {low}, {low}, M; sub.f16x2 {high}, {high}, M;"
    )


def _centroids(layout: dict[str, int | bool]) -> list[str]:
    """Logits of the eight centroids: d m0 (page 2q) and m1 (page 2q + 1), in base 2, plus 100."""
    lines = ["mov.b32 K, 0x64646464; mov.b32 M, 0x64806480; mov.f32 m0, zf; mov.f32 m1, zf; mov.f32 m2, zf; mov.f32 m3, zf;"]
    for i in range(8):
        lines.append(f"xor.b32 mw{i}, mw{i}, 0x80808080;")
    for i in range(4):
        lines += [
            f"prmt.b32 t, mw{2 * i}, mw{2 * i + 1}, 0x5140; prmt.b32 u, mw{2 * i}, mw{2 * i + 1}, 0x7362;",
            _bytes_to_halves("h0", "h1", "t"),
            _bytes_to_halves("h2", "h3", "u"),
            f"{MMA16} {{m0,m1,m2,m3}}, {_query(2 * i)}, {{h0,h1}}, {{m0,m1,m2,m3}};",
            f"{MMA16} {{m0,m1,m2,m3}}, {_query(2 * i + 1)}, {{h2,h3}}, {{m0,m1,m2,m3}};",
        ]
    where = "3" if layout["HALF_SCALES"] else "6"
    lines.append("setp.eq.u32 e0, j, 0; setp.eq.u32 e1, j, 1; setp.eq.u32 e2, j, 2; setp.eq.u32 e3, j, 3;")
    lines.append(f"mov.b32 us0, s0_{where}; mov.b32 us1, s1_{where};")
    for p in range(2, PAGES_PER_WARP):
        lines.append(f"mov.b32 mu, s{p}_{where}; selp.f32 us{p % 2}, mu, us{p % 2}, e{p // 2};")
    lines.append("mul.f32 m0, m0, us0; mul.f32 m1, m1, us1; mov.f32 big, 0f42C80000;")
    lines.append("fma.rn.f32 m0, m0, $21, big; fma.rn.f32 m1, m1, $21, big; neg.f32 big, big;")
    return lines


def _scales(page: int, half: int | bool) -> list[str]:
    """Token scales f0..f3 and mode scales y0, y1 of a page, float32."""
    if not half:
        moves = [f"mov.b32 f{i}, s{page}_{i};" for i in range(4)]
        return [*moves, f"mov.b32 y0, s{page}_4; mov.b32 y1, s{page}_5;"]
    lines = []
    for word, (a, b) in enumerate((("f0", "f1"), ("f2", "f3"), ("y0", "y1"))):
        lines.append(f"mov.b32 {{k0,k1}}, s{page}_{word}; cvt.f32.f16 {a}, k0; cvt.f32.f16 {b}, k1;")
    return lines


def _page(page: int, half: int | bool) -> list[str]:
    """Sum of exponentials of this lane's four tokens of one page, into r<page>."""
    lines = []
    for i in range(4):
        v = f"v{page}_{i}"
        for h, shift in enumerate(("shl.b32 t, {v}, 6", "shl.b32 t, {v}, 2", "shr.u32 t, {v}, 2", "shr.u32 t, {v}, 6")):
            lines.append(f"{shift.format(v=v)}; lop3.b32 h{h}, t, 0x03C003C0, 0x4E004E00, 0x6A;")
        start = "{$20,$20,zf,zf}" if i == 0 else "{d0,d1,d2,d3}"
        lines.append(f"{MMA16} {{d0,d1,d2,d3}}, {_query(2 * i)}, {{h0,h1}}, {start};")
        start = "{zf,zf,zf,zf}" if i == 0 else "{q0,q1,q2,q3}"
        lines.append(f"{MMA16} {{q0,q1,q2,q3}}, {_query(2 * i + 1)}, {{h2,h3}}, {start};")
    lines += _scales(page, half)
    lines += [
        "add.f32 d0, d0, q0; add.f32 d1, d1, q1; mul.f32 d0, d0, y0; mul.f32 d1, d1, y1; cvt.rn.f16x2.f32 hi, d1, d0;",
        "mov.b32 {k0,k1}, hi; cvt.f32.f16 y0, k0; cvt.f32.f16 y1, k1; sub.f32 d0, d0, y0; sub.f32 d1, d1, y1;",
        f"cvt.rn.f16x2.f32 lo, d1, d0; xor.b32 x, c{page}, 0x80808080;",
        _bytes_to_halves("h0", "h1", "x"),
        f"{MMA8} {{t0,t1,t2,t3}}, {{hi,z}}, {{h0}}, {{zf,zf,zf,zf}}; {MMA8} {{u0,u1,u2,u3}}, {{hi,z}}, {{h1}}, {{zf,zf,zf,zf}};",
        f"{MMA8} {{t0,t1,t2,t3}}, {{lo,z}}, {{h0}}, {{t0,t1,t2,t3}}; {MMA8} {{u0,u1,u2,u3}}, {{lo,z}}, {{h1}}, {{u0,u1,u2,u3}};",
    ]
    for value, scale in (("t0", "f0"), ("t1", "f1"), ("u0", "f2"), ("u1", "f3")):
        lines.append(f"mul.f32 {scale}, {scale}, $21; fma.rn.f32 {value}, {value}, {scale}, big; ex2.approx.ftz.f32 {value}, {value};")
    lines.append(f"add.f32 t0, t0, t1; add.f32 u0, u0, u1; add.f32 r{page}, t0, u0;")
    return lines


def _finish() -> list[str]:
    """Sums over the quad, transposed; then the logarithm and the centroid's logit."""
    lines = ["and.b32 t, j, 2; setp.ne.u32 up, t, 0; and.b32 t, j, 1; setp.ne.u32 odd, t, 0;"]
    for k in range(4):
        lines.append(f"selp.f32 g{k}, r{4 + k}, r{k}, up; selp.f32 y{k}, r{k}, r{4 + k}, up;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 2, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
    for k in range(2):
        lines.append(f"selp.f32 y{k}, g{k}, g{2 + k}, odd; selp.f32 g{k}, g{2 + k}, g{k}, odd;")
        lines.append(f"shfl.sync.bfly.b32 y{k}, y{k}, 1, 0x1f, 0xffffffff; add.f32 g{k}, g{k}, y{k};")
        lines.append(f"min.f32 g{k}, g{k}, 0f7F7FFFFF; lg2.approx.ftz.f32 g{k}, g{k}; add.f32 ${k}, m{k}, g{k};")
    return lines


def text(layout: dict[str, int | bool]) -> str:
    """The whole: $0, $1 base-2 scores; $2 record base, $3 block of page lane % 8, $4..$19 query, $20 bias, $21 scale."""
    lines = [*_declare(), *_load(layout), *_centroids(layout)]
    for page in range(PAGES_PER_WARP):
        lines += _page(page, layout["HALF_SCALES"])
    return "{" + "\n".join([*lines, *_finish()]) + "}"


CONSTRAINTS = tl.constexpr("=f,=f,l,r," + ",".join(["r"] * 16) + ",f,f")
