"""Runs the public package locks-kv 0.1.4 on the CPU against the dialect of the same name, stage by stage.

Needs torch, triton and `pip install --no-deps locks-kv==0.1.4`. Exit code 0 if every stage agrees, 1 otherwise.

Codes may differ only where a value lies within the package's float32 error of a rounding boundary: the band of every
value is derived below. Scores must lie within the rounding bound of their float32 evaluation. Tables must be equal.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from refimpl.locks.dialect import LOCKS_KV_0_1_4, build_summary, page_values, quantize_summary, round_queries, to_bf16
from refimpl.locks.quantize import LEVELS, locks_dequantize_summary, locks_unpack_basis
from refimpl.locks.score import locks_score_pages

U = 2.0**-24  # unit roundoff of float32
H, G, D, B, R, PAGES = 2, 3, 64, 16, 8, 32


def random_pages(rng: np.random.Generator) -> np.ndarray:
    """Pages [H, P, B, d] of whole numbers up to 15: mean, deviations and Gram matrix are exact in float32.

    Deviations are whole sixteenths, so a Gram entry is a whole number of 1/256 that stays below 2^24 of them.
    """
    left = np.linalg.qr(rng.standard_normal((H, PAGES, B, B - 1)))[0]
    right = np.linalg.qr(rng.standard_normal((H, PAGES, D, B - 1)))[0]
    modes = left * 1.3 ** -np.arange(B - 1) * 60 @ np.swapaxes(right, -1, -2)
    pages = np.clip(np.rint(modes + rng.standard_normal((H, PAGES, 1, D))), -15, 15)
    deviations = (pages - pages.mean(axis=2, keepdims=True)) * 16
    assert (np.abs(deviations) @ np.swapaxes(np.abs(deviations), -1, -2)).max() < 2**24
    return pages


def package_build(pages: np.ndarray) -> dict[str, np.ndarray]:
    """Codes and bf16 scales that the package writes for these pages."""
    import torch
    from locks.selection.rki4_build import _rki4_write
    from locks.selection.rki4_state import Rki4State

    state = Rki4State(
        "cpu", num_layers=1, num_blocks=PAGES, n_kv=H, G=G, head_dim=D, page=B, max_reqs=1, max_pages=PAGES + 1
    )
    keys = torch.tensor(np.moveaxis(pages, 0, 2), dtype=torch.float32).to(torch.bfloat16)  # [P, B, H, d]
    index = torch.arange(PAGES)
    _rki4_write(state, keys, torch.zeros_like(index), index)
    packed, column, coefficients, row, centroid, scale, _ = (x.float().numpy() for x in state.layer_state(0))
    heads_first = {
        "basis_codes": locks_unpack_basis(basis_bytes=np.moveaxis(packed.astype(np.uint8), 1, 0)),
        "basis_scale": np.moveaxis(column, 1, 0),
        "coefficient_codes": np.moveaxis(coefficients, 1, 0).astype(np.int8),
        "coefficient_scale": np.moveaxis(row, 1, 0),
        "centroid_codes": np.moveaxis(centroid, 1, 0).astype(np.int8),
        "centroid_scale": np.moveaxis(scale, 1, 0),
    }
    return heads_first | {"state": state}


def value_errors(pages: np.ndarray, built: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What float32 may change in centroid, basis and coefficients before they are rounded to codes.

    The Gram matrix is exact, so only the solver's backward error E = B u lambda_1 counts: the eigenvector of mode k
    turns by at most 2 E / gap_k (Davis-Kahan), lambda moves by E (Weyl); V = D^T U / sigma, C = U sigma inherit both.
    """
    sigma = np.linalg.svd(pages - pages.mean(axis=2, keepdims=True), compute_uv=False)  # [H, P, B]
    energy, backward = sigma**2, B * U * sigma[..., :1] ** 2
    apart = np.abs(energy[..., :, None] - energy[..., None, :]) + np.where(np.eye(B), np.inf, 0)
    turn = 2 * backward / apart.min(axis=-1)[..., :R]  # [H, P, r], radians
    stretch = backward / energy[..., :R] + 4 * U  # relative, of sigma: half of lambda's, doubled for the square root
    longest = np.linalg.norm(pages - pages.mean(axis=2, keepdims=True), axis=2)[..., None]  # |D e_c|, [H, P, d, 1]
    basis_error = longest * (turn + B * U)[:, :, None] / sigma[:, :, None, :R]
    basis_error = basis_error + np.abs(built["basis"][..., ::-1]) * stretch[:, :, None]
    coefficient_error = sigma[:, :, None, :R] * turn[:, :, None]
    coefficient_error = coefficient_error + np.abs(built["coefficients"][..., ::-1]) * stretch[:, :, None]
    return {
        "centroid": np.zeros(built["centroid"].shape),
        "basis": basis_error[..., ::-1],
        "coefficient": coefficient_error[..., ::-1],
    }


def compare_build(pages: np.ndarray, package: dict[str, Any]) -> bool:
    built = build_summary(LOCKS_KV_0_1_4, key_pages=pages, rank=R)
    ours = quantize_summary(LOCKS_KV_0_1_4, **built, basis_bits=4)
    agree = np.einsum("hpdr,hpdr->hpr", ours["basis_codes"].astype(int), package["basis_codes"].astype(int))
    sign = np.sign(agree)  # the package has no sign convention
    errors = value_errors(pages, built)
    ok = True
    for name, axis, bits in (("centroid", -1, 8), ("basis", -2, 4), ("coefficient", -1, 8)):
        value = built["centroid" if name == "centroid" else "basis" if name == "basis" else "coefficients"]
        theirs = package[f"{name}_codes"] * (1 if name == "centroid" else sign[..., None, :])
        scale = np.abs(value).max(axis=axis, keepdims=True) / LEVELS[bits]
        error = errors[name]
        worst = error.max(axis=axis, keepdims=True)  # of the line's largest entry, hence of its scale
        band = (error + np.abs(value) * worst / (scale * LEVELS[bits])) / scale + 4 * U * np.abs(value / scale)
        distance = np.abs(np.abs(value / scale - np.floor(value / scale)) - 0.5)
        differ = theirs != ours[f"{name}_codes"]
        outside = differ & ((distance > band) | (np.abs(theirs - ours[f"{name}_codes"]) > 1))
        print(
            f"{name:12} codes: {differ.sum()} of {differ.size} differ, {outside.sum()} of them outside the band "
            f"({(distance <= band).mean():.1%} of the values lie inside it)"
        )
        stored = np.abs(package[f"{name}_scale"] - ours[f"{name}_scale"])
        allowed = np.squeeze(worst, axis) / LEVELS[bits] + 2.0**-8 * ours[f"{name}_scale"]
        ok &= not outside.any() and bool((stored <= allowed).all())
    return ok


def compare_scores(package: dict[str, Any], rng: np.random.Generator) -> tuple[bool, np.ndarray]:
    import torch
    from locks.selection.rki4_score_torch import rki4_score_torch

    queries = to_bf16(rng.standard_normal((H, G, D)) * 3)
    state = package["state"]
    state.n_sel_hi[0] = PAGES
    table = torch.arange(PAGES + 1)[None].clamp(max=PAGES - 1)
    flat = torch.tensor(queries.reshape(1, H * G, D), dtype=torch.float32)
    rki4_score_torch(state, 0, flat, table, torch.tensor([PAGES * B + 1]), 1, D**-0.5)
    theirs = state.score_h[0, :, :, :PAGES].numpy()
    codes = {k: v for k, v in package.items() if k != "state"}
    summary = locks_dequantize_summary(**codes)
    rounded = round_queries(queries)
    ours = locks_score_pages(queries=rounded, **summary)
    projected = np.einsum("hgd,hpdr->hgpr", np.abs(rounded), np.abs(summary["basis"]))
    magnitude = np.einsum("hgpr,hpbr->hgpb", projected, np.abs(summary["coefficients"]))
    magnitude += np.einsum("hgd,hpd->hgp", np.abs(rounded), np.abs(summary["centroid"]))[..., None]
    terms = D + R + 8  # products and sums of both dots, the two dequantising products, query scale, softmax scale
    logit = terms * U / (1 - terms * U) * magnitude.max(-1) / D**0.5
    bound = logit + U * (2 * logit + B + 4 + 2 * magnitude.max(-1) / D**0.5 + np.abs(ours))
    ratio = np.abs(theirs - ours) / bound
    print(f"scores: worst error / bound {ratio.max():.3f}")
    return bool((ratio <= 1).all()), theirs


def compare_selection(scores: np.ndarray) -> bool:
    import torch
    from locks.selection.select import _topb_select_torch

    same, tables = True, 0
    for wanted in (1, 4, 11, PAGES):
        everything = np.concatenate([scores.astype(np.float64), np.zeros((H, G, 1))], axis=-1)
        values = page_values(LOCKS_KV_0_1_4, scores=everything).astype(np.float32)
        ties = np.round(values * 4) / 4  # many equal values: the lower page must win
        for ranked in (values, ties):
            between = PAGES - 1
            state = SimpleNamespace(
                n_kv=H, max_pages=PAGES + 1, sink_pages=1, score=torch.tensor(ranked[None]),
                n_pages=torch.tensor([PAGES + 1]), n_sel_hi=torch.tensor([PAGES]),
                b_fix=torch.tensor([min(wanted, between)]),
                page_table=torch.full((1, H, PAGES + 1), -1, dtype=torch.int32),
                page_cnt=torch.zeros((1, H), dtype=torch.int32),
            )  # fmt: skip
            _topb_select_torch(state, 1)
            from refimpl.locks.dialect import select_pages

            ours = select_pages(LOCKS_KV_0_1_4, values=ranked, budget_tokens=wanted * B, page_size=B)
            for head in range(H):
                theirs = state.page_table[0, head, : int(state.page_cnt[0, head])].tolist()
                same &= theirs == ours[head].tolist()
                tables += 1
    print(f"selection: {tables} tables, {'all equal' if same else 'NOT equal'}")
    return same


def main() -> int:
    rng = np.random.default_rng(20)
    pages = random_pages(rng)
    package = package_build(pages)
    build = compare_build(pages, package)
    scored, scores = compare_scores(package, rng)
    return 0 if build and scored and compare_selection(scores) else 1


if __name__ == "__main__":
    sys.exit(main())
