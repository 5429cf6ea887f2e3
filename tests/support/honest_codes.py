"""Right float32 ports of the fixed-rate codes, written apart from the reference: other sums, ties and draws."""

import math

import numpy as np

F = np.float32


def fast_hadamard(x):
    """Butterflies in float32, scaled in every round."""
    d, half = x.shape[-1], 1
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        x = x.reshape(*x.shape[:-3], d) * F(math.sqrt(0.5))
        half *= 2
    return x


def turned(x, rotation):
    """rotation @ x, by butterflies where the matrix is H diag(signs) / sqrt(d)."""
    d = rotation.shape[0]
    signs = np.sign(rotation[0])
    if d & (d - 1) == 0 and np.allclose(fast_hadamard(np.diag(signs).astype(F)).T, rotation, atol=1e-6):
        return fast_hadamard(x.astype(F) * signs.astype(F))
    total = np.zeros(x.shape, F)
    for c in range(d):  # column after column
        total = total + x[:, c, None].astype(F) * rotation[:, c].astype(F)
    return total


# KIVI


def groups_last(x, group, axis):
    H, T, d = x.shape
    return x.reshape(H, T // group, group, d).swapaxes(-1, -2) if axis == 1 else x.reshape(H, T, d // group, group)


def groups_back(codes, shape, axis):
    return (codes.swapaxes(-1, -2) if axis == 1 else codes).reshape(shape)


def kivi_in(store, follow_stored=True, half_up=False):
    """KIVI with scales and offsets in ``store``; codes by the stored ones or by the full ones."""

    def one(x, bits, group, axis):
        rows = groups_last(x.astype(F), group, axis)
        low, high, levels = rows.min(-1, initial=np.inf), rows.max(-1, initial=-np.inf), 2**bits - 1
        full = ((high - low) / F(levels)).astype(F)
        scale, zero = full.astype(store).astype(F), low.astype(store).astype(F)
        by = (scale, zero) if follow_stored else (full, low)
        safe = np.where(by[0] > 0, by[0], F(1))
        steps = np.where(by[0][..., None] > 0, (rows - by[1][..., None]) / safe[..., None], F(0))
        rounded = np.floor(steps + F(0.5)) if half_up else np.rint(steps)
        return groups_back(np.clip(rounded, 0, levels).astype(np.uint8), x.shape, axis), scale, zero

    def kivi_quantize(*, keys, values, bits, group_size):
        names = [f"{one}_{part}" for one in ("key", "value") for part in ("codes", "scale", "zero")]
        return dict(zip(names, (*one(keys, bits, group_size, 1), *one(values, bits, group_size, 2)), strict=True))

    return kivi_quantize


def kivi_dequantize(**given):
    """Group by group."""
    out = {}
    for name, one, axis in (("keys", "key", 1), ("values", "value", 2)):
        codes, scale, zero = (given[f"{one}_{n}"].astype(F) for n in ("codes", "scale", "zero"))
        parts = [
            np.take(scale, [g], axis) * block + np.take(zero, [g], axis)
            for g, block in enumerate(np.split(codes, max(scale.shape[axis], 1), axis))
        ]
        out[name] = np.concatenate(parts, axis)
    return out


# TurboQuant


def encode_rotating_first(*, x, rotation, levels):
    """The rotated vector's own norm, a guard of 1e-8, and the first of equally near levels."""
    y = turned(x.astype(F), rotation)
    norm = np.sqrt(np.sum(y * y, axis=-1, dtype=F)).astype(F)
    y = y / (norm + F(1e-8))[:, None]
    codes = np.argmin(np.abs(y[..., None] - levels.astype(F)), axis=-1)
    return {"codes": codes.astype(np.uint8), "norm": norm}


def encode_as_served(*, x, rotation, levels):
    """Midpoints, upwards on a tie, the norm in float16."""
    norm = np.sqrt(np.sum(x.astype(F) ** 2, axis=-1, dtype=F))
    y = turned(x.astype(F) / (norm + F(1e-8))[:, None], rotation)
    middle = ((levels[1:] + levels[:-1]) / 2).astype(F)
    codes = (y[..., None] >= middle).sum(axis=-1)
    return {"codes": codes.astype(np.uint8), "norm": norm.astype(np.float16).astype(F)}


def decode_scaling_last(*, codes, norm, rotation, levels, norm_correction):
    """Levels rotated back first, correction and norm at the end."""
    y = levels.astype(F)[codes]
    x = turned(y, np.ascontiguousarray(rotation.T))
    factor = norm.astype(F)
    if norm_correction:
        factor = factor / np.sqrt(np.sum(y * y, axis=-1, dtype=F) + F(1e-16))
    return x * factor[:, None]


def householder(*, d, kind, seed):
    """Haar by d reflections (Stewart), or a Hadamard transform with signs on both sides and rows permuted."""
    rng = np.random.default_rng(seed + 10**6)
    if kind == "hadamard":
        before, after = rng.choice([-1.0, 1.0], size=(2, d))
        matrix = fast_hadamard(np.diag(before).astype(F)).T * after[:, None].astype(F)
        return matrix[rng.permutation(d)]
    matrix = np.eye(d)
    for k in range(d):
        v = np.zeros(d)
        v[k:] = rng.normal(size=d - k)
        sign = np.sign(v[k]) or 1.0
        v[k] += sign * np.linalg.norm(v)
        block = np.eye(d) - 2 * np.outer(v, v) / (v @ v) if v.any() else np.eye(d)
        matrix = matrix @ (-sign * block)
    return matrix.astype(F)


def qr_in_float32(*, d, kind, seed):
    """QR in float32 with R's signs moved, in a process-wide generator of another kind."""
    rng = np.random.Generator(np.random.Philox(seed))
    if kind == "hadamard":
        raise NotImplementedError
    q, r = np.linalg.qr(rng.normal(size=(d, d)).astype(F))
    return q * np.sign(np.diag(r))


def pack_high_first(*, key_codes, key_norm, value_codes, value_scale, value_zero):
    """Another layout: the value first, high nibbles first, numbers in big-endian."""

    def nibbles(codes):
        return (codes[:, 0::2] << 4 | codes[:, 1::2]).astype(np.uint8)

    def half(x):
        return x.astype(">f2")[:, None].view(np.uint8)

    parts = [nibbles(value_codes), half(value_scale), half(value_zero), nibbles(key_codes), half(key_norm)]
    return np.concatenate(parts, axis=1)


def unpack_high_first(*, slots):
    half = (slots.shape[1] - 6) // 2
    value, scale, zero, key, norm = np.split(slots, np.cumsum([half, 2, 2, half]), axis=1)

    def codes(packed):
        return np.stack([packed >> 4, packed & 15], axis=-1).reshape(len(packed), -1)

    def number(two):
        return np.ascontiguousarray(two).view(">f2")[:, 0].astype(F)

    return {
        "key_codes": codes(key),
        "key_norm": number(norm),
        "value_codes": codes(value),
        "value_scale": number(scale),
        "value_zero": number(zero),
    }


# QJL


def qjl_encode(*, x, projection):
    """A projection of 0 counts as negative."""
    total = np.zeros((len(x), len(projection)), F)
    for c in range(x.shape[1]):
        total = total + x[:, c, None].astype(F) * projection[:, c].astype(F)
    norm = np.sqrt(np.sum(x.astype(F) ** 2, axis=-1, dtype=F))
    return {"signs": np.where(total > 0, 1, -1).astype(np.int8), "norm": norm}


def qjl_estimate(*, signs, norm, projection, queries):
    """The signs are summed into a vector first."""
    vectors = signs.astype(F) @ projection.astype(F)  # [N, d]
    factor = F(math.sqrt(math.pi / 2)) * norm.astype(F) / F(len(projection))
    return queries.astype(F) @ (vectors * factor[:, None]).T


def qjl_inner_products(*, x, queries, seed):
    """Another generator, float32 throughout."""
    projection = np.random.Generator(np.random.Philox(seed)).standard_normal((x.shape[1], x.shape[1]), dtype=F)
    return qjl_estimate(**qjl_encode(x=x, projection=projection), projection=projection, queries=queries)


def turboquant_inner_products(*, x, queries, bits, seed):
    """Levels of N(0, 1/d), a float32 QR, the residual's direction projected apart from its norm."""
    from refimpl.readkv.codebooks import lloyd_max_codebook

    d = x.shape[1]
    levels = (lloyd_max_codebook(bits=bits - 1, law="normal", d=d)["levels"] / math.sqrt(d)).astype(F)
    rotation = qr_in_float32(d=d, kind="haar", seed=seed)
    coded = encode_rotating_first(x=x, rotation=rotation, levels=levels)
    near = decode_scaling_last(**coded, rotation=rotation, levels=levels, norm_correction=False)
    return queries.astype(F) @ near.T + qjl_inner_products(x=x - near, queries=queries, seed=seed + 77)


# Lloyd-2

LEVELS, SPLIT = np.array([-1.5104, -0.4528, 0.4528, 1.5104], F), F(0.9816)


def lloyd2_encode(*, x, mean, scale, signs):
    """Comparisons with the printed threshold."""
    rotated = fast_hadamard(x.astype(F) * signs.astype(F))
    z = (rotated - mean[:, None].astype(F)) * (F(1) / scale[:, None].astype(F))
    codes = (z >= -SPLIT).astype(np.uint8) + (z >= 0) + (z >= SPLIT)
    return {"codes": codes.astype(np.uint8), "norm": np.sqrt(np.sum(rotated * rotated, axis=-1, dtype=F))}


def lloyd2_decode(*, codes, norm, mean, scale, signs, norm_correction=True):
    """The printed levels; rotated back before the norm is corrected."""
    restored = mean[:, None].astype(F) + scale[:, None].astype(F) * LEVELS[codes]
    x = fast_hadamard(restored) * signs.astype(F)
    if norm_correction:
        length = np.sqrt(np.sum(x * x, axis=-1, dtype=F))
        x = x * (norm.astype(F) / np.where(length > 0, length, F(1)))[..., None]
    return x


PORTS = {
    "by-butterflies": {
        "kivi_quantize": kivi_in(np.float32),
        "kivi_dequantize": kivi_dequantize,
        "turboquant_rotation": householder,
        "turboquant_encode": encode_rotating_first,
        "turboquant_decode": decode_scaling_last,
        "qjl_encode": qjl_encode,
        "qjl_estimate": qjl_estimate,
        "qjl_inner_products": qjl_inner_products,
        "turboquant_inner_products": turboquant_inner_products,
        "lloyd2_encode": lloyd2_encode,
        "lloyd2_decode": lloyd2_decode,
    },
    "as-served": {
        "kivi_quantize": kivi_in(np.float16, half_up=True),
        "turboquant_rotation": qr_in_float32,
        "turboquant_encode": encode_as_served,
        "turboquant_pack_slots": pack_high_first,
        "turboquant_unpack_slots": unpack_high_first,
    },
}
"""Right ports by name; each has some of the stages."""

DEPARTURES = {"by-butterflies": set(), "as-served": {"AMB-48", "AMB-49", "AMB-54"}}
"""What each shows of the documented choices."""
