"""Long rows of few distinct values: every selector prefers the lower index, whatever sort NumPy uses by default."""

import numpy as np
import pytest

from refimpl.baselines.choose import best, evict_tokens
from refimpl.locks.oracle import per_head_pages
from refimpl.locks.select import locks_select_pages
from refimpl.readkv.allocation import choose_depths_heap, choose_group_depths, readkv_choose_depths
from refimpl.readkv.policies import two_depth_schedule

ROW = np.random.default_rng(0).integers(0, 3, size=400) / 4.0
FALLING = sorted(range(400), key=lambda i: (-ROW[i], i))
INNER = [i for i in FALLING if i not in (0, 399)]


@pytest.mark.parametrize("kept", [1, 2, 57, 200, 398, 400, 401])
def test_the_best_of_a_row(kept):
    assert best(np.stack([ROW, ROW[::-1]]), kept)[0].tolist() == sorted(FALLING[:kept])


@pytest.mark.parametrize("kept", [3, 57, 200, 399])
def test_pages_between_sink_and_most_recent(kept):
    expected = sorted([0, 399, *INNER[: kept - 2]])
    assert locks_select_pages(shares=[ROW], budget_tokens=16 * kept, page_size=16).tolist() == [expected]
    scores = np.log(ROW + 1)[None, None]
    assert per_head_pages(scores=scores, budget_tokens=16 * kept, page_size=16).tolist() == [[expected]]


def test_protected_ends_count_inside_the_budget():
    kept = evict_tokens(scores=[ROW], budget_tokens=100, first_tokens=3, recent_tokens=40)[0]
    ends = [*range(3), *range(360, 400)]
    assert kept.tolist() == sorted([*ends, *[i for i in FALLING if i not in ends][:57]])


@pytest.mark.parametrize("count", [1, 57, 300])
def test_the_upper_depth_goes_to_the_first_among_equals(count):
    depths = two_depth_schedule(importance=ROW, lower=1, upper=8, budget=400 + 7 * count)
    assert np.flatnonzero(depths == 8).tolist() == sorted(FALLING[:count])


@pytest.mark.parametrize("budget", [0, 1, 57, 300, 523])
def test_refinements_in_order_of_gain_then_item(budget):
    """Gains 1/2 and 1/4: an item of weight 1/2 has its second refinement among the first of weight 1/4."""
    gains = np.array([0.5, 0.25])
    steps = sorted(((-ROW[i] * gains[t], i, t) for i in range(400) for t in (0, 1) if ROW[i]), key=lambda s: s[:2])
    expected = np.bincount([i for _, i, _ in steps[:budget]], minlength=400)
    arguments = {"importance": ROW, "gains": gains, "budget": budget}
    assert np.array_equal(readkv_choose_depths(**arguments), expected)
    assert np.array_equal(choose_depths_heap(**arguments), expected)
    ones = np.ones(400, dtype=np.int64)
    assert np.array_equal(choose_group_depths(**arguments, costs=ones, minimum_depth=0), expected)
