"""The public package `turboquant` as a port: `turboquant.core`.

Rotations, codebooks and projections under test are the package's own; where a stage gives a rotation, levels or a
projection, they are put in the place of the package's, in an object of the package.
"""

PACKAGE = "turboquant"
VERSION = "0.2.0"
MODULES = ("turboquant.core",)
REQUIRES = ("torch==2.13.0", "scipy")
ALSO_WITH = (("numpy<2.4",),)
DRIVES = "TurboQuantMSE (rotation, codebook, quantize, dequantize) and TurboQuantIP"

FRAMEWORK = "torch"
LAWS = ("sphere",)


def _quantiser(rotation, levels, cls="TurboQuantMSE"):
    """An object of the package with a given rotation and given levels."""
    from turboquant import core

    quantiser = getattr(core, cls).__new__(getattr(core, cls))
    bits = len(levels).bit_length() - 1
    quantiser.dim, quantiser.bits, quantiser.device = rotation.shape[0], bits, "cpu"
    quantiser.num_centroids, quantiser.codebook = len(levels), levels
    quantiser.rotation, quantiser.rotation_t = rotation, rotation.T
    return quantiser


def lloyd_max_codebook(*, bits, law, d):
    import torch
    from turboquant.core import TurboQuantMSE

    if bits > 4:
        raise NotImplementedError("the package documents 1 to 4 bits")
    levels = TurboQuantMSE.__new__(TurboQuantMSE)._compute_codebook(d, bits).double() * d**0.5
    return {"levels": levels, "thresholds": torch.lerp(levels[:-1], levels[1:], 0.5)}  # it takes the nearest level


def turboquant_rotation(*, d, kind, seed):
    from turboquant.core import TurboQuantMSE

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return TurboQuantMSE(dim=d, bits=1, device="cpu", seed=seed).rotation


def turboquant_encode(*, x, rotation, levels):
    codes, norms = _quantiser(rotation, levels).quantize(x)
    return {"codes": codes, "norm": norms[..., 0]}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    if norm_correction:
        raise NotImplementedError("no norm correction")
    return _quantiser(rotation, levels).dequantize(codes, norm[:, None])


def qjl_inner_products(*, x, queries, seed):
    """TurboQuantIP with a codebook of zeros: its residual is then the vector itself."""
    import torch
    from turboquant.core import TurboQuantIP

    quantiser = TurboQuantIP(dim=x.shape[-1], bits=2, device="cpu", seed=seed)
    quantiser.codebook = torch.zeros_like(quantiser.codebook)
    return queries @ quantiser.dequantize(*quantiser.quantize(x)).T


def turboquant_inner_products(*, x, queries, bits, seed):
    from turboquant.core import TurboQuantIP

    quantiser = TurboQuantIP(dim=x.shape[-1], bits=bits, device="cpu", seed=seed)
    return queries @ quantiser.dequantize(*quantiser.quantize(x)).T
