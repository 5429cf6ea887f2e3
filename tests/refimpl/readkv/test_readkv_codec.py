from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.codec import decode, encode, readkv_decode, readkv_encode
from refimpl.readkv.tree import deployed_table

LEAF_EDGES = sorted(float(t) for level in deployed_table().thresholds for t in level)


def test_the_path_ends_in_the_leaf_that_holds_the_value():
    z = np.concatenate([np.random.default_rng(0).normal(size=2000) * 2, LEAF_EDGES, [-50.0, 50.0]])
    # 255 sorted splits: the leaf index counts those at or below z, which is independent of any path
    assert readkv_encode(z=z).tolist() == [bisect_right(LEAF_EDGES, float(v)) for v in z]


def test_a_value_on_a_split_goes_up_and_one_ulp_below_goes_down():
    edges = np.array(LEAF_EDGES)
    below = np.nextafter(edges, -np.inf)
    assert readkv_encode(z=edges).tolist() == list(range(1, 256))
    assert readkv_encode(z=below).tolist() == list(range(255))
    assert readkv_encode(z=[0.0, -0.0]).tolist() == [128, 128]


def test_every_code_decodes_at_every_depth_to_the_tables_centroid():
    table = deployed_table()
    codes = np.arange(256)
    for depth in range(9):
        expected = [float(table.centroids[depth][code // 2 ** (8 - depth)]) for code in codes]
        assert readkv_decode(codes=codes, depth=depth).tolist() == expected


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=20), st.integers(0, 7))
def test_a_longer_prefix_refines_the_shorter_ones_interval(z, depth):
    codes = readkv_encode(z=z)
    shallow, deep = readkv_decode(codes=codes, depth=depth), readkv_decode(codes=codes, depth=depth + 1)
    siblings = readkv_decode(codes=codes ^ np.uint8(1 << (7 - depth)), depth=depth + 1)
    assert ((np.minimum(deep, siblings) < shallow) & (shallow < np.maximum(deep, siblings))).all()


@given(st.lists(st.floats(-8, 8), max_size=40), st.integers(0, 40))
def test_encoding_in_two_calls_gives_the_same_codes(z, cut):
    parts = np.concatenate([readkv_encode(z=np.array(z[:cut], float)), readkv_encode(z=np.array(z[cut:], float))])
    assert parts.tolist() == readkv_encode(z=np.array(z, float)).tolist()


def test_depth_arrays_broadcast_over_tokens_and_channels():
    codes = np.array([[[255, 255], [255, 255]]])
    per_channel = readkv_decode(codes=codes, depth=np.array([[[0, 1]]]))
    per_token = readkv_decode(codes=codes, depth=np.array([[[0], [1]]]))
    c1 = float(deployed_table().centroids[1][1])
    assert per_channel.tolist() == [[[0.0, c1], [0.0, c1]]]
    assert per_token.tolist() == [[[0.0, 0.0], [c1, c1]]]


@pytest.mark.parametrize("leaf_depth", [1, 3, 8, 9, 12])
def test_other_leaf_depths(leaf_depth):
    centroids = deployed_table(leaf_depth).centroids[leaf_depth].astype(float)
    codes = encode(z=centroids, leaf_depth=leaf_depth)
    assert codes.tolist() == list(range(2**leaf_depth))  # a leaf holds its own centroid
    assert codes.dtype == (np.uint8 if leaf_depth <= 8 else np.uint16)
    assert (decode(codes=codes, depth=leaf_depth, leaf_depth=leaf_depth) == centroids).all()


def test_zero_length_arrays():
    assert readkv_encode(z=np.zeros((3, 0))).shape == (3, 0)
    assert readkv_decode(codes=np.zeros((3, 0), np.uint8), depth=4).shape == (3, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readkv_encode(z=[0.0, np.nan]), r"z: expected finite values, got nan at \[1\]"),
        (lambda: readkv_encode(z=[np.inf]), "z: expected finite values"),
        (lambda: readkv_encode(z=["a"]), "z: expected real numbers"),
        (lambda: readkv_decode(codes=[256], depth=8), r"codes: expected values in 0..255, got 256 at \[0\]"),
        (lambda: readkv_decode(codes=[-1], depth=8), "codes: expected values in 0..255"),
        (lambda: readkv_decode(codes=[1], depth=9), "depth: expected values in 0..8"),
        (lambda: readkv_decode(codes=[1, 2], depth=[1, 2, 3]), r"depth: expected a shape that broadcasts to \[2\]"),
        (lambda: readkv_decode(codes=[1, 2], depth=[[1], [2]]), r"depth: expected a shape that broadcasts to \[2\]"),
        (lambda: decode(codes=[8], depth=3, leaf_depth=3), "codes: expected values in 0..7"),
        (lambda: encode(z=[0.0], leaf_depth=13), "leaf_depth: expected in 1..12"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
