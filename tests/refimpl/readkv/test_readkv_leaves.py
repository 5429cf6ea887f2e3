"""Leaves of a reader's decision tree, the budgets that protocols state, and whole codes that survive a protocol."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.readkv.access_instances import attention_family, attention_protocol, stochastic_rounding_protocol
from refimpl.readkv.access_model import (
    BRANCHING,
    OBLIVIOUS,
    Coins,
    IllegalAccess,
    Protocol,
    leaves_of_reader,
    run_protocol,
    staged,
    write_record,
)
from refimpl.readkv.codec import readkv_decode, readkv_encode
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT


def protocol(access, reader):
    return Protocol(access, 4, 3, lambda source, coins: source, reader, lambda seen: None)


@pytest.mark.parametrize(("access", "leaves"), [(OBLIVIOUS, 2), (staged(1), 2), (staged(2), 4), (BRANCHING, 8)])
def test_leaves_end_with_the_last_batch_that_the_class_allows(access, leaves):
    """The reader would fetch one cell a batch, three in all."""
    found = leaves_of_reader(protocol(access, lambda view: [view.batch] if view.batch < 3 else []))
    assert len(found) == leaves


@pytest.mark.parametrize("access", [staged(1), BRANCHING])
def test_a_reader_is_offered_no_query_when_its_leaves_are_counted(access):
    with pytest.raises(IllegalAccess) as caught:
        leaves_of_reader(protocol(access, lambda view: [0 if view.query is None else 1]))
    assert str(caught.value) == f"query: a {access.name} reader must choose addresses without it"


def test_a_reader_keeps_its_own_coins_when_its_leaves_are_counted():
    seen = []

    def reader(view):
        seen.append(view.coins)
        return [view.coins.public, view.coins.reader]

    leaves = leaves_of_reader(protocol(OBLIVIOUS, reader), Coins(public=1, encoder=7, reader=3))
    assert leaves == {((1, a), (3, b)) for a in (0, 1) for b in (0, 1)}
    assert seen == [Coins(1, None, 3)]


def test_what_a_record_may_hold():
    with pytest.raises(IllegalAccess) as caught:
        write_record(protocol(OBLIVIOUS, lambda view: []), [0, 2], Coins())
    assert str(caught.value) == "encoder: expected a record of bits 0 and 1"


@pytest.mark.parametrize("m", [1, 2, 5])
def test_protocols_state_the_papers_budgets(m):
    theorem_2, rival = attention_protocol(dimension=m), stochastic_rounding_protocol(dimension=m, storage=8 * m)
    assert (theorem_2.storage, theorem_2.probes) == (32 * m, 8 * m + 2)
    assert (rival.storage, rival.probes) == (8 * m, 2 * m)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([1, -1]), st.sampled_from([1, -1]))
def test_theorem_2s_reader_answers_with_the_weight_p_of_the_whole_code(seed, m, sign, eta):
    """One bit finds the keys exactly, so the logits are 5 and -5; the other token is read to depth 0, which is 0."""
    values = np.random.default_rng(seed).uniform(-1, 1, size=(2, m))
    run = run_protocol(attention_protocol(dimension=m), (sign, values), eta)
    whole = readkv_decode(codes=readkv_encode(z=values[0 if sign * eta == 1 else 1]), depth=8)
    # logits off by some 12 roundings of 5, which the weight p = 1 - rho damps by rho; then ten of its own
    assert (np.abs(run.answer - HIGH_WEIGHT * whole) <= (16 + 120 * LOW_WEIGHT) * 2.0**-53 * np.abs(whole)).all()


def test_theorem_2s_keys_are_the_two_centroids_of_one_bit():
    """The means of the halves of N(0, 1), plus and minus sqrt(2/pi), as float32."""
    _, keys, _ = attention_family(sign=-1, values=np.zeros((2, 3)), query_sign=1)
    half = float(np.float32(np.sqrt(2 / np.pi)))
    assert keys.tolist() == [[-half, 0.0, 0.0], [half, 0.0, 0.0]]


def test_stochastic_rounding_keeps_a_level_whatever_the_coins():
    rival = stochastic_rounding_protocol(dimension=2, storage=4)
    for coin in (0.0, 0.5, 1 - 2.0**-53):
        for level in (-1.0, 1.0):
            run = run_protocol(rival, np.full(2, level), np.array([1.0, 0.0]), Coins(encoder=np.full(2, coin)))
            assert run.answer == level
