"""Streams in fixed memory: percentiles against NumPy's, merging, and travel between processes."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proofs_checks.microscope.accumulate import Histogram, LogHistogram, Mean, Results, Values


@given(st.lists(st.floats(1e-6, 1e2), min_size=1, max_size=60), st.floats(0, 100))
def test_log_percentiles_agree_with_numpy(values, percent):
    histogram = LogHistogram()
    histogram.add(np.array(values))
    exact = np.percentile(values, percent)
    # half a bin of 1e-5 decades around each of the two order statistics, plus their difference's share of it
    assert abs(histogram.percentile(percent) - exact) <= (10 ** (0.51e-5) - 1) * max(values)
    assert histogram.largest_magnitude == max(values)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=40), st.integers(0, 40), st.floats(0, 100))
def test_merging_is_adding_together(values, cut, percent):
    whole, first, second = (Histogram(-3.0, 3.0, 600) for _ in range(3))
    whole.add(np.array(values))
    first.add(np.array(values[:cut]))
    second.add(np.array(values[cut:]))
    first.merge(second)
    assert np.array_equal(first.counts, whole.counts)
    assert (first.smallest, first.largest) == (min(values), max(values))
    assert first.percentile(percent) == whole.percentile(percent)


def test_histograms_travel_with_their_filled_bins_only():
    histogram = LogHistogram()
    histogram.add(np.array([0.5, 2.0, 2.0]))
    packed = pickle.dumps(histogram)
    back = pickle.loads(packed)
    assert len(packed) < 10_000  # the array itself is 12 MB
    assert np.array_equal(back.counts, histogram.counts)
    assert back.largest_magnitude == 2.0


def test_zero_and_huge_errors_fall_into_the_end_bins():
    histogram = LogHistogram()
    histogram.add(np.array([0.0, 1e9]))
    assert histogram.count == 2
    assert histogram.largest_magnitude == 1e9


def test_no_observation_has_no_percentile_and_no_mean():
    assert Histogram(0.0, 1.0, 4).percentile(50) is None
    assert Mean().value is None
    assert Values().array.size == 0


def test_results_merge_key_by_key():
    one, two = Results(), Results()
    one.at(Mean, "a").add(np.array([1.0]))
    two.at(Mean, "a").add(np.array([3.0]))
    two.at(Values, "b").add(np.array([5.0]))
    merged = one.merge(two)
    assert merged["a",].value == 2.0
    assert merged["b",].array.tolist() == [5.0]
