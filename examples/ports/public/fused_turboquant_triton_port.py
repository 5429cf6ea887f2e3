"""The public package `fused-turboquant` as a port: its fused Triton kernels, in Triton's interpreter."""

import os

PACKAGE = "fused-turboquant"
VERSION = "0.1.0"
MODULES = ("fused_turboquant.kernels.triton_encode", "fused_turboquant.kernels.triton_decode")
REQUIRES = ("torch==2.13.0", "triton", "scipy")
DRIVES = "triton_fused_encode and triton_fused_decode, on CPU tensors in Triton's interpreter"

FRAMEWORK = "torch"

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported


def turboquant_encode(*, x, rotation, levels):
    import torch
    from fused_turboquant.kernels.triton_encode import triton_fused_encode
    from fused_turboquant_port import _quantiser, _unpacked

    quantiser = _quantiser(rotation, levels)
    if len(x) == 0:
        raise NotImplementedError("a launch of no programs")
    signs, edges, bits = quantiser.rotation.signs, quantiser.quantizer.boundaries, quantiser.bits
    packed, norms = triton_fused_encode(x, signs, edges, bits)
    return {"codes": _unpacked(packed, bits, x.shape[-1]).to(torch.uint8), "norm": norms}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    from fused_turboquant.kernels.triton_decode import triton_fused_decode
    from fused_turboquant_port import _packed, _quantiser

    if norm_correction:
        raise NotImplementedError("no norm correction")
    quantiser = _quantiser(rotation, levels)
    packed, signs = _packed(codes, quantiser.bits), quantiser.rotation.signs
    return triton_fused_decode(packed, norm, levels, signs, quantiser.bits, codes.shape[-1])
