"""The public package `turboquant-vllm` as a port: its PyTorch quantisers. The Triton kernel has a file of its own."""

PACKAGE = "turboquant-vllm"
VERSION = "1.5.0"
MODULES = ("turboquant_vllm.lloyd_max", "turboquant_vllm.quantizer")
INSTALL = ("--no-deps",)  # it asks for vLLM, which these modules do not import
REQUIRES = ("torch==2.13.0", "triton", "scipy", "transformers")
DRIVES = "solve_lloyd_max, TurboQuantMSE, TurboQuantProd"

FRAMEWORK = "torch"
LAWS = ("normal",)


def lloyd_max_codebook(*, bits, law, d):
    from turboquant_vllm.lloyd_max import solve_lloyd_max

    if bits > 4:
        raise NotImplementedError("the package documents 2 to 4 bits")
    levels, thresholds = solve_lloyd_max(d=64, bits=bits)
    return {"levels": levels.double() * 8.0, "thresholds": thresholds.double() * 8.0}


def _quantiser(rotation, levels):
    from turboquant_vllm.lloyd_max import LloydMaxCodebook
    from turboquant_vllm.quantizer import TurboQuantMSE

    quantiser = TurboQuantMSE.__new__(TurboQuantMSE)
    bits, d = len(levels).bit_length() - 1, rotation.shape[0]
    quantiser.dim, quantiser.bits, quantiser.rotation = d, bits, rotation
    quantiser.codebook = LloydMaxCodebook(levels, (levels[:-1] + levels[1:]) / 2, bits=bits, dim=d)
    return quantiser


def turboquant_rotation(*, d, kind, seed):
    from turboquant_vllm.quantizer import _generate_rotation_matrix

    if kind != "haar":
        raise NotImplementedError("rotations by QR only")
    return _generate_rotation_matrix(d, seed=seed)


def turboquant_encode(*, x, rotation, levels):
    import torch

    codes, norms = _quantiser(rotation, levels).quantize(x)
    return {"codes": codes.to(torch.uint8), "norm": norms[..., 0]}


def turboquant_decode(*, codes, norm, rotation, levels, norm_correction):
    if norm_correction:
        raise NotImplementedError("no norm correction")
    return _quantiser(rotation, levels).dequantize(codes.long(), norm[:, None])


def _products(quantiser, x, queries):
    import torch

    coded = quantiser.quantize(x)
    return torch.stack([quantiser.estimate_inner_product(q.expand_as(x), *coded)[..., 0] for q in queries])


def qjl_inner_products(*, x, queries, seed):
    """TurboQuantProd with a codebook of zeros: its residual is then the vector itself."""
    from turboquant_vllm.lloyd_max import LloydMaxCodebook
    from turboquant_vllm.quantizer import TurboQuantProd

    quantiser = TurboQuantProd(dim=x.shape[-1], bits=2, seed=seed)
    book = quantiser.mse_quantizer.codebook
    quantiser.mse_quantizer.codebook = LloydMaxCodebook(book.centroids * 0, book.boundaries, bits=1, dim=book.dim)
    return _products(quantiser, x, queries)


def turboquant_inner_products(*, x, queries, bits, seed):
    from turboquant_vllm.quantizer import TurboQuantProd

    return _products(TurboQuantProd(dim=x.shape[-1], bits=bits, seed=seed), x, queries)
