"""The value pass on matrix units, without a GPU: one warp of it in the interpreter, each PTX text by its meaning."""

import ctypes
import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.readkv import lanes, lanes_groups, lanes_lists, lanes_values  # noqa: E402
from fastimpl.readkv.bar import BAR, CUT, REST, STATE  # noqa: E402
from fastimpl.readkv.cache import empty_cache, encode  # noqa: E402
from fastimpl.readkv.tree import lloyd_tree  # noqa: E402
from fastimpl.readkv.value_tables import slot_factors, value_tables  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported"),
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
]
H, G, STEPS = 2, 3, 2


def real(addresses, kind, offset=0):
    return np.array([kind.from_address(int(a) + offset).value for a in addresses])


def halves(words):
    return np.ascontiguousarray(words.astype(np.uint32)).view(np.float16).reshape(-1, 2).astype(np.float32)


def words_of(low, high):
    pair = np.stack([low, high], 1).astype(np.float16)
    return pair.view(np.uint32)[:, 0]


class Warp:
    """Stands for `tl.inline_asm_elementwise` where a program is one warp."""

    def __init__(self):
        self.shared = np.zeros(8192, np.uint32)
        self.meaning = {}
        for module in (lanes, lanes_groups, lanes_lists, lanes_values):
            for name, value in vars(module).items():
                if name.isupper() and hasattr(self, f"do_{name.lower()}"):
                    self.meaning[value.value] = getattr(self, f"do_{name.lower()}")
        for texts in (lanes_groups.WORDS_OF, lanes_groups.WORDS_IF):
            for stride, row in zip((16, 32), texts.value, strict=True):
                for count, text in enumerate(row, 1):
                    self.meaning[getattr(text, "value", text)] = self.words(count, stride)
        for count, text in enumerate(lanes_groups.LOGITS.value, 1):
            self.meaning[getattr(text, "value", text)] = self.words(count, 16, ctypes.c_uint16)
        for count, text in zip((1, 2, 4, 8, 16), lanes_lists.ITEMS.value, strict=True):
            self.meaning[getattr(text, "value", text)] = self.items(count)
        for text in lanes_lists.STORE_DEPTHS.value:
            self.meaning[getattr(text, "value", text)] = self.store_depths
        for text in lanes_lists.DEPTHS.value:
            self.meaning[getattr(text, "value", text)] = self.depths
        for text, order in (("0x5410", 0), ("0x7632", 1)):
            self.meaning[f"prmt.b32 $0, $1, $2, {text};"] = self.permuted(order)
        self.meaning["mul.rn.f16x2 $0, $1, $2;"] = self.product

    def __call__(self, text, _operands, args, dtype, **_):
        from triton.runtime.interpreter import TensorHandle

        meaning = self.meaning[getattr(text, "value", text)]
        data = [np.asarray(x.handle.data) for x in args]
        shape = np.broadcast_shapes(*(x.shape for x in data))
        found = meaning(*(np.atleast_1d(x) for x in data))
        kinds = getattr(dtype, "value", dtype)
        several = isinstance(kinds, list | tuple)
        kinds, found = (kinds, found) if several else ([kinds], [found])
        result = []
        for kind, value in zip(kinds, found, strict=True):
            one, array = getattr(kind, "value", kind), np.atleast_1d(np.asarray(value))
            if one == tl.float32:
                array = array.astype(np.float32)
            else:
                array = array.astype(np.int64).astype(np.uint32).view(np.int32)
            array = np.broadcast_to(array, shape or (1,)).copy()
            result.append(tl.tensor(TensorHandle(array, one), tl.block_type(one, list(shape)) if shape else one))
        return tuple(result) if several else result[0]

    def do_memory(self, _):
        return 0

    def do_warp(self, _):
        return 0

    def do_fill(self, source, at):
        self.shared[:768] = real(source[:1] + 4 * np.arange(768), ctypes.c_uint32)
        return 0

    def do_load_word(self, at):
        return self.shared[at // 4]

    def items(self, count):
        def meaning(at, wanted):
            return [real(np.where(wanted, at + 4 * i, at[0]), ctypes.c_float) * (wanted != 0) for i in range(count)]

        return meaning

    def store_depths(self, at, wanted, *words):
        kind = ctypes.c_uint16 if len(words) == 1 and STEPS == 1 else ctypes.c_uint32
        for i, x in enumerate(words):
            for address, value, yes in zip(at, x, wanted, strict=True):
                if yes:
                    kind.from_address(int(address) + 4 * i).value = int(value) & 0xFFFFFFFF
        return 0

    def depths(self, value, own, least, *steps):
        return least + sum((value * np.float32(s)).astype(np.float32).view(np.int32) > own for s in steps)

    def do_running(self, *counts):
        return [np.cumsum(c) for c in counts]

    def do_load_shared(self, at):
        return [self.shared[at // 4 + i] for i in range(4)]

    def do_load_sums(self, at):
        return [self.shared[at // 4 + i].view(np.float32) for i in range(4)]

    def do_store_counts(self, at, a, b, c, wanted):
        for i, x in enumerate((a, b, c)):
            self.shared[at[wanted != 0] // 4 + i] = x[wanted != 0]
        return 0

    def do_store_entry(self, at, entry, wanted):
        at, entry, wanted = np.broadcast_arrays(at, entry, wanted)
        self.shared[at[wanted != 0] // 4] = entry[wanted != 0]
        return 0

    def do_store_pair(self, at, one, two, wanted):
        self.shared[at[wanted != 0] // 4] = one[wanted != 0]
        self.shared[at[wanted != 0] // 4 + 1] = two[wanted != 0]
        assert (at % 8 == 0).all()
        return 0

    def do_store_sums(self, at, *values):
        for i, x in enumerate(values):
            self.shared[at // 4 + i] = x.view(np.uint32)
        return 0

    def do_store_four(self, at, a, b, c, d, wanted):
        for i, x in enumerate((a, b, c, d)):
            for address, value, yes in zip(at, x, wanted, strict=True):
                if yes:
                    ctypes.c_float.from_address(int(address) + 4 * i).value = float(value)
        return 0

    def do_weights(self, a, b, c, d, lse, *entries):
        w = [np.where(e < 0, np.exp2(halves(x)[:, 0] - lse), 0.0) for x, e in zip((a, b, c, d), entries, strict=True)]
        return words_of(w[0], w[1]), words_of(w[2], w[3])

    def words(self, count, stride, kind=ctypes.c_uint32):
        def meaning(token, base, wanted=0):
            at, yes = base + token.astype(np.int64) * stride, np.asarray(wanted) >= 0
            return [np.where(yes, real(at + stride * i, kind), 0x5A5A5A5A) for i in range(count)]

        return meaning

    def permuted(self, order):
        def meaning(a, b):
            a, b = a.astype(np.int64) & 0xFFFFFFFF, b.astype(np.int64) & 0xFFFFFFFF
            return ((a >> 16) | (b >> 16 << 16)) if order else ((a & 0xFFFF) | ((b & 0xFFFF) << 16))

        return meaning

    def product(self, a, b):
        x = (halves(np.broadcast_to(a, (32,))) * halves(np.broadcast_to(b, (32,)))).astype(np.float16)
        return words_of(x[:, 0], x[:, 1])

    def mma(self, first, second, w0, w1, before):
        """Products b = 0..7 of half b and half b + 8 (float32 [lanes, 2 items] each) with the weights."""
        w = np.stack([halves(w0), halves(w1)], 1).reshape(8, 4, 4)  # head, q, item of the lane
        sums = [x.copy() for x in before[:32]]
        for b in range(8):
            for r in range(2):
                x = np.concatenate([first(b + 8 * r), second(b + 8 * r)], 1).reshape(8, 4, 4)  # position, q, item
                total = np.einsum("gqi,hqi->gh", x, w)
                for i in range(2):
                    sums[4 * b + 2 * r + i] += total[:, i::2].reshape(-1)
        return sums, w

    def do_ones(self, x0, x1, w0, w1, *before):
        def bits(x):
            pair = np.ascontiguousarray(x.astype(np.uint32)).view(np.uint16).reshape(-1, 2)

            def values(b):
                picked = (pair & np.uint16(1 << b)) | np.uint16(0x3C00 if b == 15 else 0)
                return picked.view(np.float16).astype(np.float32)

            return values

        sums, w = self.mma(bits(x0), bits(x1), w0, w1, before)
        total = np.broadcast_to(w.sum((1, 2)), (8, 8))
        ones = [before[32 + j] + total[:, j % 2 :: 2].reshape(-1) for j in range(4)]
        return sums + ones

    def do_codes(self, *planes):
        bits = [[(x.astype(np.int64) >> (8 * j + i)) & 1 for x in planes] for i in range(8) for j in range(4)]
        codes = [sum(bit << p for p, bit in enumerate(of)) for of in bits]
        return [sum(codes[4 * i + j] << (8 * j) for j in range(4)) for i in range(8)]

    def do_pair_codes(self, *planes):
        def nibbles(bit, item):
            return sum(((x.astype(np.int64) >> (16 * item + bit)) & 1) << p for p, x in enumerate(planes))

        def byte(bit):
            return nibbles(bit, 0) | nibbles(bit, 1) << 4

        return [byte(i + 4 * k) | byte(i + 4 * k + 8) << 8 | 0xABCD0000 for i in range(4) for k in range(2)]

    def do_pair_table(self, *given):
        codes, (table, w0, w1), before = np.stack(given[:16]).astype(np.int64), given[16:19], given[19:]

        def values(half):
            def of(b):
                index = (codes[8 * half + 2 * (b % 4) + b // 4 % 2] >> (8 * (b // 8))) & 255
                return halves(self.shared[table // 4 + index])

            return of

        return self.mma(values(0), values(1), w0, w1, before)[0]

    def do_table(self, *given):
        codes = np.stack(given[:16]).astype(np.int64)
        tables, (w0, w1), before = given[16:20], given[20:22], given[22:]
        entries = self.shared[:512].view(np.float16).astype(np.float32)

        def values(half):
            def of(b):
                found = []
                for item in range(2):
                    code = (codes[8 * half + b % 8] >> (8 * (2 * item + b // 8))) & 255
                    found.append(entries[code + tables[2 * half + item] // 2])
                return np.stack(found, 1)

            return of

        return self.mma(values(0), values(1), w0, w1, before)[0]


def cache_of(tokens, stored, d):
    draw = np.random.default_rng(tokens)
    state = {f"{kind}_{name}": torch.ones(H, d) for kind in ("key", "value") for name in ("mean", "scale")}
    state |= {"key_signs": torch.ones(d), "value_signs": torch.ones(d)}
    codes = torch.tensor(draw.integers(0, 256, (1, H, tokens, d)), dtype=torch.uint8)
    cache = empty_cache(1, tokens, state, stored)
    cache.lengths.fill_(tokens)
    encode(cache, codes, codes)
    return cache, codes[0].numpy()


@pytest.mark.parametrize("tokens", [300, 77])
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("stored", "d", "minimum"), [(8, 128, 1), (8, 64, 0), (3, 128, 0), (5, 64, 5)])
def test_a_warp_mixes_prefixes_at_the_depths_it_finds(stored, d, minimum, paired, tokens, monkeypatch):
    warp = Warp()
    monkeypatch.setattr(tl, "inline_asm_elementwise", warp)
    monkeypatch.setattr(lanes_values, "WARPS", tl.constexpr(1))
    cache, codes = cache_of(tokens, stored, d)
    draw = np.random.default_rng(1)
    items = -(-tokens // (2 if paired else 1))
    importance = torch.tensor(draw.random((H, items)) ** 6, dtype=torch.float32)
    gains = torch.tensor(4.0 ** -np.arange(stored), dtype=torch.float32)
    bar, cut, rest = 0.02, 5, 1
    state = torch.zeros((H, STATE), dtype=torch.int64)
    state[:, BAR.value], state[:, CUT.value], state[:, REST.value] = int(np.float32(bar).view(np.int32)), cut, rest
    logits = torch.tensor(draw.normal(size=(H, cache.capacity, 8)), dtype=torch.float16)
    lses = torch.full((H, 8), 6.0)
    parts = -(-cache.longest // (64 * STEPS))
    depths = torch.full((H, cache.capacity), -1, dtype=torch.int8)
    mixes = torch.full((H, parts, 8, d), float("nan"))
    lanes_values.mix_by_lanes[(parts, H)](
        cache.value_planes, logits, lses, importance, gains, state, slot_factors(torch.device("cpu")),
        value_tables(torch.device("cpu")), cache.lengths, depths, mixes, H, cache.capacity, items, 1, minimum, parts,
        G, W=stored, D=d, STATE=STATE, STEPS=STEPS, PAIRED=paired, AHEAD=False, DEPENDENT=False,
    )  # fmt: skip
    worth = importance.numpy()[:, :, None] * gains.numpy()[minimum:]
    wanted = minimum + (worth > np.float32(bar)).sum(2)
    if paired:
        wanted = wanted.repeat(2, 1)[:, :tokens]
    np.testing.assert_array_equal(depths[:, :tokens].numpy(), wanted)
    _, centroids, _ = lloyd_tree(8)
    value = np.zeros((H, tokens, d))
    for depth in range(1, 9):
        value += np.where(wanted[..., None] == depth, centroids[depth].numpy()[codes >> (8 - depth)], 0.0)
    weight = np.exp2(logits[:, :tokens].double().numpy() - 6.0)
    mix = np.einsum("htg,htd->hgd", weight[..., :G], value)
    place = np.arange(d)
    run = d // 4
    channel = place % run // 4 * 16 + place // run * 4 + place % 4
    found = mixes.sum(1).numpy().reshape(H, -1)
    for g in range(G):
        at = g % 2 * 4 * d + g // 2 * run + place // run * d + place % run
        # float16 weights, coefficients, products of both
        bound = 3 * 2.0**-11 * np.einsum("ht,htd->hd", weight[..., g], np.abs(value) + 1)[:, channel]
        assert (np.abs(found[:, at] - mix[:, g, channel]) <= bound).all()
    absent = (4 * d + run) + place // run * d + place % run  # head 3 of 3: none
    assert not found[:, absent].any()
