"""The systems that the two papers measure, each with the stages that judge a port of it: `kvproof list`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """One row: the papers' name, where they have it, where it is built, the stages of a step in their order."""

    system: str
    source: str
    where: str
    stages: tuple[str, ...]

    def row(self) -> dict[str, object]:
        """As `kvproof list --json` has it."""
        return {"system": self.system, "stages": list(self.stages), "source": self.source, "where": self.where}


def _system(name: str, source: str, where: str, stages: str) -> System:
    return System(name, source, f"refimpl/{where}.py", tuple(stages.split()))


BUILD = "locks_build_summary locks_quantize_summary locks_dequantize_summary locks_pack_basis locks_unpack_basis"
CODEC = "readkv_tree readkv_rotate readkv_encode readkv_decode"
KEPT = "sparse_attention"
CODED = "turboquant_rotation turboquant_encode turboquant_decode"

SYSTEMS = (
    _system("Dense (FullKV)", "both papers, all tables", "attention", "attention merge_attention paged_attention"),
    _system(
        "Locks", "Locks Sec. 4", "locks/decode",
        f"{BUILD} locks_score_pages exact_page_scores locks_page_shares locks_select_pages locks_decode",
    ),
    _system(
        "Oracle (exact log-sum-exp)", "Locks Lemma 1, App. C", "locks/score",
        f"exact_page_scores locks_page_shares locks_select_pages {KEPT}",
    ),
    _system("Quest", "Locks App. C.1, D", "baselines/quest", f"quest_envelope quest_scores quest_pages {KEPT}"),
    _system("Centroid only", "Locks Table B.1", "baselines/centroid", "centroid_scores"),
    _system("Moment core (COBS form)", "Locks Eq. (A.2), App. D", "baselines/moment_core", "moment_scores"),
    _system("Sequence basis (ShadowKV form)", "Locks App. D", "baselines/shared_basis", "shared_basis_scores"),
    _system("Global basis (Loki form)", "Locks App. D", "baselines/shared_basis", "shared_basis_scores"),
    _system("Codebook-128", "Locks App. D", "baselines/codebook", "codebook_scores"),
    _system("Loki", "Locks Sec. 3; ReadKV App. B.3", "baselines/loki", "loki_attention"),
    _system(
        "ShadowKV", "Locks App. C.1", "baselines/shadowkv",
        f"shadowkv_landmarks shadowkv_low_rank shadowkv_chunks {KEPT}",
    ),
    _system("RocketKV", "Locks App. C.1", "baselines/rocketkv", f"rocketkv_snap rocketkv_tokens {KEPT}"),
    _system("KVzip", "Locks App. C.1", "baselines/kvzip", "kvzip_keep"),
    _system("R-KV", "Locks App. C.2", "baselines/rkv", "rkv_scores evict_tokens"),
    _system("TriAttention", "Locks App. C.2", "baselines/triattention", "triattention_scores evict_tokens"),
    _system("LazyEviction", "Locks App. C.2", "baselines/lazyeviction", "lazyeviction_scores evict_tokens"),
    _system(
        "Expected Attention", "Locks Sec. 6", "baselines/expected_attention", "expected_attention_scores evict_tokens"
    ),
    _system(
        "ReadKV", "ReadKV Alg. 1", "readkv/reader",
        f"{CODEC} readkv_pack_key_planes readkv_unpack_key_planes readkv_pack_value_planes readkv_unpack_value_planes "
        "readkv_key_importance readkv_value_importance readkv_choose_depths readkv_attention",
    ),
    _system("ReadKV, GPU-restricted reader", "ReadKV App. F.8, G", "readkv/restricted", "readkv_restricted_attention"),
    _system(
        "Full Reader, Uniform, Calibration-only", "ReadKV Sec. 5, App. F.5", "readkv/policies",
        f"{CODEC} readkv_choose_depths readkv_attention",
    ),
    _system("KIVI", "ReadKV App. F.2", "baselines/kivi", "kivi_quantize kivi_dequantize"),
    _system(
        "TurboQuant K4/V4", "ReadKV App. F.2", "baselines/turboquant_slot",
        f"lloyd_max_codebook affine_quantize affine_dequantize {CODED} turboquant_pack_slots turboquant_unpack_slots",
    ),
    _system(
        "TurboQuant with QJL", "ReadKV App. F.2", "baselines/turboquant",
        f"lloyd_max_codebook {CODED} qjl_encode qjl_estimate qjl_inner_products turboquant_inner_products",
    ),
    _system(
        "Lloyd-2 (norm-corrected)", "ReadKV App. F.2", "baselines/lloyd2",
        "lloyd_max_codebook lloyd2_encode lloyd2_decode",
    ),
    _system("SparQ", "ReadKV App. F.2", "baselines/sparq", "sparq_attention"),
    _system("SparQ + nested code", "ReadKV App. F.2", "baselines/sparq_nested", "sparq_nested_attention"),
)  # fmt: skip
"""Every system with a row in a table, a state card or a section on baselines of the two papers."""
