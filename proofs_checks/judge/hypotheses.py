"""Which known mistakes explain the answers of a failing decode step: a right step with one wrong stage, tried on each.

A mistake is consistent where its answer is the port's on every failing case, and right on every case that passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import attention_bound, sparse_attention_bound
from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.judge.case import Case
from proofs_checks.judge.judging import Prepared, judge, prepare
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.registry import Mutant
from proofs_checks.numbers import Precision
from refimpl.checks import ArgumentError, FloatArray
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.decode import locks_scores
from refimpl.locks.summary import locks_build_summary
from refimpl.paging import gather_sequence

Inputs = dict[str, Any]


@dataclass
class Evidence:
    """A failing case with the port's own answer."""

    prepared: Prepared
    answer: dict[str, Any]
    precision: Precision

    @cached_property
    def steps(self) -> list[Step]:
        """The case taken apart into sequences: one, or those of the batch."""
        inputs = self.prepared.stage.exact_inputs(self.prepared.sent)
        if "tokens" not in inputs:
            return [Step(inputs, self.answer, self.precision)]
        lengths = [int(tokens) for tokens in inputs["tokens"]]
        parts = [{name: value[n] for name, value in self.answer.items()} for n in range(len(lengths))]
        return [Step(_sequence(inputs, n, t), parts[n], self.precision) for n, t in enumerate(lengths)]


@dataclass
class Step:
    """One sequence's decode step: inputs as `locks_decode` takes them and the port's answer."""

    inputs: Inputs
    answer: Inputs
    precision: Precision

    @property
    def tokens(self) -> int:
        """T."""
        return int(self.inputs["keys"].shape[1])

    @property
    def pages(self) -> list[Any]:
        """The port's pages of each head, without the places that a longer sequence of the batch fills."""
        return [row[row >= 0] for row in self.answer["pages"]]

    @cached_property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """How many times above the right share a right port's may lie, and how many below, both [H, P]."""
        call = {name: self.inputs[name] for name in ("queries", "keys", "rank", "basis_bits", "page_size")}
        scale = self.inputs.get("softmax_scale")
        low, high = decode_enclosure(**call, softmax_scale=scale, precision=self.precision)
        right = locks_page_shares(scores=locks_scores(**call, scale=scale))
        with np.errstate(divide="ignore", invalid="ignore"):
            return low / right, high / right


def by_gram(key_pages: Any, rank: int) -> Any:
    """Modes [H, P, d, r], of any length, as float32 eigenvectors of D D^T give them."""
    deviations = _deviations(key_pages)
    _, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    return np.swapaxes(deviations, -1, -2) @ vectors[..., ::-1][..., :rank]


def by_svd(key_pages: Any, rank: int) -> Any:
    """Modes [H, P, d, r] as a float32 singular value decomposition of D gives them."""
    return np.swapaxes(np.linalg.svd(_deviations(key_pages), full_matrices=False)[2][..., :rank, :], -1, -2)


def _deviations(key_pages: Any) -> Any:
    pages = np.asarray(key_pages, np.float32)
    return pages - pages.mean(axis=2, keepdims=True)


def signed_like(modes: Callable[[Any, int], Any]) -> Callable[..., Any]:
    """The reference's build with every column pointing as ``modes`` has it (AMB-12: signs are free)."""

    def build(*, key_pages: Any, rank: int) -> Any:
        summary = locks_build_summary(key_pages=key_pages, rank=rank)
        sign = np.where(np.sum(summary["basis"] * modes(key_pages, rank), axis=2, keepdims=True) < 0, -1.0, 1.0)
        return summary | {name: summary[name] * sign for name in ("basis", "coefficients")}

    return build


SIGNED = ("locks_quantize_summary", "locks_dequantize_summary", "locks_pack_basis", "locks_unpack_basis")
"""Stages whose mistakes may treat the two signs of a column differently."""

SIGNS: tuple[Callable[..., Any] | None, ...] = (None, signed_like(by_gram), signed_like(by_svd))
"""The signs that are tried: the reference's, and what the usual two solvers leave."""


@dataclass(frozen=True)
class Hypothesis:
    """One mistake, and the signs of the basis columns that it met."""

    mistake: Mutant
    signs: Callable[..., Any] | None = None


@dataclass
class Imagined:
    """What a step with one mistake answers. ``shares`` [H, P] of each sequence that has tokens, in order."""

    answer: dict[str, Any]
    shares: list[FloatArray] = field(default_factory=list)
    output_known: bool = True
    attend: Callable[..., Any] | None = None


def consistent(
    mistakes: Sequence[Mutant],
    failed: Sequence[Evidence],
    passed: Sequence[tuple[Case, str]],
    precision: Callable[[str], Precision],
) -> list[Mutant]:
    """The mistakes that explain every failing case and would have passed where the port passed."""
    tried = [Hypothesis(m, s) for m in mistakes for s in (SIGNS if m.stage in SIGNED else SIGNS[:1])]
    left = tried if failed else []
    for evidence in failed:
        left = [hypothesis for hypothesis in left if explains(hypothesis, evidence)]
    for case, dtype in passed if left else ():
        prepared = prepare(case, dtype)
        left = [hypothesis for hypothesis in left if _would_pass(hypothesis, prepared, precision(dtype))]
    return list({hypothesis.mistake.id: hypothesis.mistake for hypothesis in left}.values())


def imagine(hypothesis: Hypothesis, stage: Stage, inputs: Inputs) -> Imagined | None:
    """The answer of a right pipeline with this one mistake, in float64; None where it raises."""
    mistake = hypothesis.mistake
    signed = {} if hypothesis.signs is None else {"locks_build_summary": hypothesis.signs}
    port = build_port({**signed, mistake.stage: _carrying(mistake)})
    imagined = Imagined({}, attend=port.sparse_attention)
    combine, attend = port.locks_page_shares, port.sparse_attention

    def recording(**call: Any) -> Any:
        shares = combine(**call)
        imagined.shares.append(shares)
        return shares

    def lenient(**call: Any) -> Any:
        try:
            return attend(**call)
        except ArgumentError:  # pages twice or out of range: what a kernel would read is anybody's guess
            imagined.output_known = False
            return {"output": np.zeros(call["queries"].shape)}

    port.locks_page_shares, port.sparse_attention = recording, lenient
    try:
        with np.errstate(all="ignore"):
            answer = stage.named(getattr(port, stage.name)(**inputs))
    except Exception:  # a mistake that cannot answer explains no answer
        return None
    imagined.answer = {name: np.asarray(value) for name, value in answer.items()}
    return imagined


def _carrying(mistake: Mutant) -> Callable[..., Any]:
    """The mistaken stage on codes and bytes of their own types, on which its arithmetic may rest."""
    arguments, types = STAGES[mistake.stage].arguments, ("int8", "uint8")

    def call(**inputs: Any) -> Any:
        roles = {name: arguments.get(name) for name in inputs}
        return mistake.function(**{n: np.asarray(v, roles[n]) if roles[n] in types else v for n, v in inputs.items()})

    return call


def _would_pass(hypothesis: Hypothesis, prepared: Prepared, precision: Precision) -> bool:
    imagined = imagine(hypothesis, prepared.stage, prepared.stage.exact_inputs(prepared.sent))
    if imagined is None:
        return False
    if all(np.array_equal(imagined.answer[name], prepared.reference[name]) for name in prepared.reference):
        return True
    return not judge(prepared, imagined.answer, precision).faults


def explains(hypothesis: Hypothesis, evidence: Evidence) -> bool:
    """Whether the port's pages are those of the mistake, up to near ties, and its output within the bound of them."""
    prepared = evidence.prepared
    imagined = imagine(hypothesis, prepared.stage, prepared.stage.exact_inputs(prepared.sent))
    if imagined is None or any(np.shape(evidence.answer[n]) != np.shape(v) for n, v in imagined.answer.items()):
        return False
    shares = iter(imagined.shares)
    for n, step in enumerate(evidence.steps):
        wanted = imagined.answer
        if "tokens" in prepared.exact:
            wanted = {name: value[n] for name, value in wanted.items()}
        if not _same_step(step, wanted, next(shares, None) if step.tokens else None, imagined):
            return False
    return True


def _sequence(inputs: Inputs, n: int, tokens: int) -> Inputs:
    """One sequence of a paged call, as `locks_decode` takes it."""
    keys, values = (gather_sequence(inputs[p], inputs["block_table"][n], tokens) for p in ("key_pool", "value_pool"))
    settings = {k: v for k, v in inputs.items() if k in ("rank", "basis_bits", "budget_tokens", "softmax_scale")}
    page_size = inputs["key_pool"].shape[1]
    return {"queries": inputs["queries"][n], "keys": keys, "values": values, "page_size": page_size, **settings}


def _same_step(step: Step, wanted: Inputs, shares: FloatArray | None, imagined: Imagined) -> bool:
    pages, output = np.sort(wanted["pages"], axis=-1), wanted["output"]
    if not np.array_equal(np.sort(step.answer["pages"], axis=-1), pages):
        if shares is None or not _near_ties(step, pages, shares):
            return False
        output = _attended(step, imagined)
    if output is None or not imagined.output_known:
        return True
    if not step.tokens:
        return np.array_equal(step.answer["output"], output, equal_nan=True)
    return _same_output(step, output)


def _near_ties(step: Step, wanted: Any, shares: FloatArray) -> bool:
    """Whether pages differ only where what rounding may do to a right port's shares could have swapped them.

    Every share may lie as many times above or below the mistake's as a right port's may lie about the right one.
    """
    below, above = step.band
    with np.errstate(invalid="ignore"):
        low, high = shares * below, shares * above
    for h, (mine, theirs) in enumerate(zip(step.answer["pages"], wanted, strict=True)):
        swapped = np.setxor1d(mine, theirs)
        if swapped.size == 0:
            continue
        if len(np.unique(mine)) < len(mine) or swapped.min() < 0 or swapped.max() >= shares.shape[1]:
            return False
        if not np.max(low[h, swapped]) <= np.min(high[h, swapped]):
            return False
    return True


def _attended(step: Step, imagined: Imagined) -> Any:
    """The mistaken step's output on the port's own pages; None where it cannot be told."""
    names = ("queries", "keys", "values", "page_size", "softmax_scale")
    call = {name: step.inputs[name] for name in names if name in step.inputs}
    try:
        with np.errstate(all="ignore"):
            return None if imagined.attend is None else imagined.attend(**call, pages=step.pages)["output"]
    except Exception:
        return None


def _same_output(step: Step, want: Any) -> bool:
    """Within the bound of attention over the port's pages, or over all tokens for a mistake that reads them."""
    names, got = ("queries", "keys", "values", "softmax_scale"), step.answer["output"]
    call = {name: step.inputs[name] for name in names if name in step.inputs}
    some = call | {"pages": step.pages, "page_size": step.inputs["page_size"]}
    kept = sparse_attention_bound(some, step.answer, step.precision)["output"]
    dense = attention_bound(call, step.answer, step.precision)["output"]
    allowed = np.maximum(kept, dense) + step.precision.output_roundoff * np.abs(want)
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(got - want) <= allowed) | (np.isnan(got) & np.isnan(want))).all())
