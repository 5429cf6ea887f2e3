"""The public package `turboquant-llm` as a port.

Its compressor documents one range for all elements of a batch; the stage `affine_quantize` is one range a row. It is
called as the compressor calls it, with the whole batch.
"""

PACKAGE = "turboquant-llm"
VERSION = "0.1.0"
MODULES = ("turboquant_llm",)
DRIVES = "random_orthogonal_matrix, quantize_global and dequantize_global, as its compressor calls them"


def turboquant_rotation(*, d, kind, seed):
    import numpy as np
    from turboquant_llm.rotation import random_orthogonal_matrix

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return random_orthogonal_matrix(d, np.random.default_rng(seed)).T.copy()  # it rotates rows: x @ R


def affine_quantize(*, x, bits):
    import numpy as np
    from turboquant_llm.scalar_quant import quantize_global

    codes, scale, least, _ = quantize_global(x, bits=bits)
    rows = x.shape[:-1]
    return {"codes": codes.astype(np.uint8), "scale": np.full(rows, scale), "zero": np.full(rows, least)}


def affine_dequantize(*, codes, scale, zero):
    import numpy as np
    from turboquant_llm.scalar_quant import dequantize_global

    rows = zip(codes.reshape(-1, codes.shape[-1]), scale.ravel(), zero.ravel(), strict=True)
    return np.stack([dequantize_global(row, one, least, 0.0) for row, one, least in rows]).reshape(codes.shape)
