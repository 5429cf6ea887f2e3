"""Cases of Locks' stages that meet faults of size: page sizes, head sizes, ranks and counts beyond the usual ones.

One token, one channel, one mode or one page decides, so that the answer is known by hand.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import planted_pages

WIDE = ("float32", "float64")
WEAK = "a mode of 1% of the largest one, well above what AMB-10 lets go, is kept"
LAST_TOKEN = "the last token of the page takes all mass: no fixed page size, no padding lane"
LAST_CHANNEL = "the last channel decides: no fixed head size"
LAST_MODE = "the last of the kept modes decides: no fixed rank"


def build_sizes() -> list[Case]:
    """Probes of `locks_build_summary`."""
    stage = Family("locks_build_summary", "H")
    return [
        stage.probe("own-heads", "G", "every head's pages have their own centroid", _own_pages, judged=("centroid",)),
        stage.probe("weak-mode", "H", WEAK, _weak_mode, dtypes=WIDE),
        stage.size("4100-pages", "A", "every page is built", _many_pages),
        stage.size("B1", "A", "pages of one token: the token is the centroid", _pages_of_one),
        stage.size("B15-d96", "A", "15 tokens, 96 channels, all 14 modes", partial(_planted, 15, 96, 14)),
        stage.size("B5-d64", "A", "5 tokens, all 4 modes", partial(_planted, 5, 64, 4)),
        *[stage.size(f"B{B}-d64", "A", f"pages of {B} tokens", partial(_planted, B, 64, 8)) for B in (33, 48, 64)],
    ]


def _weak_mode() -> Inputs:
    """Singular values 8 and 0.08 around a centroid of 0: sqrt(64 eps) of the page's norm is 0.022 in float32."""
    pages = planted_pages(generator("build", "weak"), 1, 3, 16, 64, [8.0, 0.08])
    return {"key_pages": pages - pages.mean(axis=2, keepdims=True), "rank": 2}


def _many_pages() -> Inputs:
    return {"key_pages": generator("build", "many").integers(-9, 10, size=(1, 4100, 2, 8)).astype(float), "rank": 1}


def _own_pages() -> Inputs:
    constant = 2.0 ** np.arange(6).reshape(2, 3)
    return {"key_pages": np.broadcast_to(constant[:, :, None, None], (2, 3, 16, 64)), "rank": 4}


def _pages_of_one() -> Inputs:
    return {"key_pages": generator("build", "one").integers(-9, 10, size=(1, 5, 1, 64)).astype(float), "rank": 1}


def _planted(B: int, d: int, modes: int) -> Inputs:
    spectrum = [8.0 - 0.5 * k for k in range(modes)]
    return {"key_pages": planted_pages(generator("build", f"{B},{d},{modes}"), 2, 3, B, d, spectrum), "rank": modes}


def score_sizes() -> list[Case]:
    """Probes of `locks_score_pages`."""
    stage = Family("locks_score_pages", "H")
    return [
        stage.probe("no-pages", "A", "P = 0: scores of no pages", partial(one_mode, 0, 16)),
        *[
            stage.size(f"last-token-of-{B}", "A", LAST_TOKEN, partial(one_mode, 3, B, last=-200.0))
            for B in (1, 5, 33, 64)
        ],
        *[stage.size(f"last-channel-{d}", "A", LAST_CHANNEL, partial(one_mode, 3, 16, d=d)) for d in (8, 96, 256)],
        *[
            stage.size(f"last-page-of-{P}", "A", "every page is scored", partial(one_mode, P, 4, d=16))
            for P in (700, 4100)
        ],
        stage.size("last-mode-of-15", "H", LAST_MODE, partial(one_mode, 3, 16, r=15)),
        stage.probe(
            "tf32-basis", "I", "a basis entry of 2049 / 2048", partial(one_mode, 2, 16, entry=2049 / 2048), **W
        ),
        stage.probe("tf32-coefficients", "I", "coefficients of 2049", partial(one_mode, 2, 16, first=2049.0), **W),
        stage.size("head-map-12-of-17", "G", "12 KV heads of 17 queries", _many_heads),
    ]


W: dict[str, Any] = {"dtypes": WIDE}


def one_mode(
    P: int, B: int, last: float = 0.0, d: int = 64, r: int = 1, entry: float = 1.0, first: float = 1.0
) -> Inputs:
    """Page p: the last token's logit is ``first`` + p, the others' lie ``last`` away from it; the rest is 0.

    Query sqrt(d) in the last channel, which the last mode alone holds.
    """
    queries, basis = np.zeros((1, 2, d)), np.zeros((1, P, d, r))
    queries[..., -1], basis[..., -1, -1] = np.sqrt(d), entry
    coefficients = np.zeros((1, P, B, r))
    coefficients[..., -1] = (first + np.arange(P))[None, :, None] + np.append(np.full(B - 1, last), 0.0)
    return {"queries": queries, "centroid": np.zeros((1, P, d)), "basis": basis, "coefficients": coefficients}


def _many_heads() -> Inputs:
    """One token a page: the score is its logit, (h + 1) (g + 1) / 8."""
    inputs = one_mode(2, 1)
    h, g = np.arange(1.0, 13)[:, None, None], np.arange(1.0, 18)[None, :, None]
    queries, centroid = np.zeros((12, 17, 64)), np.zeros((12, 2, 64))
    queries[..., :1], centroid[..., :1] = g, h
    shape = (12, 2, 64, 1)
    return {
        "queries": queries,
        "centroid": centroid,
        "basis": np.zeros(shape),
        "coefficients": np.zeros((12, 2, 1, 1)),
    } | {"basis": np.broadcast_to(inputs["basis"][:, :1], shape)}


def exact_score_sizes() -> list[Case]:
    """Probes of `exact_page_scores`."""
    stage = Family("exact_page_scores", "B")
    return [
        stage.probe("head-map", "G", "2 KV heads of 3 queries: a lone token's score says whose it is", _own_keys),
        stage.probe("softmax-scale", "B", "an explicit scale replaces 1/sqrt(d)", _keys_scaled),
    ]


def _own_keys() -> Inputs:
    """One token a page: the score is its logit, (h + 1) (g + 1) / 8."""
    queries, keys = np.zeros((2, 3, 64)), np.zeros((2, 1, 1, 64))
    queries[..., 0], keys[..., 0] = np.arange(1.0, 4), np.arange(1.0, 3)[:, None, None]
    return {"queries": queries, "key_pages": keys}


def _keys_scaled() -> Inputs:
    rng = generator("exact-score", "scaled")
    keys = rng.normal(size=(1, 4, 16, 64))
    return {"queries": rng.normal(size=(1, 2, 64)), "key_pages": keys, "softmax_scale": 0.5}


def share_peaks() -> list[Case]:
    """Probes of `locks_page_shares` whose largest score stands in the last tile."""
    stage = Family("locks_page_shares", "B")
    return [stage.size(f"peak-in-last-tile-of-{P}", "B", PEAK, partial(_peak_last, P)) for P in (65, 1025, 4097)]


PEAK = "scores of 0, and 100 in the last tile: exp overflows where the maximum is of a tile"


def _peak_last(P: int) -> Inputs:
    return {"scores": np.append(np.zeros((2, 3, P - 1)), np.full((2, 3, 1), 100.0), axis=-1)}


def _last_query(G: int) -> Inputs:
    """The last query head sees page 1 alone, the others page 0: shares (G - 1) / G and 1 / G."""
    scores = np.zeros((2, G, 2))
    scores[:, :-1, 0], scores[:, -1, 1] = 200.0, 200.0
    return {"scores": scores}


def share_sizes() -> list[Case]:
    """Probes of `locks_page_shares`."""
    stage = Family("locks_page_shares", "C")
    return [
        stage.size("three-heads", "G", "three heads of equal shares average to them", partial(_heads, 3, 3)),
        stage.size(
            "twelve-heads", "G", "8 heads are even, 4 see page 1 alone: shares 1/3 and 2/3", partial(_heads, 12, 8)
        ),
        stage.size("one-page", "C", "P = 1 has all", lambda: {"scores": np.full((2, 3, 1), -7.0)}),
        *[
            stage.size(f"last-page-of-{P}", "C", "the last page holds half the mass", partial(_half_last, P))
            for P in (129, 3000)
        ],
        *[
            stage.size(f"last-query-of-{G}", "G", "the last query head counts", partial(_last_query, G))
            for G in (17, 33)
        ],
        stage.size(
            "group-mass-of-60000", "B", "masses of 60000: no overflow in a sum", partial(_far_masses, "group_mass")
        ),
        stage.size("group-max-of-60000", "B", "the same for the largest share", partial(_far_masses, "group_max")),
        stage.probe("group-mass-sums", "C", "masses of a group are added: 1 + 1 + 1 against 2", _three_ones),
    ]


def _heads(G: int, even: int) -> Inputs:
    scores = np.zeros((1, G, 2))
    scores[:, even:, 0] = -np.inf
    return {"scores": scores}


def _half_last(P: int) -> Inputs:
    scores = np.zeros((1, 2, P))
    scores[..., -1] = np.log(P - 1.0)
    return {"scores": scores}


def _far_masses(combine: str) -> Inputs:
    """Two query heads whose scores lie 120000 nats apart."""
    low = np.array([-60000.0, -60001.0, -60003.0])
    return {"scores": np.stack([low, low[::-1] + 120000.0])[None], "combine": combine}


def _three_ones() -> Inputs:
    scores = np.full((1, 3, 2), -np.inf)
    scores[:, :, 0], scores[:, 0, 1] = 0.0, np.log(2.0)
    return {"scores": scores, "combine": "group_mass"}


def select_sizes() -> list[Case]:
    """Probes of `locks_select_pages`."""
    stage = Family("locks_select_pages", "C")
    sizes = [(1, 5), (8, 40), (64, 300), (48, 240)]
    return [
        *[
            stage.size(f"page-size-{B}", "C", f"budget {b}: k = 5", partial(_ranked, 12, b, B), kind="set")
            for B, b in sizes
        ],
        stage.size(
            "all-but-one", "C", "k = P - 1: the least middle page goes", partial(_ranked, 9, 128, 16), kind="set"
        ),
        stage.size("k-300", "C", "300 of 700 pages", partial(_ranked, 700, 300, 1), kind="set"),
        *[
            stage.size(
                f"P-{P}", "C", "8 of a power of two of pages, best anywhere", partial(_ranked, P, 128, 16), kind="set"
            )
            for P in (256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
        ],
    ]


def _ranked(P: int, budget: int, page_size: int) -> Inputs:
    """Distinct shares in shuffled order, each KV head's its own; pages 1, P - 2 and two in the middle are the best."""
    rng = generator("select", f"{P}")
    shares = np.stack([rng.permutation(P) for _ in range(2)]) * 2.0**-20
    shares[:, [1, P // 2 - 1, P // 2, P - 2]] += P * 2.0**-20
    return {"shares": shares, "budget_tokens": budget, "page_size": page_size}


def quantize_sizes() -> list[Case]:
    """Probes of `locks_quantize_summary`."""
    stage = Family("locks_quantize_summary", "D")
    return [
        stage.probe("exact-halves", "D", "halves of a step: to even, or a departure", _halves),
        stage.probe("small-lines", "D", "lines of size 2^-20: no floor under the scale", _small_lines),
        stage.size("rank-1", "A", "one column", _one_column),
        stage.size("last-channel-256", "D", "the largest entry of every column stands in channel 255", _last_row),
    ]


def _halves() -> Inputs:
    column = np.array([7.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 6.5])
    row = np.array([[127.0, 0.5], [-127.0, 2.5], [126.5, 127.0], [-1.5, -127.0]])
    return {
        "centroid": np.append(127.0, column[1:]).reshape(1, 1, 8),
        "basis": np.stack([column, -column], axis=-1)[None, None],
        "coefficients": row[None, None],
        "basis_bits": 4,
    }


def _small_lines() -> Inputs:
    return {name: value if name == "basis_bits" else value * 2.0**-20 for name, value in _halves().items()}


def _one_column() -> Inputs:
    return {name: value[..., :1] if name in ("basis", "coefficients") else value for name, value in _halves().items()}


def _last_row() -> Inputs:
    rng = generator("quantize", "last-row")
    basis, centroid = rng.uniform(-1, 1, size=(1, 2, 256, 4)), rng.uniform(-1, 1, size=(1, 2, 256))
    basis[:, :, -1], centroid[..., -1] = [-3.0, 5.0, -7.0, 2.0], 9.0
    return {"centroid": centroid, "basis": basis, "coefficients": rng.normal(size=(1, 2, 32, 4)), "basis_bits": 4}


def int8_codes() -> Inputs:
    """A basis in int8, as basis_bits 8 gives it: codes beyond 4 bits."""
    codes = np.array([-127, -128, 127, -9, 8, 100, -64, 16]).reshape(1, 1, 8, 1)
    return {
        **square_codes(),
        "centroid_codes": np.arange(8)[None, None],
        "basis_codes": codes * np.ones((1, 1, 1, 4), int),
    }


def square_codes() -> Inputs:
    """As many tokens as modes: a coefficient's scale is its token's, not its mode's."""
    return {
        "centroid_codes": np.array([[[3, -5, 7, 127]]]),
        "centroid_scale": np.array([[0.5]]),
        "basis_codes": np.arange(-8, 8).reshape(1, 1, 4, 4),
        "basis_scale": 2.0 ** np.arange(4).reshape(1, 1, 4),
        "coefficient_codes": np.arange(1, 17).reshape(1, 1, 4, 4),
        "coefficient_scale": 2.0 ** -np.arange(4).reshape(1, 1, 4),
    }
