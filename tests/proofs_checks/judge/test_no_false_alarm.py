"""No stage of a right port is failed, whatever is drawn: the float32 example port, and the reference as a port."""

import draws
import pytest
from judged import assert_no_alarm, judged, port_from
from stage_inputs import INPUTS

from proofs_checks.judge.table_locks import LOCKS
from refimpl import port as reference

NUMPY_PORT = port_from("numpy_port")


def test_every_stage_of_locks_is_drawn():
    """ReadKV's stages are drawn in test_readkv_no_false_alarm.py."""
    assert set(INPUTS) == {stage.name for stage in LOCKS}


def test_the_explicit_draws_hold_every_size_that_is_promised():
    assert {(x.G, x.d) for x in draws.EXPLICIT} == {(G, d) for G in (1, 2, 3, 4, 7, 8) for d in (64, 80, 96, 128, 256)}
    assert {(x.G, x.B) for x in draws.EXPLICIT} == {(G, B) for G in (1, 2, 3, 4, 7, 8) for B in (8, 16, 32)}
    assert {x.content for x in draws.EXPLICIT} == set(draws.CONTENTS)
    assert {x.bits for x in draws.EXPLICIT} == set(draws.BITS)
    assert {x.opened == 0 for x in draws.EXPLICIT} == {x.kept >= x.pages for x in draws.EXPLICIT} == {True, False}
    assert {1, 7, 15, 31} <= {x.opened for x in draws.EXPLICIT}, "open pages of one token and of all but one"


@pytest.mark.parametrize("stage", INPUTS)
@draws.every_shape
def test_the_float32_numpy_port_raises_no_alarm(stage, drawn):
    assert_no_alarm(judged(stage, getattr(NUMPY_PORT, stage), INPUTS[stage](drawn)))


@pytest.mark.parametrize("stage", INPUTS)
@draws.every_shape
def test_the_reference_as_a_port_raises_no_alarm(stage, drawn):
    assert_no_alarm(judged(stage, getattr(reference, stage), INPUTS[stage](drawn), lowest_index=True))
