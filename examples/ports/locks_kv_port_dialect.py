"""The public package `locks-kv` 0.1.4 as a port, judged in its own dialect. Expected verdict: PASS, departures listed.

The functions are those of locks_kv_port.py beside this file, where it says what is needed and what is called. What
differs:

- The budget is rounded up to whole pages before it becomes the package's ``budget_pages``, as the dialect counts them.
- A summary to be scored that is not on the package's code grid raises NotImplementedError: its scorer reads codes.
- Between scores and selection of a decode step, pages get the values of the package's default ``combine="nrm"``, the
  sum over the group of exp(score - largest score). That is a CUDA kernel without a twin in the package, so its
  arithmetic stands here, in one line of torch; scores before it and selection behind it are the package's.
"""

import locks_kv_port as paper
import torch
from locks.selection.rki4_score_torch import rki4_score_torch
from locks_kv_port import (  # noqa: F401
    DTYPES,
    FRAMEWORK,
    TIES,
    locks_build_summary,
    locks_pack_basis,
    locks_quantize_summary,
    locks_unpack_basis,
    paged_sparse_attention,
    sparse_attention,
)

PACKAGE = "locks-kv"
VERSION = "0.1.4"
MODULES = ("locks", "locks.selection", "locks.attention")
INSTALL = ("--no-deps",)  # it asks for vLLM, which what is driven here does not import
REQUIRES = ("torch==2.13.0", "triton")
DRIVES = "the same functions, judged by the documented departures of its own dialect"

DIALECT = "locks-kv-0.1.4"


def whole_pages(budget_tokens, page_size):
    return -(-budget_tokens // page_size)


def score_and_combine(st, layer, queries, table, lengths, N, scale):
    """Scores of all pages but the most recent, then `nrm`: its peak leaves out the most recent page, too."""
    rki4_score_torch(st, layer, queries, table, lengths, N, scale)
    st.score.zero_()
    for n, pages in enumerate(st.n_sel_hi[:N].tolist()):
        if pages > 0:  # an empty sequence has -1
            scores = st.score_h[n, :, :, :pages]
            st.score[n, :, :pages] = torch.exp(scores - scores.amax(dim=-1, keepdim=True)).sum(dim=1)


def on_grid(centroid, basis, coefficients):
    """Whether coding the summary and decoding it again gives it back."""
    missing = paper.RNK - basis.shape[-1]
    basis, coefficients = (torch.nn.functional.pad(x, (0, max(missing, 0))) for x in (basis, coefficients))
    codes = locks_quantize_summary(centroid=centroid, basis=basis, coefficients=coefficients, basis_bits=paper.IBITS)
    return all(
        torch.equal(codes[f"{name}_codes"].float() * codes[f"{name}_scale"].unsqueeze(axis), value)
        for name, axis, value in (
            ("centroid", -1, centroid),
            ("basis", -2, basis),
            ("coefficient", -1, coefficients),
        )
    )


def locks_score_pages(*, queries, centroid, basis, coefficients, softmax_scale=None):
    summary = {"centroid": centroid, "basis": basis, "coefficients": coefficients}
    if not on_grid(**summary):
        raise NotImplementedError("a summary that is not on the code grid: the package's scorer reads codes")
    return paper.locks_score_pages(queries=queries, **summary, softmax_scale=softmax_scale)


def locks_select_pages(*, shares, budget_tokens, page_size):
    budget = whole_pages(budget_tokens, page_size) * page_size
    return paper.locks_select_pages(shares=shares, budget_tokens=budget, page_size=page_size)


def locks_decode_paged(
    *, queries, key_pool, value_pool, block_table, tokens, rank, basis_bits, budget_tokens, softmax_scale=None
):
    call = (queries, key_pool, value_pool, block_table, tokens, rank, basis_bits, softmax_scale)
    budget_pages = whole_pages(budget_tokens, key_pool.shape[1])
    return paper.decode_step(*call, budget_pages=budget_pages, score_and_combine=score_and_combine)


def locks_decode(*, queries, keys, values, rank, basis_bits, budget_tokens, page_size, softmax_scale=None):
    settings = {"rank": rank, "basis_bits": basis_bits, "budget_tokens": budget_tokens}
    return paper.alone(locks_decode_paged, queries, keys, values, page_size, **settings, softmax_scale=softmax_scale)
