"""The public package `tiny-turboquant` as a port: its cache layer, and the vector quantiser beside it.

Codes, scales and zeros are those that `TinyKVLayer` holds after it took the tokens, so that what it stores them in is
judged too.
"""

PACKAGE = "tiny-turboquant"
VERSION = "0.18.0"
MODULES = ("tiny_turboquant.cache", "tiny_turboquant.quantizer")
REQUIRES = ("torch==2.13.0", "scipy")
DRIVES = "TinyKVLayer (its KIVI codes, as stored), TinyQuantizer and TinyQuantizerIP"

FRAMEWORK = "torch"
DTYPES = ("float32", "bfloat16")
LAWS = ("sphere",)


def _layer(bits, keys, values, block, group):
    from tiny_turboquant.cache import TinyKVLayer

    layer = TinyKVLayer(key_bits=bits, value_bits=bits, residual_len=0, block_size=block, value_group_size=group)
    layer.lazy_initialization(keys, values)
    return layer


def _codes(packed, bits, d):
    from tiny_turboquant.cache import _pack_mode, _unpack

    return _unpack(packed, _pack_mode(bits, d), d)[0]


def kivi_quantize(*, keys, values, bits, group_size):
    import torch

    H, T, d = keys.shape
    layer = _layer(bits, keys[None], values[None], group_size, group_size)
    if T == 0:
        none = torch.zeros((H, 0, d)), torch.zeros((H, 0, d // group_size))
        codes = none[0].to(torch.uint8)
        return {
            "key_codes": codes,
            "key_scale": none[0].clone(),
            "key_zero": none[0].clone(),
            "value_codes": codes.clone(),
            "value_scale": none[1].clone(),
            "value_zero": none[1].clone(),
        }
    layer.ingest(keys[None], values[None])
    return {
        "key_codes": _codes(layer._key_indices, bits, d),
        "key_scale": layer._key_scales[0],
        "key_zero": layer._key_zeros[0],
        "value_codes": _codes(layer._value_indices, bits, d),
        "value_scale": layer._value_scales[0].reshape(H, T, -1),
        "value_zero": layer._value_zeros[0].reshape(H, T, -1),
    }


def affine_quantize(*, x, bits):
    """Rows as the values of one block of tokens."""
    import torch

    rows = x.reshape(1, 1, -1, x.shape[-1])
    if rows.shape[2] == 0:
        empty = torch.zeros(x.shape[:-1])
        return {"codes": torch.zeros(x.shape, dtype=torch.uint8), "scale": empty, "zero": empty.clone()}
    layer = _layer(bits, rows, rows, rows.shape[2], None)
    layer.ingest(rows, rows)
    return {
        "codes": _codes(layer._value_indices, bits, x.shape[-1]).reshape(x.shape),
        "scale": layer._value_scales.reshape(x.shape[:-1]),
        "zero": layer._value_zeros.reshape(x.shape[:-1]),
    }


def _quantiser(rotation, levels):
    from tiny_turboquant.quantizer import TinyQuantizer

    quantiser = TinyQuantizer.__new__(TinyQuantizer)
    quantiser.dim, quantiser.bits, quantiser.device = rotation.shape[0], len(levels).bit_length() - 1, "cpu"
    quantiser.num_centroids, quantiser.codebook = len(levels), levels
    quantiser.rotation, quantiser.rotation_t = rotation, rotation.T
    return quantiser


def lloyd_max_codebook(*, bits, law, d):
    import torch
    from tiny_turboquant.quantizer import TinyQuantizer

    levels = TinyQuantizer(dim=d, bits=1, device="cpu")._compute_codebook(d, bits).double() * d**0.5
    return {"levels": levels, "thresholds": torch.lerp(levels[:-1], levels[1:], 0.5)}  # it takes the nearest level


def turboquant_rotation(*, d, kind, seed):
    from tiny_turboquant.quantizer import TinyQuantizer

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return TinyQuantizer(dim=d, bits=1, device="cpu", seed=seed).rotation


def turboquant_encode(*, x, rotation, levels):
    codes, norms = _quantiser(rotation, levels).quantize(x)
    return {"codes": codes, "norm": norms[..., 0]}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    if norm_correction:
        raise NotImplementedError("no norm correction")
    return _quantiser(rotation, levels).dequantize(codes, norm[:, None])


def _product(d, bits, seed):
    import warnings

    from tiny_turboquant.quantizer import TinyQuantizerIP

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return TinyQuantizerIP(dim=d, bits=bits, device="cpu", seed=seed)


def qjl_inner_products(*, x, queries, seed):
    """TinyQuantizerIP with a codebook of zeros: its residual is then the vector itself."""
    quantiser = _product(x.shape[-1], 2, seed)
    quantiser.codebook = quantiser.codebook * 0
    return queries.float() @ quantiser.dequantize(*quantiser.quantize(x.float())).T


def turboquant_inner_products(*, x, queries, bits, seed):
    quantiser = _product(x.shape[-1], bits, seed)
    return queries.float() @ quantiser.dequantize(*quantiser.quantize(x.float())).T
