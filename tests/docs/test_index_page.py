"""docs/index.md leads to every page and every command; no link of any page is dead."""

import re
from pathlib import Path

import pytest

from proofs_checks.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchor(heading):
    """The fragment of a heading: lower case, spaces as hyphens, no other punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_index_links_every_page():
    linked = {target.partition("#")[0] for target in LINK.findall(INDEX)}
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked


def test_the_readme_links_the_index():
    assert "docs/index.md" in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_index_names_every_command():
    table = INDEX[INDEX.index("## Commands") :]
    words = {word for code in re.findall(r"`([^`]+)`", table) for word in code.split()}
    assert set(VERBS) <= words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if fragment:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in {anchor(heading) for heading in headings}, link
