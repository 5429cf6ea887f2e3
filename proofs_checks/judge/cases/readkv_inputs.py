"""Building blocks of ReadKV cases: signs, caches with outlier channels and nonzero means, the real cache."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice, shipped_capture
from proofs_checks.judge.case import Inputs, generator
from refimpl.readkv.calibration import calibrate_moments
from refimpl.readkv.codec import encode_leaves
from refimpl.readkv.reader import encode_cache
from refimpl.readkv.rotation import readkv_rotate, rotation_matrix
from refimpl.readkv.tree import LEAF_DEPTH, deployed_table

Array = Any


def gains_of(levels: int = LEAF_DEPTH) -> Array:
    """The tree's first ``levels`` gains."""
    return deployed_table().gains[:levels].astype(np.float64)


def signs_of(d: int, name: str = "key") -> Array:
    """Random signs [d], the same for the same words."""
    return np.where(generator("signs", name, f"{d}").random(d) < 0.5, -1.0, 1.0)


def random_cache(name: str, H: int, T: int, d: int) -> Inputs:
    """Codes and public state [H, T, d] of a layer: scales from 1 to 16 apart, nonzero means, unequal heads.

    Codes are those of normal values, so that all leaves occur as often as in use.
    """
    rng = generator("readkv", name, f"{H},{T},{d}")
    head = np.arange(1, H + 1)[:, None]
    outlier = np.where(rng.random((H, d)) < 0.1, 16.0, 1.0)
    cache = {
        "key_codes": encode_leaves(rng.normal(size=(H, T, d)), LEAF_DEPTH),
        "value_codes": encode_leaves(rng.normal(size=(H, T, d)), LEAF_DEPTH),
        "key_mean": rng.normal(size=(H, d)),
        "key_scale": outlier * np.exp(0.3 * rng.normal(size=(H, d))),
        "value_mean": 2.0 * rng.normal(size=(H, d)),
        "value_scale": head * np.exp(0.5 * rng.normal(size=(H, d))),
        "key_signs": signs_of(d, "key"),
        "value_signs": signs_of(d, "value"),
    }
    return {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in cache.items()}


def random_queries(name: str, H: int, G: int, d: int, sharpness: float = 1.0) -> Array:
    """Queries [H, G, d]; head h's are about (h + 1) times as long as head 0's."""
    rng = generator("readkv-queries", name, f"{H},{G},{d}")
    return sharpness * np.arange(1, H + 1)[:, None, None] * rng.normal(size=(H, G, d)) / np.sqrt(d / 16)


@lru_cache(maxsize=4)
def captured_cache(layer: int) -> Inputs:
    """One layer of the needle prompt, [3, 2041, 64], encoded under the moments of the held-out text.

    ``layer`` counts the four captured layers.
    """
    capture, keys_values = shipped_capture(), needle_slice(layer, 0)
    state: Inputs = {"key_signs": signs_of(64, "key"), "value_signs": signs_of(64, "value")}
    for part, name in enumerate(("key", "value")):
        calibration = calibrate_moments(
            mean=capture["cal_mean"][layer, part],
            covariance=capture["cal_cov"][layer, part],
            transform=rotation_matrix(state[f"{name}_signs"]),
        )
        state |= {f"{name}_mean": calibration.mean, f"{name}_scale": calibration.scale}
    state = {name: value.astype(np.float32).astype(np.float64) for name, value in state.items()}
    cache = encode_cache(keys=keys_values["keys"], values=keys_values["values"], **state)
    return {"key_codes": cache.key_codes, "value_codes": cache.value_codes, **state}


def captured_read(layer: int, step: int) -> Inputs:
    """The queries [3, 3, 64] of one step with the cache of their layer."""
    return {"queries": needle_slice(layer, step)["queries"], **captured_cache(layer)}


def rotated_queries(layer: int, step: int) -> Array:
    """Real rotated queries [3, 3, 64]."""
    return readkv_rotate(x=needle_slice(layer, step)["queries"], signs=signs_of(64, "key"))
