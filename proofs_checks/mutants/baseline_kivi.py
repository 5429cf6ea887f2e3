"""Wrong KIVI groups and wrong Lloyd-2 codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.baselines.kivi import kivi_dequantize, kivi_quantize
from refimpl.baselines.lloyd2 import lloyd2_decode, lloyd2_encode
from refimpl.readkv.rotation import readkv_rotate, unrotate

Q = "kivi_quantize"


def _right(keys: Any, values: Any, bits: int, group_size: int) -> dict[str, Any]:
    return kivi_quantize(keys=keys, values=values, bits=bits, group_size=group_size, scale_format="float64")


def _regrouped(x: Any, bits: int, group: int, axis: int, one: str) -> dict[str, Any]:
    """Groups along the wrong axis, its parameters averaged into the right shape."""
    right = _right(x, x, bits, group)
    other = "value" if one == "key" else "key"
    codes = right[f"{other}_codes"]
    shape = right[f"{one}_scale"].shape
    fill = {n: np.full(shape, right[f"{other}_{n}"].mean() if codes.size else 0.0) for n in ("scale", "zero")}
    return {f"{one}_codes": codes, f"{one}_scale": fill["scale"], f"{one}_zero": fill["zero"]}


@mutant("kivi-keys-by-token", Q, "D", "keys are grouped over channels of a token, as values are")
def keys_by_token(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """D13."""
    result = _right(keys, values, bits, group_size)
    return {**result, **_regrouped(keys.astype(float), bits, group_size, 2, "key")}


@mutant("kivi-values-by-channel", Q, "D", "values are grouped over tokens of a channel, as keys are")
def values_by_channel(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """D13."""
    result = _right(keys, values, bits, group_size)
    return {**result, **_regrouped(values.astype(float), bits, group_size, 1, "value")}


@mutant("kivi-one-group", Q, "D", "one range per channel over all tokens, whatever the group size")
def one_group(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """Groups are forgotten."""
    result = _right(keys, values, bits, group_size)
    T = keys.shape[1]
    if T == 0:
        return result
    coarse = kivi_quantize(
        keys=keys.astype(float), values=keys.astype(float)[:, :, :1].repeat(T, 2), bits=bits, group_size=T
    )
    repeat = T // group_size
    return {
        **result,
        "key_codes": coarse["key_codes"],
        "key_scale": coarse["key_scale"].repeat(repeat, 1),
        "key_zero": coarse["key_zero"].repeat(repeat, 1),
    }


@mutant("kivi-truncates", Q, "D", "steps are truncated instead of rounded")
def truncates(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """D5."""
    result = _right(keys, values, bits, group_size)
    scale = result["value_scale"].repeat(group_size, -1)
    zero = result["value_zero"].repeat(group_size, -1)
    steps = np.floor((values - zero) / np.where(scale > 0, scale, 1.0) + 1e-6)
    return {**result, "value_codes": np.clip(steps, 0, 2**bits - 1).astype(np.uint8)}


@mutant("kivi-range-with-zero", Q, "D", "0 enters minimum and maximum")
def with_zero(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """D3: padding lanes."""
    result = _right(keys, values, bits, group_size)
    H, T, d = values.shape
    rows = values.astype(float).reshape(H, T, d // group_size, group_size)
    low, high = np.minimum(rows.min(-1), 0.0), np.maximum(rows.max(-1), 0.0)
    scale = (high - low) / (2**bits - 1)
    steps = (rows - low[..., None]) / np.where(scale > 0, scale, 1.0)[..., None]
    codes = np.rint(steps).astype(np.uint8).reshape(H, T, d)
    return {**result, "value_codes": codes, "value_scale": scale, "value_zero": low}


@mutant("kivi-2-to-the-bits-levels", Q, "D", "the scale divides the range by 2^bits")
def too_many_levels(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """The largest value clips."""
    result = _right(keys, values, bits, group_size)
    return {**result, "key_scale": result["key_scale"] * (2**bits - 1) / 2**bits}


@mutant("kivi-constant-is-nan", Q, "D", "a constant group divides 0 by 0")
def constant_nan(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """D8."""
    result = _right(keys, values, bits, group_size)
    return {**result, "value_scale": np.where(result["value_scale"] == 0, np.nan, result["value_scale"])}


@mutant("kivi-heads-swapped", Q, "G", "codes of the last head stand first")
def heads_swapped(*, keys: Any, values: Any, bits: int, group_size: int) -> Any:
    """G1."""
    result = _right(keys, values, bits, group_size)
    return {**result, "key_codes": result["key_codes"][::-1].copy()}


D = "kivi_dequantize"


@mutant("kivi-scales-tiled", D, "D", "token t takes the scale of group t mod the number of groups")
def tiled(**given: Any) -> Any:
    """Tiled, not repeated."""
    codes, scale, zero = (given[n].astype(float) for n in ("key_codes", "key_scale", "key_zero"))
    repeat = codes.shape[1] // max(scale.shape[1], 1)
    keys = codes * np.tile(scale, (1, repeat, 1)) + np.tile(zero, (1, repeat, 1))
    return {**kivi_dequantize(**given), "keys": keys}


@mutant("kivi-signed-codes", D, "D", "codes are read as signed bytes")
def signed(**given: Any) -> Any:
    """200 becomes -56."""
    result, codes = kivi_dequantize(**given), given["key_codes"]
    wrong = np.where(codes > 127, 256.0, 0.0)
    repeat = codes.shape[1] // max(given["key_scale"].shape[1], 1)
    return {**result, "keys": result["keys"] - wrong * given["key_scale"].repeat(repeat, 1)}


@mutant("kivi-zero-inside", D, "D", "(code + zero) * scale")
def zero_inside(**given: Any) -> Any:
    """The convention of zero points."""
    group = given["value_codes"].shape[2] // max(given["value_scale"].shape[2], 1)
    scale, zero = (given[f"value_{n}"].astype(float).repeat(group, -1) for n in ("scale", "zero"))
    return {**kivi_dequantize(**given), "values": (given["value_codes"] + zero) * scale}


E = "lloyd2_encode"


@mutant("lloyd2-no-mean", E, "D", "the mean is not subtracted")
def no_mean(*, x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """Codes are all high."""
    return lloyd2_encode(x=x, mean=mean * 0, scale=scale, signs=signs)


@mutant("lloyd2-norm-after-mean", E, "D", "the norm is of the standardised channels")
def norm_after_mean(*, x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """AMB-52."""
    result = lloyd2_encode(x=x, mean=mean, scale=scale, signs=signs)
    return {**result, "norm": np.linalg.norm(readkv_rotate(x=x, signs=signs) - mean[:, None], axis=-1)}


@mutant("lloyd2-gray-codes", E, "F", "codes 2 and 3 are exchanged: sign and magnitude")
def gray(*, x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """Another order of codes."""
    result = lloyd2_encode(x=x, mean=mean, scale=scale, signs=signs)
    return {**result, "codes": np.array([0, 1, 3, 2], dtype=np.uint8)[result["codes"]]}


@mutant("lloyd2-no-signs", E, "E", "the transform is applied without signs")
def no_signs(*, x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """E1."""
    return lloyd2_encode(x=x, mean=mean, scale=scale, signs=np.ones_like(signs))


C = "lloyd2_decode"


@mutant("lloyd2-nested-levels", C, "F", "levels of the nested tree's first two bits, +-.5 and +-1.5")
def other_levels(*, codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: bool = True) -> Any:
    """F1."""
    restored = mean[:, None] + scale[:, None] * (codes - 1.5)
    if norm_correction:
        restored = restored * (norm / np.linalg.norm(restored, axis=-1))[..., None]
    return unrotate(x=restored, signs=signs)


@mutant("lloyd2-uncorrected", C, "D", "the norm is never corrected")
def uncorrected(*, codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: bool = True) -> Any:
    """The keyword is ignored."""
    return lloyd2_decode(codes=codes, norm=norm, mean=mean, scale=scale, signs=signs, norm_correction=False)


@mutant("lloyd2-corrected-before-mean", C, "D", "the norm is corrected before the mean is added")
def before_mean(*, codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: bool = True) -> Any:
    """The order."""
    given = {"codes": codes, "norm": norm, "scale": scale, "signs": signs, "norm_correction": norm_correction}
    shift = unrotate(x=np.broadcast_to(mean[:, None], codes.shape), signs=signs)
    return lloyd2_decode(**given, mean=mean * 0) + shift


@mutant("lloyd2-forward-again", C, "E", "the forward transform is applied instead of its transpose")
def forward_again(*, codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: bool = True) -> Any:
    """E4."""
    given = {"codes": codes, "norm": norm, "mean": mean, "scale": scale, "norm_correction": norm_correction}
    return readkv_rotate(x=lloyd2_decode(**given, signs=np.ones_like(signs)) @ _hadamard(len(signs)), signs=signs)


def _hadamard(d: int) -> Any:
    return readkv_rotate(x=np.eye(d), signs=np.ones(d))
