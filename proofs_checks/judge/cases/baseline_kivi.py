"""Cases of KIVI's groups and of Lloyd-2."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator

GROUP = 32


def quantize_cases() -> list[Case]:
    """Cases of `kivi_quantize`."""
    stage = Family("kivi_quantize", "D")
    return [
        stage.probe("whole-steps", "D", "groups of (0, 15, 7, 8) at 4 bits: codes are the values", _whole_steps),
        stage.probe("keys-by-channel", "D", "each channel its own range, 1 to 64: a range per token mixes them", _wide),
        stage.probe("values-by-token", "D", "each token its own range: a range per channel mixes them", _tall),
        stage.probe("own-groups", "D", "a group's range is its own: the next group is 256 times wider", _two_groups),
        stage.probe("nearest", "D", "1.9 and 6.6 steps: rounded, not truncated", _nearest),
        stage.probe("all-above-5", "D", "5 to 20: padding lanes of 0 do not enter minimum and maximum", _shifted),
        stage.probe("constant-groups", "D", "no spread: codes 0 and a finite scale, no 0/0", _constant),
        stage.probe("two-heads", "G", "heads of different ranges", partial(_random, 2, (2, 64, 32))),
        stage.probe("no-tokens", "A", "no complete group yet: empty codes", partial(_random, 2, (1, 0, 32))),
        stage.general("random-2", "2 bits, groups of 32", partial(_random, 2, (2, 96, 64))),
        stage.general("random-4", "4 bits, groups of 32", partial(_random, 4, (1, 64, 128))),
        stage.general("groups-of-16", "another group size", partial(_random, 2, (1, 48, 32), 16)),
        stage.general("capture", "real keys and values of layer 7", _captured),
    ]


def _inputs(keys: Any, values: Any, bits: int, group_size: int) -> Inputs:
    return {"keys": keys, "values": values, "bits": bits, "group_size": group_size}


def _whole_steps() -> Inputs:
    block = np.array([[0.0, 15.0, 7.0, 8.0], [15.0, 0.0, 8.0, 7.0], [3.0, 1.0, 0.0, 15.0], [4.0, 2.0, 15.0, 0.0]])
    return _inputs(block[None], block[None], 4, 4)


def _wide() -> Inputs:
    keys = np.arange(4.0)[:, None] * 2.0 ** np.arange(0, 8)  # channel c spans 3 * 2^c
    return _inputs(keys[None], np.ones((1, 4, 8)) * np.arange(8.0), 2, 4)


def _tall() -> Inputs:
    values = np.arange(4.0) * 2.0 ** np.arange(0, 8)[:, None]  # token t spans 3 * 2^t
    return _inputs(np.arange(8.0)[:, None] * np.ones((1, 8, 4)), values[None], 2, 4)


def _two_groups() -> Inputs:
    small = np.tile(np.arange(4.0), (4, 1))
    keys = np.concatenate([small.T, 256.0 * small.T])  # [8, 4]
    values = np.concatenate([np.concatenate([small, 256.0 * small], axis=1)] * 2)  # [8, 8]
    return _inputs(np.concatenate([keys, keys], axis=1)[None], values[None], 2, 4)


def _nearest() -> Inputs:
    block = np.tile([0.0, 15.0, 1.875, 6.625], (4, 1))
    return _inputs(block.T[None].copy(), block[None], 4, 4)


def _shifted() -> Inputs:
    block = np.tile([5.0, 6.0, 5.0, 20.0], (4, 1))
    return _inputs(block.T[None].copy(), block[None], 4, 4)


def _constant() -> Inputs:
    rows = np.stack([np.full(4, 3.0), np.zeros(4), np.full(4, -0.5), np.arange(4.0)])
    return _inputs(rows.T[None].copy(), rows[None], 2, 4)


def _random(bits: int, shape: tuple[int, int, int], group_size: int = GROUP) -> Inputs:
    rng = generator("kivi", f"{bits},{shape}")
    keys = rng.normal(size=shape) * np.exp(rng.normal(size=shape[-1])) + 2.0
    values = rng.normal(size=shape) * np.exp(rng.normal(size=(*shape[:-1], 1)))
    return _inputs(keys, values, bits, group_size)


def _captured() -> Inputs:
    page = needle_slice(1, 0)
    return _inputs(page["keys"][:, :64], page["values"][:, :64], 2, GROUP)


def dequantize_cases() -> list[Case]:
    """Cases of `kivi_dequantize`."""
    stage = Family("kivi_dequantize", "D")
    return [
        stage.exact("scale-by-group", "D", "two groups of keys and of values, each its own scale", _two_scales),
        stage.exact("codes-to-255", "D", "codes are unsigned: 200 is not negative", _unsigned),
        stage.exact("square", "D", "as many tokens as channels: keys' scales run along channels", _square),
        stage.general("random-2", "2 bits, groups of 32", partial(_random_codes, 2, (2, 96, 64))),
        stage.general("random-4", "4 bits, groups of 32", partial(_random_codes, 4, (1, 64, 128))),
    ]


def _coded(key_codes: Any, key_scale: Any, value_codes: Any, value_scale: Any) -> Inputs:
    key_scale, value_scale = np.asarray(key_scale, float), np.asarray(value_scale, float)
    return {
        "key_codes": np.asarray(key_codes),
        "key_scale": key_scale,
        "key_zero": -key_scale,
        "value_codes": np.asarray(value_codes),
        "value_scale": value_scale,
        "value_zero": 2 * value_scale,
    }


def _two_scales() -> Inputs:
    codes = np.tile(np.arange(4), (1, 8, 1)).reshape(1, 8, 4)
    key_scale = np.stack([np.full(4, 1.0), np.full(4, 8.0)])[None]  # [1, 2, 4]
    value_scale = np.tile([0.5, 4.0], (1, 8, 1))  # [1, 8, 2]
    return _coded(codes, key_scale, codes, value_scale)


def _unsigned() -> Inputs:
    codes = np.array([[[0, 127], [128, 255], [200, 1], [2, 3]]])
    return _coded(codes, np.full((1, 1, 2), 0.5), codes, np.full((1, 4, 1), 0.5))


def _square() -> Inputs:
    codes = np.tile(np.arange(4), (4, 1))[None]
    return _coded(codes, 2.0 ** np.arange(4).reshape(1, 1, 4), codes, 2.0 ** np.arange(4).reshape(1, 4, 1))


def _random_codes(bits: int, shape: tuple[int, int, int]) -> Inputs:
    rng: Any = generator("kivi", "codes", str(shape))
    H, T, d = shape
    key, value = rng.integers(0, 2**bits, size=shape), rng.integers(0, 2**bits, size=shape)
    inputs = _coded(key, rng.random((H, T // GROUP, d)) + 0.1, value, rng.random((H, T, d // GROUP)) + 0.1)
    return {**inputs, "key_zero": rng.normal(size=(H, T // GROUP, d))}


def lloyd2_encode_cases() -> list[Case]:
    """Cases of `lloyd2_encode`."""
    stage = Family("lloyd2_encode", "D")
    return [
        stage.probe("four-cells", "F", "unrotated values -2, -.5, .5, 2: codes 0, 1, 2, 3", _cells),
        stage.probe("signs", "E", "channel signs are applied before the transform", _signed),
        stage.probe("mean-and-scale", "D", "the mean is subtracted before the division", _offset),
        stage.probe("no-tokens", "A", "no tokens are legal", partial(_standardised, (2, 0, 16))),
        stage.probe("norm-of-the-vector", "D", "the norm is the vector's own, mean included (AMB-52)", _offset),
        stage.general("random", "two heads, d = 64", partial(_standardised, (2, 33, 64))),
    ]


def _cells() -> Inputs:
    z = np.array([-2.0, -0.5, 0.5, 2.0, -1.0, 1.0, -0.25, 0.25])
    x = np.stack([z, -z, z])  # d = 8 rows that the transform mixes: undo it below
    hadamard = np.array([[(-1) ** bin(i & j).count("1") for j in range(8)] for i in range(8)]) / np.sqrt(8)
    return {"x": (x @ hadamard)[None], "mean": np.zeros((1, 8)), "scale": np.ones((1, 8)), "signs": np.ones(8)}


def _signed() -> Inputs:
    inputs = _standardised((1, 5, 8))
    return {**inputs, "mean": np.zeros((1, 8)), "scale": np.ones((1, 8))}


def _standardised(shape: tuple[int, int, int]) -> Inputs:
    rng = generator("lloyd2", str(shape))
    H, _, d = shape
    return {
        "x": rng.normal(size=shape) * 2.0,
        "mean": rng.normal(size=(H, d)),
        "scale": np.exp(rng.normal(size=(H, d)) / 2) + 0.5,
        "signs": rng.choice([-1.0, 1.0], size=d),
    }


def _offset() -> Inputs:
    inputs = _standardised((1, 9, 16))
    return {**inputs, "mean": inputs["mean"] + 8.0, "scale": 4 * inputs["scale"]}


def lloyd2_decode_cases() -> list[Case]:
    """Cases of `lloyd2_decode`."""
    stage = Family("lloyd2_decode", "D")
    return [
        stage.probe("uncorrected", "F", "levels +-.45278 and +-1.51042, ascending, without the norm", _plain),
        stage.probe("corrected", "D", "the result has the stored norm, five times the levels' own", _corrected),
        stage.probe("correction-after-mean", "D", "the mean is added before the norm is corrected", _with_mean),
        stage.probe("signs", "E", "the transposed rotation: signs after the transform", partial(_codes2, (1, 5, 8))),
        stage.general("random", "two heads, d = 64", partial(_codes2, (2, 33, 64))),
    ]


def _codes2(shape: tuple[int, int, int]) -> Inputs:
    rng: Any = generator("lloyd2", "codes", str(shape))
    H, T, d = shape
    given = {n: v for n, v in _standardised(shape).items() if n != "x"}
    codes = rng.integers(0, 4, size=shape)
    return {"codes": codes, "norm": np.sqrt(d) * (1 + rng.random((H, T))), **given, "norm_correction": True}


def _plain() -> Inputs:
    return {**_codes2((1, 5, 8)), "signs": np.ones(8), "norm_correction": False}


def _corrected() -> Inputs:
    inputs = _codes2((1, 5, 8))
    return {**inputs, "signs": np.ones(8), "mean": 0 * inputs["mean"], "norm": 5 * inputs["norm"]}


def _with_mean() -> Inputs:
    inputs = _codes2((1, 5, 8))
    return {**inputs, "signs": np.ones(8), "mean": inputs["mean"] + 4.0}
