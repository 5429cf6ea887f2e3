"""Byte counts of the Locks paper, exactly."""

import json
from pathlib import Path

import pytest

from refimpl.baselines.codebook import codebook_state_bytes
from refimpl.baselines.moment_core import moment_state_bytes
from refimpl.baselines.quest import quest_state_bytes
from refimpl.baselines.shared_basis import shared_state_bytes
from refimpl.checks import ArgumentError
from refimpl.locks.accounting import (
    GLM_4_9B_1M_ON_H200,
    Deployment,
    page_kv_bytes,
    payload_bytes,
    record_bytes,
    scale_bytes,
    step_traffic,
)

ROOT = Path(__file__).parents[3]
PAPER = json.loads((ROOT / "tests/proofs_checks/microscope/expected.json").read_text())["paper"]
PRINTED = {"r2i4": (2, 4), "r2i8": (2, 8), "r4i4": (4, 4), "r4i8": (4, 8), "r8i4": (8, 4), "r8i8": (8, 8)}
PAGES_PER_TABLE = 1013
"""Pages that share a basis or a codebook: the one value for which every printed byte count of D.15 comes out."""


@pytest.mark.parametrize("name", PRINTED)
def test_table_d10(name):
    rank, bits = PRINTED[name]
    size = payload_bytes(rank, bits, 16, 128)
    assert size == PAPER["summary bytes (Table D.10)"][name]
    assert f"{100 * size / page_kv_bytes(16, 128):.1f}" == PAPER["summary percent (Table D.10)"][name]


def test_bytes_of_every_other_summary():
    given = PAPER["bytes (App. D, D.15)"]
    assert page_kv_bytes(16, 128) == given["page"]
    assert quest_state_bytes(128) == given["envelope"]
    assert moment_state_bytes(8, 128) == given["moment core"]
    assert payload_bytes(15, 4, 16, 128) == given["locks r15"]
    for rank, size in given["shared"].items():
        assert round(shared_state_bytes(int(rank), 16, 128, PAGES_PER_TABLE)) == size
    for entries, size in given["codebook"].items():
        assert round(codebook_state_bytes(int(entries), 16, 128, PAGES_PER_TABLE)) == size


def test_the_stored_record():
    assert payload_bytes(8, 4, 16, 128) + scale_bytes(8, 16) == record_bytes(8, 4, 16, 128) == 818
    assert record_bytes(8, 4, 16, 128, tag=16) == 834
    assert record_bytes(8, 4, 16, 128, align=64) == 832
    assert record_bytes(8, 4, 32, 128) == 978
    assert round(100 * 818 / page_kv_bytes(16, 128), 2) == 9.99


def test_fewer_bytes_at_a_million_tokens():
    """9.8 needs the record with its scales; the payload alone would give 10.45."""
    assert f"{step_traffic(2**20, 2048, 16, 128, 818).saving:.1f}" == PAPER["fewer bytes at 1M (Fig. 4c)"]
    assert f"{step_traffic(2**20, 2048, 16, 128, 768).saving:.2f}" == "10.45"


def test_traffic_of_a_short_context_reads_all_tokens():
    traffic = step_traffic(40, 2048, 16, 128, 818)
    assert (traffic.summary, traffic.selected, traffic.dense) == (2 * 818, 40 * 512, 40 * 512)


def test_traffic_counts_whole_pages_of_the_budget():
    assert step_traffic(4096, 65, 16, 128, 818).selected == 5 * 16 * 512


@pytest.mark.parametrize("context", PAPER["frontier (Table 2)"])
def test_capacity_frontier(context):
    assert GLM_4_9B_1M_ON_H200.largest_batch(int(context), 16, 818) == PAPER["frontier (Table 2)"][context]


def test_nothing_fits_beside_weights_that_fill_the_memory():
    full = type(GLM_4_9B_1M_ON_H200)(10e9, 0.9, 10e9, 40, 4, 128)
    assert full.largest_batch(16, 16, 818) == 0


def test_a_width_that_is_not_stored_is_refused():
    with pytest.raises(ArgumentError, match="basis_bits"):
        payload_bytes(8, 3, 16, 128)
    with pytest.raises(ArgumentError, match="whole bytes"):
        payload_bytes(8, 4, 16, 7)


def test_resident_bytes_by_hand():
    """10 tokens of 2 x 4 channels in bf16 are 160 bytes, three pages of 4 hold them: 6 heads of 160 + 3 x 7 bytes."""
    one = Deployment(memory_bytes=0.0, utilisation=0.5, weight_bytes=100.0, layers=2, kv_heads=3, head_size=4)
    assert one.sequence_bytes(10, 4, 7) == 6 * (160 + 21) == 1086


@pytest.mark.parametrize(("fitting", "batch"), [(0, 0), (1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (9, 8)])
def test_the_batch_is_the_largest_power_of_two_that_fits(fitting, batch):
    def on(memory):
        return Deployment(memory, 0.5, 100.0, 2, 3, 4).largest_batch(10, 4, 7)

    exactly = 2 * (100 + 1086 * fitting)
    assert on(exactly) == batch
    assert on(exactly + 2 * 1085) == batch
    if fitting == batch > 0:
        assert on(exactly - 2) == batch // 2


@pytest.mark.parametrize(("head_size", "bits"), [(4, 2), (2, 4), (1, 8), (1, 16), (12, 2)])
def test_a_basis_column_of_whole_bytes(head_size, bits):
    assert payload_bytes(3, bits, 5, head_size) == 3 * (head_size * bits // 8) + 15 + head_size
    assert isinstance(payload_bytes(3, bits, 5, head_size), int)


@pytest.mark.parametrize(("head_size", "bits"), [(3, 2), (5, 4), (10, 2)])
def test_a_basis_column_of_part_of_a_byte_is_refused(head_size, bits):
    with pytest.raises(
        ArgumentError, match=f"^head_size: expected a basis .*, got {head_size} elements of {bits} bits$"
    ):
        payload_bytes(3, bits, 5, head_size)


def test_a_bf16_basis_has_no_column_scales():
    assert scale_bytes(8, 16, 16) == 2 * (16 + 1)
    assert scale_bytes(8, 16, 8, bytes_per_scale=4) == 4 * (8 + 16 + 1)
    assert record_bytes(2, 16, 4, 3) == 2 * 3 * 2 + 4 * 2 + 3 + 2 * (4 + 1)


def test_a_record_that_fills_its_alignment_is_not_padded():
    assert record_bytes(8, 4, 16, 128, align=818) == 818
    assert record_bytes(8, 4, 16, 128, align=817) == 2 * 817


def test_a_batch_of_empty_sequences_is_refused():
    with pytest.raises(ArgumentError, match="context_tokens: expected at least 1, got 0"):
        GLM_4_9B_1M_ON_H200.largest_batch(0, 16, 818)
