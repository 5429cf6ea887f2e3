"""Cases of QJL: signs by a given projection exactly, and inner products with the port's own projection by its law."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.baseline_turboquant import SEEDS, drawn
from proofs_checks.judge.checks.random_matrices import linear_in_queries, unbiased


def qjl_encode_cases() -> list[Case]:
    """Cases of `qjl_encode`."""
    stage = Family("qjl_encode", "F")
    return [
        stage.probe("unit-rows", "F", "rows along single channels: signs are the channels' own", _unit_rows),
        stage.probe("zero", "F", "a projection of exactly 0 has a sign, either one", _zero_channel),
        stage.probe("norm-of-the-vector", "D", "the norm is of x, not of its projection", partial(_projected, 8, 16)),
        stage.probe("more-rows-than-channels", "F", "m = 96, d = 32", partial(_projected, 96, 32)),
        stage.probe("no-vectors", "A", "no vectors are legal", partial(_projected, 16, 16, 0)),
        stage.general("random", "m = d = 64", partial(_projected, 64, 64)),
    ]


def _unit_rows() -> Inputs:
    return {"x": np.array([[1.0, -2.0, 3.0, -4.0]]), "projection": np.eye(4)[[3, 2, 1, 0]]}


def _zero_channel() -> Inputs:
    return {"x": np.array([[1.0, 0.0, 3.0, 0.0]]), "projection": np.eye(4)}


def _projected(rows: int, d: int, count: int = 9) -> Inputs:
    rng = generator("qjl", f"{rows},{d}")
    return {"x": rng.normal(size=(count, d)) * 2.0, "projection": rng.normal(size=(rows, d))}


def qjl_estimate_cases() -> list[Case]:
    """Cases of `qjl_estimate`."""
    stage = Family("qjl_estimate", "F")
    return [
        stage.probe("factor", "F", "one row, one sign: sqrt(pi/2) times norm times projection", _one_row),
        stage.probe("rows-not-channels", "F", "m = 96, d = 32: the factor divides by m", _unit_signs),
        stage.probe("norms", "D", "norms from 1 to 2", partial(_signs, 32, 32)),
        stage.general("random", "m = d = 64", partial(_signs, 64, 64)),
    ]


def _one_row() -> Inputs:
    return {
        "signs": np.array([[1], [-1]]),
        "norm": np.array([1.0, 1.0]),
        "projection": np.array([[1.0, 0.5]]),
        "queries": np.array([[2.0, 0.0], [0.0, 2.0]]),
    }


def _unit_signs() -> Inputs:
    return {**_signs(96, 32), "norm": np.ones(9)}


def _signs(rows: int, d: int) -> Inputs:
    rng = generator("qjl", "signs", f"{rows},{d}")
    return {
        "signs": rng.choice([-1, 1], size=(9, rows)),
        "norm": 1 + rng.random(9),
        "projection": rng.normal(size=(rows, d)),
        "queries": rng.normal(size=(5, d)),
    }


def _pairs(d: int = 64) -> Inputs:
    """Vectors, and as queries the vectors themselves, one across and one oblique."""
    x = generator("qjl", "pairs").normal(size=(2, d))
    across = np.roll(x[0], 1) * np.where(np.arange(d) % 2, 1.0, -1.0)
    return {"x": x, "queries": np.stack([x[0], x[1], across, x[0] + x[1]])}


def qjl_product_cases() -> list[Case]:
    """Cases of `qjl_inner_products`, whose projection is the port's own."""
    stage, inputs = Family("qjl_inner_products", "F"), {**_pairs(), "seed": 0}
    why = "over 64 seeds the mean estimate is the inner product: a projection scaled by 1/sqrt(d) leaves an eighth"
    return [
        drawn(stage, "unbiased", why, "F", inputs, unbiased(SEEDS, 1.0)),
        drawn(stage, "linear", "the query is not quantised: estimates add up", "F", inputs, linear_in_queries),
    ]


def product_cases() -> list[Case]:
    """Cases of `turboquant_inner_products`, whose rotation, levels and projection are the port's own."""
    stage = Family("turboquant_inner_products", "F")
    # |y - level| <= max(|y|, the smallest positive level), which is at most sqrt(2/(pi d)): |r|^2 <= 1 + 2/pi
    rest = float(np.sqrt(1 + 2 / np.pi))

    def inputs(bits: int) -> Inputs:
        return {**_pairs(), "bits": bits, "seed": 0}

    why = "over 128 seeds the mean estimate is the inner product: levels alone are biased towards 0"
    return [
        drawn(stage, "unbiased-2-bits", why, "F", inputs(2), unbiased(2 * SEEDS, rest)),
        drawn(stage, "linear", "the query is not quantised: estimates add up", "F", inputs(3), linear_in_queries),
    ]
