"""No gap: the papers' statements, the committed list and the registry agree."""

from __future__ import annotations

import re

from proofs_checks.statements.registry import STATEMENTS
from proofs_checks.statements.theorems_page import read_numbering

NUMBERING = read_numbering()
LISTED = [name for labels in NUMBERING.values() for ids in labels.values() for name in ids]


def numbers(paper: str, kinds: tuple[str, ...]) -> list[int]:
    found = [re.fullmatch(rf"({'|'.join(kinds)}) (\d+)", label) for label in NUMBERING[paper]]
    return sorted(int(match[2]) for match in found if match)


def test_locks_numbers_every_kind_by_itself_without_gap():
    assert numbers("locks", ("Lemma",)) == [1, 2, 3]
    assert numbers("locks", ("Proposition",)) == [1, 2, 3]
    assert numbers("locks", ("Corollary",)) == [1, 2, 3]
    assert numbers("locks", ("Theorem",)) == [1]
    assert numbers("locks", ("Definition",)) == [1]
    assert {"Equation (A.1)", "Equation (A.2)"} <= set(NUMBERING["locks"])


def test_readkv_numbers_1_to_13_without_gap():
    assert numbers("readkv", ("Theorem", "Proposition", "Lemma", "Corollary")) == list(range(1, 14))
    assert "Equation (4)" in NUMBERING["readkv"]


def test_every_listed_check_is_registered_and_every_registered_check_is_listed_once():
    assert sorted(LISTED) == sorted(module.ABOUT.id for module in STATEMENTS)
    assert len(LISTED) == len(set(LISTED))


def test_ids_name_their_file_and_ours_say_so():
    for module in STATEMENTS:
        about = module.ABOUT
        assert module.__name__.rsplit(".", 1)[-1] == about.id.replace("-", "_")
        assert about.ours == about.id.endswith("-ours")
        assert bool(about.proof) == about.ours, f"{about.id}: ours need a proof, the papers' have theirs"
        assert about.id.split("-")[0] in ("locks", "readkv")


def test_at_most_a_third_answer_no_constant():
    without = [module.ABOUT.id for module in STATEMENTS if module.ABOUT.no_constant]
    assert 3 * len(without) <= len(STATEMENTS)
