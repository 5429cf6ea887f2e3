"""Captures: queries, keys and values exactly as attention consumed them, read one KV head at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray


@dataclass(frozen=True)
class Rope:
    """How keys and queries were rotated: angle position / theta^(2f/d) for frequency f."""

    theta: float
    pairing: str = "half-split"
    """"half-split" pairs channel f with f + d/2, "interleaved" pairs 2f with 2f + 1."""


@dataclass(frozen=True)
class HeadTrace:
    """One KV head of one layer: everything that its G query heads saw while decoding."""

    capture: str
    layer: int
    head: int
    keys: FloatArray
    """[T, d], post-RoPE."""
    values: FloatArray
    """[T, d]."""
    stored_queries: Any
    """[steps, G, d] in the capture's own encoding; `queries` decodes a slice, so memory does not grow with steps."""
    positions: IntArray
    """[steps]: a query at position p attends tokens 0..p."""
    rope: Rope | None
    carriers: tuple[tuple[int, int], ...] = ()
    """Token spans [start, stop) that hold the answer."""
    key_moments: tuple[FloatArray, FloatArray] | None = None
    """Mean [d] and covariance [d, d] of held-out keys."""
    value_moments: tuple[FloatArray, FloatArray] | None = None
    """Mean [d] and covariance [d, d] of held-out values."""
    first_head_keys: FloatArray | None = None
    """[T, d] of the layer's KV head 0, whose basis Fig. 1 calls global; None if the capture has one head a layer."""

    @property
    def steps(self) -> int:
        """How many decode steps were captured."""
        return len(self.positions)

    @property
    def head_size(self) -> int:
        """d."""
        return int(self.keys.shape[1])

    def queries(self, start: int, stop: int) -> FloatArray:
        """Queries of steps ``start..stop-1`` in float64, [n, G, d]."""
        return to_float64(self.stored_queries[start:stop])

    def carrier_pages(self, page_size: int) -> IntArray:
        """Pages that hold any carrier token, ascending."""
        pages = {t // page_size for start, stop in self.carriers for t in range(start, stop)}
        return np.array(sorted(pages), dtype=np.int64)


@dataclass(frozen=True)
class LayerTrace:
    """All KV heads of one layer: what ReadKV's pooled budgets need together."""

    capture: str
    layer: int
    keys: FloatArray
    """[H, T, d], post-RoPE."""
    values: FloatArray
    """[H, T, d]."""
    stored_queries: Any
    """[steps, H, G, d] in the capture's own encoding."""
    positions: IntArray
    moments: tuple[FloatArray, FloatArray] | None
    """Held-out mean [2, H, d] and covariance [2, H, d, d], axis 0 keys then values."""

    def queries(self, step: int) -> FloatArray:
        """Queries [H, G, d] of one step in float64."""
        return to_float64(self.stored_queries[step])


@dataclass(frozen=True)
class CaptureSet:
    """One prompt's trace over several layers; arrays stay in their stored encoding until a head is asked for."""

    name: str
    layers: tuple[int, ...]
    keys: Any
    """[L, H, T, d]."""
    values: Any
    """[L, H, T, d]."""
    queries: Any
    """[steps, L, H, G, d]."""
    positions: IntArray
    rope: Rope | None = None
    kv_heads: tuple[int, ...] = ()
    carriers: tuple[tuple[int, int], ...] = ()
    moments: tuple[Any, Any] | None = None
    """Held-out mean [L, 2, H, d] and covariance [L, 2, H, d, d], axis 1 keys then values."""
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def head_count(self) -> int:
        """Layers times KV heads."""
        return int(self.keys.shape[0] * self.keys.shape[1])

    def head(self, index: int) -> HeadTrace:
        """The ``index``-th KV head, layer-major, as float64."""
        layer, head = divmod(index, self.keys.shape[1])
        moments: list[tuple[FloatArray, FloatArray] | None] = [None, None]
        if self.moments is not None:
            mean, covariance = (to_float64(m[layer, :, head]) for m in self.moments)
            moments = [(mean[i], covariance[i]) for i in (0, 1)]
        return HeadTrace(
            capture=self.name,
            layer=self.layers[layer],
            head=self.kv_heads[head] if self.kv_heads else head,
            keys=to_float64(self.keys[layer, head]),
            values=to_float64(self.values[layer, head]),
            stored_queries=self.queries[:, layer, head],
            positions=self.positions,
            rope=self.rope,
            carriers=self.carriers,
            key_moments=moments[0],
            value_moments=moments[1],
            first_head_keys=to_float64(self.keys[layer, 0]) if self.keys.shape[1] > 1 else None,
        )

    def layer(self, index: int) -> LayerTrace:
        """The ``index``-th captured layer, as float64."""
        moments = None
        if self.moments is not None:
            moments = (to_float64(self.moments[0][index]), to_float64(self.moments[1][index]))
        return LayerTrace(
            capture=self.name,
            layer=self.layers[index],
            keys=to_float64(self.keys[index]),
            values=to_float64(self.values[index]),
            stored_queries=self.queries[:, index],
            positions=self.positions,
            moments=moments,
        )

    def heads(self) -> Iterator[HeadTrace]:
        """Every KV head in turn, so that only one is in memory as float64."""
        return (self.head(i) for i in range(self.head_count))


def to_float64(stored: Any) -> FloatArray:
    """Decode stored numbers: uint16 are bf16 bits, everything else is converted.

    >>> to_float64(np.array([0x3F80, 0xC000], dtype=np.uint16)).tolist()
    [1.0, -2.0]
    """
    array = np.ascontiguousarray(stored)
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def capture_sets(tensors: dict[str, Any], manifest: dict[str, Any]) -> list[CaptureSet]:
    """The sets that a manifest finds in its tensors; raises ArgumentError where the two do not agree."""
    return [_capture_set(tensors, entry, manifest) for entry in manifest["sets"]]


def _capture_set(tensors: dict[str, Any], entry: dict[str, Any], manifest: dict[str, Any]) -> CaptureSet:
    missing = [entry[k] for k in ("keys", "values", "queries", "positions") if entry[k] not in tensors]
    if missing:
        raise ArgumentError(f"sets.{entry['name']}: expected tensors {missing}, got {sorted(tensors)}")
    layers, heads = tuple(entry["layers"]), tuple(entry["kv_heads"])
    keys, values, queries = (tensors[entry[k]] for k in ("keys", "values", "queries"))
    tokens, d = keys.shape[-2:]
    positions = np.asarray(tensors[entry["positions"]], dtype=np.int64)
    shape = (len(layers), len(heads), tokens, d)
    group = queries.size // (len(positions) * len(layers) * len(heads) * d) if len(positions) else 0
    if keys.size != np.prod(shape) or values.size != keys.size or (positions >= tokens).any():
        raise ArgumentError(
            f"sets.{entry['name']}: expected keys and values of {list(shape)} and positions below {tokens}, "
            f"got {list(keys.shape)}, {list(values.shape)} and {positions.tolist()}"
        )
    rope, calibration = entry.get("rope"), entry.get("calibration")
    return CaptureSet(
        name=entry["name"],
        layers=layers,
        kv_heads=heads,
        keys=keys.reshape(shape),
        values=values.reshape(shape),
        queries=queries.reshape(len(positions), len(layers), len(heads), group, d),
        positions=positions,
        rope=Rope(rope["theta"], rope["pairing"]) if rope else None,
        carriers=tuple((start, stop) for start, stop in entry.get("carrier_tokens", ())),
        moments=_moments(tensors, calibration, len(layers), len(heads), d) if calibration else None,
        about={k: v for k, v in manifest.items() if isinstance(v, str | int | bool) and k != "format"},
    )


def _moments(tensors: dict[str, Any], calibration: dict[str, Any], layers: int, heads: int, d: int) -> tuple[Any, Any]:
    rows, columns = calibration.get("layer_indices"), calibration.get("head_indices")
    mean, covariance = tensors[calibration["mean"]], tensors[calibration["covariance"]]
    if rows is not None:
        mean, covariance = mean[np.asarray(rows)], covariance[np.asarray(rows)]
    if columns is not None:
        mean, covariance = mean[:, :, np.asarray(columns)], covariance[:, :, np.asarray(columns)]
    return mean.reshape(layers, 2, heads, d), covariance.reshape(layers, 2, heads, d, d)


STORED = {"BF16": "<u2", "U16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
"""Safetensors dtypes that a capture may hold, as NumPy reads their bytes; bf16 stays a bit pattern until it is used."""


def map_tensors(path: Path) -> dict[str, Any]:
    """Tensors of a .safetensors file, mapped and not read, so that a capture may be larger than memory."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    tensors: dict[str, Any] = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in STORED:
            continue
        shape, (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
        kind = np.dtype(STORED[entry["dtype"]])
        if stop - start != kind.itemsize * int(np.prod(shape)):
            raise ArgumentError(f"{path.name}: expected {list(shape)} of {kind} for {name}, got {stop - start} bytes")
        tensors[name] = np.memmap(path, dtype=kind, mode="r", offset=8 + length + start, shape=shape)
    return tensors


def check_digests(path: Path) -> None:
    """Compare every tensor with its digest in the manifest; raises ArgumentError for one that differs.

    Reads the whole file once, in pieces. Tensors without a digest are not checked.
    """
    tensors = map_tensors(path)
    for name, about in _manifest(path).get("arrays", {}).items():
        if name not in tensors:
            raise ArgumentError(f"{path.name}: expected tensor {name}, which the manifest lists")
        digest, flat = hashlib.sha256(), tensors[name].reshape(-1)
        for start in range(0, flat.size, 1 << 22):
            digest.update(flat[start : start + (1 << 22)].tobytes())
        if about.get("sha256", digest.hexdigest()) != digest.hexdigest():
            raise ArgumentError(f"{path.name}: expected {name} with digest {about['sha256']}, got {digest.hexdigest()}")


def _manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if manifest.get("format") != 1 or not isinstance(manifest.get("sets"), list):
        raise ArgumentError(f"{path.with_suffix('.json').name}: expected format 1 with a list of sets")
    return manifest


def load_capture(path: Path) -> list[CaptureSet]:
    """Open a capture and the manifest beside it (the same name with .json); raises ArgumentError or OSError.

    See docs/capture-format.md. Nothing is read until a head is asked for, and nothing is ever unpickled.
    """
    return capture_sets(map_tensors(path), _manifest(path))
