"""One ReadKV decode step of a layer, with every quantity of Theorem 3: schedules, objectives, factors, error."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from proofs_checks.statements.statement import Instance, memo, require
from refimpl.checks import FloatArray
from refimpl.readkv.calibration import calibrate_samples
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.reader import (
    PrefixCache,
    encode_cache,
    pooled_chooser,
    read_two_stages,
    reconstructed_keys,
    reconstructed_values,
)
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import effective_distortions


class Step:
    """A layer of H KV heads with G queries each, read at given budgets.

    queries [H, G, d]; keys, values [H, T, d]; calibration [H, d] each; signs [d]; budgets in pooled refinements.
    """

    def __init__(self, layer: dict[str, Any]) -> None:
        require(layer["key_budget"] >= 0 and layer["value_budget"] >= 0, "B_K >= 0 and B_V >= 0")
        self.layer = layer
        self.queries = readkv_rotate(x=layer["queries"], signs=layer["key_signs"])  # [H, G, d]
        self.keys = readkv_rotate(x=layer["keys"], signs=layer["key_signs"])  # [H, T, d]
        self.values = readkv_rotate(x=layer["values"], signs=layer["value_signs"])  # [H, T, d]
        names = ("keys", "values", "key_mean", "key_scale", "value_mean", "value_scale", "key_signs", "value_signs")
        self.cache: PrefixCache = encode_cache(**{name: layer[name] for name in names})
        heads, tokens, width = self.keys.shape
        budgets = (
            min(layer["key_budget"], heads * width * 8),
            min(layer["value_budget"], heads * tokens * 8),
        )
        choosers = [pooled_chooser(self.cache.gains, budget) for budget in budgets]
        self.read = read_two_stages(layer["queries"], self.cache, *choosers)
        self.budgets = budgets

    @cached_property
    def _heads(self) -> Instance:
        group = self.queries.shape[1]
        distortion = effective_distortions()
        keys_hat = reconstructed_keys(self.cache, self.read["key_depths"])
        values_hat = reconstructed_values(self.cache, self.read["value_depths"])
        predicted = self.cache.key_scale**2 * distortion[self.read["key_depths"]]  # [H, d]
        repeated = {
            "keys": self.keys,
            "keys_hat": keys_hat,
            "values": self.values,
            "values_hat": values_hat,
            "key_predicted": predicted,
            "value_predicted": distortion[self.read["value_depths"]],  # s_g = 1 (AMB-24)
        }
        flat = {name: np.repeat(array, group, axis=0) for name, array in repeated.items()}
        return {"queries": self.queries.reshape(-1, self.queries.shape[-1]), **flat}

    def heads(self) -> Instance:
        """Prop. 12's instance with one entry per query head [H * G], in transformed coordinates."""
        return self._heads

    def stage_weights(self) -> tuple[FloatArray, FloatArray]:
        """Importances of both stages, flattened head-major: [H * d], [H * T]."""
        keys = readkv_key_importance(rotated_queries=self.queries, key_scale=self.cache.key_scale)
        return keys.ravel(), readkv_value_importance(weights=self.read["weights"]).ravel()


def step_of(layer: dict[str, Any]) -> Step:
    """The step of a layer, read once."""
    step: Step = memo(layer, "_step", lambda: Step(layer))
    return step


def make_layer(
    queries: FloatArray, keys: FloatArray, values: FloatArray, key_rate: float, value_rate: float, signs: FloatArray
) -> dict[str, Any]:
    """A layer calibrated on its own rotated keys and values, which is optimistic; dead channels get the scale 1e-6."""
    layer: dict[str, Any] = {"queries": queries, "keys": keys, "values": values}
    for name, array in (("key", keys), ("value", values)):
        rotated = readkv_rotate(x=array, signs=signs)
        fit = calibrate_samples(samples=rotated, floor=1e-6)
        layer |= {f"{name}_mean": fit.mean, f"{name}_scale": fit.scale, f"{name}_signs": signs}
    heads, tokens, width = keys.shape
    return layer | {"key_budget": int(key_rate * heads * width), "value_budget": int(value_rate * heads * tokens)}


def tie_layer() -> dict[str, Any]:
    """Prop. 12's tight instance as a layer: one head, two tokens, one channel; one key bit and one bit per value.

    Keys lie 1e-4 beyond their one-bit reconstruction +-5e-5, values 1e-4 above +-1: both stages contribute 1e-4.
    """
    c_1 = 0.7978845834732056
    keys = np.array([[[1.5e-4], [-1.5e-4]]])
    values = np.array([[[1.0001], [-0.9999]]])
    one = np.ones((1, 1))
    calibration = {
        "key_mean": 0 * one,
        "key_scale": one * (5e-5 / c_1),
        "value_mean": 0 * one,
        "value_scale": one / c_1,
    }
    signs = {"key_signs": np.ones(1), "value_signs": np.ones(1)}
    budgets = {"key_budget": 1, "value_budget": 2}
    return {"queries": np.ones((1, 1, 1)), "keys": keys, "values": values, **calibration, **signs, **budgets}


def random_layer(rng: np.random.Generator) -> dict[str, Any]:
    """A random layer: 1-2 KV heads, 1-3 queries, 1-8 tokens, 1-8 channels; correlated or not; any budgets."""
    heads, group, tokens, width = (int(rng.integers(1, n)) for n in (3, 4, 9, 5))
    width = 2 ** (width - 1)
    shape = (heads, tokens, width)
    keys, values = rng.standard_normal(shape), rng.standard_normal(shape)
    if rng.random() < 0.4:
        keys = keys + 3 * rng.standard_normal((heads, 1, width))
    queries = 10.0 ** rng.uniform(-2, 1) * rng.standard_normal((heads, group, width))
    signs = rng.choice([-1.0, 1.0], width)
    key_rate, value_rate = (float(rate) for rate in rng.uniform(0, 8, 2))
    layer = make_layer(queries, keys, values, key_rate, value_rate, signs)
    if rng.random() < 0.3:
        layer["key_scale"] = layer["key_scale"] * np.exp(rng.standard_normal((heads, width)))  # miscalibrated
    return layer
