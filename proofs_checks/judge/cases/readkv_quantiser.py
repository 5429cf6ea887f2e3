"""Cases of ReadKV's tree, its codebooks and its affine rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator

HALVES = "steps 1/2, 3/2 and 5/2: either neighbour is right"
RANGE = "rows within 5 to 6: padding lanes of 0 do not enter minimum and maximum"


def tree_cases() -> list[Case]:
    """Cases of `readkv_tree`."""
    stage = Family("readkv_tree", "F")
    return [
        stage.probe("depth-1", "F", "split 0, means -+sqrt(2/pi), gain 2/pi", lambda: {"depth": 1}),
        stage.probe("depth-2", "F", "the first splits that are solved for, +-0.98160", lambda: {"depth": 2}),
        stage.probe("depth-5", "F", "31 splits, each stationary inside its own interval", lambda: {"depth": 5}),
        stage.general("depth-8", "the tree of the stages: 255 splits", lambda: {"depth": 8}),
    ]


def codebook_cases() -> list[Case]:
    """Cases of `lloyd_max_codebook`."""
    stage = Family("lloyd_max_codebook", "F")

    def one(bits: int, law: str, d: int, why: str) -> Case:
        return stage.probe(f"{law}-d{d}-{bits}-bits", "F", why, lambda: {"bits": bits, "law": law, "d": d})

    return [
        one(1, "normal", 64, "one bit: +-sqrt(2/pi)"),
        one(2, "normal", 64, "two bits of N(0, 1): +-.4528, +-1.5104"),
        one(4, "sphere", 64, "four bits of a coordinate at d = 64"),
        one(4, "normal", 64, "four bits: cells of equal mass or a cut-off tail are not optimal"),
        one(3, "sphere", 128, "three bits at d = 128"),
        one(3, "normal", 64, "three bits: +-.2451, .7560, 1.3439, 2.1519; the thresholds are other numbers"),
        one(4, "sphere", 16, "four bits at d = 16: the law's exponent is (d - 3)/2"),
        one(4, "sphere", 128, "four bits at d = 128"),
        one(4, "sphere", 512, "four bits at d = 512: a table for one dimension is not one for all"),
        one(4, "sphere", 4096, "four bits in a high dimension: iteration from a uniform start converges slowly"),
        one(4, "sphere", 8192, "a grid over [-1, 1] leaves cells without a point: all levels must be used"),
        one(6, "normal", 64, "six bits"),
        one(8, "normal", 64, "eight bits: 256 levels, all of them used"),
        one(8, "sphere", 16, "eight bits on a sphere"),
        *[one(bits, "normal", 64, f"{bits} bits of N(0, 1)") for bits in (5, 7)],
        one(1, "sphere", 4, "one bit on the sphere of R^4: +-8/(3 pi), in units of 1/sqrt(d)"),
        one(2, "sphere", 4, "two bits where the sphere's law is far from normal"),
    ]


def quantize_cases() -> list[Case]:
    """Cases of `affine_quantize`."""
    stage = Family("affine_quantize", "D")
    return [
        stage.probe(
            "whole-steps", "D", "x = (0, 15, 7, 8) at 4 bits: codes are x", partial(_row, [0.0, 15.0, 7.0, 8.0])
        ),
        stage.probe(
            "nearest", "D", "1.9 and 6.6 steps: rounded, not truncated", partial(_row, [0.0, 15.0, 1.875, 6.625])
        ),
        stage.probe("zero-is-the-minimum", "D", RANGE, partial(_row, [5.0, 6.0, 5.0, 20.0])),
        stage.probe("negative-row", "D", "all below 0: the maximum is not 0", partial(_row, [-20.0, -5.0, -6.0, -7.5])),
        stage.probe("rows-1-and-100", "D", "each row its own scale", _two_rows),
        stage.probe("constant-row", "D", "no spread: codes 0, a finite scale, no 0/0", _constant),
        stage.probe(
            "below-minus-65504",
            "D",
            "a minimum that float16 cannot hold: stored in half precision it becomes -inf",
            partial(_row, [-69632.0, -4096.0, 0.0, 30720.0]),
            dtypes=("float32", "bfloat16", "float64"),
        ),
        stage.probe("halves", "D", HALVES, partial(_row, [0.0, 0.5, 1.5, 2.5, 15.0])),
        stage.probe("width-96", "A", RANGE, _width_96),
        stage.probe("eight-bits", "D", "8 bits: codes 0 to 255", partial(_random, 8, (3, 64))),
        stage.probe("one-bit", "D", "1 bit: minimum or maximum", partial(_random, 1, (3, 64))),
        *[
            stage.probe(f"{bits}-bits", "D", f"codes 0 to {2**bits - 1}", partial(_random, bits, (2, 64)))
            for bits in (2, 3, 5, 6, 7)
        ],
        stage.probe("narrow-row", "D", "a spread of 2^-20: no floor under the scale", _narrow),
        stage.probe("one-row", "A", "x [n], no leading axis", partial(_random, 4, (48,))),
        stage.size("width-300", "A", "300 values: no fixed width", _wide),
        stage.probe("no-rows", "A", "no rows are legal", partial(_random, 4, (0, 64))),
        stage.general("random-4", "random rows", partial(_random, 4, (2, 33, 64))),
        stage.general("random-2", "2 bits, d = 128", partial(_random, 2, (2, 17, 128))),
        stage.general("capture-values", "real values of layer 7", _captured),
    ]


def _row(values: list[float]) -> Inputs:
    return {"x": np.array([values]), "bits": 4}


def _two_rows() -> Inputs:
    x = np.stack([np.arange(16.0), 128.0 * np.arange(16.0)[::-1]])
    return {"x": x, "bits": 4}


def _constant() -> Inputs:
    return {"x": np.array([[3.0] * 8, [0.0] * 8, [-0.5] * 8, list(range(8))]), "bits": 4}


def _narrow() -> Inputs:
    return {"x": np.arange(16.0)[None, ::-1] * 2.0**-24, "bits": 4}


def _wide() -> Inputs:
    """The extremes stand at the end."""
    x = generator("affine", "300").uniform(-1.0, 1.0, size=(2, 300))
    x[:, -2:] = 8.0, -7.0
    return {"x": x, "bits": 4}


def _width_96() -> Inputs:
    return {"x": 5.0 + generator("affine", "96").integers(0, 65, size=(3, 96)) / 64.0, "bits": 4}


def _random(bits: int, shape: tuple[int, ...]) -> Inputs:
    rng = generator("affine", f"{bits},{shape}")
    return {"x": rng.normal(size=shape) * np.exp(rng.normal(size=shape[-1])) + 3.0, "bits": bits}


def _captured() -> Inputs:
    return {"x": needle_slice(1, 0)["values"][:, ::32], "bits": 4}


def dequantize_cases() -> list[Case]:
    """Cases of `affine_dequantize`."""
    stage = Family("affine_dequantize", "D")
    return [
        stage.exact("scale-and-zero", "D", "codes 0 to 3, scale 2, zero -1: -1, 1, 3, 5", _small),
        stage.exact("codes-to-255", "D", "codes are unsigned: 200 is not negative", _unsigned),
        stage.exact("own-rows", "D", "scale and zero belong to rows, as many rows as columns", _square),
        stage.general("random", "random codes", _random_codes),
    ]


def _small() -> Inputs:
    return {"codes": np.array([[0, 1, 2, 3]]), "scale": np.array([2.0]), "zero": np.array([-1.0])}


def _unsigned() -> Inputs:
    return {"codes": np.array([[0, 127, 128, 200, 255]]), "scale": np.array([0.5]), "zero": np.array([0.0])}


def _square() -> Inputs:
    codes = np.tile(np.arange(4), (4, 1))
    return {"codes": codes, "scale": 2.0 ** np.arange(4), "zero": np.arange(4.0)}


def _random_codes() -> Inputs:
    rng: Any = generator("affine", "codes")
    shape = (2, 17)
    return {
        "codes": rng.integers(0, 256, size=(*shape, 64)),
        "scale": rng.random(shape) + 0.1,
        "zero": rng.normal(size=shape),
    }
