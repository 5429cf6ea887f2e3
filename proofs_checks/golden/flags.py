"""Flags: what kind of mistake a case catches, and what such a mistake does to whoever uses the port."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proofs_checks.judge.case import Case


@dataclass(frozen=True)
class Flag:
    """One kind of mistake. ``bug_class`` is a letter of `proofs_checks.judge.classes`; ``pattern`` finds its cases."""

    bug_class: str
    sentence: str
    effect: str
    pattern: str = ""


GENERAL = {
    "A": "paged-addressing",
    "B": "softmax-and-merge",
    "C": "selection-and-budget",
    "D": "codes-and-scales",
    "E": "rotation",
    "F": "quantiser-design",
    "G": "gqa-map",
    "H": "page-modes",
    "I": "reduced-precision",
}
"""The flag that every case of a class of faults carries."""

FLAGS = {
    "paged-addressing": Flag(
        "A",
        "Tokens of a partial page are lost, doubled or padded, or a block is looked up in the wrong place.",
        "Lengths that are no multiple of the page or tile size give slightly wrong answers; others are right.",
    ),
    "softmax-and-merge": Flag(
        "B",
        "A softmax or log-sum-exp takes the wrong base, scale, maximum or empty set.",
        "Outputs overflow, become NaN, or mix splits in the wrong proportions.",
    ),
    "selection-and-budget": Flag(
        "C",
        "The wrong pages or refinements are kept, or another number of them than the budget buys.",
        "Quality drops for the same budget, or the budget is not what was measured; nothing crashes.",
    ),
    "codes-and-scales": Flag(
        "D",
        "Integer codes are truncated, of the wrong sign or order, or share a scale that is not theirs.",
        "Reconstructions are off by a step or more; large channels drown small ones.",
    ),
    "rotation": Flag(
        "E",
        "The Hadamard transform, its signs or its scale are applied in the wrong order or place.",
        "Keys and queries live in different bases: scores are noise that looks like scores.",
    ),
    "quantiser-design": Flag(
        "F",
        "A split, a level or a path of the quantiser is not the one of the law it was designed for.",
        "Distortion rises by a few percent at every rate, which no end-to-end test of quality resolves.",
    ),
    "gqa-map": Flag(
        "G",
        "A query head reads another KV head than h // G, or a group has the wrong number of heads.",
        "With G a power of two or one KV head the mistake is often invisible; other models get wrong text.",
        r"head-map|own-heads|output-heads|query-heads|which-heads|three-heads|twelve-heads",
    ),
    "page-modes": Flag(
        "H",
        "The wrong modes of a page are kept, or they are those of keys that were not centred.",
        "Page scores are biased; the pages that matter fall out of the selection on long contexts.",
    ),
    "reduced-precision": Flag(
        "I",
        "A product or a weight was rounded to less than the port declares, such as TF32 or half.",
        "Errors of 1e-3 where 1e-7 is promised; ties and near-ties fall at random.",
    ),
    "low-contrast": Flag(
        "C",
        "Thousands of pages have nearly equal scores, more than a fixed buffer of candidates holds.",
        "Past 16,384 candidates a public kernel lost the best pages without a word.",
        r"low-contrast|P-16384",
    ),
    "constant-pages": Flag(
        "D",
        "All keys of a page are the same, or 0: it has no modes, and every scale of them is 0.",
        "A division by zero: NaN scores that poison the whole step, or pages that are never selected.",
        r"constant-(pages|row)|identical-keys|zero-page|rank-deficient|zero-lines",
    ),
    "open-page": Flag(
        "A",
        "The most recent page is not complete and may hold a single token.",
        "The newest tokens are dropped or padded with zeros that take part in the softmax.",
        r"open-page|one-open-token|tail-counts|odd-tail|shorter-than-a-page",
    ),
    "empty-splits": Flag(
        "B",
        "A split, a sequence or a cache holds no token: output 0, log-mass minus infinity.",
        "Minus infinity minus minus infinity is NaN, or a sentinel outweighs a real mass.",
        r"empty|no-tokens|nothing-kept|one-live|no-values|no-rows|no-items|no-pages|T0-",
    ),
    "nibbles": Flag(
        "D",
        "All 16 values of a nibble, or all 256 of a byte, in both places of a byte.",
        "Codes of one sign are read as the other: half of the basis points the wrong way.",
        r"nibbles|all-bytes|every-code|all-codes|single-bits",
    ),
    "halves": Flag(
        "D",
        "A value lies exactly between two codes; either is right, one step further is not.",
        "Rounding by truncation or by adding one half to negatives shifts every code.",
        r"halves|truncation|nearest",
    ),
    "ties": Flag(
        "C",
        "Several pages or steps are worth exactly the same at the last place that is free.",
        "Equal items are all taken or all dropped: the budget is broken.",
        r"ties|tied|all-equal|zeros-and-signs|equal-weights",
    ),
    "cell-ends": Flag(
        "F",
        "A value lies on a split of the tree, beside it, or far outside.",
        "Paths go to the wrong child, or an index beyond the last leaf is written.",
        r"cell-ends|every-split|far-out|one-bit-paths",
    ),
    "dead-weights": Flag(
        "C",
        "Weights or importances are 0 or so small that their squares vanish.",
        "Budget is spent on tokens that nobody reads, or buying ends too early.",
        r"dead|zero-gain|zero-levels|light-|tiny-|heavy-tail|one-live-channel",
    ),
    "tight-instance": Flag(
        "B",
        "A bound of the papers is nearly reached, so that no slack hides an error.",
        "A port that is nearly right elsewhere breaks the papers' guarantee here.",
        r"^tight-",
    ),
    "capture": Flag(
        "K",
        "Real queries, keys and values, with their outlier channels and attention sinks.",
        "Faults that random normal inputs do not show.",
        r"^capture",
    ),
}


def flags_of(case: Case) -> list[str]:
    """The flags of a case: that of its class of faults, and every one whose pattern its name has.

    >>> from proofs_checks.judge.suite import find_case
    >>> flags_of(find_case("merge_attention/all-empty"))
    ['softmax-and-merge', 'empty-splits']
    """
    own = GENERAL[case.suspect]
    return [own, *(n for n, f in FLAGS.items() if n != own and f.pattern and re.search(f.pattern, case.name))]


def family_of(case: Case) -> str:
    """The family of a case: its most special flag, else probes or shapes.

    >>> from proofs_checks.judge.suite import find_case
    >>> family_of(find_case("attention/head-map")), family_of(find_case("attention/H1-G1-T17-d64"))
    ('gqa-map', 'shapes')
    """
    special = [n for n, f in FLAGS.items() if f.pattern and re.search(f.pattern, case.name)]
    return special[-1] if special else "probes" if case.probe else "shapes"


FAMILIES = ("probes", "shapes", *(name for name, flag in FLAGS.items() if flag.pattern))
"""All families: inputs made by hand, random inputs, and one per special flag."""
