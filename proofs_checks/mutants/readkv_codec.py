"""Wrong rotations, encoders, decoders and bit planes."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.attention import _tf32
from proofs_checks.mutants.registry import mutant
from refimpl.readkv.codec import readkv_decode, readkv_encode
from refimpl.readkv.planes import (
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
)
from refimpl.readkv.rotation import fast_hadamard, readkv_rotate
from refimpl.readkv.tree import deployed_table

R = "readkv_rotate"


@mutant("rotate-unscaled", R, "E", "the factor 1/sqrt(d) is missing")
def rotate_unscaled(*, x: Any, signs: Any) -> Any:
    """E3: the default scale is 1."""
    return fast_hadamard(x.astype(float) * signs)


@mutant("rotate-signs-after", R, "E", "signs are applied after the transform")
def signs_after(*, x: Any, signs: Any) -> Any:
    """U24's kind: the transpose."""
    return fast_hadamard(x.astype(float)) * signs / np.sqrt(x.shape[-1])


@mutant("rotate-no-signs", R, "E", "signs are not applied")
def no_signs(*, x: Any, signs: Any) -> Any:
    """U24."""
    return readkv_rotate(x=x, signs=np.ones(len(signs)))


@mutant("rotate-fixed-scale", R, "E", "the scale is 1/8 whatever the width")
def fixed_scale(*, x: Any, signs: Any) -> Any:
    """Right at d = 64."""
    return fast_hadamard(x.astype(float) * signs) / 8


@mutant("rotate-round-missing", R, "E", "the last round of the butterfly is left out")
def round_missing(*, x: Any, signs: Any) -> Any:
    """Two halves are transformed apart."""
    d = x.shape[-1]
    halves = (x.astype(float) * signs).reshape(*x.shape[:-1], 2, d // 2)
    return (fast_hadamard(halves) / np.sqrt(d // 2)).reshape(x.shape)


@mutant("rotate-wrong-sign-in-butterfly", R, "E", "second outputs of a round are b - a instead of a - b")
def butterfly_sign(*, x: Any, signs: Any) -> Any:
    """Still orthogonal."""
    x, half = x.astype(float) * signs, 1
    d = x.shape[-1]
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 1, :] - pairs[..., 0, :]], axis=-2)
        x = x.reshape(*x.shape[:-3], d)
        half *= 2
    return x / np.sqrt(d)


@mutant("rotate-padded", R, "E", "widths that are no power of two are padded with zeros and cut")
def padded(*, x: Any, signs: Any) -> Any:
    """E2."""
    d = x.shape[-1]
    width = 2 ** int(np.ceil(np.log2(d)))
    wide = np.zeros((*x.shape[:-1], width))
    wide[..., :d] = x * signs
    return fast_hadamard(wide)[..., :d] / np.sqrt(d)


@mutant("rotate-tf32", R, "I", "the matrix product runs in TF32")
def rotate_tf32(*, x: Any, signs: Any) -> Any:
    """I1."""
    return readkv_rotate(x=_tf32(x), signs=signs)


E = "readkv_encode"


@mutant("encode-last-split-first", E, "D", "the first split is the least significant bit")
def lsb_first(*, z: Any) -> Any:
    """Prefixes are lost."""
    codes = readkv_encode(z=z)
    return np.packbits(np.unpackbits(codes[..., None], axis=-1)[..., ::-1], axis=-1)[..., 0]


@mutant("encode-one-for-lower", E, "D", "a bit of 1 means the lower child")
def complement(*, z: Any) -> Any:
    """All bits flipped."""
    return ~readkv_encode(z=z)


@mutant("encode-nearest-leaf", E, "F", "the nearest of the 256 leaf values is taken")
def nearest_leaf(*, z: Any) -> Any:
    """A flat quantiser: another one than the tree."""
    leaves = deployed_table().centroids[8].astype(float)
    return np.searchsorted((leaves[1:] + leaves[:-1]) / 2, z, side="right").astype(np.uint8)


@mutant("encode-seven-levels", E, "F", "the last split is not made")
def seven(*, z: Any) -> Any:
    """F1: half of the codes are unused."""
    return readkv_encode(z=z) & np.uint8(254)


@mutant("encode-half-precision", E, "F", "z and splits are compared in float16")
def half_compare(*, z: Any) -> Any:
    """The splits move."""
    node = np.zeros(z.shape, dtype=np.int64)
    with np.errstate(over="ignore"):
        for thresholds in deployed_table().thresholds:
            node = 2 * node + (z.astype(np.float16) >= thresholds.astype(np.float16)[node])
    return node.astype(np.uint8)


@mutant("encode-clipped", E, "F", "z is clipped to +-3: the outermost leaves are unused")
def clipped(*, z: Any) -> Any:
    """F1."""
    return readkv_encode(z=np.clip(z, -3, 3))


C = "readkv_decode"


@mutant("decode-low-bits", C, "D", "the prefix is taken from the low bits")
def low_bits(*, codes: Any, depth: Any) -> Any:
    """Least significant bit first."""
    return readkv_decode(codes=(codes.astype(np.int64) << (8 - np.asarray(depth))) & 255, depth=depth)


@mutant("decode-one-bit-more", C, "D", "a prefix of depth t is read to t + 1")
def one_more(*, codes: Any, depth: Any) -> Any:
    """Depth off by one."""
    return readkv_decode(codes=codes, depth=np.minimum(np.asarray(depth) + 1, 8))


@mutant("decode-depth-0-as-1", C, "D", "depth 0 is read as depth 1")
def zero_as_one(*, codes: Any, depth: Any) -> Any:
    """AMB-22."""
    return readkv_decode(codes=codes, depth=np.maximum(np.asarray(depth), 1))


@mutant("decode-two-bits-at-most", C, "F", "the table has four centroids whatever the depth")
def four_centroids(*, codes: Any, depth: Any) -> Any:
    """F4."""
    return readkv_decode(codes=codes, depth=np.minimum(np.asarray(depth), 2))


@mutant("decode-leaf-table", C, "D", "centroids of a prefix are the leaf values at its middle")
def leaf_table(*, codes: Any, depth: Any) -> Any:
    """Not the conditional mean of the interval."""
    depth = np.asarray(depth)
    leaves = deployed_table().centroids[8].astype(float)
    middle = ((codes.astype(np.int64) >> (8 - depth)) << (8 - depth)) + ((1 << (8 - depth)) >> 1)
    return np.where(depth == 0, 0.0, leaves[np.minimum(middle, 255)])


@mutant("decode-depths-along-tokens", C, "C", "a row of depths is laid along tokens where the shape allows it")
def along_tokens(*, codes: Any, depth: Any) -> Any:
    """A square hides the shape."""
    depth = np.asarray(depth)
    if depth.ndim == 1 and codes.ndim == 2 and codes.shape[0] == codes.shape[1]:
        depth = depth[:, None]
    return readkv_decode(codes=codes, depth=depth)


P = "readkv_pack_key_planes"


@mutant("pack-keys-planes-reversed", P, "D", "plane 0 holds the last bit")
def planes_reversed(*, codes: Any) -> Any:
    """A prefix is no longer the first planes."""
    return readkv_pack_key_planes(codes=codes)[::-1].copy()


@mutant(
    "pack-keys-high-bit-first", P, "D", "the first token sits in the high bit, which its own unpacking does not know"
)
def high_bit_first(*, codes: Any) -> Any:
    """D14: what packbits does by default."""
    bits = np.unpackbits(codes.T[..., None], axis=-1)  # [d, T, 8]
    return np.packbits(np.moveaxis(bits, -1, 0), axis=-1)


@mutant("pack-keys-open-byte-lost", P, "A", "tokens of the last partial byte are dropped")
def open_byte_lost(*, codes: Any) -> Any:
    """floor instead of ceil."""
    planes = readkv_pack_key_planes(codes=codes)
    if len(codes) % 8:
        planes[..., -1] = 0
    return planes


@mutant("pack-keys-padding-ones", P, "A", "padding bits are 1")
def padding_ones(*, codes: Any) -> Any:
    """They are 0 on pack."""
    padded = np.concatenate([codes, np.full((-len(codes) % 8, codes.shape[1]), 255)])
    return readkv_pack_key_planes(codes=padded.astype(np.uint8))


V = "readkv_pack_value_planes"


@mutant("pack-values-along-tokens", V, "D", "value planes run along tokens where the shape allows it")
def along_keys(*, codes: Any) -> Any:
    """A square hides the shape."""
    if codes.shape[0] == codes.shape[1]:
        return readkv_pack_key_planes(codes=codes)
    return readkv_pack_value_planes(codes=codes)


@mutant("pack-values-whole-bytes", V, "A", "channels beyond the last whole byte are dropped")
def whole_bytes(*, codes: Any) -> Any:
    """Right for d a multiple of 8."""
    planes = readkv_pack_value_planes(codes=codes)
    if codes.shape[1] % 8:
        planes[..., -1] = 0
    return planes


K, W = "readkv_unpack_key_planes", "readkv_unpack_value_planes"


@mutant("unpack-keys-last-tokens", K, "A", "padding is thought to stand in front")
def last_tokens(*, planes: Any, tokens: int) -> Any:
    """Takes the last T of the padded tokens."""
    padded = readkv_unpack_key_planes(planes=planes, tokens=8 * planes.shape[-1])
    return padded[len(padded) - tokens :].copy()


@mutant("unpack-keys-planes-reversed", K, "D", "plane 0 is taken for the last bit")
def unpack_reversed(*, planes: Any, tokens: int) -> Any:
    """Not what was packed."""
    return readkv_unpack_key_planes(planes=planes[::-1], tokens=tokens)


@mutant("unpack-values-transposed", W, "D", "value planes are read like key planes where the shape allows it")
def unpack_transposed(*, planes: Any, channels: int) -> Any:
    """A square hides the shape."""
    codes = readkv_unpack_value_planes(planes=planes, channels=channels)
    return codes.T.copy() if codes.shape[0] == codes.shape[1] else codes


@mutant("unpack-values-padding-kept", W, "A", "padding bits are mixed into the last channel")
def padding_kept(*, planes: Any, channels: int) -> Any:
    """They are ignored."""
    whole = readkv_unpack_value_planes(planes=planes, channels=8 * planes.shape[-1])
    codes = whole[:, :channels].copy()
    if whole.shape[1] > channels:
        codes[:, -1] |= whole[:, -1]
    return codes
