"""The build's last part in PTX: images of all modes as one product, quantised and packed in registers.

Lane 4 g + q reads channels d / 8 g .. of tokens 2q, 2q + 1, 2q + 8 and 2q + 9, which makes rows of D^T: with the
eigenvectors as columns the matrix unit gives D^T U [d, 8], every factor as two TF32 parts, and leaves with the lane
d / 8 channels that lie in one piece of modes 2q and 2q + 1. What belongs to a mode is folded over g, what to a token over
q. Then

    basis          8 bytes per mode and lane (int4), a code the lowest bits of image * 7 / largest + 1.5 * 2^23
    coefficients   tokens g and g + 8, modes 2q and 2q + 1: one word per lane, where `record.py` wants it
    scales         a quad of them to lane q
"""

from __future__ import annotations

from fastimpl.locks.build_gram import PAGES, PITCH, Gram, Pages, bytes_of, factor, load_keys, page_address
from fastimpl.locks.ptx_text import MAGIC, Registers, Text, number

MODE_LANES = (4, 8, 16)
TOKEN_LANES = (1, 2)
COLUMNS = 8
"""Modes of one product."""


class Finish:
    """The text after `Gram`'s: writes the summaries of the warp's pages."""

    def __init__(self, t: Text, pages: Pages, gram: Gram) -> None:
        self.t, self.pages, self.before = t, pages, gram

    def images(self, base: str, inverse: str) -> list[Registers]:
        """D^T U: tiles of four, channel 2 i of modes 2q and 2q + 1, then channel 2 i + 1 of both."""
        t, pages = self.t, self.pages
        own = pages.channels // 8
        spot = t.op("mad.lo.u32", "q", 8, t.op("mad.lo.u32", "g", PITCH, "matrix", kind="b"), kind="b")
        left = [[t.parts(value) for value in t.load(2, f"{spot}+{at}")] for at in (0, 32)]
        rows = []
        for token in range(4):
            address = t.new("d")
            twice = t.op("cvt.u64.u32", t.op("shl.b32", "q", 1, kind="b"), kind="d")
            if token:
                twice = t.op("add.s64", twice, (0, 1, 8, 9)[token], kind="d")
            t.add(f"mad.lo.s64 {address}, {twice}, stride, {base};")
            t.add(f"mad.wide.u32 {address}, g, {own * pages.key_bytes}, {address};")
            rows.append(address)
        spot, tiles = t.op("mad.lo.u32", "g", 4 * own, "centre", kind="b"), []
        for first in range(0, own, 8):
            keys = [load_keys(t, pages, 8, row, first * pages.key_bytes) for row in rows]
            minus = [*t.load(4, f"{spot}+{4 * first}"), *t.load(4, f"{spot}+{4 * first + 16}")]
            away = [[t.fma(key, inverse, m) for key, m in zip(token, minus, strict=True)] for token in keys]
            split = [[t.parts(value) for value in token] for token in away]
            sums = [t.zeros(4) for _ in range(4)]
            for x, y in ((1, 0), (0, 1), (0, 0)):  # small ones first; products of one sum four apart
                for step in (0, 1):
                    for c, total in enumerate(sums):
                        a = [split[2 * step + second][2 * c + odd][x] for second in (0, 1) for odd in (0, 1)]
                        t.product(total, a, [left[step][second][y] for second in (0, 1)])
            tiles += sums
        return tiles

    def lengths(self, tiles: list[Registers], norm: str) -> list[tuple[str, str, str, str]]:
        """Of modes 2q and 2q + 1: singular value, its inverse, largest entry, whether the mode is kept."""
        t, out = self.t, []
        for odd in (0, 1):
            entries = [tile[i] for tile in tiles for i in (odd, 2 + odd)]
            sums = ["0f00000000", "0f00000000"]
            for i, entry in enumerate(entries):
                sums[i % 2] = t.fma(entry, entry, sums[i % 2])
            square = t.over_lanes(t.plus(*sums), MODE_LANES, "add.f32")
            largest = t.over_lanes(t.largest(entries), MODE_LANES, "max.f32")
            kept = t.op("setp.gt.f32", square, t.mul(norm, number(self.pages.drop)), kind="p")
            mode = t.op("mad.lo.u32", "q", 2, str(odd), kind="b")
            kept = t.op("setp.lt.and.u32", mode, self.pages.rank, kept, kind="p")
            sigma = t.op("selp.f32", t.op("sqrt.rn.f32", square), "0f00000000", kept)
            inverse = t.op("selp.f32", t.op("div.full.f32", "0f3F800000", sigma), "0f00000000", kept)
            largest = t.op("selp.f32", largest, "0f00000000", kept)
            out.append((sigma, inverse, largest, mode))
        return out

    def columns(self, tiles: list[Registers], modes: list[tuple[str, str, str, str]], live: str, out: str) -> Registers:
        """Codes of this lane's channels of two modes into the record; returns the modes' scales."""
        t, pages = self.t, self.pages
        bits = 8 if pages.layout["INT8"] else 4
        run = len(tiles) * 2 * bits // 8
        sign = "0x80808080" if bits == 8 else "0x88888888"
        shift = (int(sign, 16) - 0x4B400000 * sum(1 << i for i in range(0, 32, bits))) & 0xFFFFFFFF
        scales = []
        for odd, (_sigma, inverse, largest, mode) in enumerate(modes):
            turn = factor(t, largest, pages.level)
            scales.append(t.mul(t.mul(largest, number(1 / pages.level)), inverse))
            codes = [t.op("fma.rn.f32", tile[i], turn, MAGIC, kind="b") for tile in tiles for i in (odd, 2 + odd)]
            words = []
            for first in range(0, len(codes), 32 // bits):
                word = codes[first + 32 // bits - 1]
                for code in reversed(codes[first : first + 32 // bits - 1]):
                    word = t.op("mad.lo.u32", word, 1 << bits, code, kind="b")
                words.append(t.op("xor.b32", t.op("add.u32", word, shift, kind="b"), sign, kind="b"))
            there = t.op("setp.lt.and.u32", mode, pages.rank, live, kind="p")
            address = t.op("mad.wide.u32", mode, pages.channels * bits // 8, out, kind="d")
            t.add(f"mad.wide.u32 {address}, g, {run}, {address};")
            t.store(words, address, "global", there)
        return scales

    def coefficients(self, modes: list[tuple[str, str, str, str]]) -> list[Registers]:
        """Tokens g and g + 8: coefficients of modes 2q and 2q + 1, in the page's unit."""
        t = self.t
        spot = t.op("mad.lo.u32", "q", 2 * PITCH, t.op("mad.lo.u32", "g", 4, "matrix", kind="b"), kind="b")
        return [
            [t.mul(t.load(1, f"{spot}+{32 * token + PITCH * odd}")[0], modes[odd][0]) for odd in (0, 1)]
            for token in (0, 1)
        ]

    def pack(self, coefficients: list[Registers], scales: Registers, unit: str, live: str, out: str) -> None:
        """Codes of the coefficients, and the quads of scales."""
        t, layout = self.t, self.pages.layout
        codes, token_scales = [], []
        for token in coefficients:
            largest = t.over_lanes(t.largest(token), TOKEN_LANES, "max.f32")
            turn = factor(t, largest, 127.0)
            codes += [t.op("fma.rn.f32", value, turn, MAGIC, kind="b") for value in token]
            token_scales.append(t.mul(t.mul(largest, number(1 / 127)), unit))
        address = t.op("mad.wide.u32", "g", 2 * int(layout["MODES"]), out, kind="d")
        t.add(f"mad.wide.u32 {address}, q, 4, {address};")
        there = t.op("setp.lt.and.u32", "q", int(layout["MODES"]) // 2, live, kind="p")
        t.store([bytes_of(t, codes)], f"{address}+{layout['COEFFICIENTS']}", "global", there)
        centroid_scale = t.of_lane("centroid_scale", "quad")
        first = t.op("shl.b32", "lane", 3, kind="b")
        second = t.op("add.u32", first, 4, kind="b")
        numbers = [t.of_lane(scale, lane) for scale in token_scales for lane in (first, second)] + scales
        there = t.op("setp.lt.and.u32", "lane", 4, live, kind="p")
        address = t.op("mad.wide.u32", "lane", int(layout["QUAD_BYTES"]), out, kind="d")
        quads = int(layout["QUADS"])
        if layout["HALF_SCALES"]:
            numbers = [t.op("min.f32", value, number(65504.0)) for value in numbers]
            words = [t.op("cvt.rn.f16x2.f32", numbers[i + 1], numbers[i], kind="b") for i in (0, 2, 4)]
            t.store([*words, centroid_scale], f"{address}+{quads}", "global", there)
        else:
            t.store(numbers[:4], f"{address}+{quads}", "global", there)
            t.store([*numbers[4:], centroid_scale, centroid_scale], f"{address}+{quads + 16}", "global", there)

    def floats(
        self, tiles: list[Registers], modes: list[tuple[str, str, str, str]], coefficients: list[Registers], unit: str,
        live: str,
    ) -> None:  # fmt: skip
        """Basis and coefficients in float32."""
        t, rank = self.t, self.pages.rank
        basis, tokens = (page_address(t, "quad", name) for name in ("out1", "out2"))
        basis = t.op("mad.wide.u32", "g", 8 * len(tiles) * rank, basis, kind="d")
        tokens = t.op("mad.wide.u32", "g", 4 * rank, tokens, kind="d")
        for odd, (_sigma, inverse, _largest, mode) in enumerate(modes):
            there = t.op("setp.lt.and.u32", mode, rank, live, kind="p")
            column = t.op("mad.wide.u32", mode, 4, basis, kind="d")
            for c, entry in enumerate(tile[i] for tile in tiles for i in (odd, 2 + odd)):
                t.store([t.mul(entry, inverse)], f"{column}+{4 * rank * c}", "global", there)
            column = t.op("mad.wide.u32", mode, 4, tokens, kind="d")
            for token in (0, 1):
                t.store([t.mul(coefficients[token][odd], unit)], f"{column}+{32 * rank * token}", "global", there)

    def all_pages(self) -> None:
        """Summaries, page by page."""
        t = self.t
        self.before.page_start("FINISH")
        base = page_address(t, "quad", "keys")
        unit, norm = t.of_lane("unit", "quad"), t.of_lane("norm", "quad")
        tiles = self.images(base, t.op("sub.u32", "0x7F000000", unit, kind="b"))
        modes = self.lengths(tiles, norm)
        live, coefficients = self.before.live_page(), self.coefficients(modes)
        if self.pages.pack:
            out = page_address(t, "quad", "out0")
            self.pack(coefficients, self.columns(tiles, modes, live, out), unit, live, out)
        else:
            self.floats(tiles, modes, coefficients, unit, live)
        t.repeat("FINISH", "j", PAGES)


def build_text(pages: Pages) -> str:
    """The whole program of a warp."""
    t = Text()
    gram = Gram(t, pages)
    gram.start()
    gram.all_pages()
    gram.vectors()
    Finish(t, pages, gram).all_pages()
    t.add("mov.u32 $0, 0;")
    return t.finished()


OPERANDS = "=r,l,l,l,l,r,r"
