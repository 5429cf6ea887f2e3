"""Classes of faults, by letter; a failing case names its class as the ``suspect``."""

from __future__ import annotations

CLASSES = {
    "A": "paged addressing and partial pages",
    "B": "split merge, log-sum-exp and empty sets",
    "C": "page selection and budgets",
    "D": "integer codes and scales",
    "E": "Hadamard rotation",
    "F": "quantiser design",
    "G": "GQA head map",
    "H": "eigenvectors and the page summary",
    "I": "GPU arithmetic and addressing",
    "J": "graph capture and replay",
    "K": "an answer that was not computed: stale, unwritten, aliased, or an input changed",
    "L": "files and formats",
    "M": "test flakiness",
}


def spelled(letters: str) -> str:
    """A suspect with its words.

    >>> spelled("D")
    'D (integer codes and scales)'
    """
    return "; ".join(f"{letter} ({CLASSES[letter]})" for letter in letters.split("/"))
