"""Rows of the stage table as the dialect locks-kv-0.1.4 has them; stages that are not here are the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proofs_checks.bounds import locks_kv as bounds
from proofs_checks.judge.checks.decode import DecodeRules, decoder, paged_decoder
from proofs_checks.judge.checks.general import Check, within
from proofs_checks.judge.checks.summary import builder
from proofs_checks.judge.locks_kv.checks import kept_pages, quantized, selected_besides_forced
from proofs_checks.judge.stages import STAGES, Stage
from refimpl.locks import dialect
from refimpl.locks.dialect import LOCKS_KV_0_1_4

DECODE = DecodeRules(bounds.decode_enclosure, kept_pages, bounds.sparse_bound)


@dataclass(frozen=True)
class DialectStage(Stage):
    """A row whose reference is the dialect's own function."""

    function: Callable[..., Any] = dict

    @property
    def reference(self) -> Callable[..., Any]:
        """The float64 function of this stage in the dialect."""
        return self.function


def _row(name: str, function: Callable[..., Any], check: Check | None = None, bound: Any = None, **more: Any) -> Stage:
    """The paper's row with another reference, and with another check or bound."""
    paper = STAGES[name]
    words = {field: getattr(paper, field) for field in ("arguments", "results", "source", "optional")} | more
    return DialectStage(name, **words, check=check or within(bound), bound=bound, function=function)


def _page_values(*, scores: Any) -> Any:
    return dialect.page_values(LOCKS_KV_0_1_4, scores=scores)


def _select_pages(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    return dialect.select_pages(LOCKS_KV_0_1_4, values=shares, budget_tokens=budget_tokens, page_size=page_size)


def _of(function: Callable[..., Any]) -> Callable[..., Any]:
    return partial(function, LOCKS_KV_0_1_4)


ROWS: dict[str, Stage] = {
    row.name: row
    for row in (
        replace(STAGES["sparse_attention"], check=within(bounds.sparse_bound), bound=bounds.sparse_bound),
        replace(
            STAGES["paged_sparse_attention"], check=within(bounds.paged_sparse_bound), bound=bounds.paged_sparse_bound
        ),
        _row("locks_build_summary", _of(dialect.build_summary), builder(bounds.SMALLEST_MODE, rising=True)),
        _row("locks_quantize_summary", _of(dialect.quantize_summary), quantized),
        _row("locks_score_pages", _of(dialect.score_pages), bound=bounds.score_bound),
        _row("locks_page_shares", _page_values, bound=bounds.page_values_bound, optional=()),
        _row("locks_select_pages", _select_pages, selected_besides_forced),
        _row("locks_decode", _of(dialect.decode), decoder(DECODE)),
        _row("locks_decode_paged", _of(dialect.decode_paged), paged_decoder(DECODE)),
    )
}
