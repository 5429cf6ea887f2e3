"""Right ports on fresh inputs of every stage, seed by seed: not one failure. Ten seeds in the deep profile."""

import os

import pytest
from honest_ports import STAGES, honest_ports, judgements
from profiles import chosen_profile

SEEDS = range(10) if chosen_profile(os.environ) == "deep" else range(2)
DRAWS = 3
PORTS = honest_ports()


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_port_is_not_failed(name, seed):
    for stage in PORTS[name].functions:
        for drawn, judgement in judgements(PORTS[name], stage, seed, DRAWS):
            assert not judgement.faults, (stage, drawn, judgement.faults[0].message)


def test_two_seeds_draw_different_inputs():
    from honest_ports import drawn_by

    assert list(drawn_by(0, DRAWS)) == list(drawn_by(0, DRAWS))
    assert list(drawn_by(0, DRAWS)) != list(drawn_by(1, DRAWS))


def test_every_stage_of_attention_and_locks_is_drawn():
    assert len(STAGES) == 16
    assert all(set(port.functions) <= set(STAGES) for port in PORTS.values())
