"""Cases of ReadKV's rotation, encoder and decoder."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.readkv_inputs import captured_cache, signs_of
from proofs_checks.judge.checks.readkv_tree import BASIS_WIDTHS
from refimpl.readkv.calibration import standardize
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import deployed_table

WIDE = ("float32", "float64")
ODD = (12, 80, 96)
ORDER = "the unit vectors give the Hadamard matrix over sqrt({d}): order, signs and scale (AMB-16)"
PATHS = "z in the middle of leaves such as 01000000: the first split is the most significant bit"


def rotate_cases() -> list[Case]:
    """Cases of `readkv_rotate`."""
    stage = Family("readkv_rotate", "E")
    alone = "row 17 rotated alone is row 17 of the batch (prefill and decode use one matrix)"
    cases = [stage.probe(f"basis-{d}", "E", ORDER.format(d=d), partial(_basis, d)) for d in BASIS_WIDTHS]
    cases += [
        stage.probe(
            "signs-first", "E", "sign -1 on channel 0: the row of e_0 flips, that of e_1 does not", _signs_first
        ),
        stage.probe("alternating-signs", "E", "signs belong to channels, not to rows", _alternating),
        stage.probe("tf32-product", "I", "2049 e_0: TF32 or a half-precision product gives 2048", _tf32, dtypes=WIDE),
        *[stage.illegal(f"d{d}", "E", f"d = {d} is no power of two: refused (AMB-16)", partial(_wide, d)) for d in ODD],
        stage.probe("leading-axes", "E", "[2, 3, 5, 64]: only the last axis is rotated", partial(_rows, (2, 3, 5, 64))),
        stage.relation("one-row-alone", alone, partial(_rows, (17, 64)), _last_row, _last_row_of_result),
        stage.general("outliers-d64", "rows with outlier channels and a mean", partial(_rows, (33, 64))),
        stage.general("outliers-d128", "d = 128", partial(_rows, (2, 9, 128))),
        stage.general("outliers-d256", "d = 256", partial(_rows, (5, 256))),
        stage.exact(
            "one-channel", "E", "d = 1: the sign alone", lambda: {"x": np.array([[3.0], [-5.0]]), "signs": -np.ones(1)}
        ),
        stage.probe("one-row", "E", "x [d], no leading axis", partial(_rows, (64,))),
        stage.size("1100-rows", "A", "every row is rotated", partial(_rows, (1100, 16))),
        stage.probe("no-rows", "A", "no rows are legal", partial(_rows, (0, 64))),
        stage.general("capture-keys", "real keys of layer 7, 3 heads", _captured_keys),
    ]
    return cases


def _wide(d: int) -> Inputs:
    return {"x": np.ones((2, d)), "signs": np.ones(d)}


def _basis(d: int) -> Inputs:
    return {"x": np.eye(d), "signs": np.ones(d)}


def _signs_first() -> Inputs:
    return {"x": np.eye(16)[:2], "signs": np.array([-1.0] + [1.0] * 15)}


def _alternating() -> Inputs:
    x = generator("rotate", "alternating").integers(-7, 8, size=(6, 16)).astype(float)
    return {"x": x, "signs": np.where(np.arange(16) % 3 == 0, -1.0, 1.0)}


def _tf32() -> Inputs:
    return {"x": 2049.0 * np.eye(64)[:3], "signs": signs_of(64)}


def _rows(shape: tuple[int, ...]) -> Inputs:
    rng = generator("rotate", str(shape))
    channel = np.exp(rng.normal(size=shape[-1]))
    return {"x": channel * rng.normal(size=shape) + rng.normal(size=shape[-1]), "signs": signs_of(shape[-1])}


def _last_row(inputs: Inputs) -> Inputs:
    return {**inputs, "x": inputs["x"][16:]}


def _last_row_of_result(results: Any) -> dict[str, Any]:
    return {"rotated": results["rotated"][16:]}


def _captured_keys() -> Inputs:
    return {"x": needle_slice(1, 0)["keys"][:, ::16], "signs": signs_of(64)}


def encode_cases() -> list[Case]:
    """Cases of `readkv_encode`."""
    stage = Family("readkv_encode", "F")
    return [
        stage.exact("one-bit-paths", "D", PATHS, _one_bit_paths),
        stage.exact("signs", "D", "negative z has first bit 0, positive z first bit 1", _signs),
        stage.exact("far-out", "F", "+-50 and +-2^127 are in the outermost leaves", _far_out),
        stage.exact("every-split", "F", "every split of the tree, and the float32 numbers next to it", _every_split),
        stage.exact("grid", "F", "1,024 z on a grid of 1/64", lambda: {"z": np.arange(-512, 512) / 64.0}),
        stage.exact("no-values", "A", "no values are legal", lambda: {"z": np.zeros((0, 8))}),
        stage.size(
            "262145-values", "A", "more than 2^18 values, the last one too", partial(_many, 2**18 + 1), kind="exact"
        ),
        stage.general("normal", "standardised values, all leaves", _normal, kind="set"),
        stage.general("capture-keys", "real keys under their own calibration", _captured_z, kind="set"),
    ]


def _leaf_centres() -> Any:
    return deployed_table().centroids[8].astype(np.float64)


def _one_bit_paths() -> Inputs:
    return {"z": _leaf_centres()[[64, 96, 112, 144, 160, 192, 200]]}


def _signs() -> Inputs:
    return {"z": _leaf_centres()[[[62, 192], [100, 160], [30, 224]]]}


def _far_out() -> Inputs:
    return {"z": np.array([-(2.0**127), -50.0, 50.0, 2.0**127])}


def _every_split() -> Inputs:
    splits = np.concatenate(deployed_table().thresholds)
    below, above = np.nextafter(splits, np.float32(-np.inf)), np.nextafter(splits, np.float32(np.inf))
    return {"z": np.stack([below, splits, above])}


def _normal() -> Inputs:
    return {"z": generator("encode", "normal").normal(size=(4, 33, 64))}


def _many(count: int) -> Inputs:
    """Leaf centres, as often as needed; never a code that the ones before lead to expect."""
    return {"z": generator("encode", "many").permutation(np.resize(_leaf_centres(), count))}


def _captured_z() -> Inputs:
    cache = captured_cache(1)
    rotated = readkv_rotate(x=needle_slice(1, 0)["keys"][:, ::8], signs=cache["key_signs"])
    return {"z": standardize(rotated, cache["key_mean"], cache["key_scale"])}


def decode_cases() -> list[Case]:
    """Cases of `readkv_decode`."""
    stage = Family("readkv_decode", "F")
    channels = "each channel its own depth, as many tokens as channels: depths belong to the last axis"
    unread = "bits below the depth hold garbage: they are never looked at"
    return [
        stage.exact("first-bit", "D", "depth 1: the most significant bit decides", partial(_one_bit, 1)),
        stage.exact("depth-0", "D", "depth 0 is the calibrated mean, z = 0 (AMB-22)", partial(_one_bit, 0)),
        stage.exact("every-code-and-depth", "F", "256 codes at depths 0 to 8", _every_code),
        stage.exact("depth-8", "F", "whole codes at one depth for all", partial(_one_bit, 8)),
        stage.exact("depth-per-channel", "C", channels, _per_channel),
        stage.exact("depth-per-token", "C", "each token its own depth", _per_token),
        stage.exact("unread-bits", "A", unread, _per_channel, poison=_low_bits),
        stage.general("random", "random codes and depths", _random_codes, kind="exact"),
    ]


def _one_bit(depth: int) -> Inputs:
    return {"codes": np.concatenate([2 ** np.arange(8), 255 - 2 ** np.arange(8)]), "depth": depth}


def _every_code() -> Inputs:
    return {"codes": np.tile(np.arange(256), (9, 1)), "depth": np.arange(9)[:, None]}


def _per_channel() -> Inputs:
    codes = generator("decode", "channel").integers(0, 256, size=(16, 16))
    return {"codes": codes, "depth": np.arange(16) % 9}


def _per_token() -> Inputs:
    return {**_per_channel(), "depth": (np.arange(16) % 9)[:, None]}


def _low_bits(inputs: Inputs) -> Inputs:
    return {**inputs, "codes": inputs["codes"] ^ (255 >> inputs["depth"]).astype(np.uint8)}


def _random_codes() -> Inputs:
    rng = generator("decode", "random")
    return {"codes": rng.integers(0, 256, size=(2, 33, 64)), "depth": rng.integers(0, 9, size=(2, 33, 64))}
