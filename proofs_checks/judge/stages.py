"""The stage table: every stage's keywords, results, reference, check and source; all else follows from a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.bounds import attention as attention_bounds
from proofs_checks.bounds import locks_score as score_bounds
from proofs_checks.judge.checks.codes import packed, quantized, unpacked
from proofs_checks.judge.checks.decode import decoded, decoded_paged
from proofs_checks.judge.checks.general import Check, within
from proofs_checks.judge.checks.selection import selected
from proofs_checks.judge.checks.summary import built
from proofs_checks.numbers import FORMATS, round_to
from refimpl import port as reference

CARRIERS = {"int8": np.int8, "uint8": np.uint8, "index": np.int64}


@dataclass(frozen=True)
class Stage:
    """One row.

    ``arguments`` maps keywords to roles: "input" (arrives rounded to the port's input dtype), "float" (arrives as
    float32), "int8", "uint8", "index" (int64), "plain" (a number, string or None). ``results`` maps names to roles:
    "output" (the declared output dtype), "float" (the accumulation dtype), "int8", "uint8", "index".
    """

    name: str
    arguments: Mapping[str, str]
    results: Mapping[str, str]
    source: str
    check: Check
    bound: Callable[..., Any] | None = None
    optional: tuple[str, ...] = ("softmax_scale",)

    @property
    def reference(self) -> Callable[..., Any]:
        """The float64 function of this stage."""
        function: Callable[..., Any] = getattr(reference, self.name)
        return function

    def signature(self) -> str:
        """The call as a port author writes it.

        >>> STAGES["locks_score_pages"].signature()
        'locks_score_pages(*, queries, centroid, basis, coefficients)'
        """
        return f"{self.name}(*, {', '.join(self.arguments)})"

    def named(self, result: Any) -> dict[str, Any]:
        """A result as a dict: one result comes as the array itself, several as a dict."""
        if len(self.results) == 1:
            return {next(iter(self.results)): result}
        return dict(result)

    def round_inputs(self, inputs: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        """Inputs as a port receives them: arrays rounded to ``dtype``, float32 or their integer type."""
        return {name: _carry(self.arguments.get(name, "plain"), value, dtype) for name, value in inputs.items()}

    def exact_inputs(self, carried: Mapping[str, Any]) -> dict[str, Any]:
        """The same bits in float64 and int64, as the reference and the bounds take them."""
        return {name: _widen(value) for name, value in carried.items()}


def _carry(role: str, value: Any, dtype: str) -> Any:
    if role == "input":
        return round_to(value, dtype)
    if role == "float":
        return np.asarray(value).astype(FORMATS["float32"].carrier)
    if role in CARRIERS:
        return np.asarray(value).astype(CARRIERS[role])
    return value


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.float64 if value.dtype.kind == "f" else np.int64)
    return value


def _bounded(
    name: str, arguments: Mapping[str, str], results: Mapping[str, str], source: str, bound: Callable[..., Any]
) -> Stage:
    return Stage(name, arguments, results, source, within(bound), bound)


QKV = {"queries": "input", "keys": "input", "values": "input"}
POOLS = {"queries": "input", "key_pool": "input", "value_pool": "input", "block_table": "index", "tokens": "index"}
SUMMARY = {"centroid": "float", "basis": "float", "coefficients": "float"}
CODES = {
    "centroid_codes": "int8",
    "centroid_scale": "float",
    "basis_codes": "int8",
    "basis_scale": "float",
    "coefficient_codes": "int8",
    "coefficient_scale": "float",
}
STATE = {"output": "output", "lse": "float"}
DECODE = {"rank": "plain", "basis_bits": "plain", "budget_tokens": "plain"}

TABLE = (
    _bounded("attention", QKV, STATE, "both, Sec. 2", attention_bounds.attention_bound),
    Stage(
        "merge_attention",
        {"outputs": "float", "lses": "float"},
        STATE,
        "split decoding",
        within(attention_bounds.merge_attention_bound),
        attention_bounds.merge_attention_bound,
        optional=(),
    ),
    _bounded(
        "sparse_attention",
        {**QKV, "pages": "index", "page_size": "plain"},
        STATE,
        "Locks Sec. 2",
        attention_bounds.sparse_attention_bound,
    ),
    _bounded("paged_attention", POOLS, STATE, "serving", attention_bounds.paged_attention_bound),
    _bounded(
        "paged_sparse_attention", {**POOLS, "pages": "index"}, STATE, "serving", attention_bounds.paged_attention_bound
    ),
    Stage(
        "locks_build_summary", {"key_pages": "input", "rank": "plain"}, SUMMARY, "Locks Sec. 4, Build", built, None, ()
    ),
    Stage(
        "locks_quantize_summary",
        {**SUMMARY, "basis_bits": "plain"},
        CODES,
        "Locks Sec. 4, App. D",
        quantized,
        optional=(),
    ),
    Stage(
        "locks_dequantize_summary",
        CODES,
        SUMMARY,
        "Locks Sec. 4, App. D",
        within(score_bounds.dequantize_bound),
        score_bounds.dequantize_bound,
        optional=(),
    ),
    Stage("locks_pack_basis", {"basis_codes": "int8"}, {"basis_bytes": "uint8"}, "Locks App. D", packed, None, ()),
    Stage("locks_unpack_basis", {"basis_bytes": "uint8"}, {"basis_codes": "int8"}, "Locks App. D", unpacked, None, ()),
    _bounded(
        "locks_score_pages",
        {"queries": "input", **SUMMARY},
        {"scores": "float"},
        "Locks Eq. (1)",
        score_bounds.score_bound,
    ),
    _bounded(
        "exact_page_scores",
        {"queries": "input", "key_pages": "input"},
        {"scores": "float"},
        "Locks Lemma 1",
        score_bounds.exact_score_bound,
    ),
    Stage(
        "locks_page_shares",
        {"scores": "float"},
        {"shares": "float"},
        "Locks Sec. 4, Table D.17",
        within(score_bounds.shares_bound),
        score_bounds.shares_bound,
        optional=("combine",),
    ),
    Stage(
        "locks_select_pages",
        {"shares": "float", "budget_tokens": "plain", "page_size": "plain"},
        {"pages": "index"},
        "Locks Sec. 2 and 4",
        selected,
        optional=(),
    ),
    Stage(
        "locks_decode",
        {**QKV, **DECODE, "page_size": "plain"},
        {"output": "output", "pages": "index"},
        "Locks Sec. 4",
        decoded,
    ),
    Stage("locks_decode_paged", {**POOLS, **DECODE}, {"output": "output", "pages": "index"}, "serving", decoded_paged),
)

STAGES: dict[str, Stage] = {stage.name: stage for stage in TABLE}
"""The table by name, in the order in which a pipeline runs."""
