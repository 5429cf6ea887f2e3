"""coverage.toml is complete, its paths exist, and docs/coverage.md is its rendering."""

from pathlib import Path

import pytest

from proofs_checks import coverage

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = coverage.load()


def numbered(word: str, numbers: str) -> list[str]:
    """ "Table", "1 2" -> ["Table 1", "Table 2"]; without a word the numbers alone."""
    return [f"{word} {number}".strip() for number in numbers.split()]


# The headings of both papers, read off the papers themselves and not off coverage.toml.
HEADINGS = {
    ("locks", "section"): numbered(
        "",
        "1 2 3 4 5 5.1 5.2 5.3 5.4 6 7 A A.1 A.2 A.3 A.4 A.5 B "
        "C C.1 C.2 C.3 C.3.1 C.3.2 C.3.3 C.4 C.4.1 C.4.2 C.5 C.6 D E F",
    ),
    # The counter runs on through the appendices: there is no Table C.1 and no Table D.1.
    ("locks", "table"): numbered(
        "Table", "1 2 B.1 B.2 C.3 C.4 C.5 C.6 C.7 C.8 C.9 D.10 D.11 D.12 D.13 D.14 D.15 D.16 D.17"
    ),
    ("locks", "figure"): numbered("Figure", "1 2 3 4 5 E.1"),
    ("locks", "statement"): [
        "Theorem 1",
        *numbered("Lemma", "1 2 3"),
        *numbered("Proposition", "1 2 3"),
        *numbered("Corollary", "1 2 3"),
        "Definition 1",
        "Remark after Lemma 1",
        "Remark after Proposition 1",
        "Remark after Theorem 1",
        "Group-share sandwich",
        *numbered("Equation", "(1) (A.1) (A.2)"),
    ],
    ("readkv", "section"): numbered(
        "",
        "1 2 3 3.1 3.2 3.3 4 4.1 4.2 4.3 5 5.1 6 7 A A.1 A.2 A.3 A.4 A.5 A.6 A.7 B B.1 B.2 B.3 B.4 B.5 "
        "C C.1 C.2 C.3 D D.1 D.2 E E.1 E.1.1 E.1.2 E.1.3 E.2 E.2.1 E.2.2 E.2.3 E.3 E.3.1 E.3.2 E.3.3 E.4 "
        "F F.1 F.2 F.3 F.4 F.5 F.6 F.7 F.8 G G.1 G.2",
    ),
    ("readkv", "table"): numbered("Table", "1 2 3 4 5 6 7 8 9 10 11 12"),
    ("readkv", "figure"): numbered("Figure", "1 2 3"),
    ("readkv", "algorithm"): ["Algorithm 1"],
    # Propositions, lemmas and corollaries share one counter that starts after the three theorems.
    ("readkv", "statement"): [
        *numbered("Theorem", "1 2 3"),
        *numbered("Proposition", "4 5 6 8 9 10 12"),
        *numbered("Lemma", "7 11"),
        "Corollary 13",
        *numbered("Equation", "(1) (2) (3) (4) (5) (6)"),
    ],
}


@pytest.mark.parametrize(("paper", "kind"), HEADINGS)
def test_every_heading_of_the_paper_has_one_row(paper: str, kind: str) -> None:
    rows = [entry.id for entry in ENTRIES if (entry.paper, entry.kind) == (paper, kind)]
    assert sorted(rows) == sorted(HEADINGS[paper, kind])


def test_no_row_stands_outside_the_headings() -> None:
    assert {(entry.paper, entry.kind) for entry in ENTRIES} == set(HEADINGS)


def test_readkv_counts_its_results_without_a_gap() -> None:
    words = ("Theorem", "Proposition", "Lemma", "Corollary")
    ids = [e.id for e in ENTRIES if e.paper == "readkv" and e.id.split()[0] in words]
    assert sorted(int(name.split()[1]) for name in ids) == list(range(1, 14))


def test_a_label_names_one_row_of_its_paper() -> None:
    labels = [(row["paper"], row["section"]) for row in coverage.sections()]
    assert len(set(labels)) == len(labels) == len(ENTRIES)


def test_no_row_of_the_list_is_empty() -> None:
    for row in coverage.sections():
        assert set(row) == {"paper", "section", "where"}
        assert all(text.strip() for text in row.values()), row


BUILT_PATHS = sorted({path for entry in ENTRIES for path in entry.paths()})


@pytest.mark.parametrize("path", BUILT_PATHS)
def test_a_built_path_exists_and_holds_something(path: str) -> None:
    found = sorted(ROOT.glob(path))
    assert found, f"{path} does not exist"
    for target in found:
        modules = [item for item in target.rglob("*.py") if item.name != "__init__.py"]
        assert target.is_file() or modules, f"{path} holds no module"


def test_every_statement_file_is_named_by_a_row() -> None:
    folder = ROOT / "proofs_checks" / "statements"
    results = ("theorem", "lemma", "proposition", "corollary")
    named = {file for path in BUILT_PATHS for file in ROOT.glob(path)}
    for paper in coverage.PAPERS:
        for result in results:
            assert set(folder.glob(f"{paper}_{result}_*.py")) <= named


def test_the_page_is_the_rendering() -> None:
    page = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert page == coverage.render_markdown(), "run: python -m proofs_checks.coverage"


def test_every_row_is_on_the_page_once_below_its_paper() -> None:
    page = coverage.render_markdown()
    for paper, title in coverage.PAPERS.items():
        lines = page.split(f"\n## {title}\n")[1].split("\n## ")[0].splitlines()
        for entry in ENTRIES:
            count = sum(line.startswith(f"| {entry.id} | {entry.title} |") for line in lines)
            assert entry.paper != paper or count == 1, (paper, entry.id, count)


GOOD = {"title": "Recall by rank", "status": "built", "where": "refimpl/port.py"}


@pytest.mark.parametrize(
    ("paper", "kind", "change", "message"),
    [
        ("lock", "table", {}, "expected paper to be one of locks, readkv, got 'lock'"),
        ("locks", "tables", {}, "expected kind to be one of"),
        ("locks", "table", {"status": "done"}, "expected status to be one of built, planned, not possible, got 'done'"),
        ("locks", "table", {"where": "  "}, "expected a text in `where`, got '  '"),
        ("locks", "table", {"title": 5}, "expected a text in `title`, got 5"),
        ("locks", "table", {"note": ""}, "expected a text in `note`, got ''"),
        ("locks", "table", {"were": "x"}, "got were"),
        ("locks", "table", {"status": "planned", "where": "part 10"}, "expected `where` to name parts"),
    ],
)
def test_a_bad_row_is_refused_by_name(paper: str, kind: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(coverage.CoverageError) as error:
        coverage.parse({paper: {kind: {"Table 7": {**GOOD, **change}}}})
    assert f'{paper} {kind} "Table 7": ' in str(error.value)
    assert message in str(error.value)


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(coverage.CoverageError, match="expected a text in `where`, got None"):
        coverage.parse({"locks": {"table": {"Table 7": {"title": "Recall by rank", "status": "built"}}}})
