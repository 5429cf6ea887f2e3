import pytest

from proofs_checks.judge.verify import verify

pytest.importorskip("triton")

QUICK = (
    "merge_attention", "sparse_attention", "paged_sparse_attention", "locks_quantize_summary",
    "locks_dequantize_summary", "locks_pack_basis", "locks_unpack_basis", "exact_page_scores", "locks_page_shares",
    "readkv_tree", "readkv_rotate", "readkv_encode", "readkv_decode", "readkv_pack_key_planes",
    "readkv_unpack_key_planes", "readkv_pack_value_planes", "readkv_unpack_value_planes", "readkv_key_importance",
    "readkv_value_importance", "lloyd_max_codebook", "affine_quantize", "affine_dequantize",
)  # fmt: skip
LONG = (
    "attention", "paged_attention", "locks_build_summary", "locks_score_pages", "locks_select_pages", "locks_decode",
    "locks_decode_paged", "readkv_choose_depths", "readkv_attention", "readkv_restricted_attention",
)  # fmt: skip
"""Many operations per call, and the interpreter pays per operation."""


@pytest.mark.parametrize("stage", [*QUICK, *(pytest.param(stage, marks=pytest.mark.slow) for stage in LONG)])
def test_the_interpreted_kernels_pass_their_stage(stage, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    report = verify("fastimpl.port", [stage], "quick", None, 240.0)
    assert report.verdict == "PASS", report
    assert [s.stage for s in report.stages if s.verdict == "PASS"] == [stage]
