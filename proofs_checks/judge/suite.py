"""All cases, by stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from proofs_checks.judge.case import Case
from proofs_checks.judge.cases import attention, locks_codec, locks_decode, locks_select, paging
from proofs_checks.judge.cases.hygiene import hygiene_cases

FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "attention": attention.attention_cases,
    "merge_attention": attention.merge_cases,
    "sparse_attention": paging.sparse_cases,
    "paged_attention": paging.paged_cases,
    "paged_sparse_attention": paging.paged_sparse_cases,
    "locks_build_summary": locks_codec.build_cases,
    "locks_quantize_summary": locks_codec.quantize_cases,
    "locks_dequantize_summary": locks_codec.dequantize_cases,
    "locks_pack_basis": locks_codec.pack_cases,
    "locks_unpack_basis": locks_codec.unpack_cases,
    "locks_score_pages": locks_select.score_cases,
    "exact_page_scores": locks_select.exact_score_cases,
    "locks_page_shares": locks_select.share_cases,
    "locks_select_pages": locks_select.select_cases,
    "locks_decode": locks_decode.decode_cases,
    "locks_decode_paged": locks_decode.decode_paged_cases,
}


@cache
def cases_of(stage: str) -> tuple[Case, ...]:
    """The cases of one stage, probes in the order in which they diagnose, hygiene last."""
    own = FAMILIES[stage]()
    return (*own, *hygiene_cases(own))


def find_case(case_id: str) -> Case:
    """The case ``stage/name``. Raises KeyError with the id where there is none."""
    stage, _, _ = case_id.partition("/")
    for case in cases_of(stage) if stage in FAMILIES else ():
        if case.id == case_id:
            return case
    raise KeyError(case_id)
