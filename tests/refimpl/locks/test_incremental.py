"""Pages that are built when they fill equal pages that are built together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.locks.incremental import SummaryBuilder
from refimpl.locks.summary import locks_build_summary
from refimpl.paging import split_pages


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 2**32 - 1))
def test_any_arrival_gives_the_batched_build(pieces, seed):
    keys = np.random.default_rng(seed).standard_normal((2, sum(pieces), 5))
    builder, start = SummaryBuilder(kv_heads=2, head_size=5, page_size=4, rank=3), 0
    completed = 0
    for length in pieces:
        completed += builder.append(keys[:, start : start + length])
        start += length
    pages, open_page = split_pages(keys, 4)
    batched = locks_build_summary(key_pages=pages, rank=3)
    assert completed == pages.shape[1]
    assert np.array_equal(builder.open_page, open_page)
    for name, array in batched.items():
        assert np.array_equal(builder.summary[name], array), name


def test_the_open_page_has_no_summary():
    builder = SummaryBuilder(kv_heads=1, head_size=2, page_size=4, rank=1)
    assert builder.append(np.ones((1, 3, 2))) == 0
    assert builder.summary["centroid"].shape == (1, 0, 2)


def test_another_shape_is_refused():
    builder = SummaryBuilder(kv_heads=1, head_size=2, page_size=4, rank=1)
    with pytest.raises(ArgumentError, match="keys"):
        builder.append(np.ones((2, 3, 2)))


def test_keys_of_another_head_size_are_refused():
    builder = SummaryBuilder(kv_heads=2, head_size=4, page_size=3, rank=1)
    with pytest.raises(ArgumentError, match=r"keys: expected shape \[H, n, d\] with H=2, d=4, got \[2, 1, 5\]"):
        builder.append(np.zeros((2, 1, 5)))
    assert builder.append(np.zeros((2, 0, 4))) == 0
