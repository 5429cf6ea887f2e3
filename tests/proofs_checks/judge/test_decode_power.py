"""Decode steps with one fault each: right in every stage's arithmetic, wrong in how the step puts them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.judge.checks.selection import must_and_may
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.suite import cases_of, find_case
from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp, sparse_attention
from refimpl.locks.combine import head_shares
from refimpl.locks.quantize import LEVELS, locks_dequantize_summary, locks_quantize_summary
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.select import pages_within_budget, select_one
from refimpl.locks.summary import column_signs, locks_build_summary
from refimpl.paging import split_pages

PRECISION = Precision("float32", "float32", "float32")


@dataclass
class Decode:
    """One decode step in parts; a fault overrides one of them."""

    queries: Any
    keys: Any
    values: Any
    rank: int
    basis_bits: Any
    budget_tokens: int
    page_size: int
    softmax_scale: float | None = None

    def __call__(self) -> dict[str, Any]:
        scores = self.scores()
        pages = np.sort(self.select(self.shares(scores), scores), axis=1)
        call = {"keys": self.keys, "values": self.values, "pages": pages, "page_size": self.page_size}
        state = sparse_attention(queries=self.queries, **call, softmax_scale=self.softmax_scale)
        return {"output": state["output"], "pages": pages}

    def build(self, pages: Any) -> Any:
        return locks_build_summary(key_pages=pages, rank=self.rank)

    def quantise(self, built: Any) -> Any:
        if self.basis_bits is None:
            return built
        bits = self.basis_bits if isinstance(self.basis_bits, int) else 8
        deployed = locks_dequantize_summary(**locks_quantize_summary(**built, basis_bits=bits))
        return deployed | ({"basis": built["basis"]} if self.basis_bits == "fp" else {})

    def scale(self) -> float:
        return 1 / np.sqrt(self.queries.shape[-1]) if self.softmax_scale is None else self.softmax_scale

    def score_queries(self) -> Any:
        return self.queries

    def summary_score(self, summary: Any) -> Any:
        return locks_score_pages(queries=self.score_queries(), **summary, softmax_scale=self.scale())

    def scores(self) -> Any:
        complete, tail = split_pages(self.keys, self.page_size)
        scores = self.summary_score(self.quantise(self.build(complete)))
        if tail.shape[1]:
            exact = exact_page_scores(queries=self.score_queries(), key_pages=tail[:, None], softmax_scale=self.scale())
            scores = np.concatenate([scores, exact], axis=-1)
        return scores

    def shares(self, scores: Any) -> Any:
        return head_shares(scores).mean(axis=1)

    def kept(self, P: int) -> int:
        return pages_within_budget(self.budget_tokens, self.page_size, P)

    def select(self, shares: Any, scores: Any) -> Any:
        return np.stack([select_one(row, self.kept(len(row))) for row in shares])


class RecentIsLastFullPage(Decode):
    def select(self, shares, scores):
        P, recent = shares.shape[1], self.keys.shape[1] // self.page_size - 1
        ranked = shares.copy()
        ranked[:, [0, recent]] = np.inf
        return np.argsort(-ranked, axis=1, kind="stable")[:, : self.kept(P)]


class TailLeavesNormaliser(Decode):
    def shares(self, scores):
        full = self.keys.shape[1] // self.page_size
        shares = head_shares(scores[..., :full]).mean(axis=1)
        return np.pad(shares, ((0, 0), (0, scores.shape[-1] - full)))


class ShareMaximum(Decode):
    def shares(self, scores):
        return head_shares(scores).max(axis=1)


class MeanOfScores(Decode):
    def shares(self, scores):
        return scores.mean(axis=1)


class PooledMass(Decode):
    def shares(self, scores):
        return head_shares(log_sum_exp(np.moveaxis(scores, 1, -1)))


class ForcedOnTop(Decode):
    def kept(self, P):
        return min(super().kept(P) + 2, P)


class OnePageLess(Decode):
    def kept(self, P):
        return max(super().kept(P) - 1, 2)


class FloorOfBudget(Decode):
    def kept(self, P):
        return min(self.budget_tokens // self.page_size, P)


class NothingForced(Decode):
    def select(self, shares, scores):
        return np.argsort(-shares, axis=1, kind="stable")[:, : self.kept(shares.shape[1])]


class BudgetPerQueryHead(Decode):
    """Every query head in turn adds its best page until k pages are there."""

    def select(self, shares, scores):
        rows = []
        for own in head_shares(scores):  # [G, P]
            order, row, turn = np.argsort(-own, axis=1, kind="stable"), [0, own.shape[1] - 1], 0
            while len(row) < self.kept(own.shape[1]):
                row.append(next(int(p) for p in order[turn % len(own)] if p not in row))
                turn += 1
            rows.append(row[: self.kept(own.shape[1])])
        return np.array(rows)


class TiledHeads(Decode):
    """Query head h reads KV head h % H, in scoring."""

    def score_queries(self):
        H, G, d = self.queries.shape
        return np.swapaxes(self.queries.reshape(G, H, d), 0, 1)


class NextHeadsSummary(Decode):
    def summary_score(self, summary):
        return super().summary_score({name: np.roll(value, 1, axis=0) for name, value in summary.items()})


class PaddedScale(Decode):
    def scale(self):
        return 1 / np.sqrt(2 ** np.ceil(np.log2(self.queries.shape[-1])))


class ScaleIgnoredInScores(Decode):
    def scale(self):
        return 1 / np.sqrt(self.queries.shape[-1])


class BaseTwoScores(Decode):
    """Scores in base 2 that the shares then read as nats."""

    def scores(self):
        return super().scores() / np.log(2)


class LargestToken(Decode):
    def summary_score(self, summary):
        sharp = 1e4  # the log-sum-exp at this sharpness is the maximum to a part in 10^4
        return locks_score_pages(queries=self.queries * sharp, **summary, softmax_scale=self.scale()) / sharp


class SmallestModes(Decode):
    """eigh gives rising eigenvalues: the first r are the smallest of the page's own four or eight modes."""

    def build(self, pages):
        whole = locks_build_summary(key_pages=pages, rank=min(pages.shape[2] - 1, pages.shape[3]))
        size = np.linalg.norm(whole["coefficients"], axis=2)  # [H, P, modes]
        order = np.argsort(np.where(size > 1e-6, size, np.inf), axis=-1)[..., None, : self.rank]
        return whole | {n: np.take_along_axis(whole[n], order, axis=-1) for n in ("basis", "coefficients")}


class NoCentring(Decode):
    def build(self, pages):
        left, sigma, right = np.linalg.svd(pages, full_matrices=False)
        basis = np.swapaxes(right[..., : self.rank, :], -1, -2)
        sign = column_signs(basis)[..., None, :]
        coefficients = left[..., : self.rank] * sigma[..., None, : self.rank]
        return {"centroid": 0 * pages.mean(axis=2), "basis": basis * sign, "coefficients": coefficients * sign}


class _Codes(Decode):
    """Basis codes made another way."""

    def line(self, basis: Any, level: int) -> Any:
        raise NotImplementedError

    def quantise(self, built):
        deployed = super().quantise(built)
        if isinstance(self.basis_bits, int):
            deployed = deployed | {"basis": self.line(built["basis"], LEVELS[self.basis_bits])}
        return deployed


def _scaled(basis: Any, level: int, axis: int, rounding: Any) -> Any:
    scale = np.maximum(np.abs(basis).max(axis=axis, keepdims=True), 1e-30) / level
    return rounding(basis / scale) * scale


class TruncatedCodes(_Codes):
    def line(self, basis, level):
        return _scaled(basis, level, -2, np.trunc)


class ScalePerRow(_Codes):
    def line(self, basis, level):
        return _scaled(basis, level, -1, np.rint)


class LevelOfTheByte(_Codes):
    """absmax / 8 where int4 means absmax / 7 (and / 2 at int2), clipped."""

    def line(self, basis, level):
        scale = np.abs(basis).max(axis=-2, keepdims=True) / (level + 1)
        return np.clip(np.rint(basis / np.maximum(scale, 1e-30)), -level, level) * scale


FAULTS = [
    (RecentIsLastFullPage, "A", "open-page-of-one"),
    (RecentIsLastFullPage, "A", "open-page-of-15"),
    (TailLeavesNormaliser, "C", "open-page-counts"),
    (ShareMaximum, "C", "average-not-max"),
    (MeanOfScores, "C", "average-of-shares"),
    (PooledMass, "C", "average-not-max"),
    (ForcedOnTop, "C", "odd-budget"),
    (OnePageLess, "C", "odd-budget"),
    (FloorOfBudget, "C", "odd-budget"),
    (NothingForced, "C", "two-pages"),
    (BudgetPerQueryHead, "C", "one-budget-per-group"),
    (TiledHeads, "G", "own-summary"),
    (NextHeadsSummary, "G", "own-summary"),
    (PaddedScale, "A", "scale-of-80"),
    (ScaleIgnoredInScores, "B", "softmax-scale"),
    (BaseTwoScores, "B", "nats"),
    (LargestToken, "B", "sum-not-max"),
    (SmallestModes, "H", "largest-modes"),
    (NoCentring, "H", "centred-modes"),
    (TruncatedCodes, "D", "codes-to-nearest"),
    (TruncatedCodes, "D", "ternary-codes"),
    (ScalePerRow, "D", "codes-to-nearest"),
    (LevelOfTheByte, "D", "ternary-codes"),
]


@cache
def prepared(name: str):
    return prepare(find_case(f"locks_decode/{name}"), "float32")


def judged(fault: type[Decode], name: str):
    one = prepared(name)
    return judge(one, fault(**one.exact)(), PRECISION)


@pytest.mark.parametrize(("fault", "letter", "name"), FAULTS, ids=[f"{f.__name__}-{n}" for f, _, n in FAULTS])
def test_a_faulty_step_fails_the_case_of_its_class_by_its_pages(fault, letter, name):
    assert find_case(f"locks_decode/{name}").suspect == letter
    judgement = judged(fault, name)
    assert judgement.faults, "a wrong decode step passed"
    assert {f.result for f in judgement.faults} == {"pages"}  # its attention over its own pages is right


@pytest.mark.parametrize(
    "case", [c for c in cases_of("locks_decode") if c.inputs()["keys"].shape[1]], ids=lambda case: case.name
)
def test_the_step_without_a_fault_passes(case):
    one = prepared(case.name)
    assert not judge(one, Decode(**one.exact)(), PRECISION).faults


TRIVIAL = {
    "no-tokens": "T = 0: there is no page",
    "one-open-token": "T = 1: the open page is the only one",
    "all-kept": "4 pages, k = 5",
    "two-pages": "k = 2: the two forced pages take both slots, beside an open page",
    "two-complete-pages": "k = 2: the same where the last page is complete",
}
"""Cases in which nothing competes: budget, form and forced pages are what they judge."""


@pytest.mark.parametrize("case", cases_of("locks_decode"), ids=lambda case: case.name)
def test_the_sets_of_every_case_say_something_of_every_head(case):
    one = prepared(case.name).exact
    P = -(-one["keys"].shape[1] // one["page_size"])
    kept = pages_within_budget(one["budget_tokens"], one["page_size"], P)
    assert (kept == min(P, 2) or kept == P) == (case.name in TRIVIAL)
    if case.name not in TRIVIAL:
        call = {n: one[n] for n in ("queries", "keys", "rank", "basis_bits", "page_size")}
        low, high = decode_enclosure(**call, softmax_scale=one.get("softmax_scale"), precision=PRECISION)
        for lo, hi in zip(low, high, strict=True):
            must, may = must_and_may(lo, hi, kept)
            assert len(must) > 2
            assert len(may) < P
