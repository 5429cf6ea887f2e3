"""Judging an answer by what is stored alone. The rules are few, so that a reader in any language has them too.

Every number must be finite, except -inf where it is expected. Then, per result:

- ``equal``: every element is the expected one.
- ``within``: |answer - expected| <= bound, element by element; an infinite bound leaves an element free.
- ``within-factor``: the same after the answer is multiplied by sum(expected) / sum(answer), if that is positive.
- ``between``: low <= answer <= high; where there is a ``total``, the sum over the axes that it lacks is the total.
- ``pages``: row by row ``count`` distinct pages, then only -1; all of ``must``, none outside ``may``.
- ``fit``: the Frobenius norm of target - left @ right over all heads is at most ``limit``.
- ``summary``: of the columns v_k of basis whose coefficients c_k are longer than ``band``, sum v_k v_k^T lies within
  ``projector_bound`` of ``projector``, and sum c_k v_k^T within ``reconstruction_bound`` of ``reconstruction``, both in
  the Frobenius norm of every page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from proofs_checks.golden.manifest import Entry, bound_name

Tensors = Mapping[str, Any]


def faults(entry: Entry, tensors: Tensors, answer: Mapping[str, Any], dtype: str) -> list[str]:
    """One sentence per result that is wrong. ``answer`` holds arrays by result, lists as name_0, name_1, ..."""
    found = []
    for name, about in entry.results.items():
        if name not in answer:
            found.append(f"{name}: missing")
            continue
        value = np.asarray(answer[name])
        problem = _form(value, about, tensors.get(f"expected/{name}"))
        if problem is None:
            problem = CHECKS[about["rule"]](name, value, tensors, dtype, answer)
        if problem:
            found.append(f"{name}{problem}")
    return found


def _form(value: Any, about: Mapping[str, Any], expected: Any) -> str | None:
    if list(value.shape) != about["shape"]:
        return f": expected shape {about['shape']}, got {list(value.shape)}"
    role = about["role"]
    whole = role in ("int8", "uint8", "index")
    if value.dtype.kind not in ("iu" if whole else "f") or (role in ("int8", "uint8") and value.dtype.name != role):
        return f": expected {'numbers' if not whole else role}, got {value.dtype}"
    allowed = np.isneginf(expected) if expected is not None else False
    bad = ~(np.isfinite(value) | (np.isneginf(value) & allowed))
    return f"{_at(bad)}: {value[bad][0]} is not finite" if bad.any() else None


def _at(wrong: Any) -> str:
    return str([int(i) for i in np.argwhere(wrong)[0]])


def _equal(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    expected = tensors[f"expected/{name}"]
    wrong = value != expected
    return f"{_at(wrong)} is {value[wrong][0]}, expected exactly {expected[wrong][0]}" if wrong.any() else None


def _within(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    expected = tensors[f"expected/{name}"]
    bound = tensors[bound_name(name, dtype, tensors)].astype(np.float64)
    value = value.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(value == expected, 0.0, np.abs(value - expected))
    wrong = ~(error <= bound)
    if not wrong.any():
        return None
    return f"{_at(wrong)} is {value[wrong][0]:.9g}, expected {expected[wrong][0]:.9g} within {bound[wrong][0]:.3g}"


def _within_factor(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    problem = _within(name, value, tensors, dtype, answer)
    total, own = float(tensors[f"expected/{name}"].sum()), float(value.sum(dtype=np.float64))
    if problem and total > 0 and own > 0:
        problem = _within(name, value.astype(np.float64) * (total / own), tensors, dtype, answer)
    return problem


def _between(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    low, high = tensors[f"low/{name}"], tensors[f"high/{name}"]
    wrong = (value < low) | (value > high)
    if wrong.any():
        return f"{_at(wrong)} is {value[wrong][0]}, expected {low[wrong][0]} to {high[wrong][0]}"
    total = tensors.get(f"total/{name}")
    if total is not None:
        own = value.sum(axis=tuple(range(total.ndim, value.ndim)))
        if (own != total).any():
            return f": the sum is {own}, expected {total}"
    return None


def _pages(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    must, may, count = (tensors[f"{kind}/{name}"] for kind in ("must", "may", "count"))
    for index in np.ndindex(value.shape[:-1]):
        row, kept = value[index].tolist(), int(count[index])
        chosen = row[:kept]
        where = list(index)
        if len(set(chosen)) < kept or any(p != -1 for p in row[kept:]):
            return f"{where}: expected {kept} distinct pages and -1 behind them, got {row}"
        if any(not 0 <= p < may.shape[-1] or not may[index][p] for p in chosen):
            return f"{where}: a page of {sorted(chosen)[:12]} may not be kept"
        missing = [p for p in np.flatnonzero(must[index]).tolist() if p not in chosen]
        if missing:
            return f"{where}: page {missing[0]} is missing of {sorted(chosen)[:12]}"
    return None


def _summary(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    if name != "basis":
        return None  # judged with the basis
    basis = value.astype(np.float64)
    coefficients = np.asarray(answer.get("coefficients", np.nan), dtype=np.float64)
    if coefficients.ndim != 4 or coefficients.shape[:2] + coefficients.shape[3:] != basis.shape[:2] + basis.shape[3:]:
        return ": its coefficients are missing or of another shape"
    alive = np.linalg.norm(coefficients, axis=2) > tensors["band/basis"][..., None]  # [H, P, r]
    columns = basis * alive[:, :, None]
    turned = np.swapaxes(columns, -1, -2)
    for kind, own in (("projector", columns @ turned), ("reconstruction", coefficients @ turned)):
        expected, bound = tensors[f"{kind}/basis"], tensors[f"{kind}_bound/basis"]
        if own.shape != expected.shape:
            return f": expected a {kind} of shape {list(expected.shape)}, got {list(own.shape)}"
        error = np.linalg.norm(own - expected, axis=(-2, -1))
        wrong = ~(error <= bound)
        if wrong.any():
            return f"{_at(wrong)}: its {kind} is {error[wrong][0]:.3g} off, allowed {bound[wrong][0]:.3g}"
    return None


def _fit(name: str, value: Any, tensors: Tensors, dtype: str, answer: Any) -> str | None:
    if name != "left":
        return None  # judged with the left factor
    right, target = np.asarray(answer.get("right", np.nan), dtype=np.float64), tensors["target/left"].astype(np.float64)
    if right.ndim != 3 or right.shape[0::2] != target.shape[0::2] or right.shape[1] != value.shape[1]:
        return ": its right factor is missing or of another shape"
    error = np.linalg.norm(target - value.astype(np.float64) @ right)
    limit = float(tensors["limit/left"])
    return None if error <= limit else f": the fit is {error:.6g} off, allowed {limit:.6g}"


CHECKS: dict[str, Callable[[str, Any, Tensors, str, Any], str | None]] = {
    "equal": _equal,
    "within": _within,
    "within-factor": _within_factor,
    "between": _between,
    "pages": _pages,
    "summary": _summary,
    "fit": _fit,
}
