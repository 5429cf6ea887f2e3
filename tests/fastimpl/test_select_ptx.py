"""The PTX of the selection's threshold, run in a small machine of our own: no GPU."""

import numpy as np
import pytest
from ptx_machine import Machine

pytest.importorskip("triton")
from fastimpl.locks.select_ptx import FORCED, threshold_text

ABSENT = -(2**31)


def shares(rng, n, spread):
    return np.exp(rng.normal(size=n) * spread - 12).astype(np.float32).view(np.int32)


def kept_by(keys, kept, warps):
    """The positions that threshold and room keep: what is above, and the first ``room`` equals."""
    machine = Machine(threshold_text(len(keys), warps), {2: 0, 3: len(keys), 4: kept}, keys, 32 * warps)
    machine.run()
    (bar,), (room,) = (np.unique(machine.values[f"${i}"].view(np.int32)) for i in range(2))
    equals = np.flatnonzero(keys == bar)
    return np.sort(np.concatenate([np.flatnonzero(keys > bar), equals[:room]]))


def largest(keys, kept):
    """The first ``kept`` of a stable descending sort; negative keys are never kept."""
    order = np.argsort(-keys.astype(np.int64), kind="stable")[:kept]
    return np.sort(order[keys[order] >= 0])


CASES = {
    "spread": (lambda rng: shares(rng, 512, 2.0), 128),
    "narrow": (lambda rng: shares(rng, 512, 1e-6), 17),
    "ties at the threshold": (lambda rng: rng.integers(5, 9, 300).astype(np.int32), 40),
    "all equal": (lambda rng: np.full(130, 77, np.int32), 9),
    "zeros": (lambda rng: np.where(rng.random(300) < 0.9, 0, shares(rng, 300, 1)).astype(np.int32), 128),
    "fewer than are kept": (
        lambda rng: np.where(np.arange(200) < 60, shares(rng, 200, 1), ABSENT).astype(np.int32),
        128,
    ),
    "forced pages alone": (lambda rng: np.where(np.arange(90) % 89, ABSENT, FORCED).astype(np.int32), 2),
    "nothing": (lambda rng: np.full(64, ABSENT, np.int32), 3),
    "the whole range": (lambda rng: rng.integers(0, FORCED, 256).astype(np.int32), 100),
}


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("name", CASES)
def test_threshold_and_room_keep_the_largest_lowest_first(name, warps):
    make, kept = CASES[name]
    rng = np.random.default_rng(len(name))
    keys = make(rng)
    if "range" in name or "spread" in name:
        keys[[0, -1]] = FORCED
    np.testing.assert_array_equal(kept_by(keys, kept, warps), largest(keys, kept))
