import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.access_instances import (
    attention_family,
    attention_protocol,
    key_score_protocol,
    stochastic_rounding_protocol,
)
from refimpl.readkv.access_model import (
    BRANCHING,
    IDLE_BATCHES,
    OBLIVIOUS,
    QUERY_INDEPENDENT,
    Coins,
    IllegalAccess,
    Protocol,
    leaves_of_reader,
    run_protocol,
    staged,
)
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT, theorem_1_upper, theorem_2_upper
from refimpl.readkv.rotation import readkv_rotate, rotation_matrix

EPSILON_8 = 0.0096543432  # Lemma 7's upper bound


def bits(source, coins):
    return source


def protocol(access, reader, storage=4, probes=3):
    return Protocol(access, storage, probes, bits, reader, lambda seen: sorted(seen.returned.items()))


def test_proposition_4s_chain_and_what_it_leaves_out():
    chain = [OBLIVIOUS, staged(1), staged(2), staged(7), BRANCHING]
    for (i, a), (j, b) in itertools.product(enumerate(chain), repeat=2):
        assert a.within(b) == (i <= j)
    assert OBLIVIOUS.within(QUERY_INDEPENDENT)
    assert QUERY_INDEPENDENT.within(BRANCHING)
    assert not QUERY_INDEPENDENT.within(staged(7))
    assert not staged(1).within(QUERY_INDEPENDENT)


@pytest.mark.parametrize("access", [OBLIVIOUS, QUERY_INDEPENDENT])
def test_a_reader_without_the_query_may_not_look_at_it(access):
    with pytest.raises(IllegalAccess, match=r"query: a query-.* reader must choose addresses without it"):
        run_protocol(protocol(access, lambda view: [view.query]), [1, 0, 1, 0], 2)


@pytest.mark.parametrize("access", [staged(1), staged(2), BRANCHING])
def test_a_reader_with_the_query_may(access):
    reader = lambda view: [] if view.batch else [view.query]  # noqa: E731
    assert run_protocol(protocol(access, reader), [1, 0, 1, 0], 2).answer == [(2, 1)]


def test_batches_are_counted():
    # the address follows the bits read so far, which one batch cannot do
    follow = lambda view: [] if view.batch == 3 else [sum(view.returned.values())]  # noqa: E731
    for access, batches in ((OBLIVIOUS, 1), (staged(1), 1), (staged(2), 2), (QUERY_INDEPENDENT, 3), (BRANCHING, 3)):
        execution = run_protocol(protocol(access, follow), [1, 1, 1, 0], None)
        assert execution.batches == [[0], [1], [2]][:batches]
        assert execution.probes == batches


def test_values_of_a_batch_are_not_seen_before_it_is_complete():
    seen = []

    def reader(view):
        seen.append(dict(view.returned))
        return [] if view.batch == 2 else [[0, 1], [3]][view.batch]

    run_protocol(protocol(BRANCHING, reader), [1, 0, 1, 1], None)
    assert seen == [{}, {0: 1, 1: 0}, {0: 1, 1: 0, 3: 1}]


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (lambda view: [4], r"addresses in 0\.\.3, got 4"),
        (lambda view: [-1], r"addresses in 0\.\.3, got -1"),
        (lambda view: [0, 1, 2, 3], "at most 3 probes, got 4"),
        (lambda view: [view.batch], "at most 3 probes, got 4"),
    ],
)
def test_illegal_addresses_and_probes(reader, message):
    with pytest.raises(IllegalAccess, match=message):
        run_protocol(protocol(BRANCHING, reader), [0, 1, 0, 1], None)


def test_an_address_read_again_costs_nothing():
    reader = lambda view: [] if view.batch == 9 else [0, 1, 2]  # noqa: E731
    assert run_protocol(protocol(BRANCHING, reader), [1, 0, 1], None).probes == 3


def test_a_reader_that_never_stops_is_refused():
    with pytest.raises(IllegalAccess, match="reader: expected it to stop"):
        run_protocol(protocol(QUERY_INDEPENDENT, lambda view: [0, 1]), [1, 0, 1], None)
    with pytest.raises(IllegalAccess, match="reader: expected it to stop"):
        leaves_of_reader(protocol(QUERY_INDEPENDENT, lambda view: [0, 1]))


def test_records_are_padded_and_bounded():
    assert run_protocol(protocol(OBLIVIOUS, lambda view: [3]), [1], None).answer == [(3, 0)]
    with pytest.raises(IllegalAccess, match="at most 4 stored bits, got 5"):
        run_protocol(protocol(OBLIVIOUS, lambda view: [0]), [0] * 5, None)
    with pytest.raises(IllegalAccess, match="bits 0 and 1"):
        run_protocol(protocol(OBLIVIOUS, lambda view: [0]), [2], None)
    with pytest.raises(ArgumentError, match="batches: expected at least 1"):
        staged(0)


def test_coins_reach_only_whom_they_may():
    seen = {}

    def encoder(source, coins):
        seen["encoder"] = coins
        return [0]

    def reader(view):
        seen["reader"] = view.coins
        return []

    def decoder(evidence):
        seen["decoder"] = evidence.coins

    run_protocol(Protocol(BRANCHING, 1, 1, encoder, reader, decoder), None, None, Coins("p", "e", "r"))
    assert seen == {"encoder": Coins("p", "e"), "reader": Coins("p", None, "r"), "decoder": Coins("p", None, "r")}


@pytest.mark.parametrize("probes", [0, 1, 2, 3])
def test_a_query_independent_reader_has_at_most_two_to_the_probes_leaves(probes):
    # reads bit 0, then walks left or right: a full binary tree of the probes' depth
    reader = lambda view: [] if view.batch == probes else [2 * view.batch + view.returned.get(0, 0)]  # noqa: E731
    leaves = leaves_of_reader(protocol(QUERY_INDEPENDENT, reader, storage=8, probes=probes))
    assert len(leaves) <= 2**probes
    records = itertools.product([0, 1], repeat=8)
    runs = {
        tuple(
            (a, r[a])
            for batch in run_protocol(protocol(QUERY_INDEPENDENT, reader, 8, probes), r, None).batches
            for a in batch
        )
        for r in records
    }
    assert {tuple(dict(run).items()) for run in runs} == leaves


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(1, 8))
def test_theorem_1s_reader_meets_its_bound_and_budgets(seed, power, depth):
    d = 2**power
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, d + 1))
    transform = rotation_matrix(rng.choice([-1, 1], size=d))
    z = rng.uniform(-1, 1, size=d)
    q = np.zeros(d)
    q[rng.choice(d, size=k, replace=False)] = rng.normal(size=k)
    q /= np.linalg.norm(q)
    x, y = transform.T @ z / math.sqrt(d), transform.T @ q
    run = run_protocol(key_score_protocol(transform=transform, depth=depth, budget=depth * k), x, y)
    assert run.probes <= depth * k
    assert len(run.batches) <= 1
    assert run.stored_bits == depth * d
    if depth == 8:  # the rotation back leaves zeros of q as rounding errors of at most 8 d ulps each
        assert (x @ y - run.answer) ** 2 <= theorem_1_upper(
            dimension=d, sparsity=k, epsilon=EPSILON_8
        ) + 64 * d * 2.0**-53


def test_theorem_1s_reader_reads_the_support_and_nothing_else():
    d, support = 8, [1, 6]
    q = np.zeros(d)
    q[support] = [0.8, -0.6]
    run = run_protocol(key_score_protocol(transform=np.eye(d), depth=8, budget=16), np.full(d, 0.3) / math.sqrt(d), q)
    assert sorted(run.batches[0]) == [8 * c + p for c in support for p in range(8)]


@pytest.mark.parametrize("d", [1, 2, 16, 128])
def test_e13s_obstruction_is_the_same_in_every_dimension(d):
    signs = np.where(np.arange(d) % 3 == 1, -1, 1)
    rotated = readkv_rotate(x=np.eye(d)[0], signs=signs)
    transform = rotation_matrix(signs)
    assert np.abs(np.abs(rotated) * math.sqrt(d) - 1).max() <= 4 * 2.0**-53
    run = run_protocol(key_score_protocol(transform=transform, depth=8, budget=2 * d), np.eye(d)[0], np.eye(d)[0])
    assert run.probes == 2 * d
    # every depth is two, so the answer is Q_2(1), printed to 1e-8; d products and sums of terms Q_2 / d
    assert abs((run.answer - 1) ** 2 - 0.26052611) <= 1e-8 + 4 * (d + 4) * 2.0**-53


def test_e13s_rival_has_variance_at_most_a_ninth():
    d, n = 4, 20000
    rng = np.random.default_rng(0)
    x = np.array([0.0, 2 / 3, -0.5, 0.1])  # 0 and 2/3 lie midway between levels: the worst case
    y = np.array([1.0, 1.0, 0.0, 0.0]) / math.sqrt(2)
    rival = stochastic_rounding_protocol(dimension=d, storage=8 * d)
    runs = [run_protocol(rival, x, y, Coins(encoder=rng.random(d))) for _ in range(n)]
    assert {(run.probes, tuple(run.batches[0])) for run in runs} == {(2 * d, tuple(range(2 * d)))}
    errors = np.array([run.answer - x @ y for run in runs])
    # |error| <= 2/3 sqrt 2; Hoeffding at 1e-9: mean within 0.034, mean square within 0.016
    assert abs(errors.mean()) <= math.sqrt(math.log(2e9) / (2 * n)) * 4 / 3 * math.sqrt(2)
    assert abs((errors**2).mean() - 1 / 9) <= math.sqrt(math.log(2e9) / (2 * n)) * 8 / 9


def test_e13s_rival_keeps_the_levels_exactly():
    rival = stochastic_rounding_protocol(dimension=3, storage=6)
    for level in (-1.0, 1.0):
        run = run_protocol(rival, np.full(3, level), np.eye(3)[1], Coins(encoder=np.full(3, 0.999)))
        assert run.answer == level


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([1, -1]), st.sampled_from([1, -1]))
def test_theorem_2s_reader_meets_its_bound_and_budgets(seed, m, sign, query_sign):
    values = np.random.default_rng(seed).uniform(-1, 1, size=(2, m))
    run = run_protocol(attention_protocol(dimension=m), (sign, values), query_sign)
    assert (run.probes, run.stored_bits, len(run.batches)) == (8 * m + 2, 32 * m, 2)
    assert run.batches[0] == [0, 8 * m]  # the first bit of both tokens' first key channel
    high = 0 if sign * query_sign == 1 else 1
    start = 16 * m + high * 8 * m
    assert run.batches[1] == list(range(start, start + 8 * m))
    exact = HIGH_WEIGHT * values[high] + LOW_WEIGHT * values[1 - high]
    assert ((exact - run.answer) ** 2).mean() <= theorem_2_upper(epsilon=EPSILON_8)


def test_theorem_2s_family_has_the_papers_logits():
    for sign, eta in itertools.product((1, -1), repeat=2):
        query, keys, _ = attention_family(sign=sign, values=np.zeros((2, 9)), query_sign=eta)
        logits = keys @ query / 3
        assert np.abs(logits - [5 * eta * sign, -5 * eta * sign]).max() <= 8 * 5 * 2.0**-53


@pytest.mark.parametrize(("repeats", "legal"), [(IDLE_BATCHES, True), (IDLE_BATCHES + 1, False)])
def test_a_reader_may_repeat_itself_so_often_and_no_oftener(repeats, legal):
    """Batch 0 fetches, the next ones ask for the same address, an empty one stops."""
    protocol = Protocol(
        QUERY_INDEPENDENT, 1, 1, lambda x, coins: [1], lambda view: [0] if view.batch <= repeats else [], lambda seen: 7
    )
    if legal:
        assert run_protocol(protocol, None, None).answer == 7
        assert leaves_of_reader(protocol) == {((0, 0),), ((0, 1),)}
    else:
        for run in (lambda: run_protocol(protocol, None, None), lambda: leaves_of_reader(protocol)):
            with pytest.raises(IllegalAccess, match=f"got {repeats} batches in a row without a new address"):
                run()
