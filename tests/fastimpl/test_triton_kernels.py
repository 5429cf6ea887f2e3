"""Kernels called directly in Triton's interpreter: what the stage contract does not reach."""

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from fastimpl import attention as kernels  # noqa: E402
from fastimpl.checks import ArgumentError  # noqa: E402
from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.locks import decode  # noqa: E402
from fastimpl.locks.quantize import locks_quantize_summary  # noqa: E402
from fastimpl.locks.record import Layout  # noqa: E402
from fastimpl.locks.summary import build_records, locks_build_summary  # noqa: E402
from fastimpl.paging import contiguous_cache  # noqa: E402

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported")


def unpack_record(record, layout):
    """The parts of one record [bytes], read by the drawing in `fastimpl/locks/record.py` and nothing else."""
    B, d, r, c = layout.page_size, layout.channels, layout.rank, layout.constants
    half = layout.tokens // 2
    column = record[: r * d // 2].reshape(r, d // 2)
    nibbles = np.stack([column & 15, column >> 4], axis=-1).reshape(r, d).astype(int)
    basis = np.where(nibbles > 7, nibbles - 16, nibbles).T
    centroid = record[c["CENTROID"] :][:d].view(np.int8)
    codes = record[c["COEFFICIENTS"] :].view(np.int8)
    at = [[(t % half) * 2 * layout.modes + k // 2 * 4 + t // half * 2 + k % 2 for k in range(r)] for t in range(B)]
    kind = np.float16 if c["HALF_SCALES"] else np.float32
    s = kind(0).itemsize
    quads = record[c["QUADS"] :].reshape(layout.quads, c["QUAD_BYTES"])
    token = [quads[t % half // 2, (t // half * 2 + t % 2) * s :][:s].view(kind)[0] for t in range(B)]
    mode = [quads[k // 2, (4 + k % 2) * s :][:s].view(kind)[0] for k in range(r)]
    shared = {quads[q, 6 * s : 6 * s + 4].view(np.float32)[0] for q in range(layout.quads)}
    return centroid, shared, basis, mode, codes[np.array(at)], token


@pytest.mark.parametrize(
    ("B", "d", "r", "scales"), [(16, 64, 8, "float32"), (16, 64, 8, "float16"), (8, 80, 5, "float32")]
)
def test_a_record_holds_the_codes_of_the_quantised_summary(B, d, r, scales):
    keys = torch.randn(1, 2 * B, d, generator=torch.Generator().manual_seed(B))
    summary = locks_build_summary(key_pages=keys.reshape(1, 2, B, d), rank=r)
    wanted = {k: v.numpy() for k, v in locks_quantize_summary(**summary, basis_bits=4).items()}
    layout = Layout(B, d, r, 4, scales)
    records = layout.empty(1, 2, "cpu")
    build_records(contiguous_cache(keys, keys, B), layout, records)
    for page in range(2):
        centroid, shared, basis, mode, codes, token = unpack_record(records[0, page].numpy(), layout)
        kind = np.float16 if scales == "float16" else np.float32
        assert (centroid == wanted["centroid_codes"][0, page]).all()
        assert shared == {wanted["centroid_scale"][0, page]}
        assert (basis == wanted["basis_codes"][0, page]).all()
        assert (mode == wanted["basis_scale"][0, page].astype(kind)).all()
        assert (codes == wanted["coefficient_codes"][0, page]).all()
        assert (token == wanted["coefficient_scale"][0, page].astype(kind)).all()


def test_a_record_of_int4_and_rank_8_is_832_bytes_with_float16_scales_and_896_with_float32():
    assert [Layout(16, 128, 8, 4, s).bytes for s in ("float16", "float32")] == [832, 896]


@pytest.mark.parametrize("splits", [1, 3, 40])
def test_splits_change_nothing_where_all_values_are_equal_even_when_most_are_empty(splits):
    keys, values = torch.randn(1, 50, 64), torch.full((1, 50, 64), 4.0)
    output = kernels.attention(queries=torch.randn(1, 2, 64), keys=keys, values=values, splits=splits)["output"]
    np.testing.assert_array_max_ulp(output.numpy(), np.full((1, 2, 64), 4.0, np.float32), maxulp=4)  # sum, fade, divide


def test_building_one_more_page_leaves_the_others_as_they_were():
    keys = torch.randn(1, 48, 64)
    layout = Layout(16, 64, 8, 4, "float32")
    records = layout.empty(1, 3, "cpu")
    records.fill_(0)
    cache = contiguous_cache(keys, keys, 16)
    build_records(cache, layout, records, first_page=0, pages=2)
    before = records.clone()
    build_records(cache, layout, records, first_page=2, pages=1)
    assert torch.equal(records[:, :2], before[:, :2])
    assert not torch.equal(records[:, 2], before[:, 2])


def step(**changes):
    call = {
        "queries": torch.randn(1, 2, 64),
        "keys": torch.randn(1, 64, 64),
        "values": torch.randn(1, 64, 64),
        "rank": 8,
        "basis_bits": 4,
        "budget_tokens": 32,
        "page_size": 16,
    }
    return decode.locks_decode(**(call | changes))


def test_auto_attends_densely_where_selection_cannot_win():
    assert step(mode="auto")["pages"].shape == (1, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget_tokens": 16}, "budget_tokens: expected at least two pages"),
        ({"rank": 17}, "rank: expected in 1..16, got 17"),
        ({"basis_bits": 3}, "basis_bits: expected one of 2, 4, 8, 'fp', None, got 3"),
        ({"scales": "bfloat16"}, "scales: expected 'float32' or 'float16'"),
        ({"mode": "fast"}, "mode: expected 'locks' or 'auto'"),
        ({"keys": torch.zeros(1, 64, 32)}, "keys: expected shape"),
        ({"keys": torch.zeros(1, 64, 64, dtype=torch.float64)}, "keys: expected dtype float32, got float64"),
        ({"queries": np.zeros((1, 2, 64))}, "queries: expected a torch tensor, got ndarray"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    with pytest.raises(ArgumentError, match=message.replace("(", r"\(")):
        step(**changes)


@pytest.mark.parametrize(
    ("table", "tokens", "message"),
    [
        ([[0, 3]], [20], "block ids in 0..2, got 3"),
        ([[0]], [20], "expected 2 columns for 20 tokens, got 1"),
        ([[0, 1]], [-1], "expected lengths of at least 0, got -1"),
    ],
)
def test_a_bad_table_is_refused_before_the_launch(table, tokens, message):
    pool = torch.zeros(3, 16, 1, 64)
    with pytest.raises(ArgumentError, match=message):
        kernels.paged_attention(
            queries=torch.zeros(1, 1, 2, 64), key_pool=pool, value_pool=pool, block_table=torch.tensor(table),
            tokens=torch.tensor(tokens),
        )  # fmt: skip


def test_the_oracle_is_the_reference_oracle():
    from fastimpl.locks.oracle import exact_scores, oracle_decode
    from refimpl.locks import oracle as reference

    rng = np.random.default_rng(5)
    arrays = {"queries": rng.normal(size=(2, 3, 64)), "keys": rng.normal(size=(2, 165, 64))}
    arrays |= {"values": rng.normal(size=(2, 165, 64))}
    given = {name: torch.from_numpy(x.astype(np.float32)) for name, x in arrays.items()}
    exact = {name: x.astype(np.float32).astype(np.float64) for name, x in arrays.items()}
    settings = {"budget_tokens": 64, "page_size": 16}
    ours, right = oracle_decode(**given, **settings), reference.oracle_decode(**exact, **settings)
    np.testing.assert_array_equal(ours["pages"].numpy(), right["pages"])
    same = kernels.sparse_attention(**given, pages=ours["pages"], page_size=16)["output"]
    assert torch.equal(ours["output"], same)
    scores = exact_scores(queries=given["queries"], keys=given["keys"], page_size=16)
    wanted = reference.exact_scores(queries=exact["queries"], keys=exact["keys"], page_size=16)
    # a logit of 64 products below 8 * 8 / 8 each loses at most 66 roundings of 2^-24, the log-sum-exp a few more
    assert np.abs(scores.numpy() - wanted).max() < 80 * 2.0**-24 * np.abs(wanted).max() * 8
