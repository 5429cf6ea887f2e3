from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.accounting import (
    GEOMETRIES,
    Geometry,
    Method,
    cache_percent,
    generation_lengths,
    prediction_lengths,
    read_bits,
    read_percent,
    readkv_method,
    schedule_payload_bits,
)
from refimpl.readkv.reuse_model import (
    capacity_ratio,
    concurrent_requests,
    crossover_steps,
    extra_write_fraction,
    extra_write_limit,
    historical_reads,
    payload_traffic,
    relative_throughput,
    step_bytes,
    steps_for_any_prompt,
    traffic_saving,
)

MODELS = list(GEOMETRIES)
METHODS = {
    "(4,4)": readkv_method(stored=4, read=4),
    "(4,2)": readkv_method(stored=4, read=2),
    "(8,2)": readkv_method(stored=8, read=2),
    "(8,4)": readkv_method(stored=8, read=4),
    "(8,2)+": readkv_method(stored=8, read=2, protected_layers=4),
    "(8,4)+": readkv_method(stored=8, read=4, protected_layers=4),
    # two bits, an fp16 norm per key vector, and its own four-level codebooks for keys and values
    "Lloyd-2": Method(2, 2, token_bits=16, table_bits=2 * 4 * 32),
    "Dense": Method(16, 16, protected_layers=0, table_bits=0),
}
# Tables 2 and 6 (C4, 2,048 tokens): reads / capacity per model in the order of MODELS; None was not run
C4 = {
    "(4,4)": ["25.6/25.1", "25.4/25.1", "25.3/25.1", "25.4/25.1", "25.2/25.1", "25.3/25.1"],
    "(4,2)": ["13.1/25.1", "12.9/25.1", "12.8/25.1", "12.9/25.1", "12.7/25.1", "12.8/25.1"],
    "(8,2)": ["13.1/50.1", "12.9/50.1", "12.8/50.1", "12.9/50.1", "12.7/50.1", "12.8/50.1"],
    "(8,4)": ["25.6/50.1", "25.4/50.1", "25.3/50.1", "25.4/50.1", "25.2/50.1", "25.3/50.1"],
    "(8,4)+": ["33.9/55.6", "36.0/57.2", "31.5/54.3", "34.7/56.3", "35.2/56.8", "34.6/56.3"],
    "(8,2)+": ["22.7/55.6", "25.3/57.2", "20.1/54.3", "23.8/56.3", "24.4/56.8", "23.7/56.3"],
    "Lloyd-2": ["13.1/13.0", "13.1/13.0", None, "13.1/13.0", "13.1/13.0", "13.1/13.0"],
}
# Tables 3, 7 and 8: capacity at the declared state. Answer and prompt lengths decide the reads' last digit; those below
# are of calls at the declared length itself, where a table prints them for some task.
QA = [
    (
        "Qwen2.5-7B",
        7500,
        {
            "(4,2)": "12.6/25.0",
            "(8,2)": "12.6/50.0",
            "(8,4)": "25.1/50.0",
            "(8,2)+": "25.0/57.2",
            "(8,4)+": "35.8/57.2",
        },
    ),
    (
        "Mistral-7B",
        7500,
        {
            "(4,2)": "12.5/25.0",
            "(8,2)": "12.5/50.0",
            "(8,4)": "25.0/50.0",
            "(8,2)+": "23.5/56.3",
            "(8,4)+": "34.4/56.3",
        },
    ),
    (
        "Qwen2.5-7B",
        3500,
        {
            "(4,2)": "12.6/25.1",
            "(8,2)": "12.6/50.1",
            "(8,4)": "25.1/50.1",
            "(8,2)+": "25.1/57.2",
            "(8,4)+": "35.8/57.2",
        },
    ),
    (
        "Mistral-7B",
        3500,
        {
            "(4,2)": "12.6/25.1",
            "(8,2)": "12.6/50.1",
            "(8,4)": "25.1/50.1",
            "(8,2)+": "23.5/56.3",
            "(8,4)+": "-/56.3",
        },
    ),
    ("Qwen2.5-7B", 4096, {"(4,4)": "25.1/25.1", "(4,2)": "12.6/25.1", "(8,2)": "12.6/50.1", "(8,4)": "25.1/50.1"}),
    ("Mistral-7B", 4096, {"(4,4)": "25.1/25.0", "(4,2)": "12.6/25.0"}),
    ("Mistral-7B", 8192, {"(4,4)": "25.0/25.0", "(4,2)": "12.5/25.0", "(8,2)": "12.5/50.0", "(8,4)": "25.0/50.0"}),
]


def prints_as(value, printed):
    """Whether an exact percentage rounds to the printed one: within half a unit of its last digit."""
    return abs(value - Fraction(printed)) <= Fraction(1, 20)


@pytest.mark.parametrize("method", C4)
@pytest.mark.parametrize("model", MODELS)
def test_c4_percentages_of_tables_2_and_6(model, method):
    cell = C4[method][MODELS.index(model)]
    if cell is None:
        assert (model, method) == ("Qwen2.5-14B", "Lloyd-2")
        return
    reads, capacity = cell.split("/")
    geometry = GEOMETRIES[model]
    assert prints_as(read_percent(geometry, METHODS[method], prediction_lengths(2048)), reads)
    assert prints_as(cache_percent(geometry, METHODS[method], 2048), capacity)


@pytest.mark.parametrize(
    ("model", "tokens", "method", "cell"), [(m, t, name, c) for m, t, cells in QA for name, c in cells.items()]
)
def test_percentages_of_tables_3_7_and_8(model, tokens, method, cell):
    reads, capacity = cell.split("/")
    if reads != "-":
        assert prints_as(read_percent(GEOMETRIES[model], METHODS[method], [tokens]), reads)
    assert prints_as(cache_percent(GEOMETRIES[model], METHODS[method], tokens), capacity)


def test_one_printed_capacity_does_not_follow():
    # Table 8 prints 50.1 for Mistral at 4,096 tokens with W = 8 and 25.0 with W = 4; the same overhead gives both
    for stored, below in ((8, Fraction("50.05")), (4, Fraction("25.05"))):
        value = cache_percent(GEOMETRIES["Mistral-7B"], readkv_method(stored=stored, read=2), 4096)
        assert below - Fraction(1, 1000) < value < below


def test_dense_is_100_percent_and_reads_what_it_keeps():
    geometry = Geometry(2, 3, 64)
    dense = Method(0, 0, table_bits=0, protected_layers=2)
    assert cache_percent(geometry, dense, 10) == 100
    assert read_percent(geometry, dense, [10, 20]) == 100


def test_payload_sizes_of_appendix_g2():
    layer = GEOMETRIES["Qwen2.5-7B"].dense_layer_bits(8192) // 8  # bytes
    assert [layer * bits // 16 / 2**20 for bits in (4, 8, 16)] == [4.0, 8.0, 16.0]


def test_dense_prefill_makes_one_call_less_than_the_answer_has_tokens():
    assert list(generation_lengths(100, 4)) == [101, 102, 103]
    assert list(generation_lengths(100, 1)) == []
    with pytest.raises(ArgumentError, match="lengths: expected at least one call"):
        read_percent(GEOMETRIES["Mistral-7B"], METHODS["(8,2)"], generation_lengths(100, 1))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 30))
def test_a_schedules_payload_is_what_its_planes_hold(heads, channels, tokens):
    rng = np.random.default_rng(heads * 1000 + channels * 100 + tokens)
    keys, values = rng.integers(0, 9, size=(heads, channels)), rng.integers(0, 9, size=(heads, tokens))
    counted = sum(int(keys[h, c]) for h in range(heads) for _ in range(tokens) for c in range(channels))
    counted += sum(int(values[h, t]) for h in range(heads) for t in range(tokens) for _ in range(channels))
    assert schedule_payload_bits(key_depths=keys, value_depths=values, channels=channels) == counted


def test_reads_count_payload_side_information_and_one_load_per_layer():
    geometry = Geometry(3, 2, 4)
    method = Method(8, 2, token_bits=16, table_bits=100, protected_layers=1)
    per_layer = 2 * (2 * 2 * 4 * 5) + 16 * 2 * 5 + 16 * 4 * 2 * 4 + 100
    assert read_bits(geometry, method, 5) == 2 * per_layer + 16 * 2 * 2 * 4 * 5


# ---- App. A.2 to A.7


@given(st.integers(0, 300), st.integers(1, 300))
def test_historical_reads_are_the_sum_over_steps(prompt, steps):
    assert historical_reads(prompt=prompt, steps=steps) == sum(prompt + t for t in range(steps))


@given(st.integers(0, 200), st.integers(1, 200), st.integers(1, 16), st.integers(0, 16))
def test_traffic_is_the_sum_over_entries(prompt, steps, stored, read):
    by_entry = sum(stored + read * (steps - max(0, token - prompt + 1)) for token in range(prompt + steps))
    assert payload_traffic(stored=stored, read=read, prompt=prompt, steps=steps) == by_entry
    kept = payload_traffic(stored=stored, read=read, prompt=prompt, steps=steps, final_insertion=False)
    assert by_entry - kept == stored


def test_the_numbers_of_a3():
    eta = extra_write_fraction(stored=8, fixed=4, prompt=8192, steps=128)
    assert f"{float(eta):.7f}" == "0.0078735"
    assert f"{100 * float(eta):.2f}" == "0.79"
    assert extra_write_limit(stored=8, fixed=4, steps=128) == Fraction(1, 128)
    assert extra_write_fraction(stored=8, fixed=4, prompt=0, steps=11) == Fraction(2 * 4, 4 * 10)
    assert steps_for_any_prompt(stored=8, fixed=4, fraction=0.01) == 201


@given(st.integers(0, 10**6))
def test_201_steps_keep_the_extra_writes_below_a_hundredth(prompt):
    assert extra_write_fraction(stored=8, fixed=4, prompt=prompt, steps=201) <= Fraction(1, 100)


def test_200_steps_do_not():
    assert extra_write_fraction(stored=8, fixed=4, prompt=0, steps=200) > Fraction(1, 100)


@given(st.integers(0, 2000), st.integers(1, 6), st.integers(1, 6), st.integers(0, 6))
def test_the_crossover_separates_losing_from_saving(prompt, more, less, read):
    fixed, stored = read + less, read + less + more
    crossover = crossover_steps(stored=stored, read=read, fixed=fixed, prompt=prompt)

    def excess(steps):
        """App. A.4's quadratic: its positive root is the crossover."""
        return Fraction(less, 2) * steps**2 + (less * (prompt - Fraction(1, 2)) - more) * steps - more * prompt

    for steps in {max(1, int(crossover) + offset) for offset in (-1, 0, 1, 2)}:
        saving = traffic_saving(stored=stored, read=read, fixed=fixed, prompt=prompt, steps=steps)
        assert (saving > 0) == (excess(steps) > 0)
    # the crossover itself: a square root, a sum, a quotient and their exact operands' roundings, without cancellation
    near = 8 * Fraction(2) ** -53 * Fraction(crossover)
    assert excess(Fraction(crossover) - near) <= 0 <= excess(Fraction(crossover) + near)


def test_the_crossover_from_an_empty_cache():
    assert crossover_steps(stored=8, read=2, fixed=4, prompt=0) == 1 + 2 * 4 / 2
    assert capacity_ratio(stored=8, fixed=4) == 2


def test_the_throughputs_of_a6():
    rows = [(0.367, 0.367, "2.7"), (0.254, 0.501, "3.3"), (0.262, 0.238, "3.9"), (0.129, 0.501, "4.9")]
    for fetched, retained, printed in rows:
        gain = relative_throughput(fetched=fetched, retained=retained, weights_over_memory=0.25)
        assert f"{gain:.1f}" == printed


def test_relative_throughput_is_requests_over_bytes():
    model = GEOMETRIES["Qwen2.5-7B"]
    request = model.layers * model.dense_layer_bits(8192) / 8
    assert f"{request / 1e9:.2f}" == "0.47"

    def throughput(fetched, retained):
        requests = concurrent_requests(memory=60e9, retained=retained, request_bytes=request)
        return requests / step_bytes(weights=15e9, requests=requests, fetched=fetched, request_bytes=request)

    gain = relative_throughput(fetched=0.254, retained=0.501, weights_over_memory=0.25)
    assert abs(throughput(0.254, 0.501) / throughput(1.0, 1.0) / gain - 1) <= 16 * 2.0**-53


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readkv_method(stored=4, read=5), "read: expected at most the stored depth 4"),
        (lambda: cache_percent(Geometry(2, 1, 8), Method(8, 2, protected_layers=3), 4), "protected_layers: expected"),
        (lambda: cache_percent(Geometry(2, 1, 8), Method(8, 2), 0), "tokens: expected at least 1"),
        (lambda: extra_write_fraction(stored=4, fixed=4, prompt=1, steps=1), "stored: expected more than fixed=4"),
        (lambda: extra_write_fraction(stored=8, fixed=4, prompt=0, steps=1), "steps: expected at least one historical"),
        (lambda: crossover_steps(stored=8, read=4, fixed=4, prompt=0), "read: expected fewer than fixed=4 bits, got 4"),
        (lambda: steps_for_any_prompt(stored=8, fixed=4, fraction=0), "fraction: expected"),
        (lambda: historical_reads(prompt=-1, steps=1), "prompt: expected at least 0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize(("stored", "fixed"), [(8, 4), (8, 7), (3, 1), (Fraction(9, 2), 4)])
@pytest.mark.parametrize("fraction", [0.01, Fraction(1, 7), 0.5, 1, 2, 100])
def test_the_steps_for_any_prompt_are_the_fewest(stored, fixed, fraction):
    """An empty cache is the worst prompt; with one step there is nothing to read from it."""
    steps = steps_for_any_prompt(stored=stored, fixed=fixed, fraction=fraction)
    bound = Fraction(str(fraction))

    def added(prompt, steps):
        return extra_write_fraction(stored=stored, fixed=fixed, prompt=prompt, steps=steps)

    assert all(added(prompt, steps) <= bound for prompt in (0, 1, 2, 10, 1000))
    assert steps == 2 or added(0, steps - 1) > bound


def test_no_final_insertion_writes_one_token_less():
    calls = {"stored": 8, "read": 2, "prompt": 5, "steps": 3}
    assert payload_traffic(**calls) == 8 * 8 + 2 * (5 + 6 + 7)
    assert payload_traffic(**calls, final_insertion=False) == 8 * 7 + 2 * (5 + 6 + 7)
