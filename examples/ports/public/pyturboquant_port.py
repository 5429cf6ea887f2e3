"""The public package `pyturboquant` as a port."""

PACKAGE = "pyturboquant"
VERSION = "0.1.1"
MODULES = ("pyturboquant.core",)
REQUIRES = ("torch==2.13.0", "scipy")
DRIVES = (
    "get_codebook (its shipped tables), RandomRotation, MSEQuantizer with bit packing, QJLTransform, "
    "InnerProductQuantizer"
)

FRAMEWORK = "torch"
LAWS = ("normal",)


def lloyd_max_codebook(*, bits, law, d):
    from pyturboquant.core.codebook import get_codebook

    book = get_codebook(64, bits)
    return {"levels": book.centroids.double() * 8.0, "thresholds": book.boundaries.double() * 8.0}


def _quantiser(rotation, levels):
    from pyturboquant.core.mse_quantizer import MSEQuantizer
    from pyturboquant.core.types import Codebook

    bits = len(levels).bit_length() - 1
    quantiser = MSEQuantizer(rotation.shape[0], bits)
    quantiser._rotation._matrix = rotation
    quantiser._codebook = Codebook(levels, (levels[:-1] + levels[1:]) / 2, bits=bits, mse_cost=float("nan"))
    return quantiser


def turboquant_rotation(*, d, kind, seed):
    from pyturboquant.core.rotation import RandomRotation

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return RandomRotation(d, seed=seed).matrix


def turboquant_encode(*, x, rotation, levels):
    import torch
    from pyturboquant.core.packed import unpack_indices

    coded = _quantiser(rotation, levels).quantize(x)
    codes = unpack_indices(coded.packed_indices, coded.bits, x.numel()).reshape(x.shape)
    return {"codes": codes.to(torch.uint8), "norm": coded.norms[..., 0]}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    import torch
    from pyturboquant.core.packed import pack_indices
    from pyturboquant.core.types import QuantizedMSE

    if norm_correction:
        raise NotImplementedError("no norm correction")
    quantiser = _quantiser(rotation, levels)
    packed = pack_indices(codes.to(torch.int32).reshape(-1), quantiser.bits)
    held = QuantizedMSE(packed, norm[:, None], dim=codes.shape[-1], bits=quantiser.bits, seed=0, device=codes.device)
    return quantiser.dequantize(held)


def _transform(projection):
    from pyturboquant.core.qjl import QJLTransform

    transform = QJLTransform(projection.shape[1], m=projection.shape[0])
    transform._S = projection
    return transform


def qjl_encode(*, x, projection):
    import torch
    from pyturboquant.core.packed import unpack_bits_batch

    packed = _transform(projection).quantize(x)
    return {"signs": unpack_bits_batch(packed, projection.shape[0]).to(torch.int8), "norm": x.norm(dim=-1)}


def qjl_estimate(*, signs, norm, projection, queries):
    from pyturboquant.core.packed import pack_bits_batch

    packed = pack_bits_batch(signs.float())
    return _transform(projection).estimate_inner_product_batch_queries(packed, queries, norm)


def qjl_inner_products(*, x, queries, seed):
    from pyturboquant.core.qjl import QJLTransform

    transform = QJLTransform(x.shape[-1], seed=seed)
    return transform.estimate_inner_product_batch_queries(transform.quantize(x), queries, x.norm(dim=-1))


def turboquant_inner_products(*, x, queries, bits, seed):
    import torch
    from pyturboquant.core.prod_quantizer import InnerProductQuantizer

    quantiser = InnerProductQuantizer(x.shape[-1], bits=bits, seed=seed)
    coded = quantiser.quantize(x)
    return torch.stack([quantiser.estimate_inner_product(coded, q.expand_as(x)) for q in queries])
