"""State bytes of Locks App. D, budgets of C.1 and C.2, and reads of ReadKV's tables, against what the papers print."""

import pytest

from refimpl.baselines.codebook import codebook_state_bytes
from refimpl.baselines.kvzip import kvzip_reads
from refimpl.baselines.lazyeviction import lazyeviction_resident_tokens, lazyeviction_window
from refimpl.baselines.loki import loki_kept, loki_rank
from refimpl.baselines.moment_core import moment_state_bytes
from refimpl.baselines.quest import quest_read_range, quest_state_bytes
from refimpl.baselines.rkv import rkv_resident_tokens
from refimpl.baselines.rocketkv import rocketkv_budgets
from refimpl.baselines.shadowkv import shadowkv_selected_tokens
from refimpl.baselines.shared_basis import shared_state_bytes
from refimpl.baselines.sparq import nested_read_percent, sparq_read_percent
from refimpl.baselines.triattention import triattention_resident_tokens
from refimpl.checks import ArgumentError
from refimpl.readkv.accounting import GEOMETRIES, prediction_lengths

PAGE = 8192  # bytes of bf16 keys and values of a page, 4 B d
DOCUMENT = prediction_lengths(2048)


@pytest.mark.parametrize(
    ("size", "printed", "percent"),
    [
        (quest_state_bytes(128), 512, 6.25),
        (moment_state_bytes(8, 128), 2320, 28.3),
        (shared_state_bytes(8, 16, 128, 1013), 130, 1.6),
        (shared_state_bytes(48, 16, 128, 1013), 780, 9.5),
        (codebook_state_bytes(128, 16, 128, 1013), 46, 0.6),
    ],
)
def test_state_bytes_of_app_d(size, printed, percent):
    assert round(size) == printed
    assert round(100 * size / PAGE, 2 if percent == 6.25 else 1) == percent


def test_quest_reads_the_union():
    """C.1: at most G b tokens, at least b; G = 4 for Llama-3.1-8B."""
    assert quest_read_range(512, 4) == (512, 2048)


@pytest.mark.parametrize(("budget", "selected"), [(512, 96), (1024, 608), (2048, 1632), (256, 0), (64, 0), (416, 0)])
def test_shadowkv_selects_what_its_fixed_blocks_leave(budget, selected):
    assert shadowkv_selected_tokens(budget) == selected


def test_rocketkv_attends_half_of_its_traffic():
    for b in (64, 256, 1024):
        assert rocketkv_budgets(length=16384, budget_tokens=b, new_tokens=128, head_size=128).attended_tokens == b // 2


def test_kvzip_reads_question_and_answer_on_top():
    """C.1: about 2.4 times nominal at 64 and 1.05 times at 2048, which one number of further tokens explains."""
    extra = 95
    assert abs(kvzip_reads(64, extra, 0) / 64 - 2.4) < 0.1
    assert abs(kvzip_reads(2048, extra, 0) / 2048 - 1.05) < 0.005


def test_lazyeviction_window_and_residency():
    """C.2: 363 at capacity 1492, about 0.243 of any budget, and the group's factor on what stays."""
    assert lazyeviction_window(1492) == 363
    for b in (64, 128, 256, 512, 1024, 2048):
        assert abs(lazyeviction_window(b) / b - 0.243) < 0.5 / b + 0.001
        assert lazyeviction_window(b) < b
    assert lazyeviction_resident_tokens(512, 4) == (512, 2048)


def test_triattention_keeps_the_prompt_beside_the_budget():
    assert triattention_resident_tokens(64, 200, 10000) == 264
    assert triattention_resident_tokens(2048, 200, 10000) > 2048


def test_rkv_lets_the_cache_grow_by_its_buffer():
    assert rkv_resident_tokens(512) == (512, 640)


@pytest.mark.parametrize(("rank", "kept", "printed"), [(32, 128, 24.7), (16, 64, 12.5), (8, 64, 9.4)])
def test_sparq_reads_of_tables_2_and_6(rank, kept, printed):
    """The same for every model: r, k and d = 128 decide. The mean state adds 0.05 and no printed digit."""
    percent = sparq_read_percent(rank, kept, 128, DOCUMENT)
    assert round(float(percent), 1) == printed
    mean_state = 100 * 128 * 2048 / (256 * sum(DOCUMENT))
    assert round(float(percent) - mean_state, 1) == printed


@pytest.mark.parametrize(
    ("model", "printed"),
    [
        ("Qwen2.5-3B", 8.3),
        ("Qwen2.5-7B", 8.1),
        ("Qwen2.5-14B", 8.0),
        ("Yi-1.5-6B", 8.1),
        ("DeepSeek-LLM-7B", 7.9),
        ("Mistral-7B", 8.0),
    ],
)
def test_reads_of_sparq_on_the_nested_code_of_table_6(model, printed):
    assert round(float(nested_read_percent(GEOMETRIES[model], 32, 128, DOCUMENT)), 1) == printed


def test_not_reading_probed_bits_again_would_not_give_table_6():
    """min(129, t) tokens times 2 bits of 32 channels fewer: 8.1 for Qwen2.5-3B, where 8.3 is printed (AMB-58)."""
    whole = float(nested_read_percent(GEOMETRIES["Qwen2.5-3B"], 32, 128, DOCUMENT))
    again = 100 * sum(min(129, t) * 64 for t in DOCUMENT) / (2 * 128 * 16 * sum(DOCUMENT))
    assert round(whole - again, 1) == 8.1


@pytest.mark.parametrize(
    ("limit", "smallest", "shortest", "largest"),
    [(3500, 16.2, 3320, 16.4), (7500, 14.2, 4620, 15.3), (8192, 14.1, 8192, 14.1)],
)
def test_sparq_reads_of_tables_3_7_and_8_are_those_of_prompts_up_to_the_limit(limit, smallest, shortest, largest):
    """Lengths are not printed: the smallest printed percentage is that of the limit, the others of shorter prompts."""
    assert round(float(sparq_read_percent(32, 128, 128, [limit])), 1) == smallest
    assert round(float(sparq_read_percent(32, 128, 128, [shortest])), 1) == largest


@pytest.mark.parametrize(("tokens", "sparq", "nested"), [(3924, 15.8, 3.3), (8192, 14.1, 2.4)])
def test_both_sparq_rows_of_table_8_come_from_one_length(tokens, sparq, nested):
    """The 4K prompts are a little short of 4096 tokens: one length gives both printed rows of both models."""
    assert round(float(sparq_read_percent(32, 128, 128, [tokens])), 1) == sparq
    for model in ("Qwen2.5-7B", "Mistral-7B"):
        assert round(float(nested_read_percent(GEOMETRIES[model], 32, 128, [tokens])), 1) == nested


def test_loki_rank_is_one_short_of_the_share():
    assert loki_rank([[0.5, 0.3, 0.1, 0.1], [0.9, 0.1, 0.0, 0.0]], 0.85) == 2
    assert loki_kept(4096, 0.25) == 1024


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: shadowkv_selected_tokens(-1), "budget_tokens"),
        (lambda: quest_read_range(64, 0), "group"),
        (lambda: lazyeviction_window(0), "budget_tokens"),
        (lambda: rocketkv_budgets(length=10, budget_tokens=8, new_tokens=1, head_size=64), "budget_tokens"),
        (lambda: kvzip_reads(64, -1, 0), "question_tokens"),
        (lambda: sparq_read_percent(32, 128, 128, [0]), "lengths"),
    ],
)
def test_sizes_out_of_range_are_named(call, argument):
    with pytest.raises(ArgumentError, match=argument):
        call()
