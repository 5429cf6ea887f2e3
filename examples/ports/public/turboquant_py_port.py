"""The public package `turboquant-py` as a port. Its module is called `turboquant`."""

PACKAGE = "turboquant-py"
VERSION = "0.1.0"
MODULES = ("turboquant",)
DRIVES = "get_codebook (its shipped tables, or computed), TurboQuant in both modes, QJL"

DTYPES = ("float32",)
LAWS = ("sphere",)


def lloyd_max_codebook(*, bits, law, d):
    import numpy as np
    from turboquant.codebook import get_codebook

    if bits > 4:
        raise NotImplementedError("the package documents 1 to 4 bits")
    levels, edges = get_codebook(d, bits)
    return {"levels": levels * np.sqrt(d), "thresholds": edges[1:-1] * np.sqrt(d)}


def _quantiser(rotation, levels):
    """A quantiser whose rotation is given, and the module's function for its table replaced."""
    import numpy as np
    import turboquant.turboquant as module

    quantiser = module.TurboQuant(rotation.shape[0], len(levels).bit_length() - 1, mode="mse", seed=0)
    quantiser._rotation = rotation.T.astype(np.float64)  # it rotates by the transpose
    levels = levels.astype(np.float64)
    edges = np.concatenate([[-1.0], (levels[:-1] + levels[1:]) / 2, [1.0]])
    module.get_codebook = lambda dim, bit_width: (levels, edges)
    return quantiser


def turboquant_rotation(*, d, kind, seed):
    from turboquant._accel import generate_orthogonal_matrix

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return generate_orthogonal_matrix(d, seed=seed).T.copy()


def turboquant_encode(*, x, rotation, levels):
    coded = _quantiser(rotation, levels).quantize(x)
    return {"codes": coded.indices, "norm": coded.norms}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    from turboquant.storage import CompressedVectors

    if norm_correction:
        raise NotImplementedError("no norm correction")
    quantiser = _quantiser(rotation, levels)
    held = CompressedVectors(
        indices=codes, norms=norm, dim=codes.shape[-1], bit_width=quantiser.bit_width, metadata={}, extra_arrays={}
    )
    return quantiser.dequantize(held)


def _transform(d, rows=None, projection=None, seed=0):
    import numpy as np
    from turboquant.qjl import QJL

    if rows is not None and rows > d:
        raise NotImplementedError("at most as many rows as channels")
    transform = QJL(d, projection_dim=rows, seed=seed)
    if projection is not None:
        transform._projection = projection.astype(np.float64)
    return transform


def qjl_encode(*, x, projection):
    coded = _transform(projection.shape[1], projection.shape[0], projection).quantize(x)
    return {"signs": coded.extra_arrays["signs"], "norm": coded.norms}


def qjl_estimate(*, signs, norm, projection, queries):
    import numpy as np
    from turboquant.storage import CompressedVectors

    transform = _transform(projection.shape[1], projection.shape[0], projection)
    held = CompressedVectors(
        indices=np.empty((len(signs), 0), np.uint8),
        norms=norm,
        dim=projection.shape[1],
        bit_width=1,
        metadata={},
        extra_arrays={"signs": signs},
    )
    return np.stack([transform.inner_product(q, held) for q in queries])


def qjl_inner_products(*, x, queries, seed):
    import numpy as np

    transform = _transform(x.shape[-1], seed=seed)
    coded = transform.quantize(x)
    return np.stack([transform.inner_product(q, coded) for q in queries])


def turboquant_inner_products(*, x, queries, bits, seed):
    import numpy as np
    from turboquant import TurboQuant

    quantiser = TurboQuant(x.shape[-1], bits, mode="inner_product", seed=seed)
    coded = quantiser.quantize(x)
    return np.stack([quantiser.inner_product(q, coded) for q in queries])
