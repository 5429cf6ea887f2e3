"""Float32 stages of locks-kv-0.1.4 with one mistake each."""

import honest_dialect as honest
import numpy as np

from proofs_checks.numbers import round_bfloat16

F = np.float32


def recent_in_peak(*, scores):
    """Mutant: the peak is over all pages."""
    values = np.exp(scores - scores.max(axis=-1, keepdims=True)).sum(axis=1)
    values[:, -1] = 0
    return values


def share_average(*, scores):
    """Mutant: the paper's rule."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    values = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=1)
    values[:, -1] = 0
    return values


def largest_mass(*, scores):
    """Mutant: the package's other rule, the largest score of any head."""
    values = scores.max(axis=1)
    values[:, -1] = 0
    return values


def forced_inside(*, shares, budget_tokens, page_size):
    """Mutant: the budget holds the forced pages, as the paper's does."""
    inside = max(budget_tokens - 2 * page_size, 1)
    return honest.select_pages(shares=shares, budget_tokens=inside, page_size=page_size)


def budget_floored(*, shares, budget_tokens, page_size):
    """Mutant: budgets are rounded down to whole pages."""
    whole = max(budget_tokens // page_size, 1) * page_size
    return honest.select_pages(shares=shares, budget_tokens=whole, page_size=page_size)


def unrounded_scales(**summary):
    """Mutant: scales stay in float32."""
    codes = honest.quantizer()(**summary)
    axes = {"centroid": ("centroid", -1, 127), "basis": ("basis", -2, 7), "coefficient": ("coefficients", -1, 127)}
    for name, (part, axis, level) in axes.items():
        level = honest.LEVELS[summary["basis_bits"]] if name == "basis" else level
        codes[f"{name}_scale"] = np.maximum(np.abs(summary[part]).max(axis=axis) / F(level), F(1e-8))
    return codes


def truncated_scales(**summary):
    """Mutant: scales cut off after bf16's digits instead of rounded."""
    codes = unrounded_scales(**summary)
    for name in ("centroid_scale", "basis_scale", "coefficient_scale"):
        codes[name] = (codes[name].view(np.uint32) & 0xFFFF0000).view(F)
    return codes


def coded_by_stored_scale(**summary):
    """Mutant: codes by the bf16 scale."""
    codes = honest.quantizer()(**summary)
    for name, part, axis, level in (
        ("centroid", "centroid", -1, 127),
        ("basis", "basis", -2, honest.LEVELS[summary["basis_bits"]]),
        ("coefficient", "coefficients", -1, 127),
    ):
        scale = np.expand_dims(codes[f"{name}_scale"], axis)
        codes[f"{name}_codes"] = np.clip(np.rint(summary[part] / scale), -level, level).astype(np.int8)
    return codes


def no_floor(**summary):
    """Mutant: scales without a floor."""
    codes = honest.quantizer()(**summary)
    for name, part, axis, level in (("centroid", "centroid", -1, 127), ("coefficient", "coefficients", -1, 127)):
        scale = np.abs(summary[part]).max(axis=axis, keepdims=True) / F(level)
        ratio = np.divide(summary[part], scale, out=np.zeros_like(summary[part]), where=scale > 0)
        codes[f"{name}_codes"] = np.rint(ratio).astype(np.int8)
        codes[f"{name}_scale"] = round_bfloat16(np.squeeze(scale, axis))
    return codes


def exact_queries(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Mutant: the paper's scores."""
    projected = np.einsum("hgd,hpdr->hgpr", queries, basis)
    logits = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
    logits = logits + np.einsum("hgd,hpd->hgp", queries, centroid)[..., None]
    return honest.log_sum_exp(logits * F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5))


def one_scale_per_group(*, queries, **rest):
    """Mutant: the query heads of a group share one scale."""
    scale = np.maximum(np.abs(queries).max(axis=(1, 2), keepdims=True), F(1e-8)) / F(127)
    return exact_queries(queries=np.rint(queries / scale) * scale, **rest)


def exact_query_for_centroid(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Mutant: only the basis meets the rounded query."""
    codes, scale = honest.rounded_queries(queries)
    projected = np.einsum("hgd,hpdr->hgpr", codes * scale, basis)
    logits = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
    logits = logits + np.einsum("hgd,hpd->hgp", queries, centroid)[..., None]
    return honest.log_sum_exp(logits * F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5))


def smallest_modes(*, key_pages, rank):
    """Mutant: the first columns of an ascending eigendecomposition, the smallest modes."""
    whole = honest.by_gram(key_pages=key_pages, rank=min(key_pages.shape[2:]))
    return whole | {n: whole[n][..., :rank] for n in ("basis", "coefficients")}
