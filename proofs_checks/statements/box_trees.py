"""Query-independent branching readers as box trees: every probe halves a side of the box that the bits have left.

A reader with at most r probes is a binary decision tree of depth r. On the uniform cube, with records that hold binary
expansions, its leaf is a box; a leaf is kept as the number of halvings of every side, with its probability.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from refimpl.checks import FloatArray

Leaf = tuple[int, tuple[int, ...]]  # probes made, halvings per side
Tree = tuple[Leaf, ...]


@lru_cache(maxsize=32)
def all_trees(dimension: int, probes: int) -> tuple[Tree, ...]:
    """Every tree of at most ``probes`` probes that may stop early, as its leaves.

    >>> [len(all_trees(1, r)) for r in range(4)], len(all_trees(3, 2))
    ([1, 2, 5, 26], 49)
    """
    stop: Tree = ((0, (0,) * dimension),)
    if probes == 0:
        return (stop,)
    below = all_trees(dimension, probes - 1)
    trees = [stop]
    for side in range(dimension):
        shifted = [tuple((1 + n, bump(halvings, side)) for n, halvings in tree) for tree in below]
        trees += [first + second for first in shifted for second in shifted]
    return tuple(trees)


def bump(halvings: tuple[int, ...], side: int) -> tuple[int, ...]:
    """One more halving of a side.

    >>> bump((0, 2), 1)
    (0, 3)
    """
    return (*halvings[:side], halvings[side] + 1, *halvings[side + 1 :])


def random_tree(rng: np.random.Generator, dimension: int, probes: int) -> Tree:
    """A random tree that halves a longest or a random side, now and then stopping early."""
    leaves: list[Leaf] = [(0, (0,) * dimension)]
    greedy = rng.random() < 0.6
    for _ in range(probes):
        grown: list[Leaf] = []
        for n, halvings in leaves:
            if not greedy and rng.random() < 0.05:
                grown.append((n, halvings))
                continue
            side = int(np.argmin(halvings)) if greedy else int(rng.integers(dimension))
            grown += [(n + 1, bump(halvings, side))] * 2
        leaves = grown
    return tuple(leaves)


def balanced_tree(dimension: int, probes: int) -> Tree:
    """The tree that always halves a longest side, its equal leaves counted once with probability 1.

    >>> balanced_tree(2, 3)
    ((0, (2, 1)),)
    """
    halvings = [probes // dimension + (side < probes % dimension) for side in range(dimension)]
    return ((0, tuple(halvings)),)


def side_errors(tree: Tree) -> FloatArray:
    """Mean squared error of every coordinate of Z uniform on [-1, 1]^n given the leaf: a side 2^(1-h) has 4^(-h)/3.

    >>> side_errors(((1, (1,)), (1, (1,)))).tolist() == [1 / 12]
    True
    """
    weights = np.exp2([-float(n) for n, _ in tree])
    halvings = np.array([h for _, h in tree], dtype=np.float64)  # [leaves, n]
    errors: FloatArray = weights @ (np.power(4.0, -halvings) / 3)
    return errors


def information(tree: Tree) -> float:
    """Bits that the leaf tells: sum of 2^-n n over the leaves (a leaf's probability is its volume share).

    >>> information(((1, (1,)), (2, (2,)), (2, (2,))))
    1.5
    """
    if len(tree) == 1:
        return float(sum(tree[0][1]))
    return float(sum(2.0**-n * n for n, _ in tree))
