"""Wrong rotations, codes, slots and estimates of TurboQuant and QJL, most of them seen in public packages."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.baselines.qjl import qjl_encode, qjl_estimate, qjl_projection
from refimpl.baselines.turboquant import turboquant_decode, turboquant_encode, turboquant_rotation
from refimpl.baselines.turboquant_slot import turboquant_pack_slots, turboquant_unpack_slots
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.rotation import hadamard_matrix

R = "turboquant_rotation"


def _gaussian(d: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(d, d))


def _haar(d: int, kind: str, seed: int, make: Any) -> Any:
    return make(_gaussian(d, seed)) if kind == "haar" else turboquant_rotation(d=d, kind=kind, seed=seed)


@mutant("rotation-no-sign-fix", R, "E", "Q of a QR as it comes: its diagonal is negative too often")
def no_sign_fix(*, d: int, kind: str, seed: int) -> Any:
    """Not uniform over the orthogonal group."""
    return _haar(d, kind, seed, lambda g: np.linalg.qr(g)[0])


@mutant("rotation-sign-of-q", R, "E", "columns are made positive by the diagonal of Q instead of R's")
def sign_of_q(*, d: int, kind: str, seed: int) -> Any:
    """The diagonal of Q is never negative."""

    def make(g: Any) -> Any:
        q = np.linalg.qr(g)[0]
        return q * np.sign(np.diag(q))

    return _haar(d, kind, seed, make)


@mutant("rotation-gaussian", R, "E", "a Gaussian matrix over sqrt(d), not orthogonal")
def not_orthogonal(*, d: int, kind: str, seed: int) -> Any:
    """Norms change by a tenth."""
    return _haar(d, kind, seed, lambda g: g / np.sqrt(d))


@mutant("rotation-permutation", R, "E", "signs and a permutation: orthogonal, but nothing is mixed")
def permutation(*, d: int, kind: str, seed: int) -> Any:
    """A cheap rotation for large d."""
    rng = np.random.default_rng(seed)
    return _haar(d, kind, seed, lambda g: np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], size=d))


@mutant("rotation-seed-ignored", R, "E", "the same matrix for every seed")
def seed_ignored(*, d: int, kind: str, seed: int) -> Any:
    """A cache without its key."""
    return turboquant_rotation(d=d, kind=kind, seed=3)


@mutant("rotation-not-repeatable", R, "E", "every call draws anew")
def not_repeatable(*, d: int, kind: str, seed: int) -> Any:
    """What was encoded cannot be decoded."""
    return turboquant_rotation(d=d, kind=kind, seed=int(np.random.default_rng().integers(2**31)))


@mutant("rotation-signs-after", R, "E", "random signs after the Hadamard transform instead of before")
def signs_after(*, d: int, kind: str, seed: int) -> Any:
    """A constant vector stays a spike."""
    if kind == "haar":
        return turboquant_rotation(d=d, kind=kind, seed=seed)
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(d, 1)) * hadamard_matrix(d) / np.sqrt(d)


@mutant("rotation-no-signs", R, "E", "the Hadamard transform without random signs")
def no_signs(*, d: int, kind: str, seed: int) -> Any:
    """Fixed, so adversarial inputs exist."""
    right = turboquant_rotation(d=d, kind=kind, seed=seed)
    return right if kind == "haar" else hadamard_matrix(d) / np.sqrt(d)


E = "turboquant_encode"


@mutant("turboquant-levels-as-thresholds", E, "F", "coordinates are compared with levels instead of midpoints")
def levels_as_thresholds(*, x: Any, rotation: Any, levels: Any) -> Any:
    """The next higher level."""
    right = turboquant_encode(x=x, rotation=rotation, levels=levels)
    unit = x / np.where(right["norm"] > 0, right["norm"], 1.0)[:, None]
    codes = np.searchsorted(levels[1:], unit @ rotation.T.astype(float))
    return {**right, "codes": codes.astype(np.uint8)}


@mutant("turboquant-even-midpoints", E, "F", "levels are taken as equally spaced between the outermost")
def even(*, x: Any, rotation: Any, levels: Any) -> Any:
    """An index by arithmetic."""
    spaced = np.linspace(levels[0], levels[-1], len(levels))
    return turboquant_encode(x=x, rotation=rotation, levels=spaced)


@mutant("turboquant-transposed", E, "E", "x @ rotation instead of rotation @ x")
def transposed(*, x: Any, rotation: Any, levels: Any) -> Any:
    """The inverse rotation."""
    return turboquant_encode(x=x, rotation=rotation.T, levels=levels)


@mutant("turboquant-not-normalised", E, "D", "the rotated vector is not divided by its norm")
def not_normalised(*, x: Any, rotation: Any, levels: Any) -> Any:
    """Right for unit vectors alone."""
    right = turboquant_encode(x=x, rotation=rotation, levels=levels)
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, x @ rotation.T.astype(float))
    return {**right, "codes": codes.astype(np.uint8)}


@mutant("turboquant-squared-norm", E, "D", "the norm is stored squared")
def squared(*, x: Any, rotation: Any, levels: Any) -> Any:
    """A root too few."""
    right = turboquant_encode(x=x, rotation=rotation, levels=levels)
    return {**right, "norm": right["norm"] ** 2}


@mutant("turboquant-zero-is-nan", E, "D", "a zero vector divides 0 by 0, and its norm is NaN")
def zero_nan(*, x: Any, rotation: Any, levels: Any) -> Any:
    """D8."""
    right = turboquant_encode(x=x, rotation=rotation, levels=levels)
    return {**right, "norm": np.where(right["norm"] == 0, np.nan, right["norm"])}


D = "turboquant_decode"


@mutant("turboquant-not-rotated-back", D, "E", "the rotation is applied again instead of its transpose")
def rotated_again(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> Any:
    """Involutions hide it."""
    table = {"levels": levels, "norm_correction": norm_correction}
    return turboquant_decode(codes=codes, norm=norm, rotation=rotation.T, **table)


@mutant("turboquant-uncorrected", D, "D", "the norm correction is ignored")
def uncorrected(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> Any:
    """The keyword is dead."""
    return turboquant_decode(codes=codes, norm=norm, rotation=rotation, levels=levels, norm_correction=False)


@mutant("turboquant-always-corrected", D, "D", "the norm is corrected whatever the keyword says")
def corrected(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> Any:
    """The keyword is dead."""
    return turboquant_decode(codes=codes, norm=norm, rotation=rotation, levels=levels, norm_correction=True)


@mutant("turboquant-norm-forgotten", D, "D", "the result is a unit vector's")
def norm_forgotten(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> Any:
    """The norm is stored and never read."""
    table = {"levels": levels, "norm_correction": norm_correction}
    return turboquant_decode(codes=codes, norm=norm * 0 + 1, rotation=rotation, **table)


P, U = "turboquant_pack_slots", "turboquant_unpack_slots"


@mutant("slots-high-nibble-first", P, "D", "the even channel in the high nibble, which unpacking does not know")
def high_first(**given: Any) -> Any:
    """D9."""
    swapped = {n: given[n].reshape(len(given[n]), -1, 2)[..., ::-1].reshape(given[n].shape) for n in _CODES}
    return turboquant_pack_slots(**{**given, **swapped})


_CODES = ("key_codes", "value_codes")


@mutant("slots-big-endian", P, "D", "norms with the high byte first")
def big_endian(**given: Any) -> Any:
    """L2."""
    slots, half = turboquant_pack_slots(**given), given["key_codes"].shape[1] // 2
    slots[:, half : half + 2] = slots[:, half : half + 2][:, ::-1]
    return slots


@mutant("slots-zero-before-scale", U, "D", "scale and zero in each other's place")
def zero_first(*, slots: Any) -> Any:
    """Both are two bytes."""
    right = turboquant_unpack_slots(slots=slots)
    return {**right, "value_scale": right["value_zero"], "value_zero": right["value_scale"]}


@mutant("slots-signed-nibbles", U, "D", "codes of 8 and more lose their highest bit")
def signed_nibbles(*, slots: Any) -> Any:
    """D2."""
    right = turboquant_unpack_slots(slots=slots)
    return {**right, "key_codes": right["key_codes"] & 7}


J = "qjl_encode"


@mutant("qjl-sign-of-zero", J, "F", "a projection of 0 has the sign 0")
def sign_of_zero(*, x: Any, projection: Any) -> Any:
    """sign(0) of most libraries."""
    right = qjl_encode(x=x, projection=projection)
    return {**right, "signs": np.sign(x @ projection.T).astype(np.int8)}


@mutant("qjl-norm-of-projection", J, "D", "the norm of the projected vector is stored")
def projected_norm(*, x: Any, projection: Any) -> Any:
    """sqrt(m) times too large."""
    return {**qjl_encode(x=x, projection=projection), "norm": np.linalg.norm(x @ projection.T, axis=-1)}


S = "qjl_estimate"


@mutant("qjl-factor-upside-down", S, "F", "the factor sqrt(2/pi) instead of sqrt(pi/2)")
def upside_down(**given: Any) -> Any:
    """2/pi of the right estimate."""
    return qjl_estimate(**given) * 2 / np.pi


@mutant("qjl-divided-by-channels", S, "F", "divided by d instead of the number of rows")
def by_channels(**given: Any) -> Any:
    """Right where both are equal."""
    rows, d = given["projection"].shape
    return qjl_estimate(**given) * rows / d


@mutant("qjl-norm-forgotten", S, "D", "the norm is not applied")
def no_norm(**given: Any) -> Any:
    """Right for unit vectors."""
    return qjl_estimate(**{**given, "norm": given["norm"] * 0 + 1})


I = "qjl_inner_products"  # noqa: E741


@mutant("qjl-scaled-projection", I, "F", "a projection of variance 1/d with the factor for variance 1")
def scaled_projection(*, x: Any, queries: Any, seed: int) -> Any:
    """1/sqrt(d) of the inner product: the commonest fault of public packages."""
    projection = qjl_projection(rows=x.shape[1], d=x.shape[1], seed=seed) / np.sqrt(x.shape[1])
    return qjl_estimate(**qjl_encode(x=x, projection=projection), projection=projection, queries=queries)


@mutant("qjl-signs-of-queries", I, "F", "the query is reduced to signs as well")
def both_signs(*, x: Any, queries: Any, seed: int) -> Any:
    """An angle, not an inner product."""
    projection = qjl_projection(rows=x.shape[1], d=x.shape[1], seed=seed)
    coded, other = (qjl_encode(x=a, projection=projection) for a in (x, queries))
    return other["norm"][:, None] * coded["norm"] * (other["signs"].astype(float) @ coded["signs"].T) / x.shape[1]


A = "turboquant_inner_products"


def _stages(x: Any, queries: Any, bits: int, seed: int) -> tuple[Any, Any, Any]:
    """What the levels give, what is left, and the projection."""
    d = x.shape[1]
    levels = lloyd_max_codebook(bits=bits - 1, law="sphere", d=d)["levels"] / np.sqrt(d)
    rotation = turboquant_rotation(d=d, kind="haar", seed=seed)
    table = {"rotation": rotation, "levels": levels}
    near = turboquant_decode(**turboquant_encode(x=x, **table), **table, norm_correction=False)
    return near, x - near, qjl_projection(rows=d, d=d, seed=seed + 1)


@mutant("turboquant-no-second-stage", A, "F", "the levels alone, biased towards 0")
def first_stage(*, x: Any, queries: Any, bits: int, seed: int) -> Any:
    """Minimal mean squared error is not unbiased."""
    return queries @ _stages(x, queries, bits, seed)[0].T


@mutant("turboquant-norm-of-vector", A, "F", "the residual's signs with the vector's norm")
def norm_of_vector(*, x: Any, queries: Any, bits: int, seed: int) -> Any:
    """The residual's norm is forgotten."""
    near, rest, projection = _stages(x, queries, bits, seed)
    coded = {**qjl_encode(x=rest, projection=projection), "norm": np.linalg.norm(x, axis=-1)}
    return queries @ near.T + qjl_estimate(**coded, projection=projection, queries=queries)
