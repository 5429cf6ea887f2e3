"""The PTX that builds summaries, run in a small machine of our own: no GPU."""

from itertools import pairwise

import numpy as np
import pytest
from judged import assert_no_alarm, judged
from ptx_machine import Words
from ptx_warp import WarpMachine

pytest.importorskip("triton")
from fastimpl.locks.build_finish import build_text
from fastimpl.locks.build_gram import PAGES, Pages
from fastimpl.locks.jacobi import SWEEPS
from fastimpl.locks.record import Layout
from proofs_checks.bounds.common import gamma

POISON, U = 113, 2.0**-24
STORED = {
    "bfloat16": lambda x: (x.view(np.uint32) >> 16).astype(np.uint16),
    "float16": lambda x: x.astype(np.float16),
    "float32": lambda x: x,
}
LEVELS = {2: 1, 4: 7, 8: 127}


def draw(dtype, d, seed=0):
    """Eight pages: random ones, one of equal keys, one of few, a graded, a huge and a tiny one."""
    rng = np.random.default_rng(seed)
    keys = (rng.normal(size=(PAGES, 16, d)) + 2 * rng.normal(size=d)).astype(np.float32)
    keys[2], keys[3, 4:], keys[4] = keys[2, 0], 0, 0
    keys[5] *= np.logspace(0, -3, 16, dtype=np.float32)[:, None]
    keys[6], keys[7] = keys[6] * np.float32(2.0**11), keys[7] * np.float32(2.0**-11)
    keys = (keys.view(np.uint32) & 0xFFFF0000).view(np.float32)  # bfloat16, exactly
    return keys.astype(np.float16).astype(np.float32) if dtype == "float16" else keys


def build(keys, dtype, layout, pack, here=None, sweeps=SWEEPS):
    """What the warp writes for its eight pages, as bytes, from memory that was POISON."""
    d, rank = layout.channels, layout.rank
    text = build_text(Pages(dtype, d, rank, sweeps, d * 2.0**-24, LEVELS[layout.basis_bits], pack, layout.constants))
    stored = STORED[dtype](keys)
    words, page = np.ascontiguousarray(stored).reshape(-1).view(np.int32), np.arange(32) // 4
    sizes = [layout.bytes] if pack else [4 * d, 4 * d * rank, 64 * rank]
    starts = np.cumsum([words.nbytes, *(PAGES * size for size in sizes)])
    memory = np.concatenate([words, np.full((starts[-1] - words.nbytes) // 4 + 1, POISON, np.int32)])
    pointers = {2 + i: start + page * size for i, (start, size) in enumerate(zip(starts[:-1], sizes, strict=True))}
    operands = {1: page * (words.nbytes // PAGES), 3: 0, 4: 0} | pointers | {5: d * stored.itemsize}
    machine = WarpMachine(text, operands | {6: np.ones(32, int) if here is None else here[page]}, Words(memory))
    machine.run()
    written = machine.memory.words.view(np.uint8)
    assert written[starts[-1] :].view(np.int32)[0] == POISON
    return [written[a:b].reshape(PAGES, -1) for a, b in pairwise(starts)]


def floats(keys, dtype, layout, **more):
    centroid, basis, coefficients = (x.view(np.float32) for x in build(keys, dtype, layout, False, **more))
    return centroid, basis.reshape(PAGES, layout.channels, -1), coefficients.reshape(PAGES, 16, -1)


@pytest.mark.parametrize(("dtype", "d", "rank"), [("bfloat16", 128, 8), ("float32", 64, 3), ("float16", 256, 5)])
def test_float32_summaries_pass_the_judge(dtype, d, rank):
    keys = draw(dtype, d)

    def build_summary(**_):
        parts = floats(keys, dtype, Layout(16, d, rank, 8, "float32"))
        return dict(zip(("centroid", "basis", "coefficients"), (x[None] for x in parts), strict=True))

    assert_no_alarm(judged("locks_build_summary", build_summary, {"key_pages": keys[None], "rank": rank}, dtype))


def test_equal_keys_whose_mean_rounds_have_no_modes():
    """Deviations are all rounding there: squares of squares of it vanish, and an angle must not."""
    keys = np.repeat(np.random.default_rng(0).normal(size=(PAGES, 1, 64)), 16, axis=1).astype(np.float32)
    centroid, basis, coefficients = floats(keys, "float32", Layout(16, 64, 8, 8, "float32"))
    np.testing.assert_allclose(centroid, keys[:, 0], rtol=gamma(16, U))  # fifteen sums of one number and a division
    assert (basis == 0).all()
    assert (coefficients == 0).all()


def codes_of(values, level):
    scale = np.abs(values).max(-1, keepdims=True) / np.float32(level)
    return np.where(scale > 0, values / np.where(scale > 0, scale, 1), 0), scale[..., 0]


@pytest.mark.parametrize(
    ("dtype", "d", "rank", "bits", "scales"),
    [("bfloat16", 128, 8, 4, "float16"), ("float32", 128, 8, 8, "float32"), ("float16", 64, 7, 2, "float16"),
     ("bfloat16", 256, 1, 4, "float32"), ("float32", 64, 4, 8, "float16")],
)  # fmt: skip
def test_records_hold_the_codes_of_the_float32_summaries(dtype, d, rank, bits, scales):
    keys, layout, here = draw(dtype, d), Layout(16, d, rank, bits, scales), np.array([1, 1, 1, 1, 1, 1, 0, 1])
    summary = floats(keys, dtype, layout)
    records, at = build(keys, dtype, layout, True, here)[0], layout.constants
    assert (records[6].view(np.int32) == POISON).all()
    width, kind = (2, np.float16) if scales == "float16" else (4, np.float32)
    token, mode = np.arange(16)[:, None], np.arange(rank)
    spots = token % 8 * 2 * layout.modes + mode // 2 * 4 + token // 8 * 2 + mode % 2
    for p in np.flatnonzero(here):
        centroid, basis, coefficients = summary[0][p], summary[1][p].T, summary[2][p]
        raw = records[p, : rank * d * bits // 8 if bits == 8 else rank * d // 2].reshape(rank, -1)
        nibbles = np.stack([raw & 15, raw >> 4], -1).reshape(rank, -1).astype(int)
        stored = raw.view(np.int8) if bits == 8 else (nibbles ^ 8) - 8
        parts = [(stored, basis, LEVELS[bits]), (records[p, at["CENTROID"] :][:d].view(np.int8), centroid, 127)]
        parts.append((records[p, at["COEFFICIENTS"] :][spots].view(np.int8), coefficients, 127))
        found = []
        for codes, values, level in parts:
            right, scale = codes_of(values, level)
            assert np.abs(codes - right).max() <= 0.5 + 6 * U * level  # two divisions here, one or two there
            found.append(scale)
        quads = records[p, at["QUADS"] :].reshape(4, -1)
        numbers = quads[:, : 6 * width].copy().view(kind).astype(float)
        rest = 5 * U + (2.0**-11 if width == 2 else 0)  # an approximate division (two ulp), ours, and float16's own
        for q in range(4):
            tokens = found[2][[2 * q, 2 * q + 1, 2 * q + 8, 2 * q + 9]]
            least = 2.0**-25  # half a step of float16's smallest numbers
            np.testing.assert_allclose(numbers[q, :4], tokens, rtol=rest, atol=least)
            for k in range(2 * q, min(2 * q + 2, rank)):
                np.testing.assert_allclose(numbers[q, 4 + k % 2], found[0][k], rtol=rest)
        whole = quads[:, 6 * width : 6 * width + 4].copy().view(np.float32)
        np.testing.assert_allclose(whole[:, 0], found[1], rtol=5 * U)


def test_a_page_has_the_bits_it_has_beside_other_pages():
    layout, keys = Layout(16, 128, 8, 4, "float16"), draw("bfloat16", 128)
    together = build(keys, "bfloat16", layout, True)[0]
    other = np.roll(keys, 3, axis=0)
    other[[0, 5]] = draw("bfloat16", 128, seed=1)[[0, 5]] * np.logspace(0, -3, 16, dtype=np.float32)[None, :, None]
    other = (other.view(np.uint32) & 0xFFFF0000).view(np.float32)
    again = build(other, "bfloat16", layout, True)[0]
    for p in range(PAGES):
        if p not in (0, 5):
            np.testing.assert_array_equal(again[p], together[(p - 3) % PAGES])


def test_three_sweeps_are_too_few():
    keys, layout = draw("bfloat16", 128), Layout(16, 128, 8, 4, "float16")
    right, few = floats(keys, "bfloat16", layout)[1], floats(keys, "bfloat16", layout, sweeps=3)[1]
    assert np.abs(np.abs(right[0]) - np.abs(few[0])).max() > 1e-3
