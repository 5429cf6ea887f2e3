"""The percentages that ReadKV's Tables 2, 3, 6, 7 and 8 print for the fixed-rate codes come out of the accounting."""

import pytest

from refimpl.baselines.code_accounting import kivi_bits, kivi_percent, lloyd2_method, turboquant_percent
from refimpl.baselines.kivi import kivi_residual
from refimpl.baselines.turboquant_slot import turboquant_slot_bytes
from refimpl.checks import ArgumentError
from refimpl.readkv.accounting import GEOMETRIES, cache_percent, prediction_lengths, read_percent


def printed(value):
    return float(round(value, 1))


@pytest.mark.parametrize(
    ("tokens", "capacity"),
    [(2048, 23.8), (3500, 20.7), (4096, 21.3), (7500, 19.9), (8192, 20.0)],
)
def test_capacity_of_two_bit_kivi(tokens, capacity):
    """Tables 2, 7, 8, 3 and 8, in this order."""
    assert printed(kivi_percent(lengths=[tokens], bits=2)) == capacity


def test_the_published_residual_rule_does_not_give_the_printed_capacities():
    others = [printed(kivi_percent(lengths=[t], bits=2, rule="prefill")) for t in (2048, 4096, 8192)]
    assert others == [21.3, 20.0, 19.4]


def test_four_bit_kivi_at_2048_tokens():
    """Table 6: 37.6 read, 35.5 retained."""
    assert printed(kivi_percent(lengths=[2048], bits=4)) == 35.5
    assert printed(kivi_percent(lengths=prediction_lengths(2048), bits=4)) == 37.6


def test_reads_of_two_bit_kivi_over_a_document():
    """Table 2: 26.2."""
    assert printed(kivi_percent(lengths=prediction_lengths(2048), bits=2)) == 26.2


@pytest.mark.parametrize(
    ("model", "percent"),
    [
        ("Qwen2.5-3B", 34.4),
        ("Qwen2.5-7B", 36.7),
        ("Qwen2.5-14B", 32.3),
        ("Yi-1.5-6B", 35.4),
        ("DeepSeek-LLM-7B", 36.0),
        ("Mistral-7B", 35.4),
    ],
)
def test_turboquant_with_dense_edges(model, percent):
    """Tables 2, 3, 7 and 8: reads and capacity are one number, whatever the length."""
    geometry = GEOMETRIES[model]
    assert printed(turboquant_percent(layers=geometry.layers, channels=geometry.channels)) == percent


def test_the_slot_is_134_bytes_of_512():
    assert turboquant_slot_bytes(128) == 66 + 68
    assert turboquant_percent(layers=8, edge=0) == 100 * 134 / 512


@pytest.mark.parametrize("model", ["Qwen2.5-3B", "Qwen2.5-7B", "Yi-1.5-6B", "DeepSeek-LLM-7B", "Mistral-7B"])
def test_lloyd2(model):
    """Table 6: 13.1 read, 13.0 retained."""
    method = lloyd2_method()
    assert printed(cache_percent(GEOMETRIES[model], method, 2048)) == 13.0
    assert printed(read_percent(GEOMETRIES[model], method, prediction_lengths(2048))) == 13.1


def test_residuals_of_both_rules():
    assert [kivi_residual(tokens=t) for t in (0, 1, 128, 129, 256)] == [
        (0, 0),
        (1, 1),
        (128, 128),
        (1, 128),
        (128, 128),
    ]
    assert [kivi_residual(tokens=t, rule="prefill") for t in (0, 1, 128, 129)] == [(0, 0), (1, 1), (0, 128), (1, 128)]


def test_a_cache_within_the_residual_is_dense():
    assert kivi_bits(tokens=100, bits=2) == 100 * 2 * 16
    assert kivi_percent(lengths=[100], bits=2) == 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kivi_residual(tokens=1, rule="other"), "rule: expected"),
        (lambda: kivi_percent(lengths=[], bits=2), "lengths: expected at least one"),
        (lambda: turboquant_percent(layers=3), "edge: expected at most half of 3"),
        (lambda: turboquant_slot_bytes(65), "d: expected an even number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
