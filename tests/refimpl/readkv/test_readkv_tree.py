import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from refimpl.checks import ArgumentError
from refimpl.readkv.tree import deployed_table, effective_distortions, lloyd_tree, readkv_tree

GAINS = [  # Lemma 7's intervals
    ("0.63661974", "0.63661975"),
    ("0.24589838", "0.24589839"),
    ("0.08264372", "0.08264373"),
    ("0.02504228", "0.02504229"),
    ("0.00713273", "0.00713274"),
    ("0.00195518", "0.00195519"),
    ("0.00052264", "0.00052265"),
    ("0.0001373218", "0.0001373220"),
]
PRINTED_CURVE = ["1", ".3634", ".1175", ".03484", ".009796", ".002663", ".000708", ".000185", ".00004795"]


def exact(x):
    return Fraction(float(x))


def conditional_mean(low, high):
    """E[Z | low < Z < high] of the standard normal in mpmath."""
    density = [mpmath.npdf(e) if mpmath.isfinite(e) else mpmath.mpf(0) for e in (low, high)]
    mass = (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2
    return (density[0] - density[1]) / mass


def edges_of(level, thresholds):
    inner = sorted(float(t) for upper in thresholds[:level] for t in upper)
    return [-np.inf, *inner, np.inf]


@pytest.mark.parametrize("level", range(8))
def test_every_gain_lies_in_the_interval_of_lemma_7(level):
    low, high = map(Fraction, GAINS[level])
    assert low < exact(deployed_table().gains[level]) < high


def test_pointwise_error_of_lemma_7_and_where_it_is_reached():
    table = deployed_table()
    worst = Fraction(0), None, None
    for low, high, centroid in zip(
        *[edges_of(8, table.thresholds)[s] for s in (slice(256), slice(1, 257))], table.centroids[8], strict=True
    ):
        ends = [max(low, -1.0), min(high, 1.0)]
        if ends[0] < ends[1]:
            worst = max(worst, *((abs(exact(e) - exact(centroid)), e, centroid) for e in ends), key=lambda w: w[0])
    assert Fraction("0.0096543431") < worst[0] < Fraction("0.0096543432")
    # the text names the endpoint and its centroid
    assert (f"{abs(worst[1]):.12f}", f"{abs(float(worst[2])):.12f}") == ("0.981598794460", "0.991253137589")


def test_depth_one_and_two_centroids_of_lemma_7():
    table = deployed_table()
    assert Fraction("0.7978845834") < exact(table.centroids[1][1]) < Fraction("0.7978845835")
    node = sum(float(t) <= 1.0 for level in table.thresholds[:2] for t in level)  # where the prefix of 1 ends
    q2 = exact(table.centroids[2][node])
    assert Fraction("1.5104175806") < q2 < Fraction("1.5104175807")
    assert exact(table.centroids[2][0]) == -q2
    assert Fraction("0.26052610") < (q2 - 1) ** 2 < Fraction("0.26052612")


def test_exact_curve_is_the_printed_one_and_the_effective_one_differs_at_depth_8():
    exact_curve, effective = lloyd_tree(8).distortions, effective_distortions()
    for printed, value in zip(PRINTED_CURVE, exact_curve, strict=True):
        unit = Fraction(1, 10 ** len(printed.partition(".")[2]))
        assert abs(exact(value) - Fraction(printed)) <= unit / 2
    # the text defines D(8) as 1 minus the stored gains, which rounds to .00004798, not to the printed .00004795
    assert f"{effective[8]:.8f}" == "0.00004798"


@mpmath.workdps(50)
def test_every_split_is_stationary_in_50_digits():
    # F(t) = t - (m1 + m2)/2 rises, so a sign change between t(1 - h) and t(1 + h) encloses the split. Quadrature and
    # bisection err by some 1e-14 relative (64 nodes, 64 halvings); h = 1e-12 leaves two digits and is a hundred times
    # finer than what a float32 rounding of the table can need (1e-10).
    thresholds = lloyd_tree(8).thresholds
    for level in range(1, 8):
        edges = edges_of(level, thresholds)
        for node, split in enumerate(thresholds[level]):
            low, high = mpmath.mpf(edges[node]), mpmath.mpf(edges[node + 1])
            signs = []
            for side in (-1, 1):
                t = mpmath.mpf(float(split)) + side * abs(mpmath.mpf(float(split))) * mpmath.mpf("1e-12")
                signs.append(mpmath.sign(t - (conditional_mean(low, t) + conditional_mean(t, high)) / 2))
            assert signs == [-1, 1], (level, node)
    assert thresholds[0].tolist() == [0.0]


@mpmath.workdps(50)
def test_centroids_are_conditional_means_rounded_once():
    tree, table = lloyd_tree(8), deployed_table()
    for depth in range(1, 9):
        edges = edges_of(depth, tree.thresholds)
        means = [float(conditional_mean(mpmath.mpf(a), mpmath.mpf(b))) for a, b in itertools.pairwise(edges)]
        assert table.centroids[depth].tolist() == [float(np.float32(m)) for m in means]


@mpmath.workdps(50)
def test_gains_are_those_of_the_centroids():
    # D(t) = 1 - E[c_t^2] for conditional means, so a gain is a difference of E[c^2]: another formula than the code's
    tree, energy = lloyd_tree(4), [mpmath.mpf(0)]
    for depth in range(1, 5):
        edges = [mpmath.mpf(e) for e in edges_of(depth, tree.thresholds)]
        cells = itertools.pairwise(edges)
        energy.append(mpmath.fsum((mpmath.ncdf(b) - mpmath.ncdf(a)) * conditional_mean(a, b) ** 2 for a, b in cells))
    for t, gain in enumerate(tree.gains):
        assert np.float32(float(energy[t + 1] - energy[t])) == np.float32(gain)


@pytest.mark.parametrize("depth", [1, 8, 12])
def test_shapes_order_symmetry_and_falling_gains(depth):
    tree = readkv_tree(depth=depth)
    assert [len(level) for level in tree["thresholds"]] == [2**level for level in range(depth)]
    assert [len(level) for level in tree["centroids"]] == [2**t for t in range(depth + 1)]
    assert tree["centroids"][0].tolist() == [0.0]
    assert {a.dtype.name for a in [*tree["thresholds"], *tree["centroids"], tree["gains"]]} == {"float32"}
    for level in [*tree["thresholds"], *tree["centroids"]]:
        assert (np.diff(level) > 0).all()
        assert (level == -level[::-1]).all()
    assert (np.diff(tree["gains"]) < 0).all()
    assert (tree["gains"] > 0).all()
    assert (np.diff(lloyd_tree(depth).distortions) < 0).all()


def test_every_split_lies_between_its_neighbours_and_deeper_trees_extend_shallower_ones():
    table, deeper = deployed_table(8), deployed_table(12)
    for level in range(8):
        edges = edges_of(level, table.thresholds)
        assert all(a < t < b for a, t, b in zip(edges, table.thresholds[level], edges[1:], strict=False))
        assert (table.thresholds[level] == deeper.thresholds[level]).all()
        assert (table.centroids[level + 1] == deeper.centroids[level + 1]).all()
    assert (table.gains == deeper.gains[:8]).all()


def test_results_are_the_callers_own():
    first = readkv_tree(depth=3)
    first["gains"][:] = 0
    first["centroids"][1][:] = 0
    assert readkv_tree(depth=3)["gains"][0] > 0
    assert readkv_tree(depth=3)["centroids"][1][1] > 0


@pytest.mark.parametrize("depth", [0, 13, 2.0, True])
def test_other_depths_are_refused(depth):
    with pytest.raises(ArgumentError, match="depth: expected"):
        readkv_tree(depth=depth)
