import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refimpl.checks import ArgumentError
from refimpl.readkv.codec import readkv_decode
from refimpl.readkv.planes import (
    append_key_planes,
    append_value_planes,
    read_key_prefixes,
    read_value_prefixes,
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
)

code_matrices = st.tuples(st.integers(0, 20), st.integers(1, 11)).flatmap(lambda s: arrays(np.uint8, s))


@given(code_matrices)
def test_key_bits_lie_where_the_format_says(codes):
    T, d = codes.shape
    planes = readkv_pack_key_planes(codes=codes)
    assert planes.shape == (8, d, -(-T // 8))
    for p, c, slot in np.ndindex(8, d, 8 * planes.shape[2]):
        bit = int(codes[slot, c]) >> (7 - p) & 1 if slot < T else 0  # padding is 0
        assert int(planes[p, c, slot // 8]) >> (slot % 8) & 1 == bit


@given(code_matrices)
def test_value_planes_are_key_planes_of_the_transpose(codes):
    assert (readkv_pack_value_planes(codes=codes.T) == readkv_pack_key_planes(codes=codes)).all()


@given(code_matrices, st.integers(0, 255))
def test_unpacking_undoes_packing_whatever_the_padding_holds(codes, garbage):
    T, d = codes.shape
    keys, values = readkv_pack_key_planes(codes=codes), readkv_pack_value_planes(codes=codes)
    if T % 8:
        keys[:, :, -1] |= np.uint8(garbage << T % 8 & 255)
    if d % 8:
        values[:, :, -1] |= np.uint8(garbage << d % 8 & 255)
    assert (readkv_unpack_key_planes(planes=keys, tokens=T) == codes).all()
    assert (readkv_unpack_value_planes(planes=values, channels=d) == codes).all()


@given(code_matrices, st.integers(0, 20))
def test_appending_gives_the_planes_of_all_tokens(codes, cut):
    T, d = codes.shape
    cut = min(cut, T)
    keys = append_key_planes(planes=readkv_pack_key_planes(codes=codes[:cut]), tokens=cut, codes=codes[cut:])
    values = append_value_planes(planes=readkv_pack_value_planes(codes=codes[:cut]), channels=d, codes=codes[cut:])
    assert (keys == readkv_pack_key_planes(codes=codes)).all()
    assert (values == readkv_pack_value_planes(codes=codes)).all()


@given(code_matrices, st.data())
def test_prefix_reads_never_look_at_deeper_planes(codes, data):
    T, d = codes.shape
    key_depths = data.draw(arrays(np.int64, d, elements=st.integers(0, 8)))
    value_depths = data.draw(arrays(np.int64, T, elements=st.integers(0, 8)))
    keys, values = readkv_pack_key_planes(codes=codes), readkv_pack_value_planes(codes=codes)
    for plane in range(8):
        keys[plane, key_depths <= plane] = data.draw(st.integers(0, 255))
        values[plane, value_depths <= plane] = data.draw(st.integers(0, 255))
    read_keys = read_key_prefixes(planes=keys, depths=key_depths, tokens=T)
    read_values = read_value_prefixes(planes=values, depths=value_depths, channels=d)
    masks = 256 - (256 >> np.arange(9))  # the first t bits
    assert np.array_equal(read_keys, codes & masks[key_depths])
    assert np.array_equal(read_values, codes & masks[value_depths][:, None])
    full_keys = readkv_decode(codes=codes, depth=key_depths)
    full_values = readkv_decode(codes=codes, depth=value_depths[:, None])
    assert (readkv_decode(codes=read_keys, depth=key_depths) == full_keys).all()
    assert (readkv_decode(codes=read_values, depth=value_depths[:, None]) == full_values).all()


def test_golden_bytes():
    codes = np.array([[0b10000000, 0b00000001]] + [[0, 0]] * 8 + [[0b10000001, 0]])  # 10 tokens, 2 channels
    keys = readkv_pack_key_planes(codes=codes)
    assert keys[0].tolist() == [[1, 2], [0, 0]]
    assert keys[7].tolist() == [[0, 2], [1, 0]]
    values = readkv_pack_value_planes(codes=codes)
    assert values[0, [0, 9]].tolist() == [[1], [1]]
    assert values[7, [0, 9]].tolist() == [[2], [1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readkv_pack_key_planes(codes=[[256]]), "codes: expected values in 0..255"),
        (lambda: readkv_pack_key_planes(codes=[1, 2]), "codes: expected shape"),
        (lambda: readkv_pack_value_planes(codes=[[0.5]]), "codes: expected integers"),
        (lambda: readkv_unpack_key_planes(planes=np.zeros((8, 2, 2), np.uint8), tokens=8), "planes: expected"),
        (lambda: readkv_unpack_key_planes(planes=np.zeros((7, 2, 1), np.uint8), tokens=8), "planes: expected"),
        (lambda: readkv_unpack_key_planes(planes=np.zeros((8, 2, 1), np.uint8), tokens=-1), "tokens: expected"),
        (lambda: readkv_unpack_value_planes(planes=np.zeros((8, 2, 1), np.uint8), channels=9), "planes: expected"),
        (lambda: read_key_prefixes(planes=np.zeros((8, 2, 1), np.uint8), depths=[1, 9], tokens=3), "depths: expected"),
        (lambda: read_value_prefixes(planes=np.zeros((8, 2, 1), np.uint8), depths=[1], channels=3), "depths: expected"),
        (
            lambda: append_key_planes(planes=np.zeros((8, 2, 1), np.uint8), tokens=3, codes=np.zeros((1, 3), int)),
            "codes: expected shape",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
