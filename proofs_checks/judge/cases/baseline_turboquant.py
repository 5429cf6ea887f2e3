"""Cases of TurboQuant: codes by given matrices exactly, what is drawn at random by its law."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, Trial, generator
from proofs_checks.judge.checks.random_matrices import rotations_judged
from refimpl.baselines.turboquant import turboquant_rotation
from refimpl.readkv.codebooks import lloyd_max_codebook

SEEDS = 64


def _table(bits: int, d: int) -> Any:
    """Levels of a coordinate of a unit vector: N(0, 1/d)'s, as served."""
    return lloyd_max_codebook(bits=bits, law="normal", d=d)["levels"] / np.sqrt(d)


def drawn(stage: Family, name: str, why: str, suspect: str, inputs: Inputs, trial: Trial) -> Case:
    """A probe of what a port draws at random, judged over seeds."""
    return stage.probe(name, suspect, why, lambda: dict(inputs), kind="metamorphic", trial=trial, dtypes=("float32",))


def rotation_cases() -> list[Case]:
    """Cases of `turboquant_rotation`; all judge its law over seeds."""
    stage = Family("turboquant_rotation", "E")

    def one(kind: str, d: int, seeds: int, why: str) -> Case:
        inputs = {"d": d, "kind": kind, "seed": 0}
        return drawn(stage, f"{kind}-d{d}", why, "E", inputs, rotations_judged(seeds))

    return [
        one(
            "haar", 32, SEEDS, "orthogonal; signs along the diagonal are fair coins, as QR without a sign fix's are not"
        ),
        one("haar", 8, 256, "an entry over 256 seeds is distributed as a coordinate of a unit vector"),
        one("hadamard", 32, SEEDS, "orthogonal, all entries +-1/sqrt(d), random signs before the transform"),
    ]


def encode_cases() -> list[Case]:
    """Cases of `turboquant_encode`."""
    stage = Family("turboquant_encode", "D")
    return [
        stage.probe("identity-rotation", "F", "coordinates well inside their cells: no rotation, 16 levels", _inside),
        stage.probe(
            "midpoints", "F", "coordinates exactly on midpoints: either level, always the same one", _midpoints
        ),
        stage.probe("uneven-levels", "F", "midpoints of uneven levels: not the levels themselves", _uneven),
        stage.probe("which-side", "E", "rotation @ x, not x @ rotation: a permutation tells them apart", _permuted),
        stage.probe("norms", "D", "norms from 1/16 to 256: codes do not depend on them", _norms),
        stage.probe("zero-vector", "D", "a zero vector beside others: norm 0, finite, others unchanged", _with_zero),
        stage.probe("served-k4", "D", "16 levels, Hadamard without signs, d = 128", partial(_vectors, "plain", 4, 128)),
        stage.probe("no-vectors", "A", "no vectors are legal", partial(_vectors, "haar", 2, 16, 0)),
        stage.general("haar-2-bits", "d = 64", partial(_vectors, "haar", 2, 64)),
        stage.general("hadamard-3-bits", "d = 64, random signs", partial(_vectors, "hadamard", 3, 64)),
        stage.general("haar-4-bits", "d = 96, no power of two", partial(_vectors, "haar", 4, 96)),
        stage.general("capture-keys", "real keys of layer 7, 4 bits, random signs", _captured),
    ]


def _rotation(kind: str, d: int) -> Any:
    if kind == "plain":
        return np.array([[(-1) ** bin(i & j).count("1") for j in range(d)] for i in range(d)]) / np.sqrt(d)
    return turboquant_rotation(d=d, kind=kind, seed=7)


def _vectors(kind: str, bits: int, d: int, count: int = 33) -> Inputs:
    x = generator("turboquant", f"{kind},{bits},{d}").normal(size=(count, d)) * 3.0
    return {"x": x, "rotation": _rotation(kind, d), "levels": _table(bits, d)}


def _captured() -> Inputs:
    keys = needle_slice(1, 0)["keys"][0, ::16]
    d = keys.shape[-1]
    return {"x": keys, "rotation": _rotation("hadamard", d), "levels": _table(4, d)}


GRID = (2 * np.arange(16) - 15) / 16.0
"""Sixteen levels a sixteenth apart twice over: midpoints are multiples of 1/8."""


def _inside() -> Inputs:
    x = np.stack([np.roll([0.75, 0.5, 0.375, 0.1875] + [0.0625] * 12, i) for i in range(16)])
    x[:, -1] *= -1
    return {"x": x / np.linalg.norm(x, axis=1, keepdims=True), "rotation": np.eye(16), "levels": GRID}


def _midpoints() -> Inputs:
    signs = np.sign(np.sin(np.arange(1, 65) ** 2.0))
    return {"x": np.stack([signs, -signs]) / 8.0, "rotation": np.eye(64), "levels": GRID}


def _uneven() -> Inputs:
    y = np.array([[0.02, 0.2, 0.35, 0.55, 0.7, -0.02, -0.2, -0.2]])
    levels = np.array([-0.8, -0.3, -0.1, -0.05, 0.05, 0.1, 0.3, 0.8])
    return {"x": y / np.linalg.norm(y), "rotation": np.eye(8), "levels": levels}


def _permuted() -> Inputs:
    x = np.zeros((8, 8)) + np.eye(8)
    return {"x": x, "rotation": np.roll(np.eye(8), 3, axis=1), "levels": np.array([-0.5, 0.0, 0.5, 1.0])}


def _norms() -> Inputs:
    base = _vectors("hadamard", 3, 32, 13)
    return {**base, "x": base["x"] * 2.0 ** np.arange(-4, 9)[:, None]}


def _with_zero() -> Inputs:
    base = _vectors("hadamard", 2, 16, 3)
    return {**base, "x": base["x"] * np.array([[1.0], [0.0], [1.0]])}


def decode_cases() -> list[Case]:
    """Cases of `turboquant_decode`."""
    stage = Family("turboquant_decode", "D")
    return [
        stage.exact("identity-rotation", "D", "norm 8 times the levels", _read_off),
        stage.exact("which-side", "E", "the transpose rotates back: a permutation tells it apart", _read_permuted),
        stage.probe("norm-correction", "D", "levels of norm 1.5: the result has the stored norm", _long_levels),
        stage.probe("no-correction", "D", "the same without correction: 1.5 times as long", _uncorrected),
        stage.probe(
            "served-k4", "D", "norm-corrected, 16 levels, Hadamard without signs", partial(_coded, "plain", 4, 128)
        ),
        stage.general("haar-2-bits", "d = 64", partial(_coded, "haar", 2, 64, False)),
        stage.general("hadamard-3-bits", "d = 64, random signs", partial(_coded, "hadamard", 3, 64, False)),
        stage.general("hadamard-2-bits", "d = 32", partial(_coded, "hadamard", 2, 32, False)),
        stage.general("hadamard-4-bits", "d = 128", partial(_coded, "hadamard", 4, 128, False)),
    ]


def _read_off() -> Inputs:
    codes = np.arange(32).reshape(2, 16) % 16
    return {
        "codes": codes,
        "norm": np.array([8.0, 16.0]),
        "rotation": np.eye(16),
        "levels": GRID,
        "norm_correction": False,
    }


def _read_permuted() -> Inputs:
    inputs = _read_off()
    return {**inputs, "rotation": np.roll(np.eye(16), 3, axis=1)}


def _coded(kind: str, bits: int, d: int, norm_correction: bool = True) -> Inputs:
    rng: Any = generator("turboquant", "codes", f"{kind},{bits},{d}")
    codes, norm = rng.integers(0, 2**bits, size=(33, d)), 1 + 10 * rng.random(33)
    table = {"rotation": _rotation(kind, d), "levels": _table(bits, d)}
    return {"codes": codes, "norm": norm, **table, "norm_correction": norm_correction}


def _long_levels() -> Inputs:
    inputs = _coded("haar", 2, 16)
    return {**inputs, "levels": 1.5 * np.array([-0.25, -0.125, 0.125, 0.25]) * 2}


def _uncorrected() -> Inputs:
    return {**_long_levels(), "norm_correction": False}


def pack_cases() -> list[Case]:
    """Cases of `turboquant_pack_slots`."""
    stage = Family("turboquant_pack_slots", "D")
    return [
        stage.exact("even-channel-low", "D", "codes 1 and 2 are the byte 0x21", partial(_slot, 1, 2)),
        stage.exact("norm-in-little-endian", "D", "1.0 is the bytes 00 3C", partial(_slot, 1, 8)),
        stage.exact("all-nibbles", "D", "all sixteen codes at both places", partial(_slot, 8, 16)),
        stage.general("random", "d = 128: 134 bytes", partial(_slot, 17, 128), kind="exact"),
    ]


def _slot(tokens: int, d: int, codes: int = 16) -> Inputs:
    rng: Any = generator("slots", f"{tokens},{d}")
    if (tokens, d) == (8, 16):
        key = (np.arange(16) + 3 * np.arange(8)[:, None]) % 16
        value = key[::-1].copy()
    elif d == 2:
        key, value = np.array([[1, 2]]), np.array([[15, 0]])
    else:
        key, value = (rng.integers(0, codes, size=(tokens, d)) for _ in range(2))
    steps = np.arange(tokens) + 1.0
    return {
        "key_codes": key,
        "key_norm": steps,
        "value_codes": value,
        "value_scale": steps / 8,
        "value_zero": -steps / 4,
    }


def unpack_cases() -> list[Case]:
    """Cases of `turboquant_unpack_slots`."""
    stage = Family("turboquant_unpack_slots", "D")
    return [
        stage.exact("even-channel-low", "D", "the byte 0x21 is codes 1 and 2", partial(_packed, 1, 2)),
        stage.exact("all-nibbles", "D", "all sixteen codes at both places", partial(_packed, 8, 16)),
        stage.general("random", "d = 128: 134 bytes", partial(_packed, 17, 128), kind="exact"),
    ]


def _packed(tokens: int, d: int) -> Inputs:
    # codes below 7 make no NaN where another layout reads them as a number; all-nibbles has the others
    from refimpl.baselines.turboquant_slot import turboquant_pack_slots

    return {"slots": turboquant_pack_slots(**_slot(tokens, d, 7))}
