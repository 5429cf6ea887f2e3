"""The public package `turboquant-pro` as a port: `TurboQuantKV`, its NumPy path."""

PACKAGE = "turboquant-pro"
VERSION = "1.9.1"
MODULES = ("turboquant_pro.core",)
DRIVES = "TurboQuantKV on the CPU: codebooks, rotation, compress, decompress"

LAWS = ("normal",)
BITS = (2, 3, 4)


def _cache(d, bits, seed=0):
    from turboquant_pro.core import TurboQuantKV

    if bits not in BITS:
        raise NotImplementedError("the package has tables of 2, 3 and 4 bits")
    return TurboQuantKV(head_dim=d, n_heads=1, bits=bits, use_gpu=False, seed=seed)


def _with(rotation, levels):
    """A cache with a given rotation and given levels."""
    import numpy as np

    cache = _cache(rotation.shape[0], len(levels).bit_length() - 1)
    levels = levels.astype(np.float32)
    cache._Pi, cache._Pi_T = rotation, rotation.T.copy()
    cache._codebooks[cache.bits] = (levels, (levels[:-1] + levels[1:]) / 2)
    cache.centroids, cache.boundaries = cache._codebooks[cache.bits]
    return cache


def lloyd_max_codebook(*, bits, law, d):
    import numpy as np

    cache = _cache(64, bits)
    levels, thresholds = cache._codebooks[bits]
    return {"levels": levels.astype(np.float64) * 8.0, "thresholds": thresholds.astype(np.float64) * 8.0}


def turboquant_rotation(*, d, kind, seed):
    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return _cache(d, 2, seed)._Pi.copy()


def turboquant_encode(*, x, rotation, levels):
    compressed = _with(rotation, levels).compress(x[None, None])
    return {"codes": compressed.indices[0, 0], "norm": compressed.norms[0, 0]}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    from turboquant_pro.core import CompressedKV

    if norm_correction:
        raise NotImplementedError("no norm correction")
    cache = _with(rotation, levels)
    held = CompressedKV(indices=codes[None, None], norms=norm[None, None], bits=cache.bits)
    return cache.decompress(held)[0, 0]
