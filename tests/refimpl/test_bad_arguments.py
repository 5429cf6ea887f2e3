"""Refusals that concern a pair of arguments or an empty axis; single arguments: test_named_arguments.py."""

import numpy as np
import pytest
from valid_calls_locks import CALLS

from refimpl.attention import merge_attention, sparse_attention
from refimpl.checks import ArgumentError, Sizes, choice, integers, number, real, whole
from refimpl.locks import dialect
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.coverage import coverage, coverage_identity
from refimpl.locks.decode import locks_decode_paged
from refimpl.locks.quantize import locks_pack_basis
from refimpl.locks.select import locks_select_pages
from refimpl.paging import paged_attention, paged_sparse_attention

VALID = {function: {name: kind.value for name, kind in arguments.items()} for function, arguments in CALLS}


def refused(function, **spoilt):
    with pytest.raises(ArgumentError) as caught:
        function(**VALID[function] | spoilt)
    return str(caught.value)


def test_an_odd_number_of_channels_to_pack():
    message = refused(locks_pack_basis, basis_codes=np.zeros((1, 1, 3, 2), int))
    assert message == "basis_codes: expected an even number of channels, got d=3"


def test_a_page_listed_twice():
    assert (
        refused(sparse_attention, pages=[[0, 2], [1, 1]]) == "pages: expected distinct pages, got [1, 1] for KV head 1"
    )
    assert refused(coverage, pages=np.ones((2, 3, 2), int)).startswith("pages: expected distinct pages, got [1, 1] for")
    pages = [[[0, -1], [-1, -1]], [[1, 1], [0, 1]]]
    assert refused(paged_sparse_attention, pages=pages) == (
        "pages: expected distinct pages of a sequence of 7 tokens, got [1, 1] at [1, 0]"
    )


def test_a_page_beyond_its_own_sequence():
    """Seven tokens are two pages; the other sequence has four."""
    pages = [[[3], [3]], [[1], [2]]]
    assert refused(paged_sparse_attention, pages=pages) == (
        "pages: expected distinct pages of a sequence of 7 tokens, got [2] at [1, 1]"
    )


def test_more_tokens_than_the_table_has_columns_for():
    message = refused(paged_attention, tokens=[20, 21])
    assert message == "block_table: expected 5 columns for tokens[1]=21, got 4"
    paged_attention(**VALID[paged_attention] | {"tokens": [20, 20]})


def test_blocks_out_of_range_matter_only_where_they_are_used():
    table = [[0, 8, 3, 5], [2, 9, -1, 4]]
    message = refused(paged_attention, block_table=table)
    assert message == "block_table: expected block ids in 0..8, got [2, 9] in row 1"
    paged_attention(**VALID[paged_attention] | {"block_table": table, "tokens": [18, 5]})


def test_a_budget_below_sink_and_most_recent_page():
    message = refused(locks_select_pages, budget_tokens=5)
    assert message == "budget_tokens: expected at least two pages (sink and most recent) of 5 tokens, got 5"
    assert locks_select_pages(shares=[[0.5]], budget_tokens=5, page_size=5).tolist() == [[0]]


def test_nothing_to_merge_no_query_heads_no_pages():
    empty = {"outputs": np.zeros((0, 1, 1, 4)), "lses": np.zeros((0, 1, 1))}
    assert refused(merge_attention, **empty) == "outputs: expected at least one split, got S=0"
    assert refused(locks_page_shares, scores=np.zeros((1, 0, 3))) == (
        "scores: expected at least one query head, got G=0"
    )
    none = np.zeros((2, 0), int)
    assert refused(coverage_identity, pages=none) == "pages: expected at least one page per head, got none"


def test_the_first_bad_entry_is_the_one_that_is_reported():
    with pytest.raises(ArgumentError, match=r"^x: expected finite values, got inf at \[0, 1\]$"):
        real("x", [[0.0, np.inf], [np.nan, 0.0]], "m n", Sizes())
    with pytest.raises(ArgumentError, match=r"^x: expected values in 0\.\.3, got 4 at \[1\]$"):
        integers("x", [0, 4, -1], "n", Sizes(), low=0, high=3)


def test_a_shape_error_lists_the_sizes_that_are_known():
    sizes = Sizes({"H": 2, "d": 8})
    with pytest.raises(ArgumentError, match=r"^x: expected shape \[H, T, d\] with H=2, d=8, got \[2, 5, 4\]$"):
        real("x", np.zeros((2, 5, 4)), "H T d", sizes)
    assert sizes == {"H": 2, "d": 8}
    with pytest.raises(ArgumentError, match=r"^x: expected shape \[d, d\], got \[2, 3\]$"):
        real("x", np.zeros((2, 3)), "d d", Sizes())


def test_an_empty_list_of_integers_needs_no_type():
    """np.asarray([]) has dtype float64."""
    assert integers("pages", [], "K", Sizes()).dtype == np.int64


def test_no_sequences_have_no_pages():
    for step in (locks_decode_paged, dialect.decode_paged):
        arguments = {n: v for n, v in VALID[step].items() if n not in ("queries", "block_table", "tokens")}
        empty = {"queries": np.zeros((0, 2, 3, 8)), "block_table": np.zeros((0, 4), int), "tokens": np.zeros(0, int)}
        result = step(**arguments, **empty)
        assert (result["output"].shape, result["pages"].shape) == ((0, 2, 3, 8), (0, 2, 0))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: whole("x", 0, low=1), "x: expected at least 1, got 0"),
        (lambda: whole("x", 5, high=4), "x: expected at most 4, got 5"),
        (lambda: whole("x", 9, low=0, high=8), "x: expected in 0..8, got 9"),
        (lambda: whole("x", 2.0), "x: expected a whole number, got 2.0"),
        (lambda: number("x", "2"), "x: expected a finite number, got '2'"),
        (lambda: number("x", -0.5, low=0), "x: expected a number of at least 0, got -0.5"),
        (lambda: number("x", 0, above=0), "x: expected a number above 0, got 0"),
        (lambda: choice("x", 4.0, (2, 4, "fp")), "x: expected one of 2, 4, 'fp', got 4.0"),
        (lambda: real("x", ["a"], "n", Sizes()), "x: expected real numbers, got dtype <U1"),
        (lambda: integers("x", [0.5], "n", Sizes()), "x: expected integers, got dtype float64"),
        (lambda: integers("x", [-1], "n", Sizes(), low=0), "x: expected values in 0..None, got -1 at [0]"),
    ],
)
def test_the_whole_text_of_every_check(check, message):
    with pytest.raises(ArgumentError) as caught:
        check()
    assert str(caught.value) == message


def test_what_checks_return():
    assert [type(whole("x", v)) for v in (3, np.int8(3))] == [int, int]
    assert [type(number("x", v)) for v in (3, np.float32(3), True + 0.0)] == [float] * 3
    assert real("x", [[1, 2]], "m n", Sizes()).dtype == np.float64
    assert real("x", np.array([-np.inf]), "n", Sizes(), minus_infinity=True).tolist() == [-np.inf]
    assert np.isnan(real("x", [np.nan], "n", Sizes(), read_later=True)).all()
    assert integers("x", np.array([7], dtype=np.uint8), "n", Sizes(), low=0, high=7).dtype == np.int64
    sizes = Sizes()
    real("x", np.zeros((2, 8)), "m 8", sizes)
    assert sizes == {"m": 2}
