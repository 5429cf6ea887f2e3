"""The public package `turboquant-vllm` as a port: its fused four-bit Triton kernel, in Triton's interpreter."""

import os

PACKAGE = "turboquant-vllm"
VERSION = "1.5.0"
MODULES = ("turboquant_vllm.triton.tq4_compress",)
INSTALL = ("--no-deps",)  # it asks for vLLM, which this module does not import
REQUIRES = ("torch==2.13.0", "triton", "scipy", "transformers")
DRIVES = "the Triton kernel behind tq4_compress, on CPU tensors in Triton's interpreter"

FRAMEWORK = "torch"

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported


def turboquant_encode(*, x, rotation, levels):
    from importlib import import_module

    import torch

    module = import_module("turboquant_vllm.triton.tq4_compress")  # its package has a function of the same name

    if len(levels) != 16:
        raise NotImplementedError("four bits only")
    (N, d), turned = x.shape, rotation.T
    packed = torch.empty(N, d // 2, dtype=torch.uint8)
    norms = torch.empty(N, dtype=torch.float32)
    middle = (levels[:-1] + levels[1:]) / 2
    even, odd = turned[:, 0::2].contiguous(), turned[:, 1::2].contiguous()
    sizes = {"D": d, "HALF_D": d // 2, "N_BOUND": 15, "BLOCK_K": min(32, d)}
    sizes |= {"D_PAD": module._next_pow2(d), "HALF_D_PAD": module._next_pow2(d // 2)}
    if N:
        kernel = module._tq4_compress_kernel
        kernel[(N,)](x.contiguous(), even, odd, middle, packed, norms, N, **sizes)
    codes = torch.stack([packed >> 4, packed & 15], dim=-1).reshape(N, d)  # its even channel is the high nibble
    return {"codes": codes, "norm": norms}
