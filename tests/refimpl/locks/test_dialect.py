"""The dialect locks-kv 0.1.4: with no switch the paper, with every switch the documented departures."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proofs_checks.bounds.common import gamma
from refimpl.checks import ArgumentError
from refimpl.locks import dialect
from refimpl.locks.decode import locks_decode
from refimpl.locks.dialect import LOCKS_KV_0_1_4, PAPER
from refimpl.locks.quantize import locks_dequantize_summary, locks_quantize_summary
from refimpl.locks.score import locks_score_pages
from refimpl.locks.summary import locks_build_summary, reconstruct

EPS = np.finfo(float).eps


def pages(seed, shape=(2, 5, 4, 6)):
    return np.random.default_rng(seed).standard_normal(shape)


def test_the_paper_profile_is_the_paper():
    rng = np.random.default_rng(0)
    queries, keys, values = (
        rng.standard_normal((2, 3, 6)),
        rng.standard_normal((2, 22, 6)),
        rng.standard_normal((2, 22, 6)),
    )
    arguments = {"queries": queries, "keys": keys, "values": values, "rank": 3, "basis_bits": 4, "page_size": 4}
    ours = dialect.decode(PAPER, **arguments, budget_tokens=16)
    papers = locks_decode(**arguments, budget_tokens=16)
    assert np.array_equal(ours["pages"], papers["pages"])
    assert np.array_equal(ours["output"], papers["output"])


def test_every_switch_of_the_dialect_is_a_departure():
    switches = dialect.departures(LOCKS_KV_0_1_4)
    assert set(switches) == {
        "query_int8", "scale_bf16", "eigenvalue_floor", "scale_floor", "ascending", "combine", "forced_inside_budget"
    }  # fmt: skip
    assert dialect.departures(PAPER) == {}


@given(arrays(np.float32, 20, elements=st.floats(-(2.0**126), 2.0**126, width=32)))
def test_bf16_rounds_as_ml_dtypes(x):
    assert np.array_equal(dialect.to_bf16(x.astype(np.float64)), x.astype(ml_dtypes.bfloat16).astype(np.float64))


def test_build_stores_the_largest_mode_last_and_reconstructs_the_same_keys():
    key_pages = pages(1)
    built = dialect.build_summary(LOCKS_KV_0_1_4, key_pages=key_pages, rank=3)
    papers = locks_build_summary(key_pages=key_pages, rank=3)
    energy = (built["coefficients"] ** 2).sum(axis=2)
    assert (np.diff(energy, axis=-1) > 0).all()
    # 4 keys have 3 modes, so both rebuild the page. The Gram matrix errs by E (means and inner products, and U times
    # the solver's order), its modes turn by E / sigma_3^2, and so much of the page's norm is lost; SVD errs by less
    B, d = key_pages.shape[-2:]
    norm = np.linalg.norm(key_pages, axis=(2, 3))
    least = np.sqrt((papers["coefficients"] ** 2).sum(axis=2)).min(axis=-1)
    slack = 2 * (gamma(d + B + 5, EPS / 2) + (B + d) * EPS / 2) * (norm / least) ** 2 * norm
    assert (np.abs(reconstruct(**built) - reconstruct(**papers)).max(axis=(2, 3)) <= slack).all()


def test_a_page_of_identical_keys_keeps_modes_of_the_floor():
    flat = np.ones((1, 1, 4, 6))
    built = dialect.build_summary(LOCKS_KV_0_1_4, key_pages=flat, rank=2)
    lengths = np.sqrt((built["coefficients"] ** 2).sum(axis=2))
    assert np.abs(lengths - 1e-5).max() <= 8 * EPS * 1e-5 * 4  # unit vectors of the eigensolver, times sqrt(1e-10)
    assert not locks_build_summary(key_pages=flat, rank=2)["coefficients"].any()


def test_codes_are_the_papers_and_scales_are_rounded_afterwards():
    built = locks_build_summary(key_pages=pages(2), rank=3)
    ours = dialect.quantize_summary(LOCKS_KV_0_1_4, **built, basis_bits=4)
    papers = locks_quantize_summary(**built, basis_bits=4)
    for name in ("centroid", "basis", "coefficient"):
        assert np.array_equal(ours[f"{name}_codes"], papers[f"{name}_codes"])
        rounded = papers[f"{name}_scale"].astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
        assert np.array_equal(ours[f"{name}_scale"], rounded)


def test_zero_lines_have_the_floor_as_scale_and_codes_0():
    zeros = {"centroid": np.zeros((1, 1, 2)), "basis": np.zeros((1, 1, 2, 1)), "coefficients": np.zeros((1, 1, 3, 1))}
    codes = dialect.quantize_summary(LOCKS_KV_0_1_4, **zeros, basis_bits=4)
    assert not any(codes[f"{name}_codes"].any() for name in ("centroid", "basis", "coefficient"))
    floor = float(np.float32(1e-8).astype(ml_dtypes.bfloat16))
    assert codes["basis_scale"].tolist() == [[[floor]]]


def test_one_rounded_query_meets_basis_and_centroid():
    summary = locks_dequantize_summary(
        **locks_quantize_summary(**locks_build_summary(key_pages=pages(3), rank=2), basis_bits=8)
    )
    queries = np.random.default_rng(4).standard_normal((2, 3, 6))
    scale = np.abs(queries).max(axis=-1, keepdims=True) / 127
    rounded = np.rint(queries / scale) * scale
    ours = dialect.score_pages(LOCKS_KV_0_1_4, queries=queries, **summary)
    assert np.array_equal(ours, locks_score_pages(queries=rounded, **summary))
    assert np.array_equal(
        dialect.score_pages(PAPER, queries=queries, **summary), locks_score_pages(queries=queries, **summary)
    )


def test_peak_leaves_out_the_most_recent_page():
    """Head peaks 4 and 2 among pages 0..2; the recent page's 100 would change both if it counted."""
    scores = np.log([[[4.0, 1.0, 2.0, 100.0], [2.0, 2.0, 1.0, 100.0]]])
    values = dialect.page_values(LOCKS_KV_0_1_4, scores=scores)
    expected = [4 / 4 + 2 / 2, 1 / 4 + 2 / 2, 2 / 4 + 1 / 2, 0.0]
    assert np.abs(values[0] - expected).max() <= 16 * EPS  # one log, one exp and one sum of values up to 2
    assert dialect.page_values(LOCKS_KV_0_1_4, scores=np.full((1, 2, 3), -np.inf)).tolist() == [[0.0, 0.0, 0.0]]


def test_share_average_and_peak_normalised_disagree_by_hand():
    """Shares out of 100: page 1 has 30 + 5, page 2 has 28 + 6. Head 1's peak outside the recent page is 6, not 86.

    Peaks: page 1 has 30/30 + 5/6 = 1.833, page 2 has 28/30 + 6/6 = 1.933.
    """
    scores = np.log([[[1.0, 30.0, 28.0, 20.0, 20.0, 1.0], [1.0, 5.0, 6.0, 1.0, 1.0, 86.0]]])
    chosen = {
        profile.name: dialect.select_pages(
            profile, values=dialect.page_values(profile, scores=scores), budget_tokens=size, page_size=1
        ).tolist()
        for profile, size in ((PAPER, 3), (LOCKS_KV_0_1_4, 1))
    }
    assert chosen == {"paper": [[0, 1, 5]], "locks-kv-0.1.4": [[0, 2, 5]]}


def test_budget_leaves_out_the_forced_pages():
    values = np.arange(8.0)[None]
    assert dialect.select_pages(PAPER, values=values, budget_tokens=16, page_size=4).tolist() == [[0, 5, 6, 7]]
    assert dialect.select_pages(LOCKS_KV_0_1_4, values=values, budget_tokens=8, page_size=4).tolist() == [[0, 5, 6, 7]]
    assert dialect.select_pages(LOCKS_KV_0_1_4, values=values, budget_tokens=1, page_size=4).tolist() == [[0, 6, 7]]


@pytest.mark.parametrize(
    ("tokens", "budget_pages", "kept"),
    [
        (0, 4, 0),
        (1, 4, 1),
        (48, 4, 3),
        (49, 1, 3),
        (49, 2, 4),
        (1024, 4, 6),
        (1024, 126, 64),
        (1024, 0, 9),
        (1025, 0, 9),
    ],
)
def test_pages_that_the_package_keeps(tokens, budget_pages, kept):
    """n = ceil(T/16); n - 2 pages lie between the forced ones; at most one of them: all are kept; 0 means a tenth."""
    assert dialect.budget_of_package(tokens, 16, budget_pages) == kept


def test_decode_in_the_dialect_reads_two_pages_more():
    rng = np.random.default_rng(5)
    keys = rng.standard_normal((1, 42, 6))
    arguments = {"queries": rng.standard_normal((1, 2, 6)), "keys": keys, "values": keys, "rank": 3, "basis_bits": 4}
    paper = dialect.decode(PAPER, **arguments, budget_tokens=20, page_size=4)["pages"]
    package = dialect.decode(LOCKS_KV_0_1_4, **arguments, budget_tokens=20, page_size=4)["pages"]
    assert (paper.shape, package.shape) == ((1, 5), (1, 7))


@pytest.mark.parametrize("profile", [PAPER, LOCKS_KV_0_1_4])
def test_a_step_without_tokens(profile):
    empty = np.zeros((2, 0, 4))
    step = dialect.decode(
        profile,
        queries=np.ones((2, 3, 4)),
        keys=empty,
        values=empty,
        rank=1,
        basis_bits=4,
        budget_tokens=8,
        page_size=4,
    )
    assert step["output"].tolist() == np.zeros((2, 3, 4)).tolist()
    assert (step["pages"].shape, step["pages"].dtype) == ((2, 0), np.int64)


def test_a_step_of_one_token_is_that_token():
    values = np.array([[[3.0, -1.0]]])
    step = dialect.decode(
        LOCKS_KV_0_1_4, queries=[[[1.0, 2.0]]], keys=[[[4.0, 5.0]]], values=values, rank=1, basis_bits=4,
        budget_tokens=1, page_size=1,
    )  # fmt: skip
    assert (step["pages"].tolist(), step["output"].tolist()) == ([[0]], values.tolist())


def test_paged_steps_of_every_dialect_are_the_steps_of_the_gathered_sequences():
    rng = np.random.default_rng(3)
    pool = {name: rng.standard_normal((9, 4, 2, 6)) for name in ("key_pool", "value_pool")}
    queries, tokens = rng.standard_normal((3, 2, 3, 6)), [22, 0, 9]
    table = np.array([[3, 0, 7, 8, 1, 2], [-1] * 6, [4, 6, 5, -1, -1, -1]])
    settings = {"rank": 2, "basis_bits": 4, "budget_tokens": 12}
    for profile in (PAPER, LOCKS_KV_0_1_4):
        paged = dialect.decode_paged(profile, queries=queries, **pool, block_table=table, tokens=tokens, **settings)
        for n, T in enumerate(tokens):
            keys, values = (
                np.moveaxis(pool[name][table[n]].reshape(-1, 2, 6)[:T], 0, 1) for name in ("key_pool", "value_pool")
            )
            one = dialect.decode(profile, queries=queries[n], keys=keys, values=values, page_size=4, **settings)
            kept = one["pages"].shape[1]
            assert np.array_equal(paged["output"][n], one["output"])
            assert np.array_equal(paged["pages"][n, :, :kept], one["pages"])
            assert (paged["pages"][n, :, kept:] == -1).all()


@pytest.mark.parametrize(
    ("tokens", "budget_pages", "fraction", "kept"),
    [
        (48, 1, 0.1, 3),  # one page between sink and most recent: all are kept
        (64, 1, 0.1, 3),  # two between them, one of these
        (64, 99, 0.1, 4),
        (192, 0, 0.1, 3),  # ceil(0.1 * 10) = 1
        (192, 0, 0.11, 4),  # ceil(1.1) = 2
        (192, 0, 0.0, 3),  # at least one
        (512, 1, 0.1, 3),  # a budget of pages is not a fraction: 0.1 of 30 would be 3
        (0, 0, 0.1, 0),
        (16, 5, 0.1, 1),
    ],
)
def test_the_budget_of_the_package(tokens, budget_pages, fraction, kept):
    assert dialect.budget_of_package(tokens, 16, budget_pages, fraction) == kept


def test_a_departure_carries_the_switchs_name_and_nothing_else():
    for name, profile in dialect.departures(LOCKS_KV_0_1_4).items():
        assert profile.name == name
        changed = {f for f in vars(PAPER) if getattr(profile, f) != getattr(PAPER, f)}
        assert changed == {"name", name}
        assert getattr(profile, name) == getattr(LOCKS_KV_0_1_4, name)


def test_queries_below_the_floor_of_the_scale():
    """1e-9 is 12.7 steps of 1e-8 / 127, so 13 of them."""
    assert dialect.round_queries(np.array([[1e-9, 0.0]])).tolist() == [[13 * (1e-8 / 127), 0.0]]
    assert dialect.round_queries(np.zeros((2, 0))).shape == (2, 0)


def test_a_combine_that_no_dialect_has():
    with pytest.raises(ArgumentError, match="combine: expected one of 'share_average', 'peak_normalised', got 'sum'"):
        dialect.page_values(dialect.Profile(combine="sum"), scores=[[[0.0]]])
