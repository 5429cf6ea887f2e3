"""The public package `fused-turboquant` as a port: its PyTorch path. The Triton kernels have a file of their own."""

PACKAGE = "fused-turboquant"
VERSION = "0.1.0"
MODULES = ("fused_turboquant.core.quantizer",)
REQUIRES = ("torch==2.13.0", "triton", "scipy")
DRIVES = "LloydMaxQuantizer, RHTRotation, TurboQuantMSE with bit packing"

FRAMEWORK = "torch"
LAWS = ("sphere",)


def lloyd_max_codebook(*, bits, law, d):
    from fused_turboquant.core.lloyd_max import compute_lloyd_max_codebook

    if bits not in (2, 3, 4):
        raise NotImplementedError("the package documents 2, 3 and 4 bits")
    edges, levels = compute_lloyd_max_codebook(d, bits)
    return {"levels": levels * d**0.5, "thresholds": edges[1:-1] * d**0.5}


def _signs(rotation):
    """The signs of a rotation H diag(signs) / sqrt(d)."""
    import torch
    from fused_turboquant.core.hadamard import fwht

    d = rotation.shape[0]
    signs = torch.sign(rotation[0])
    if d & (d - 1) or not torch.allclose(fwht(torch.eye(d)) * signs, rotation, atol=1e-6):
        raise NotImplementedError("Hadamard rotations only")
    return signs


def _quantiser(rotation, levels):
    import torch
    from fused_turboquant.core.quantizer import TurboQuantMSE

    bits, signs = len(levels).bit_length() - 1, _signs(rotation)
    if bits not in (2, 3, 4):
        raise NotImplementedError("2, 3 and 4 bits")
    quantiser = TurboQuantMSE(rotation.shape[0], bits=bits)
    quantiser.rotation.signs = signs
    quantiser.quantizer.levels = levels
    ends = torch.tensor([-1.0]), torch.tensor([1.0])
    quantiser.quantizer.boundaries = torch.cat([ends[0], (levels[:-1] + levels[1:]) / 2, ends[1]])
    return quantiser


def _unpacked(packed, bits, d):
    from fused_turboquant.core import packing

    return {4: packing.unpack_nibbles, 3: packing.unpack_3bit, 2: packing.unpack_2bit}[bits](packed, d)


def _packed(codes, bits):
    from fused_turboquant.core import packing

    return {4: packing.pack_nibbles, 3: packing.pack_3bit, 2: packing.pack_2bit}[bits](codes)


def turboquant_rotation(*, d, kind, seed):
    import torch
    from fused_turboquant.core.hadamard import RHTRotation

    if kind != "hadamard":
        raise NotImplementedError("Hadamard rotations only")
    return RHTRotation(d, seed=seed)(torch.eye(d)).T.contiguous()


def turboquant_encode(*, x, rotation, levels):
    import torch

    coded = _quantiser(rotation, levels).encode(x)
    codes = _unpacked(coded.indices, coded.bits, x.shape[-1])
    return {"codes": codes.to(torch.uint8), "norm": coded.norms}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    from fused_turboquant.core.quantizer import CompressedTensor

    if norm_correction:
        raise NotImplementedError("no norm correction")
    quantiser = _quantiser(rotation, levels)
    held = CompressedTensor(_packed(codes, quantiser.bits), norm, original_dim=codes.shape[-1], bits=quantiser.bits)
    return quantiser.decode(held)
