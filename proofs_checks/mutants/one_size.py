"""Ports that are right but for some sizes: a tile's last token, one group or head size, counts beyond a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proofs_checks.mutants.registry import StageFunction, mutant
from refimpl import port as right
from refimpl.attention import tokens_of_pages

Array = Any


def wrong(
    name: str, stage: str, suspect: str, what: str, when: Callable[[dict[str, Any]], Any]
) -> Callable[[StageFunction], StageFunction]:
    """Register a stage that answers by the decorated function where ``when(inputs)``, else by the reference."""

    def register(function: StageFunction) -> StageFunction:
        def call(**inputs: Any) -> Any:
            return function(**inputs) if when(inputs) else getattr(right, stage)(**inputs)

        return mutant(name, stage, suspect, what, sized=True)(call)

    return register


def _tokens(x: dict[str, Any]) -> int:
    return int(x["keys"].shape[1])


@wrong(
    "attention-tile-end-lost",
    "attention",
    "A",
    "the last token is lost where 64 divides T",
    lambda x: _tokens(x) % 64 == 0,
)
def tile_end_lost(*, keys: Array, values: Array, **more: Any) -> Any:
    """A loop that ends a step early."""
    return (
        right.attention(keys=keys[:, :-1], values=values[:, :-1], **more)
        if keys.size
        else right.attention(keys=keys, values=values, **more)
    )


@wrong(
    "attention-sixth-query-lost",
    "attention",
    "G",
    "groups of 6: the last query gets the answer before it",
    lambda x: x["queries"].shape[1] == 6,
)
def sixth_query_lost(**inputs: Any) -> Any:
    """Queries go in fives."""
    state = right.attention(**inputs)
    return {name: value[:, [0, 1, 2, 3, 4, 4]] for name, value in state.items()}


@wrong("attention-scale-of-192", "attention", "A", "d = 192 is scaled like 256", lambda x: x["queries"].shape[2] == 192)
def scale_of_192(*, softmax_scale: Any = None, **inputs: Any) -> Any:
    """The next power of two, there alone."""
    return right.attention(**inputs, softmax_scale=1 / 16 if softmax_scale is None else softmax_scale)


@wrong("merge-first-empty-is-zero", "merge_attention", "B", "an empty first split makes the output 0", lambda x: True)
def first_empty(*, outputs: Array, lses: Array) -> Any:
    """The running maximum starts at the first split's mass."""
    state = right.merge_attention(outputs=outputs, lses=lses)
    return {**state, "output": np.where(np.isneginf(lses[0])[..., None], 0.0, state["output"])}


@wrong("merge-two-empty-is-nan", "merge_attention", "B", "two empty splits beside a full one give NaN", lambda x: True)
def two_empty(*, outputs: Array, lses: Array) -> Any:
    """-inf minus -inf in a tree of merges."""
    state = right.merge_attention(outputs=outputs, lses=lses)
    empty = np.isneginf(lses).sum(axis=0)
    return {**state, "output": np.where(((empty > 1) & (empty < len(lses)))[..., None], np.nan, state["output"])}


@wrong(
    "sparse-whole-page-short",
    "sparse_attention",
    "A",
    "the last token is lost where B divides T",
    lambda x: _tokens(x) and _tokens(x) % x["page_size"] == 0,
)
def whole_page_short(*, queries: Array, keys: Array, values: Array, pages: Array, page_size: int, **more: Any) -> Any:
    """T mod B is taken for the length of the last page, less one."""
    state = right.sparse_attention(queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, **more)
    for h, row in enumerate(np.asarray(pages)):
        index = tokens_of_pages(row, page_size, keys.shape[1] - 1)
        if len(index):
            one = right.attention(
                queries=queries[h : h + 1], keys=keys[h : h + 1, index], values=values[h : h + 1, index], **more
            )
            state["output"][h], state["lse"][h] = one["output"][0], one["lse"][0]
    return state


for paged in ("paged_attention", "paged_sparse_attention"):

    @wrong(
        f"{paged.replace('_', '-')}-scale-ignored", paged, "B", "an explicit softmax scale is ignored", lambda x: True
    )
    def scale_ignored(*, softmax_scale: Any = None, _stage: str = paged, **inputs: Any) -> Any:
        """Only dense attention takes it."""
        return getattr(right, _stage)(**inputs)


@wrong(
    "paged-heads-before-slots",
    "paged_attention",
    "A",
    "pools with B = H are read heads first",
    lambda x: x["key_pool"].shape[1] == x["key_pool"].shape[2],
)
def heads_before_slots(*, key_pool: Array, **inputs: Any) -> Any:
    """The other layout [M, H, B, d], where the shape does not tell."""
    return right.paged_attention(key_pool=np.swapaxes(key_pool, 1, 2), **inputs)


@wrong("rotate-512-unscaled", "readkv_rotate", "E", "d = 512 lacks 1/sqrt(d)", lambda x: x["x"].shape[-1] == 512)
def rotate_512(**inputs: Any) -> Any:
    """Another code path for large d."""
    return right.readkv_rotate(**inputs) * 512**0.5


@wrong(
    "value-importance-1024-tokens",
    "readkv_value_importance",
    "A",
    "tokens beyond 1024 have no importance",
    lambda x: x["weights"].shape[2] > 1024,
)
def importance_1024(**inputs: Any) -> Any:
    """One block of threads."""
    importance = right.readkv_value_importance(**inputs)
    return importance * (np.arange(importance.shape[1]) < 1024)


@wrong(
    "choose-minimum-afterwards",
    "readkv_choose_depths",
    "C",
    "depths are raised to the minimum after the budget is spent",
    lambda x: x.get("minimum_depth") and x["budget"] >= len(x["importance"]) * x["minimum_depth"],
)
def minimum_afterwards(*, minimum_depth: int, **inputs: Any) -> Any:
    """Spends more than there is."""
    return np.maximum(right.readkv_choose_depths(**inputs), minimum_depth)


@wrong("choose-gains-in-bf16", "readkv_choose_depths", "I", "gains are rounded to 8 bits", lambda x: True)
def gains_in_bf16(*, gains: Array, **inputs: Any) -> Any:
    """Steps of nearly one gain change places."""
    bits = np.asarray(gains, np.float32).view(np.uint32)
    rounded = ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32)
    return right.readkv_choose_depths(gains=rounded.astype(float), **inputs)


@wrong("affine-narrow-rows-floored", "affine_quantize", "D", "scales are at least 1e-3", lambda x: x["x"].size)
def narrow_rows(*, x: Array, bits: int) -> Any:
    """A guard against 0 that swallows narrow rows."""
    row = right.affine_quantize(x=x, bits=bits)
    scale = np.maximum(row["scale"], 1e-3)
    return {**row, "scale": scale, "codes": np.rint((x - row["zero"][..., None]) / scale[..., None]).astype(np.uint8)}


@wrong(
    "codebook-5-bits-wide", "lloyd_max_codebook", "F", "the table of 5 bits is 2% too wide", lambda x: x["bits"] == 5
)
def five_bits_wide(**inputs: Any) -> Any:
    """A typing mistake in one table of eight."""
    return {name: 1.02 * value for name, value in right.lloyd_max_codebook(**inputs).items()}
