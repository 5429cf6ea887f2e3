"""The public package `turboquant-torch` as a port."""

PACKAGE = "turboquant-torch"
VERSION = "0.4.0"
MODULES = ("turboquant.core",)
REQUIRES = ("torch==2.13.0", "scipy")
DRIVES = "get_codebook, RandomizedHadamardTransform, TurboQuantMSE, QJL and TurboQuant"

FRAMEWORK = "torch"
LAWS = ("sphere",)


def lloyd_max_codebook(*, bits, law, d):
    import torch
    from turboquant.codebook import get_codebook

    if bits > 4:
        raise NotImplementedError("the package documents 1 to 4 bits")
    book = get_codebook(bits, d)
    levels, thresholds = (torch.tensor(part) * d**0.5 for part in (book.centroids, book.boundaries))
    return {"levels": levels, "thresholds": thresholds}


def _signs(rotation):
    """The signs of a rotation H diag(signs) / sqrt(d)."""
    import torch
    from turboquant.hadamard import fwht

    d = rotation.shape[0]
    signs = torch.sign(rotation[0])
    if d & (d - 1) or not torch.allclose(fwht(torch.eye(d)) * signs, rotation, atol=1e-6):
        raise NotImplementedError("Hadamard rotations only")
    return signs


def _quantiser(rotation, levels):
    from turboquant.mse_quantizer import TurboQuantMSE

    signs = _signs(rotation)
    quantiser = TurboQuantMSE(rotation.shape[0], bit_width=len(levels).bit_length() - 1)
    quantiser.rht.signs = signs
    quantiser.codebook._centroids, quantiser.codebook._boundaries = levels, (levels[:-1] + levels[1:]) / 2
    return quantiser


def turboquant_rotation(*, d, kind, seed):
    import torch
    from turboquant.hadamard import RandomizedHadamardTransform

    if kind != "hadamard":
        raise NotImplementedError("Hadamard rotations only")
    return RandomizedHadamardTransform(d, seed=seed).forward(torch.eye(d)).T.contiguous()


def turboquant_encode(*, x, rotation, levels):
    import torch

    coded = _quantiser(rotation, levels).quantize(x)
    return {"codes": coded.codes.to(torch.uint8), "norm": coded.norms}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    from turboquant.mse_quantizer import MSEQuantizedOutput

    if norm_correction:
        raise NotImplementedError("no norm correction")
    quantiser = _quantiser(rotation, levels)
    return quantiser.dequantize(MSEQuantizedOutput(codes.long(), norm, quantiser.bit_width))


def _transform(projection):
    from turboquant.qjl import QJL

    transform = QJL(projection.shape[1], proj_dim=projection.shape[0])
    transform._proj_matrix = projection
    return transform


def qjl_encode(*, x, projection):
    import torch

    coded = _transform(projection).quantize(x)
    return {"signs": coded.sign_bits.to(torch.int8) * 2 - 1, "norm": coded.norms}


def qjl_estimate(*, signs, norm, projection, queries):
    import torch
    from turboquant.qjl import QJLOutput

    return _transform(projection).estimate_inner_product(queries, QJLOutput(((signs + 1) // 2).to(torch.uint8), norm))


def qjl_inner_products(*, x, queries, seed):
    from turboquant.qjl import QJL

    transform = QJL(x.shape[-1], seed=seed)
    return transform.estimate_inner_product(queries, transform.quantize(x))


def turboquant_inner_products(*, x, queries, bits, seed):
    from turboquant.core import TurboQuant

    quantiser = TurboQuant(x.shape[-1], bit_width=bits, unbiased=True, seed=seed)
    return quantiser.compute_inner_product(queries, quantiser.quantize(x))
