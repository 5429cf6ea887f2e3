"""The encoder of the planes that readers are served from: its plain branch, and its PTX on a small machine."""

import math
import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from ptx_kernels import Inline  # noqa: E402

from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.readkv import cache as cache_module  # noqa: E402
from fastimpl.readkv import encode_ptx, tree  # noqa: E402
from fastimpl.readkv.cache import append, empty_cache, encode, programs_of  # noqa: E402
from fastimpl.readkv.tree import CELLS, STEPS, lloyd_tree, tables  # noqa: E402
from refimpl.readkv.rotation import readkv_rotate  # noqa: E402

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported")
H, D = 2, 128
SPLITS = np.sort(torch.cat(lloyd_tree(8)[0]).double().numpy())


def state_of(exact, d=D, seed=0):
    """Means, scales and signs; ``exact``: scales are powers of two and means small fractions."""
    draw = np.random.default_rng(seed)
    scales = 2.0 ** draw.integers(-2, 3, (2, H, d)) if exact else np.exp(0.3 * draw.normal(size=(2, H, d)))
    means = draw.integers(-8, 9, (2, H, d)) / 8.0 if exact else draw.normal(size=(2, H, d))
    signs = draw.choice([-1.0, 1.0], (2, d))
    names = ("key_mean", "value_mean", "key_scale", "value_scale", "key_signs", "value_signs")
    return {
        name: torch.tensor(x, dtype=torch.float32) for name, x in zip(names, (*means, *scales, *signs), strict=True)
    }


def vectors(exact, N, tokens, seed=1, d=D, dtype=torch.bfloat16):
    draw = np.random.default_rng(seed)
    x = draw.integers(-8, 9, (2, N, H, tokens, d)) if exact else 2.0 * draw.normal(size=(2, N, H, tokens, d))
    return torch.tensor(x, dtype=torch.float32).to(dtype)


def encoded(state, x, lengths, stored_depth=8):
    cache = empty_cache(x.shape[1], x.shape[3], state, stored_depth)
    cache.key_planes.fill_(-1)  # what was there before does not matter
    cache.value_planes.fill_(-1)
    cache.lengths.copy_(torch.tensor(lengths))
    encode(cache, x[0], x[1])
    return cache


def key_codes(cache, tokens):
    """Codes [rows, tokens, d] of key planes; bits that are not stored are 0."""
    rows, W, d, _ = cache.key_planes.shape
    words = cache.key_planes.numpy().view(np.uint32).reshape(rows, W, d, -1, 1, 8)
    bits = (words >> np.arange(32, dtype=np.uint32)[:, None]) & 1  # [rows, W, d, tiles, 32, 8]
    planes = bits.reshape(rows, W, d, -1)[..., :tokens].astype(int)
    return (planes << (7 - np.arange(W))[:, None, None]).sum(1).swapaxes(1, 2)


@pytest.fixture
def by_lanes(monkeypatch):
    """Kernels take their PTX branch, on the machine."""
    monkeypatch.setattr(tl, "inline_asm_elementwise", Inline())
    monkeypatch.setattr(cache_module, "by_lanes", lambda x: x.dtype != torch.uint8)
    monkeypatch.setattr(cache_module, "launch_of", lambda lanes, warps: {})


def test_a_cell_s_word_gives_the_leaf_of_every_step_around_a_split():
    split = np.ceil((SPLITS + 4.0) * (STEPS / 8)).astype(np.int64)
    edges = np.arange(CELLS + 1) * STEPS // CELLS
    step = np.concatenate([split, split - 1, split + 1, edges, np.maximum(edges - 1, 0), np.arange(0, STEPS, 4097)])
    word = tables(torch.device("cpu")).cells.numpy().astype(np.int64)[step * CELLS // STEPS]
    found = ((4 * step + word) >> 16) & 255
    np.testing.assert_array_equal(found, np.searchsorted(SPLITS, step * (8.0 / STEPS) - 4.0, side="right"))


def test_cells_that_do_not_part_the_splits_are_refused(monkeypatch):
    monkeypatch.setattr(tree, "CELLS", 64)
    with pytest.raises(AssertionError, match="at most one split inside a cell"):
        tree._cells(lloyd_tree(8)[0])


@pytest.mark.parametrize(("lengths", "stored_depth"), [([300], 8), ([77], 3), ([0], 8), ([700], 5)])
def test_the_ptx_writes_the_words_of_the_plain_branch(lengths, stored_depth, request):
    state, x = state_of(True), vectors(True, 1, 300)
    plain = encoded(state, x, lengths, stored_depth)
    request.getfixturevalue("by_lanes")
    lanes = encoded(state, x, lengths, stored_depth)
    assert torch.equal(lanes.key_planes, plain.key_planes)
    assert torch.equal(lanes.value_planes[:, :, :300], plain.value_planes[:, :, :300])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_ptx_takes_both_half_precisions(dtype, request):
    state, x = state_of(True), vectors(True, 2, 40, dtype=dtype)
    plain = encoded(state, x, [40, 9])
    request.getfixturevalue("by_lanes")
    lanes = encoded(state, x, [40, 9])
    assert torch.equal(lanes.key_planes, plain.key_planes)
    assert torch.equal(lanes.value_planes[:, :, :40], plain.value_planes[:, :, :40])


@pytest.mark.parametrize("lanes", [False, True])
def test_codes_are_the_reference_s_but_for_a_rounding_s_width_around_splits(lanes, request):
    state, x, tokens = state_of(False), vectors(False, 1, 90), 90
    if lanes:
        request.getfixturevalue("by_lanes")
    codes = key_codes(encoded(state, x, [tokens]), tokens)
    keys, u = x[0, 0].double().numpy(), 2.0**-24
    mean, scale = (state[n].double().numpy()[:, None] for n in ("key_mean", "key_scale"))
    rotated = readkv_rotate(x=keys, signs=state["key_signs"].double().numpy())
    z = (rotated - mean) / scale
    sums = D * u * np.abs(keys).sum(-1, keepdims=True) / math.sqrt(D)  # each addend is rounded D times at most
    # the factor is rounded twice, the offset twice (8 of its units are one of z), their sum once; then the step
    error = (sums + 3 * u * np.abs(rotated)) / scale + 2 * u * (np.abs(mean) / scale + 8.0) + 8.0 / STEPS
    low, high = (np.searchsorted(SPLITS, z + side * error, side="right") for side in (-1, 1))
    assert ((low <= codes) & (codes <= high)).all()
    assert (low == high).mean() > 0.9  # else the bound would say little


def test_numbers_beyond_the_tree_and_none_at_all_take_its_ends(request):
    x = torch.zeros(2, 1, H, 16, D)
    x[..., 0, :] = 1e30
    x[..., 1, :] = -1e30
    x[..., 2, 3] = float("nan")
    state = state_of(True) | {"key_mean": torch.zeros(H, D), "key_signs": torch.ones(D)}
    x = x.bfloat16()
    plain = encoded(state, x, [16])
    request.getfixturevalue("by_lanes")
    lanes = encoded(state, x, [16])
    codes = key_codes(lanes, 16)
    assert codes[:, 0, 0].tolist() == [255, 255]
    assert codes[:, 1, 0].tolist() == [0, 0]
    assert not codes[:, 2].any()  # not a number
    assert (codes[:, 3:] == 128).all()  # exactly 0 belongs to the upper leaf
    assert torch.equal(lanes.key_planes, plain.key_planes)


@pytest.mark.parametrize("stored_depth", [8, 3])
def test_tokens_appended_by_lanes_are_those_encoded_at_once(stored_depth, by_lanes):
    state, x = state_of(False), vectors(False, 1, 260)
    whole, grown = encoded(state, x, [260], stored_depth), encoded(state, x, [254], stored_depth)
    for t in range(254, 260):
        append(grown, x[0, :, :, t], x[1, :, :, t])
    assert torch.equal(grown.key_planes, whole.key_planes)
    assert torch.equal(grown.value_planes[:, :, :260], whole.value_planes[:, :, :260])
    assert grown.lengths.tolist() == [260]


def test_a_full_row_takes_no_token(by_lanes):
    cache = encoded(state_of(False), vectors(False, 1, 256), [256])
    keys, values = cache.key_planes.clone(), cache.value_planes.clone()
    append(cache, *vectors(False, 1, 1, seed=2)[:, :, :, 0])
    assert torch.equal(cache.key_planes, keys)
    assert torch.equal(cache.value_planes, values)
    assert cache.lengths.tolist() == [256]


@pytest.mark.parametrize(("turns", "rows"), [(512, 4), (1, 1), (7, 3), (5, 1000)])
def test_programs_share_their_turns_evenly(turns, rows):
    programs = programs_of(turns, rows, torch.device("cpu"))
    assert 1 <= programs <= turns
    assert -(-turns // programs) * programs - turns < programs


def test_texts_declare_no_more_shared_memory_than_a_program_may_have():
    assert max(encode_ptx.SHARED.values()) <= 48 * 1024
