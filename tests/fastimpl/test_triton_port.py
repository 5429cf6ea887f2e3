"""`fastimpl.port` is judged under Triton's interpreter, one dtype: the interpreter pays per operation."""

import pytest

from proofs_checks.judge.verify import verify

pytest.importorskip("triton")

STAGES = (
    "merge_attention", "sparse_attention", "paged_sparse_attention", "locks_quantize_summary",
    "locks_dequantize_summary", "locks_pack_basis", "locks_unpack_basis", "exact_page_scores", "locks_page_shares",
    "locks_score_pages", "locks_select_pages", "locks_build_summary", "locks_decode", "locks_decode_paged",
    "paged_attention", "attention", "readkv_tree", "readkv_rotate", "readkv_encode", "readkv_decode",
    "readkv_pack_key_planes", "readkv_unpack_key_planes", "readkv_pack_value_planes", "readkv_unpack_value_planes",
    "readkv_key_importance", "readkv_value_importance", "readkv_choose_depths", "readkv_attention",
    "readkv_restricted_attention", "lloyd_max_codebook", "affine_quantize", "affine_dequantize",
)  # fmt: skip

ONE_DTYPE = """\
from fastimpl.port import *
from fastimpl.port import ACCUMULATE, FRAMEWORK, TIES

DTYPES = ("float32",)
"""


@pytest.mark.parametrize("stage", STAGES)
def test_the_interpreted_kernels_pass_their_stage(stage, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    port = tmp_path / "one_dtype.py"
    port.write_text(ONE_DTYPE)
    report = verify(str(port), [stage], "interpreter", None, 240.0)
    assert report.verdict == "PASS", report
    assert [s.stage for s in report.stages if s.verdict == "PASS"] == [stage]
