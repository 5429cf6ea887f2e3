import itertools
import math

import mpmath
import numpy as np
import pytest

from proofs_checks.bounds.common import gamma
from refimpl.checks import ArgumentError
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.tree import lloyd_tree

# J. Max, Quantizing for minimum distortion (1960), Table I: positive levels to four digits
MAX_1960 = {
    1: [0.7980],
    2: [0.4528, 1.510],
    3: [0.2451, 0.7560, 1.344, 2.152],
    4: [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733],
}


U = 2.0**-53
MEAN = gamma(2 * (64 + 4), U)
"""Relative error of a cell's mean: the quotient of two sums of 64 positive quadrature terms."""


def law_density(law, d):
    """Density of a law in mpmath and where its support ends."""
    if law == "normal":
        return mpmath.npdf, mpmath.inf
    scale = mpmath.sqrt(d) * mpmath.beta(mpmath.mpf(1) / 2, mpmath.mpf(d - 1) / 2)
    return lambda x: (1 - x * x / d) ** (mpmath.mpf(d - 3) / 2) / scale, mpmath.sqrt(d)


@pytest.mark.parametrize("bits", MAX_1960)
def test_levels_of_the_normal_law_are_maxs(bits):
    half = lloyd_max_codebook(bits=bits, law="normal", d=1)["levels"][2 ** (bits - 1) :]
    # Max's levels are off by up to two units of their last digit (0.7980 for sqrt(2/pi) = 0.79788)
    assert all(abs(a - b) <= 2 * 10 ** -(3 if b >= 1 else 4) for a, b in zip(half, MAX_1960[bits], strict=True))


@pytest.mark.parametrize("bits", [1, 2])
def test_one_and_two_bits_are_the_progressive_trees(bits):
    # by symmetry the first two levels of the nested tree are already the optimal unnested quantisers
    tree = lloyd_tree(2)
    book = lloyd_max_codebook(bits=bits, law="normal", d=1)
    # an error in the midpoint condition moves the split by at most 4 times as much: half of d mean / d t is below 3/4,
    # the lower cell's mean following its end by at most a half and the upper one's by at most one
    slack = 2 * (1 + 4) * (MEAN + 8 * U) * tree.centroids[bits].max()
    assert (np.abs(book["levels"] - tree.centroids[bits]) <= slack).all()


@pytest.mark.parametrize(("law", "d"), [("normal", 1), ("sphere", 4), ("sphere", 7), ("sphere", 128)])
@pytest.mark.parametrize("bits", [1, 3, 5])
@mpmath.workdps(30)
def test_codebooks_are_stationary_in_high_precision(law, d, bits):
    density, end = law_density(law, d)
    book = lloyd_max_codebook(bits=bits, law=law, d=d)
    n = 2 ** (bits - 1)
    levels, inner = book["levels"][n:], book["thresholds"][n:]
    edges = [mpmath.mpf(0), *map(mpmath.mpf, inner.tolist()), end]
    for a, b, level in zip(edges, edges[1:], levels, strict=False):
        mass, first = (mpmath.quad(lambda x, k=k: x**k * density(x), [a, b]) for k in (0, 1))
        # the sphere's edges are rounded once more, from angles to values, and a mean moves by less than its edges
        assert abs(first / mass - level) <= (MEAN + 8 * U) * level
    middles = (levels[:-1] + levels[1:]) / 2
    # Newton stops at steps of 8 U, in rows whose entries add up to at most 2; levels[1:] lie above their thresholds
    assert (np.abs(middles - inner) <= (MEAN + 16 * U) * levels[1:]).all()


@pytest.mark.parametrize(("law", "d"), [("normal", 1), ("sphere", 4), ("sphere", 64), ("sphere", 4096)])
def test_every_width_is_ordered_and_antisymmetric(law, d):
    for bits in range(1, 9):
        book = lloyd_max_codebook(bits=bits, law=law, d=d)
        assert len(book["levels"]) == 2**bits
        assert len(book["thresholds"]) == 2**bits - 1
        interleaved = np.empty(2 ** (bits + 1) - 1)
        interleaved[0::2], interleaved[1::2] = book["levels"], book["thresholds"]
        assert (np.diff(interleaved) > 0).all()
        assert (book["levels"] == -book["levels"][::-1]).all()
        assert law == "normal" or book["levels"][-1] < math.sqrt(d)


def test_one_bit_level_of_the_sphere_in_closed_form():
    # E|x| = sqrt(d) Gamma(d/2) / (sqrt(pi) Gamma((d+1)/2)); d = 4 gives 2 * 4 / (3 pi)
    level = lloyd_max_codebook(bits=1, law="sphere", d=4)["levels"][1]
    assert abs(level - 8 / (3 * math.pi)) <= 2 * 64 * 2.0**-53 * level  # two 64-term sums of positive terms


def test_the_sphere_tends_to_the_normal_law():
    normal = lloyd_max_codebook(bits=4, law="normal", d=1)["levels"]
    gaps = [np.abs(lloyd_max_codebook(bits=4, law="sphere", d=d)["levels"] - normal).max() for d in (16, 64, 256, 1024)]
    assert all(a > 3 * b for a, b in itertools.pairwise(gaps))  # the difference is of order 1/d


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 0, "law": "normal", "d": 1}, "bits: expected in 1..8"),
        ({"bits": 9, "law": "normal", "d": 1}, "bits: expected in 1..8"),
        ({"bits": 2, "law": "gauss", "d": 1}, "law: expected one of"),
        ({"bits": 2, "law": "sphere", "d": 3}, "d: expected at least 4"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        lloyd_max_codebook(**arguments)
