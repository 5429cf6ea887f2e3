"""All cases, by stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from proofs_checks.judge.case import Case
from proofs_checks.judge.cases import (
    attention,
    baseline_evictions,
    baseline_kivi,
    baseline_pages,
    baseline_qjl,
    baseline_selections,
    baseline_steps,
    baseline_summaries,
    baseline_token_scores,
    baseline_turboquant,
    locks_codec,
    locks_decode,
    locks_pages,
    locks_select,
    paging,
    readkv_allocation,
    readkv_codec,
    readkv_importance,
    readkv_planes,
    readkv_quantiser,
    readkv_reader,
)
from proofs_checks.judge.cases.hygiene import hygiene_cases
from proofs_checks.judge.cases.million import trial_cases
from proofs_checks.judge.cases.served import served_cases

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
    "locks_select_pages": locks_pages.select_cases,
    "locks_decode": locks_decode.decode_cases,
    "locks_decode_paged": locks_decode.decode_paged_cases,
    "readkv_tree": readkv_quantiser.tree_cases,
    "readkv_rotate": readkv_codec.rotate_cases,
    "readkv_encode": readkv_codec.encode_cases,
    "readkv_decode": readkv_codec.decode_cases,
    "readkv_pack_key_planes": readkv_planes.pack_key_cases,
    "readkv_unpack_key_planes": readkv_planes.unpack_key_cases,
    "readkv_pack_value_planes": readkv_planes.pack_value_cases,
    "readkv_unpack_value_planes": readkv_planes.unpack_value_cases,
    "readkv_key_importance": readkv_importance.key_cases,
    "readkv_value_importance": readkv_importance.value_cases,
    "readkv_choose_depths": readkv_allocation.choose_cases,
    "readkv_attention": readkv_reader.attention_cases,
    "readkv_restricted_attention": readkv_reader.restricted_cases,
    "lloyd_max_codebook": readkv_quantiser.codebook_cases,
    "affine_quantize": readkv_quantiser.quantize_cases,
    "affine_dequantize": readkv_quantiser.dequantize_cases,
    "quest_envelope": baseline_pages.envelope_cases,
    "quest_scores": baseline_pages.envelope_score_cases,
    "quest_pages": baseline_pages.page_choice_cases,
    "centroid_scores": baseline_summaries.centroid_cases,
    "moment_scores": baseline_summaries.moment_cases,
    "shared_basis_scores": baseline_summaries.shared_cases,
    "codebook_scores": baseline_summaries.codebook_cases,
    "sparq_attention": baseline_steps.sparq_cases,
    "sparq_nested_attention": baseline_steps.nested_cases,
    "loki_attention": baseline_steps.loki_cases,
    "shadowkv_landmarks": baseline_selections.landmark_cases,
    "shadowkv_chunks": baseline_selections.chunk_cases,
    "shadowkv_low_rank": baseline_selections.low_rank_cases,
    "rocketkv_snap": baseline_selections.snap_cases,
    "rocketkv_tokens": baseline_selections.rocket_cases,
    "kvzip_keep": baseline_evictions.zip_cases,
    "evict_tokens": baseline_evictions.evict_cases,
    "expected_attention_scores": baseline_token_scores.expected_cases,
    "rkv_scores": baseline_token_scores.rkv_cases,
    "triattention_scores": baseline_token_scores.triattention_cases,
    "lazyeviction_scores": baseline_token_scores.lazy_cases,
    "kivi_quantize": baseline_kivi.quantize_cases,
    "kivi_dequantize": baseline_kivi.dequantize_cases,
    "turboquant_rotation": baseline_turboquant.rotation_cases,
    "turboquant_encode": baseline_turboquant.encode_cases,
    "turboquant_decode": baseline_turboquant.decode_cases,
    "turboquant_pack_slots": baseline_turboquant.pack_cases,
    "turboquant_unpack_slots": baseline_turboquant.unpack_cases,
    "qjl_encode": baseline_qjl.qjl_encode_cases,
    "qjl_estimate": baseline_qjl.qjl_estimate_cases,
    "qjl_inner_products": baseline_qjl.qjl_product_cases,
    "turboquant_inner_products": baseline_qjl.product_cases,
    "lloyd2_encode": baseline_kivi.lloyd2_encode_cases,
    "lloyd2_decode": baseline_kivi.lloyd2_decode_cases,
}


@cache
def cases_of(stage: str) -> tuple[Case, ...]:
    """The cases of one stage in the order in which they diagnose: probes, those of size, general cases, hygiene."""
    made = FAMILIES[stage]()
    own = sorted([*made, *served_cases(made)], key=lambda case: case.sized if case.probe else 2)
    if all(isinstance(value, (int, str)) for value in own[0].inputs().values()):
        return tuple(own)  # no array, so no other way to deliver one
    if all(case.trial for case in own):
        return tuple(own)  # drawn at random: no answer to compare with when the inputs come another way
    return (*own, *hygiene_cases(own), *trial_cases(stage))


def find_case(case_id: str) -> Case:
    """The case ``stage/name``. Raises KeyError with the id where there is none."""
    stage, _, _ = case_id.partition("/")
    for case in cases_of(stage) if stage in FAMILIES else ():
        if case.id == case_id:
            return case
    raise KeyError(case_id)
