"""docs/ambiguities.md decides every id, and every id that the code cites is decided there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ambiguities.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| AMB-")]
VERDICTS = ("fails", "free", "departure", "-")


def test_ids_ascend_and_none_is_used_twice() -> None:
    numbers = [int(row[0].removeprefix("AMB-")) for row in ROWS]
    assert numbers == sorted(set(numbers))
    assert numbers[:34] == list(range(1, 35))
    assert len(ROWS) >= 32


def test_every_row_asks_decides_and_says_what_happens_to_a_port() -> None:
    for row in ROWS:
        assert len(row) == 4, row[0]
        _, question, decision, verdict = row
        assert question.endswith("?"), row[0]
        assert decision, row[0]
        assert re.match(r"\w+|-", verdict)[0] in VERDICTS, row[0]


def test_every_id_cited_elsewhere_is_decided_here() -> None:
    decided = {row[0] for row in ROWS}
    folders = ("refimpl", "fastimpl", "proofs_checks", "examples", "docs")
    files = [path for folder in folders for kind in ("*.py", "*.md", "*.toml") for path in (ROOT / folder).rglob(kind)]
    cited = {
        (name, path.name)
        for path in files
        if path.name != "ambiguities.md"
        for name in re.findall(r"AMB-\d+", path.read_text(encoding="utf-8"))
    }
    assert cited, "the search found no citation: it looks in the wrong place"
    assert {(name, file) for name, file in cited if name not in decided} == set()
