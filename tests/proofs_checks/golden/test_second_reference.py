"""The second reference's tree, allocation and reader against work by hand, and against what the papers print."""

import itertools
from fractions import Fraction

import mpmath
import pytest
from mpmath import mpf

from proofs_checks.golden.second import reader, tree
from proofs_checks.golden.second.allocation import choose_depths

DIGITS_50 = mpf(10) ** -50
# ReadKV, Lemma 7: each interval's ends differ by one in the last printed digit.
LEMMA_7_GAINS = ["0.63661974", "0.24589838", "0.08264372", "0.02504228", "0.00713273", "0.00195518", "0.00052264"]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def near(left, right, tolerance=DIGITS_50):
    return len(left) == len(right) and all(abs(a - b) <= tolerance for a, b in zip(left, right, strict=True))


# --- the tree ----------------------------------------------------------------------------------------------------


def test_the_first_split_is_at_zero_and_its_means_are_those_of_the_half_normal():
    built = tree.exact_tree()
    assert built.thresholds[0] == [0]
    assert near(built.centroids[1], [-mpmath.sqrt(2 / mpmath.pi), mpmath.sqrt(2 / mpmath.pi)])
    assert near(built.gains[:1], [2 / mpmath.pi])


def test_every_cut_is_the_midpoint_of_its_children_and_splits_its_parents_mean():
    built = tree.exact_tree()
    edges = [-mpmath.inf, mpmath.inf]
    for depth, cuts in enumerate(built.thresholds):
        children, parents = built.centroids[depth + 1], built.centroids[depth]
        assert near(cuts, [(a + b) / 2 for a, b in zip(children[::2], children[1::2], strict=True)])
        inner = sorted([*edges, *cuts])
        masses = [tree.mass(a, b) for a, b in itertools.pairwise(inner)]
        weighted = [m * c for m, c in zip(masses, children, strict=True)]
        pairs = zip(weighted[::2], weighted[1::2], masses[::2], masses[1::2], strict=True)
        assert near(parents, [(a + b) / (p + q) for a, b, p, q in pairs])
        edges = inner
    assert near(built.thresholds[7], [-t for t in reversed(built.thresholds[7])])


def test_the_gains_are_those_of_a_quadrature_of_the_error():
    built = tree.exact_tree()
    edges = [-mpmath.inf, *sorted([*built.thresholds[0], *built.thresholds[1]]), mpmath.inf]
    cells = zip(itertools.pairwise(edges), built.centroids[2], strict=True)
    with mpmath.workdps(30):
        error = mpmath.fsum(
            mpmath.quad(lambda z, mean=mean: (z - mean) ** 2 * mpmath.npdf(z), cell) for cell, mean in cells
        )
    assert abs(error - (1 - built.gains[0] - built.gains[1])) <= mpf(10) ** -25


def test_the_float32_tables_lie_in_the_intervals_of_lemma_7():
    built = tree.deployed_tree()
    for gain, low in zip(built.gains, LEMMA_7_GAINS, strict=False):
        assert Fraction(low) < gain < Fraction(low) + Fraction(1, 10**8)
    assert Fraction("0.0001373218") < built.gains[7] < Fraction("0.0001373220")
    assert Fraction("0.7978845834") < built.centroids[1][1] < Fraction("0.7978845835")
    assert Fraction("1.5104175806") < tree.decode(tree.encode(1), 2) < Fraction("1.5104175807")
    assert tree.decode(tree.encode(-1), 2) == -tree.decode(tree.encode(1), 2)


def test_the_largest_error_on_the_unit_interval_is_that_of_lemma_7():
    cuts = sorted(cut for level in tree.deployed_tree().thresholds for cut in level)
    ends = [Fraction(-1), *(cut for cut in cuts if -1 < cut < 1), Fraction(1)]
    worst = Fraction(0)
    for low, high in itertools.pairwise(ends):
        value = tree.decode(tree.encode(low), 8)
        worst = max(worst, abs(low - value), abs(high - value))
    assert Fraction("0.0096543431") < worst < Fraction("0.0096543432")


def test_a_prefix_reconstructs_its_cell():
    assert [tree.decode(code, 0) for code in (0, 255)] == [0, 0]
    assert tree.encode(0) == 128  # on the threshold: the upper child
    assert tree.encode(-Fraction(1, 10**9)) == 127
    assert [tree.encode(c) for c in tree.deployed_tree().centroids[8]] == list(range(256))


# --- allocation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "expected"), [(0, [0, 0]), (1, [0, 1]), (2, [1, 1]), (3, [1, 2]), (5, [2, 3]), (6, [3, 3]), (99, [3, 3])]
)
def test_weighted_gains_are_bought_from_the_largest_and_ties_go_to_the_lower_item(budget, expected):
    # Weighted gains 4, 2, 1 and 8, 4, 2: bought in the order 8, 4 (item 0), 4 (item 1), 2 (item 0), 2, 1.
    assert choose_depths([1, 2], [4, 2, 1], budget) == expected


def test_nothing_is_bought_at_no_gain_except_the_minimum_depth():
    assert choose_depths([0, 1, 0], [4, 2, 0], 9) == [0, 2, 0]
    assert choose_depths([0, 1, 0], [4, 2, 0], 9, minimum_depth=1) == [1, 2, 1]
    assert choose_depths([1], [4, -1, 8], 3) == [1]
    with pytest.raises(ValueError, match=r"minimum_depth: 2 for every item does not fit in budget 5"):
        choose_depths([1, 1, 1], [4, 2], 5, minimum_depth=2)


def test_the_allocation_is_the_best_of_all_schedules():
    importance, gains = [Fraction(3), Fraction(5), Fraction(1, 2)], [Fraction(8), Fraction(3), Fraction(1)]
    value = [sum(gains[:depth]) for depth in range(4)]
    for budget in range(10):
        feasible = [t for t in itertools.product(range(4), repeat=3) if sum(t) <= budget]
        best = max(sum(a * value[t] for a, t in zip(importance, depths, strict=True)) for depths in feasible)
        got = choose_depths(importance, gains, budget)
        assert sum(a * value[t] for a, t in zip(importance, got, strict=True)) == best


# --- the reader --------------------------------------------------------------------------------------------------


def test_the_rotation_of_two_and_four_channels():
    root = mpmath.sqrt(2)
    assert near(reader.rotate([3, 4], [1, -1]), [-1 / root, 7 / root])
    assert near(reader.rotate_back([-1 / root, 7 / root], [1, -1]), [3, 4])
    assert reader.signed_hadamard([1] * 4) == [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    with pytest.raises(ValueError, match=r"signs: expected a power of two of them, got 3"):
        reader.rotate([1, 2, 3], [1, 1, 1])


def test_importances_square_before_they_are_summed():
    assert reader.key_importance([[[1, 2], [3, -1]]], [[2, 10]]) == [[40, 500]]
    weights = [[[0.5, 0.25, 0.25], [0, 0.5, 0.5]]]
    assert reader.value_importance(weights, [3]) == [[Fraction(3, 4), Fraction(15, 16), Fraction(15, 16)]]


def one_channel(key_codes, value_codes, heads=1):
    """A cache of one channel, mean 0 and scale 1: the rotation is the identity, a code is its own reconstruction."""
    column = [[[code] for code in codes] for codes in (key_codes, value_codes)]
    zero, one = [[0]] * heads, [[1]] * heads
    return reader.Cache([column[0]] * heads, [column[1]] * heads, zero, one, zero, one, [1], [1])


def test_one_bit_of_a_key_and_one_of_a_value():
    # K_hat = -c and +c, weights e^-+c / sum; the heavier token gets the value bit, the other value is the mean 0.
    c = mpf(tree.deployed_tree().centroids[1][1].numerator) / tree.deployed_tree().centroids[1][1].denominator
    got = reader.pooled_reader(one_channel([0, 255], [255, 0]), [[[1]]], key_budget=1, value_budget=1)
    assert (got.key_depths, got.value_depths) == ([[1]], [[0, 1]])
    heavy = 1 / (1 + mpmath.exp(-2 * c))
    assert near(got.weights[0][0], [1 - heavy, heavy])
    assert near(got.output[0][0], [-heavy * c])


def test_logits_of_two_channels_are_divided_by_the_root_of_two():
    # q' = (1, 1) / sqrt 2 against K_hat = (-c, c) and (c, c), once more divided by sqrt 2.
    cache = reader.Cache([[[0, 255], [255, 255]]], [[[0, 0]] * 2], *[[[0, 0]], [[1, 1]]] * 2, [1, 1], [1, 1])
    got = reader.pooled_reader(cache, [[[1, 0]]], key_budget=2, value_budget=0)
    assert (got.key_depths, got.logits) == ([[1, 1]], [[[0, tree.deployed_tree().centroids[1][1]]]])


def test_no_budget_returns_the_mean_rotated_back():
    cache = reader.Cache([[[0, 9]] * 3], [[[7, 7]] * 3], [[1, 2]], [[1, 1]], [[3, 5]], [[2, 2]], [1, 1], [1, -1])
    got = reader.pooled_reader(cache, [[[1, 1]]], key_budget=0, value_budget=0)
    assert (got.key_depths, got.value_depths) == ([[0, 0]], [[0, 0, 0]])
    assert near(got.weights[0][0], [mpf(1) / 3] * 3)
    assert near(got.output[0][0], [8 / mpmath.sqrt(2), 2 / mpmath.sqrt(2)])  # U^T y = ((3+5), -(3-5)) / sqrt 2


def test_a_full_budget_reads_every_bit_and_one_token_has_all_the_weight():
    cache = reader.Cache([[[3, 200]]], [[[40, 250]]], [[0, 0]], [[1, 1]], [[0, 0]], [[1, 1]], [1, 1], [1, 1])
    got = reader.pooled_reader(cache, [[[1, 2]]], key_budget=16, value_budget=8)
    assert (got.key_depths, got.value_depths, got.weights) == ([[8, 8]], [[8]], [[[1]]])
    x, y = (mpf(tree.decode(code, 8).numerator) / tree.decode(code, 8).denominator for code in (40, 250))
    assert near(got.output[0][0], [(x + y) / mpmath.sqrt(2), (x - y) / mpmath.sqrt(2)])


def test_a_zero_query_buys_no_key_bit_and_value_ties_go_to_the_first_tokens():
    got = reader.pooled_reader(one_channel([0, 9, 255], [1, 2, 3]), [[[0]]], key_budget=8, value_budget=4)
    assert (got.key_depths, got.value_depths) == ([[0]], [[2, 1, 1]])


def test_a_pooled_budget_goes_where_the_importance_is():
    cache = one_channel([0, 255], [0, 255], heads=2)
    got = reader.pooled_reader(cache, [[[1]], [[100]]], key_budget=8, value_budget=0)
    assert got.key_depths == [[0], [8]]  # 10^4 Delta_8 > Delta_1
    weighted = reader.pooled_reader(cache, [[[0]], [[0]]], 0, 32, stored_depth=3, value_head_weight=[0, 1])
    assert weighted.value_depths == [[0, 0], [3, 3]]


@pytest.mark.parametrize(
    ("query", "rate", "keys", "values"),
    [
        (0, 1, [[1]], [[1, 1, 1]]),  # a zero query has no key importance: only the minimum depth
        (0, 1.5, [[1]], [[1, 1, 1]]),  # 4 refinements, 1 left over: the pair comes first and costs 2
        (9, 1.5, [[1]], [[1, 1, 2]]),  # token 2 has nearly all the weight; it costs 1
        (-9, 2.4, [[2]], [[3, 3, 1]]),  # 7 refinements, 4 to spend: the pair holds token 0 and takes both steps
        (0, 8, [[1]], [[8, 8, 8]]),
    ],
)
def test_pairs_of_values_share_a_depth_and_the_remainder_is_not_spent(query, rate, keys, values):
    cache = one_channel([0, 100, 255], [0, 0, 0])
    got = reader.restricted_reader(cache, [[[query]]], rate)
    assert (got.key_depths, got.value_depths) == (keys, values)


def test_a_pair_counts_with_the_sum_of_its_importances():
    choose = reader.per_head(Fraction(5, 3), 8, packet=2)  # 5 refinements: 2 after the minimum, all for the pair
    assert choose([[Fraction(2), Fraction(2), Fraction(3)]]) == [[2, 2, 1]]


def test_a_float_rate_is_the_decimal_it_stands_for():
    # 1.4 x 5 is 7, one pair above the minimum; the float below 1.4 would give 6, and no pair.
    cache = one_channel([0] * 5, [0] * 5)
    assert reader.restricted_reader(cache, [[[0]]], 1.4).value_depths == [[2, 2, 1, 1, 1]]


def test_a_rate_below_one_is_an_error():
    with pytest.raises(ValueError, match=r"rate: expected at least 1, got 0.5"):
        reader.restricted_reader(one_channel([0], [0]), [[[1]]], 0.5)
