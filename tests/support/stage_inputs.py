"""The inputs of every stage from one `draws.Draw`."""

import draws
import numpy as np

from refimpl.locks.quantize import LEVELS, locks_quantize_summary
from refimpl.locks.score import exact_page_scores
from refimpl.locks.summary import locks_build_summary


def merge_attention(drawn):
    rng, S = drawn.rng, 1 + drawn.seed % 6
    lses = 3 * rng.normal(size=(S, drawn.H, drawn.G))
    lses += {"equal-200": 200.0, "plus-60000": 60000.0, "minus-60000": -60000.0}.get(drawn.content, 0.0)
    if drawn.content in ("equal-200", "constant-pages"):
        lses = np.broadcast_to(lses[:1], lses.shape).copy()
    lses[rng.random(lses.shape) < 0.2] = -np.inf
    mean = 10.0 * (drawn.content == "large-mean")
    return {"outputs": mean + rng.normal(size=(S, drawn.H, drawn.G, drawn.d)), "lses": lses}


def sparse_attention(drawn):
    return {**draws.qkv(drawn), "pages": draws.some_pages(drawn, drawn.rng), "page_size": drawn.B}


def paged_sparse_attention(drawn):
    cache, rng = draws.pool(drawn), drawn.rng
    pages = np.full((3, drawn.H, drawn.pages), -1)
    for n, tokens in enumerate(cache["tokens"]):
        count = -(-int(tokens) // drawn.B)
        for h in range(drawn.H):
            row = rng.permutation(count)[: rng.integers(0, count + 1)]
            pages[n, h, : len(row)] = row
    return {**cache, "pages": pages}


def rank(drawn):
    return min(drawn.rank, drawn.B, drawn.d)


def locks_build_summary_inputs(drawn):
    return {"key_pages": draws.key_pages(drawn), "rank": rank(drawn)}


def summary(drawn):
    """A built summary, or for some contents random lines with zeros, halves of a step and unequal sizes."""
    if drawn.content in ("normal", "lattice"):
        rng, P, r = drawn.rng, drawn.complete, rank(drawn)
        shapes = {"centroid": (drawn.d,), "basis": (drawn.d, r), "coefficients": (drawn.B, r)}
        drawn_lines = {n: rng.integers(-14, 15, size=(drawn.H, P, *s)) / 2.0 for n, s in shapes.items()}
        return {n: a * 2.0 ** rng.integers(-9, 9) for n, a in drawn_lines.items()}
    return locks_build_summary(**locks_build_summary_inputs(drawn))


def locks_quantize_summary_inputs(drawn):
    return {**summary(drawn), "basis_bits": drawn.bits if drawn.bits in LEVELS else 8}


def locks_dequantize_summary(drawn):
    return locks_quantize_summary(**locks_quantize_summary_inputs(drawn))


def locks_pack_basis(drawn):
    return {"basis_codes": drawn.rng.integers(-8, 8, size=(drawn.H, drawn.complete, drawn.d, rank(drawn)))}


def locks_unpack_basis(drawn):
    return {"basis_bytes": drawn.rng.integers(0, 256, size=(drawn.H, drawn.complete, rank(drawn), drawn.d // 2))}


def locks_score_pages(drawn):
    return {
        "queries": draws.qkv(drawn)["queries"],
        **locks_build_summary(key_pages=draws.key_pages(drawn), rank=rank(drawn)),
    }


def exact_page_scores_inputs(drawn):
    inputs = draws.qkv(drawn)
    pages = draws.key_pages(drawn)
    if drawn.opened and drawn.seed % 2:
        pages = inputs["keys"][:, None, drawn.complete * drawn.B :]
    return {"queries": inputs["queries"], "key_pages": pages}


def locks_page_shares(drawn):
    inputs = draws.qkv(drawn)
    scores = exact_page_scores(queries=inputs["queries"], key_pages=draws.key_pages(drawn))
    scores = np.where(drawn.rng.random(scores.shape) < 0.1, -np.inf, scores)
    return {"scores": scores, "combine": ("share_average", "group_max", "group_mass")[drawn.seed % 3]}


def locks_select_pages(drawn):
    rng, P = drawn.rng, drawn.pages + 5
    shares = rng.random((drawn.H, P))
    if drawn.content in ("lattice", "repeated-pages", "equal-200"):
        shares = rng.integers(0, 3, size=(drawn.H, P)) / 4.0
    return {"shares": shares, "budget_tokens": drawn.kept * drawn.B - drawn.seed % drawn.B, "page_size": drawn.B}


def settings(drawn):
    budget = drawn.kept * drawn.B - (drawn.seed % drawn.B if drawn.kept > 2 else 0)
    return {"rank": rank(drawn), "basis_bits": drawn.bits, "budget_tokens": budget}


def locks_decode(drawn):
    return {**draws.qkv(drawn), **settings(drawn), "page_size": drawn.B}


def locks_decode_paged(drawn):
    return {**draws.pool(drawn), **settings(drawn)}


INPUTS = {
    "attention": draws.qkv,
    "merge_attention": merge_attention,
    "sparse_attention": sparse_attention,
    "paged_attention": draws.pool,
    "paged_sparse_attention": paged_sparse_attention,
    "locks_build_summary": locks_build_summary_inputs,
    "locks_quantize_summary": locks_quantize_summary_inputs,
    "locks_dequantize_summary": locks_dequantize_summary,
    "locks_pack_basis": locks_pack_basis,
    "locks_unpack_basis": locks_unpack_basis,
    "locks_score_pages": locks_score_pages,
    "exact_page_scores": exact_page_scores_inputs,
    "locks_page_shares": locks_page_shares,
    "locks_select_pages": locks_select_pages,
    "locks_decode": locks_decode,
    "locks_decode_paged": locks_decode_paged,
}
