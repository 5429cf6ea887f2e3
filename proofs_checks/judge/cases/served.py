"""Probes once more at d = 128 and eight query heads to a KV head, sizes that kernels have a path of their own for.

A case of fewer channels is repeated with its channels over and over until there are 128, and so are its query heads
until there are eight. What it isolates it mostly still isolates: every line of channels has the same largest and least
entry, and codes, cells and planes are those of the channel that is repeated. Logits grow; the answer is the
reference's on the wider inputs, like every other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Inputs

SERVED, HEADS = 128, 8
WHY = "the same with its channels repeated to 128 and its query heads to 8: kernels have a path of their own for these"
ROWS = {"queries": -1, "keys": -1, "values": -1}
POOLS = {"queries": -1, "key_pool": -1, "value_pool": -1}
STANDARD = {"mean": -1, "scale": -1, "signs": -1}
READER = {
    "queries": -1,
    "key_codes": -1,
    "value_codes": -1,
    "key_signs": -1,
    "value_signs": -1,
    **{f"{kind}_{part}": -1 for kind in ("key", "value") for part in ("mean", "scale")},
}
CHANNELS: dict[str, dict[str, int]] = {
    "attention": ROWS,
    "merge_attention": {"outputs": -1},
    "sparse_attention": ROWS,
    "paged_attention": POOLS,
    "paged_sparse_attention": POOLS,
    "locks_score_pages": {"queries": -1, "centroid": -1, "basis": -2},
    "exact_page_scores": {"queries": -1, "key_pages": -1},
    "quest_scores": {"queries": -1, "minimum": -1, "maximum": -1},
    "locks_quantize_summary": {"centroid": -1, "basis": -2},
    "locks_dequantize_summary": {"centroid_codes": -1, "basis_codes": -2},
    "readkv_encode": {"z": -1},
    "readkv_decode": {"codes": -1, "depth": -1},
    "readkv_attention": READER,
    "readkv_restricted_attention": READER,
    "affine_quantize": {"x": -1},
    "affine_dequantize": {"codes": -1},
    "kivi_quantize": {"keys": -1, "values": -1},
    "qjl_encode": {"x": -1, "projection": -1},
    "qjl_estimate": {"queries": -1, "projection": -1},
    "lloyd2_encode": {"x": -1, **STANDARD},
    "lloyd2_decode": {"codes": -1, **STANDARD},
    "quest_envelope": {"keys": -1},
    "rocketkv_snap": {"queries": -1, "keys": -1},
    "rkv_scores": {"queries": -1, "keys": -1},
    "rocketkv_tokens": {"queries": -1, "keys": -1},
}
"""Which axis of which argument holds channels, by stage; the first argument tells how many there are."""

WINDOWS = {"rkv_scores", "rocketkv_snap"}
"""Stages whose queries are a window's: [H, G, w, d]."""

SCALED = {stage for stage, axes in CHANNELS.items() if "queries" in axes} - {"quest_scores"}
"""Stages whose answers hang on 1/sqrt(d), which is no power of two at 128: exact probes are exact no longer."""

TOO_LARGE = {"readkv_restricted_attention/large-logits"}
"""Cases whose logits, grown, leave no answer that zeros would not pass for."""


def served_cases(cases: Sequence[Case]) -> list[Case]:
    """Those of ``cases`` that can be repeated at the served sizes, so repeated."""
    stage = cases[0].stage
    axes = CHANNELS.get(stage, {})
    if not axes:
        return []
    first, axis = next(iter(axes.items()))
    size = f"{f'G{HEADS}-' if 'queries' in axes else ''}d{SERVED}"
    found = []
    for case in cases:
        small = case.profile == "quick" and not case.sized and "capture" not in case.name
        if not (case.plain and small) or (case.poison and not case.name.startswith("stored-depth")):
            continue  # other poison hangs on what the case's own sizes leave unread
        if (case.kind == "exact" and stage in SCALED) or case.id in TOO_LARGE:
            continue
        d = np.shape(case.inputs()[first])[axis]
        if 0 < d < SERVED:
            inputs = partial(widened, case.inputs, axes, d, -3 if stage in WINDOWS else -2)
            found.append(
                replace(case, name=f"{case.name}-at-{size}", inputs=inputs, base=case.name, why=WHY, sized=True)
            )
    return found


def widened(inputs: Callable[[], Inputs], axes: dict[str, int], d: int, group: int = -2) -> Inputs:
    """Inputs whose channels, ``d`` of them, are repeated until there are 128, and query heads (axis ``group``) to 8.

    >>> x = widened(lambda: {"z": np.array([[1.0, 2.0, 3.0]])}, {"z": -1}, 3)["z"]
    >>> x.shape, x[0, :4].tolist()
    ((1, 128), [1.0, 2.0, 3.0, 1.0])
    """
    given = inputs()
    again = np.arange(SERVED) % d
    for name, axis in axes.items():
        if name in given and np.ndim(given[name]) >= -axis and np.shape(given[name])[axis] == d:
            given = {**given, name: np.take(np.asarray(given[name]), again, axis=axis)}
    if "queries" in axes:
        heads = np.shape(given["queries"])[group]
        if 0 < heads < HEADS:
            given = {**given, "queries": np.take(given["queries"], np.arange(HEADS) % heads, axis=group)}
    return given
