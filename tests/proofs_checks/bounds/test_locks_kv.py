"""Bounds of the dialect locks-kv-0.1.4 against hand computation, corners, and honest float32 summaries."""

import honest_dialect as honest
import numpy as np
import pytest
from half_steps import half_step_page

from proofs_checks.bounds import locks_kv as bounds
from proofs_checks.bounds.locks_rounding import requantized
from proofs_checks.judge.cases.inputs import planted_pages
from proofs_checks.judge.dialects import DIALECTS
from proofs_checks.judge.judging import prepare
from proofs_checks.numbers import Precision
from refimpl.locks import dialect as reference
from refimpl.locks.dialect import LOCKS_KV_0_1_4

F = np.float32
RULES = DIALECTS[LOCKS_KV_0_1_4.name]
SCORED = [c for c in RULES.cases_of("locks_decode") if c.name not in ("no-tokens", "one-open-token")]
SPECTRUM = [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7]
WAYS = {
    "gram": (honest.by_gram, honest.quantizer(), honest.scorer()),
    "svd": (honest.by_svd, honest.quantizer(honest.by_reciprocal), honest.rebuilt),
}


def centred(pages):
    return pages - pages.mean(axis=2, keepdims=True)


def drawn(kind, rng, bits):
    """Queries [1, 3, 64], pages [1, P, 16, 64] and a rank at which something is about to tip."""
    queries = 2 * rng.normal(size=(1, 3, 64))
    if kind == "codes at half a step":
        level = honest.LEVELS[bits]
        return queries, np.stack([half_step_page(rng, 16, 64, 4, level, 0.6) for _ in range(3)])[None], 4
    if kind == "queries at half a step":
        queries = np.round(20 * queries) + 0.5
        queries[..., 0] = 127.0
        return queries / 32, planted_pages(rng, 1, 3, 16, 64, SPECTRUM), 8
    if kind == "equal modes":
        return queries, planted_pages(rng, 1, 3, 16, 64, [2.0] * 8), 5
    if kind == "modes at the floor":
        return 3e3 * queries, centred(planted_pages(rng, 1, 3, 16, 64, [10.0 ** -(3 + k) for k in range(6)])), 8
    if kind == "pages below the floor":
        return 3e3 * queries, 1e-6 * centred(planted_pages(rng, 1, 3, 16, 64, SPECTRUM)), 8
    if kind == "scales at the floor":
        return 1e6 * queries, 1e-8 * centred(planted_pages(rng, 1, 3, 16, 64, SPECTRUM)), 8
    pages = np.zeros((1, 2, 16, 64))
    pages[0, 1] = planted_pages(rng, 1, 1, 16, 64, SPECTRUM[:3])[0, 0]
    pages[0, 1, 3] = pages[0, 1].mean(axis=0)  # a token without deviation: all its coefficients are noise
    return queries, pages, 8


KINDS = (
    "codes at half a step", "queries at half a step", "equal modes", "modes at the floor", "pages below the floor",
    "scales at the floor", "a page of zeros and a token at the mean",
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_no_honest_score_leaves_the_enclosure(kind, bits, way):
    build, quantize, score = WAYS[way]
    for seed in range(2):
        queries, pages, rank = drawn(kind, np.random.default_rng(seed), bits)
        queries, pages = queries.astype(F), pages.astype(F)
        exact = (queries.astype(np.float64), pages.astype(np.float64))
        middle, eta = bounds.score_enclosure(*exact, rank, bits, None, Precision())
        codes = quantize(**build(key_pages=pages, rank=rank), basis_bits=bits)
        scores = score(queries=queries, **honest.values_of(codes))
        assert np.all(np.abs(scores - middle) <= eta)


def test_scales_may_end_in_either_neighbour_only_near_a_tie():
    """7 (1 + 2^-8) / 7 lies half way between the bf16 numbers 1 and 1 + 2^-7; 7 (1 + 2^-9) / 7 does not."""
    for past, steps in ((2.0**-8, 1.0), (2.0**-9, 0.0)):
        line = np.array([7.0 * (1 + past), 3.0])
        moved = np.array([2.0**-16, 0.0])
        found = requantized(line, moved, 0, 7, 0.0, storage=bounds.STORAGE)
        assert found.value.tolist() == [7.0, 3.0]
        assert float(found.stretch) == steps * 2.0**-7


def test_values_of_two_heads_by_hand():
    """Peaks 4 and 8 leave out the last page: 4/4 + 2/8, 1/4 + 8/8, 2/4 + 1/8."""
    case = RULES.find_case("locks_page_shares/sum-of-peaks")
    prepared = prepare(case, "float32", stage=RULES.stage(case.stage))
    expected = np.array([[1.25, 1.25, 0.625, 0.0]])
    bound = bounds.page_values_bound(prepared.exact, prepared.reference, Precision())["shares"]
    assert np.all(np.abs(prepared.reference["shares"] - expected) <= bound)


def test_value_enclosure_holds_every_corner():
    """All scores at either end of what is left open: 2^6 corners of two heads and three pages."""
    scores = np.array([[[0.0, 0.3, -0.4], [1.0, 0.9, 1.2]]])
    eta = np.array([[[0.1, 0.05, 0.2], [0.0, 0.3, 0.1]]])
    low, high = bounds.value_enclosure(scores, eta, Precision())
    assert low[0, -1] == high[0, -1] == 0.0
    for corner in range(64):
        signs = np.array([1.0 if corner >> i & 1 else -1.0 for i in range(6)]).reshape(1, 2, 3)
        moved = np.concatenate([scores + signs * eta, np.zeros((1, 2, 1))], axis=-1)
        values = reference.page_values(LOCKS_KV_0_1_4, scores=moved)
        assert np.all((low <= values) & (values <= high))


@pytest.mark.parametrize("case", SCORED, ids=lambda case: case.name)
def test_the_middle_of_the_enclosure_is_the_dialect(case):
    """The reference, which keeps zero modes, lies inside the bounds of its own arithmetic."""
    x = prepare(case, "float32", stage=RULES.stage("locks_decode")).exact
    settings = {n: x[n] for n in ("rank", "basis_bits", "page_size")}
    low, high = bounds.decode_enclosure(x["queries"], x["keys"], *settings.values(), None, Precision())
    P = low.shape[1]
    pages = x["keys"][:, : (P - 1) * x["page_size"]].reshape(len(low), P - 1, x["page_size"], -1)
    built = reference.build_summary(LOCKS_KV_0_1_4, key_pages=pages, rank=x["rank"])
    codes = reference.quantize_summary(LOCKS_KV_0_1_4, **built, basis_bits=x["basis_bits"])
    scores = reference.score_pages(LOCKS_KV_0_1_4, queries=x["queries"], **reference.locks_dequantize_summary(**codes))
    last = np.zeros((*scores.shape[:2], 1))
    values = reference.page_values(LOCKS_KV_0_1_4, scores=np.concatenate([scores, last], axis=-1))
    assert np.all((low <= values) & (values <= high))
