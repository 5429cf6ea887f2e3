"""Bounds of page scores by other summaries: envelope, centroid, moment core, shared basis, codebook."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma, logit_bound, lse_bound, times
from proofs_checks.bounds.locks_score import summary_logits
from proofs_checks.numbers import Precision
from refimpl.attention import scale_of
from refimpl.checks import FloatArray

Bounds = dict[str, FloatArray]


def envelope_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`quest_scores`: d products in any order, or two sums of those of each sign."""
    queries, low, high = inputs["queries"], inputs["minimum"], inputs["maximum"]
    up, down = np.maximum(queries, 0.0), np.minimum(queries, 0.0)
    magnitude = np.einsum("hgd,hpd->hgp", up, np.abs(high), optimize=True)
    magnitude += np.einsum("hgd,hpd->hgp", -down, np.abs(low), optimize=True)
    operations = queries.shape[-1] + 2
    return {"scores": times(gamma(operations, precision.roundoff), magnitude)}


def _log_tokens(inputs: Mapping[str, Any], scores: FloatArray, u: float) -> FloatArray:
    """Error of log n, correct to three roundings, and of adding it last."""
    added: FloatArray = 3 * u * math.log(int(inputs["page_tokens"])) + u * np.abs(scores)
    return added


def centroid_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`centroid_scores`: one logit, and the logarithm."""
    scale, u = scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1]), precision.roundoff
    error = logit_bound(inputs["queries"], inputs["centroid"], scale, u)
    return {"scores": error + _log_tokens(inputs, reference["scores"], u) * (1 + u)}


def moment_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`moment_scores`: scale q.mu + scale^2/(2n) sum_k E_k (v_k.q)^2 + log n.

    A projection p errs by a = gamma_d sum |v||q|, its square by 2|p| a + a^2, and the sum of r squares with its factors
    by gamma of r + 8 more operations; the three parts are added in any order.
    """
    queries, centroid = inputs["queries"], inputs["centroid"]
    directions, energies = inputs["directions"], np.abs(inputs["energies"])
    d, r = queries.shape[-1], directions.shape[-1]
    scale, u, n = scale_of(inputs.get("softmax_scale"), d), precision.roundoff, int(inputs["page_tokens"])
    projected = np.abs(np.einsum("hgd,hpdr->hgpr", queries, directions, optimize=True))
    size = np.einsum("hgd,hpdr->hgpr", np.abs(queries), np.abs(directions), optimize=True)
    off = times(gamma(d, u), size)
    squares = 2 * projected * off + off**2 + times(gamma(r + 8, u), (projected + off) ** 2)
    factor = scale**2 / (2 * n)
    spread = factor * np.einsum("hgpr,hpr->hgp", squares, energies, optimize=True)
    centre = logit_bound(queries, centroid, scale, u)
    whole = abs(scale) * np.abs(np.einsum("hgd,hpd->hgp", queries, centroid, optimize=True))
    whole += factor * np.einsum("hgpr,hpr->hgp", projected**2, energies, optimize=True)
    return {"scores": centre + spread + u * whole + _log_tokens(inputs, reference["scores"], u) * (1 + u)}


def shared_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`shared_basis_scores`: as `locks_score_pages`, every page with the same centre and basis."""
    coordinates = inputs["coordinates"]
    H, P = coordinates.shape[:2]
    shape = inputs["basis"].shape[1:]
    paged = {
        **{name: inputs[name] for name in ("queries", "softmax_scale") if name in inputs},
        "centroid": np.broadcast_to(inputs["mean"][:, None], (H, P, shape[0])),
        "basis": np.broadcast_to(inputs["basis"][:, None], (H, P, *shape)),
        "coefficients": coordinates,
    }
    logits, error = summary_logits(paged, precision.roundoff)
    return {"scores": lse_bound(logits, error, precision.roundoff)}


def codebook_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`codebook_scores`: a log-sum-exp over the logits of the codewords that the tokens name."""
    queries, words, codes = inputs["queries"], inputs["codewords"], inputs["codes"]
    scale, u = scale_of(inputs.get("softmax_scale"), queries.shape[-1]), precision.roundoff
    logits = scale * (queries @ np.swapaxes(words, -1, -2))  # [H, G, N]
    error = logit_bound(queries, words, scale, u)
    picked = [[np.stack([head[g][codes[h]] for g in range(head.shape[0])]) for h, head in enumerate(x)]
              for x in (logits, error)]  # fmt: skip
    return {"scores": lse_bound(np.stack(picked[0]), np.stack(picked[1]), u)}
