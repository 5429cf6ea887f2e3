"""On the real capture, allocated depths beat every uniform depth of the same budget in the surrogate, always.

That is Proposition 8 on real importances: the greedy schedule is an optimum, so it is never worse, and it is strictly
better wherever importances differ. Output errors are measured, not proved, and are not asserted here.
"""

import numpy as np
import pytest

from proofs_checks.judge.cases.readkv_inputs import captured_read
from refimpl.readkv.allocation import readkv_choose_depths, surrogate
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.policies import read_uniform
from refimpl.readkv.reader import check_cache
from refimpl.readkv.rotation import readkv_rotate

STEPS = [(layer, step) for layer in range(4) for step in range(9)]


def distortions(importance, gains, depth):
    """The surrogate of the allocation and of the uniform depth at the same budget."""
    budget = depth * importance.size
    chosen = readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget)
    assert chosen.sum() <= budget
    flat = np.full(importance.size, depth)
    return tuple(surrogate(importance=importance.ravel(), depths=depths, gains=gains) for depths in (chosen, flat))


@pytest.mark.parametrize(("layer", "step"), STEPS)
def test_allocated_beats_uniform_in_the_surrogate(layer, step):
    inputs = dict(captured_read(layer, step))
    queries, cache = check_cache(inputs.pop("queries"), inputs, 8)
    rotated = readkv_rotate(x=queries, signs=cache.key_signs)
    keys = readkv_key_importance(rotated_queries=rotated, key_scale=cache.key_scale)
    for depth in range(1, 8):
        weights = read_uniform(queries=queries, cache=cache, key_depth=depth, value_depth=0)["weights"]
        for importance in (keys, readkv_value_importance(weights=weights)):
            assert np.ptp(importance) > 0
            allocated, uniform = distortions(importance, cache.gains, depth)
            assert allocated < uniform
