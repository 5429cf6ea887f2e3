"""Decode steps of a capture, in the forms that the statements take: pages with queries, groups, ReadKV layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from proofs_checks.capture import Capture, CaptureError, shipped_capture
from proofs_checks.fixtures import FixtureError
from proofs_checks.statements.readkv_step import make_layer, step_of
from proofs_checks.statements.statement import Instance
from refimpl.checks import FloatArray
from refimpl.paging import split_pages
from refimpl.readkv.calibration import calibrate_moments
from refimpl.readkv.rotation import rotation_matrix

SIGNS_SEED = 20260801  # the papers draw signs once before encoding; any fixed draw will do


@dataclass(frozen=True)
class CaptureStep:
    """One decode step of one layer: queries [H, G, d], keys and values [H, T, d], all float64, and how to read it."""

    label: str
    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    moments: tuple[FloatArray, FloatArray] | None = (
        None  # held-out mean [2, H, d] and covariance [2, H, d, d], K then V
    )
    rank: int = 8
    page_size: int = 16
    budget_tokens: int = 256
    key_rate: float = 2.0
    value_rate: float = 2.0

    def page_batch(self) -> Instance:
        """Every complete page of every KV head under every query of its group, as one batch of pages."""
        return self._pages

    @cached_property
    def _pages(self) -> Instance:
        complete, _ = split_pages(self.keys, self.page_size)  # [H, P, B, d]
        heads, group, width = self.queries.shape
        shape = (heads, group, complete.shape[1])
        keys = np.broadcast_to(complete[:, None], (*shape, *complete.shape[2:])).reshape(-1, *complete.shape[2:])
        queries = np.broadcast_to(self.queries[:, :, None], (*shape, width)).reshape(-1, width)
        return {"queries": queries, "keys": keys, "rank": min(self.rank, *complete.shape[2:])}

    def group(self, complete: bool = False) -> Instance:
        """Theorem 1's instance, one batch entry per KV head; ``complete`` leaves the open page out."""
        return self._complete_group if complete else self._group

    @cached_property
    def _group(self) -> Instance:
        return self._build_group(False)

    @cached_property
    def _complete_group(self) -> Instance:
        return self._build_group(True)

    def _build_group(self, complete: bool) -> Instance:
        tokens = self.keys.shape[1] // self.page_size * self.page_size if complete else self.keys.shape[1]
        return {
            "queries": self.queries,
            "keys": self.keys[:, :tokens],
            "values": self.values[:, :tokens],
            "rank": min(self.rank, self.page_size, self.keys.shape[2]),
            "page_size": self.page_size,
            "k": -(-self.budget_tokens // self.page_size),
        }

    def readkv_layer(self, tokens: int | None = None) -> dict[str, Any]:
        """The step as a ReadKV layer at the step's rates, calibrated on held-out moments where the capture has them."""
        return self._layer if tokens is None else self._build_layer(tokens)

    @cached_property
    def _layer(self) -> dict[str, Any]:
        return self._build_layer(None)

    def _build_layer(self, tokens: int | None) -> dict[str, Any]:
        keys, values = self.keys[:, :tokens], self.values[:, :tokens]
        signs = np.random.default_rng(SIGNS_SEED).choice([-1.0, 1.0], keys.shape[2])
        layer = make_layer(self.queries, keys, values, self.key_rate, self.value_rate, signs)
        if self.moments is not None:
            transform = rotation_matrix(signs)
            for index, name in enumerate(("key", "value")):
                mean, covariance = self.moments[0][index], self.moments[1][index]
                fit = calibrate_moments(mean=mean, covariance=covariance, transform=transform)
                layer |= {f"{name}_mean": fit.mean, f"{name}_scale": fit.scale}
        return layer

    def readkv_heads(self) -> Instance:
        """Prop. 12's instance, one batch entry per query head."""
        return step_of(self._layer).heads()


def families_of(capture: Capture) -> list[str]:
    """The prefixes X for which the capture holds X_Q, X_K and X_V.

    Raises CaptureError if there is none.
    """
    names = set(capture.arrays)
    found = sorted(n[:-2] for n in names if n.endswith("_Q") and {n[:-1] + "K", n[:-1] + "V"} <= names)
    if not found:
        raise CaptureError(f"{capture.path.name}: expected arrays X_Q, X_K, X_V, got {', '.join(sorted(names))}")
    return found


def family_steps(capture: Capture, prefix: str) -> Iterator[CaptureStep]:
    """All (step, layer) pairs of one family.

    X_K and X_V are [layers, H, T, d] or [T, d] (one head); X_Q is [steps, layers, H*G, d] or [steps, G, d]; X_pos
    [steps], if there, is each query's position, which attends the tokens up to and with itself.
    """
    queries, keys, values = (np.asarray(capture[f"{prefix}_{x}"], dtype=np.float64) for x in "QKV")
    if keys.ndim == 2:
        queries, keys, values = queries[:, None], keys[None, None], values[None, None]
    moments = None
    if "cal_mean" in capture.arrays and capture["cal_mean"].shape[0] == keys.shape[0]:
        moments = tuple(np.asarray(capture[name], dtype=np.float64) for name in ("cal_mean", "cal_cov"))
    positions = capture.arrays.get(f"{prefix}_pos")
    for step in range(queries.shape[0]):
        length = keys.shape[2] if positions is None else min(int(positions[step]) + 1, keys.shape[2])
        for layer in range(keys.shape[0]):
            heads, width = keys.shape[1], keys.shape[3]
            yield CaptureStep(
                label=f"{prefix} step {step} layer {layer}",
                queries=queries[step, layer].reshape(heads, -1, width),
                keys=keys[layer, :, :length],
                values=values[layer, :, :length],
                moments=None if moments is None else (moments[0][layer], moments[1][layer]),
            )


@lru_cache(maxsize=1)
def shipped_cut(tokens: int = 256) -> CaptureStep | None:
    """The first tokens of one real decode step, for every run of `prove`; None where the capture is not installed."""
    try:
        full = next(family_steps(shipped_capture(), "n2k"))
    except (CaptureError, FixtureError):  # pragma: no cover - depends on the installation
        return None
    return replace(full, label="shipped", keys=full.keys[:, :tokens], values=full.values[:, :tokens])


def steps_of(capture: Capture, count: int) -> list[CaptureStep]:
    """``count`` decode steps spread evenly over each family of the capture (all of them if there are fewer)."""
    chosen = []
    for prefix in families_of(capture):
        steps = list(family_steps(capture, prefix))
        picks = np.unique(np.linspace(0, len(steps) - 1, min(count, len(steps))).round().astype(int))
        chosen += [steps[i] for i in picks]
    return chosen
