"""docs/notation.md explains every argument and result of the stage table and every symbol of ReadKV's Table 5."""

import inspect
import re
from pathlib import Path

import pytest

from refimpl import port

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "notation.md").read_text(encoding="utf-8")

# The stage table: keywords, then results, of every stage.
STAGES = {
    "attention": ("queries keys values", "output lse"),
    "merge_attention": ("outputs lses", "output lse"),
    "sparse_attention": ("queries keys values pages page_size", "output lse"),
    "paged_attention": ("queries key_pool value_pool block_table tokens", "output lse"),
    "paged_sparse_attention": ("queries key_pool value_pool block_table tokens pages", "output lse"),
    "locks_build_summary": ("key_pages rank", "centroid basis coefficients"),
    "locks_quantize_summary": (
        "centroid basis coefficients basis_bits",
        "centroid_codes centroid_scale basis_codes basis_scale coefficient_codes coefficient_scale",
    ),
    "locks_dequantize_summary": (
        "centroid_codes centroid_scale basis_codes basis_scale coefficient_codes coefficient_scale",
        "centroid basis coefficients",
    ),
    "locks_pack_basis": ("basis_codes", "basis_bytes"),
    "locks_unpack_basis": ("basis_bytes", "basis_codes"),
    "locks_score_pages": ("queries centroid basis coefficients", "scores"),
    "exact_page_scores": ("queries key_pages", "scores"),
    "locks_page_shares": ("scores combine", "shares"),
    "locks_select_pages": ("shares budget_tokens page_size", "pages"),
    "locks_decode": ("queries keys values rank basis_bits budget_tokens page_size", "output pages"),
    "locks_decode_paged": (
        "queries key_pool value_pool block_table tokens rank basis_bits budget_tokens",
        "output pages",
    ),
    "readkv_tree": ("depth", "thresholds centroids gains"),
    "readkv_rotate": ("x signs", "rotated"),
    "readkv_encode": ("z", "codes"),
    "readkv_decode": ("codes depth", "z_hat"),
    "readkv_pack_key_planes": ("codes", "planes"),
    "readkv_unpack_key_planes": ("planes tokens", "codes"),
    "readkv_pack_value_planes": ("codes", "planes"),
    "readkv_unpack_value_planes": ("planes channels", "codes"),
    "readkv_key_importance": ("rotated_queries key_scale", "importance"),
    "readkv_value_importance": ("weights value_head_weight", "importance"),
    "readkv_choose_depths": ("importance gains budget minimum_depth", "depths"),
    "readkv_attention": (
        "queries key_codes value_codes key_mean key_scale value_mean value_scale key_signs value_signs "
        "key_budget value_budget stored_depth",
        "output key_depths value_depths weights",
    ),
    "readkv_restricted_attention": (
        "queries key_codes value_codes key_mean key_scale value_mean value_scale key_signs value_signs "
        "rate stored_depth",
        "output key_depths value_depths weights",
    ),
    "lloyd_max_codebook": ("bits law d", "levels thresholds"),
    "affine_quantize": ("x bits", "codes scale zero"),
    "affine_dequantize": ("codes scale zero", "x"),
}
OPTIONAL = ["softmax_scale", "splits", "out"]
NAMES = sorted({name for pair in STAGES.values() for text in pair for name in text.split()} | set(OPTIONAL))

# Every shape that the contract writes beside a name.
SHAPES = {
    "queries": "[H,G,d] [N,H,G,d]",
    "keys": "[H,T,d]",
    "values": "[H,T,d]",
    "output": "[H,G,d] [N,H,G,d]",
    "lse": "[H,G] [N,H,G]",
    "outputs": "[S,H,G,d]",
    "lses": "[S,H,G]",
    "pages": "[H,min(k,P)] [N,H,K]",
    "key_pool": "[M,B,H,d]",
    "value_pool": "[M,B,H,d]",
    "block_table": "[N,Pmax]",
    "tokens": "[N]",
    "key_pages": "[H,P,B,d] [H,1,n,d]",
    "centroid": "[H,P,d]",
    "basis": "[H,P,d,r]",
    "coefficients": "[H,P,B,r]",
    "centroid_codes": "[H,P,d]",
    "centroid_scale": "[H,P]",
    "basis_codes": "[H,P,d,r]",
    "basis_scale": "[H,P,r]",
    "coefficient_codes": "[H,P,B,r]",
    "coefficient_scale": "[H,P,B]",
    "basis_bytes": "[H,P,r,d/2]",
    "scores": "[H,G,P]",
    "shares": "[H,P]",
    "gains": "[depth] [W]",
    "x": "[...,d] [...,n]",
    "signs": "[d]",
    "codes": "[T,d]",
    "planes": "[8,d,ceil(T/8)] [8,T,ceil(d/8)]",
    "rotated_queries": "[H,G,d]",
    "key_scale": "[H,d]",
    "importance": "[H,d] [H,T] [N]",
    "weights": "[H,G,T]",
    "value_head_weight": "[H]",
    "depths": "[N]",
    "key_codes": "[H,T,d]",
    "value_codes": "[H,T,d]",
    "key_mean": "[H,d]",
    "value_mean": "[H,d]",
    "value_scale": "[H,d]",
    "key_signs": "[d]",
    "value_signs": "[d]",
    "key_depths": "[H,d]",
    "value_depths": "[H,T]",
    "levels": "[2^bits]",
    "thresholds": "[2^l] [2^bits - 1]",
    "centroids": "[2^t]",
    "scale": "[...]",
    "zero": "[...]",
}

# ReadKV Table 5, first column, row by row.
TABLE_5 = [
    "d; x, y",
    "W, R",
    "w, r",
    "Z",
    "θ",
    "Ω_0, Ω_e, Ω_r",
    "A, Π, ŝ_Π",
    "D^wc_{d,A}(W,R)",
    "staged(J)",
    "G",
    "H",
    "T, d_h",
    "g(h), S(g)",
    "q_h, k_{g,j}, v_{g,j}, o_h",
    "α_h, α̂_h",
    "α̂",
    "U_K, U_V",
    "K̂, V̂",
    "D(t)",
    "a^K",
    "a^V(α̂)",
    "B_K, B_V",
    "t^K, t^V",
    "R_K, R_V, R",
    "𝒯_K, 𝒯_V",
    "S_K, S_V, S_K*, S_V*",
    "S_{K,h}, S_{V,h}",
    "γ_{K,h}, γ_{V,h}",
    "κ_{K,h}, κ_{V,h}",
    "β̄_K, β̄_V",
    "V_{g(h)}, 1_T",
]


def section(heading: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level."""
    level = heading.split()[0]
    start = PAGE.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^#{{1,{len(level)}}} ", PAGE[start:], re.MULTILINE)
    return PAGE[start : start + end.start()] if end else PAGE[start:]


def rows(heading: str) -> list[list[str]]:
    """The cells of every table line below a heading; a bar behind a backslash is text."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


ARGUMENTS = {row[0].strip("`"): row for row in rows("## Arguments and results of the stages")}
READKV_ROWS = {row[0]: row for row in rows("### Its Table 5, row by row")}


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_and_result_has_its_row(name: str) -> None:
    row = ARGUMENTS[name]
    assert row[0] == f"`{name}`"
    assert len(row) == 5
    assert all(row), row


def test_no_row_explains_a_name_that_no_stage_has() -> None:
    assert sorted(set(ARGUMENTS) - {"name"}) == NAMES


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_are_those_of_the_contract(name: str) -> None:
    shapes = re.findall(r"\[[^\]]*\]", SHAPES[name])
    for shape in shapes:
        assert shape in ARGUMENTS[name][1], (name, shape)


def test_every_stage_that_is_named_exists() -> None:
    named = {word for row in ARGUMENTS.values() for word in re.findall(r"`(\w+)`", row[4])}
    assert named <= set(STAGES)


@pytest.mark.parametrize("stage", sorted(set(STAGES) & set(port.__all__)))
def test_the_reference_takes_the_keywords_of_the_page(stage: str) -> None:
    keywords = list(inspect.signature(getattr(port, stage)).parameters)
    assert [name for name in keywords if name not in OPTIONAL] == STAGES[stage][0].split()


@pytest.mark.parametrize("symbol", TABLE_5)
def test_every_symbol_of_readkv_table_5_is_translated(symbol: str) -> None:
    row = READKV_ROWS[symbol]
    assert len(row) == 4
    assert all(row), row


def test_the_heads_are_not_mixed_up() -> None:
    assert READKV_ROWS["G"][3] == "**`H`**"
    assert READKV_ROWS["H"][3] == "**`H` × `G`**"


@pytest.mark.parametrize("heading", ["## Symbols of Locks", "### Its other symbols"])
def test_every_translated_symbol_has_meaning_shape_and_name(heading: str) -> None:
    table = rows(heading)
    assert len(table) > 30
    for row in table:
        assert len(row) == 4, row
        assert all(row), row


def test_every_path_on_the_page_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    paths = sorted(set(re.findall(r"\b(?:refimpl|proofs_checks)/[\w/]+(?:\.py)?", PAGE)))
    assert [path for path in paths if not (root / path).exists()] == []
