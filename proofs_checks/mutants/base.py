"""A right port whose pipeline calls its own stages, so that one replaced stage shows downstream too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from proofs_checks.judge.stages import STAGES
from proofs_checks.mutants.base_readkv import attach_readkv
from proofs_checks.mutants.registry import Mutant, mutants
from refimpl import port as reference
from refimpl.paging import gather_sequence, page_count, split_pages


def build_port(replacements: Mapping[str, Callable[..., Any]], **constants: Any) -> SimpleNamespace:
    """A port of every stage: the reference's functions, ``replacements`` in place of some, decode composed of these."""
    port = SimpleNamespace(**{name: getattr(reference, name) for name in STAGES}, **constants)
    port.locks_decode = _decode_of(port)
    port.locks_decode_paged = _paged_decode_of(port)
    attach_readkv(port)
    for name, function in replacements.items():
        setattr(port, name, function)
    return port


def mutant_port(name: str) -> SimpleNamespace:
    """The port of one mutant. Raises KeyError for an unknown id."""
    chosen: Mutant = mutants()[name]
    return build_port({chosen.stage: copy.copy(chosen.function)}, **dict(chosen.constants))


def _decode_of(port: SimpleNamespace) -> Callable[..., Any]:
    def locks_decode(
        *,
        queries: Any,
        keys: Any,
        values: Any,
        rank: int,
        basis_bits: Any,
        budget_tokens: int,
        page_size: int,
        softmax_scale: float | None = None,
    ) -> dict[str, Any]:
        if keys.shape[1] == 0:
            return {"output": np.zeros(queries.shape), "pages": np.zeros((len(keys), 0), np.int64)}
        scale = {} if softmax_scale is None else {"softmax_scale": softmax_scale}
        complete, tail = split_pages(keys, page_size)
        summary = port.locks_build_summary(key_pages=complete, rank=rank)
        if basis_bits is not None:
            codes = port.locks_quantize_summary(**summary, basis_bits=8 if basis_bits == "fp" else basis_bits)
            if basis_bits == 4:
                packed = port.locks_pack_basis(basis_codes=codes["basis_codes"])
                codes["basis_codes"] = port.locks_unpack_basis(basis_bytes=packed)
            deployed = port.locks_dequantize_summary(**codes)
            summary = {**deployed, "basis": summary["basis"]} if basis_bits == "fp" else deployed
        scores = port.locks_score_pages(queries=queries, **summary, **scale)
        if tail.shape[1]:
            exact = port.exact_page_scores(queries=queries, key_pages=tail[:, None], **scale)
            scores = np.concatenate([scores, exact], axis=-1)
        shares = port.locks_page_shares(scores=scores)
        pages = port.locks_select_pages(shares=shares, budget_tokens=budget_tokens, page_size=page_size)
        state = port.sparse_attention(
            queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, **scale
        )
        return {"output": state["output"], "pages": pages}

    return locks_decode


def _paged_decode_of(port: SimpleNamespace) -> Callable[..., Any]:
    def locks_decode_paged(
        *,
        queries: Any,
        key_pool: Any,
        value_pool: Any,
        block_table: Any,
        tokens: Any,
        rank: int,
        basis_bits: Any,
        budget_tokens: int,
    ) -> dict[str, Any]:
        page_size = key_pool.shape[1]
        most = max((page_count(int(t), page_size) for t in tokens), default=0)
        output = np.zeros(queries.shape)
        pages = np.full((*queries.shape[:2], min(-(-budget_tokens // page_size), most)), -1)
        for n, length in enumerate(int(t) for t in tokens):
            keys, values = (gather_sequence(pool, block_table[n], length) for pool in (key_pool, value_pool))
            settings = {"rank": rank, "basis_bits": basis_bits, "budget_tokens": budget_tokens, "page_size": page_size}
            step = port.locks_decode(queries=queries[n], keys=keys, values=values, **settings)
            output[n] = step["output"]
            pages[n, :, : step["pages"].shape[1]] = step["pages"]
        return {"output": output, "pages": pages}

    return locks_decode_paged
