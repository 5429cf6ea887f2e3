"""The pages for new users do as they say: every code block is written, run, and compared."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from proofs_checks.cli import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"# exit (\d)\b")
PLUGIN = (
    ()
    if any(p.name == "kvproof" for p in entry_points(group="pytest11"))
    else ("-p", "proofs_checks.judge.pytest_plugin")
)
PYTHON = {
    "pytest": ("-m", "pytest", *PLUGIN, "-p", "no:cacheprovider"),
    "python3": (),
}
INSTALL = ("python3 -m pip install", "python3 -m tox run", "pre-commit install")
"""What needs a network or changes the checkout, or is the run that this test belongs to."""
PAGES = {
    "README.md": {"kvproof", "pytest"},
    "CONTRIBUTING.md": set(),
    "docs/verify-your-port.md": {"kvproof", "pytest"},
    "docs/adding.md": {"kvproof"},
    "docs/microscope.md": {"kvproof"},
    "docs/golden-files.md": {"kvproof", "python3"},
}
"""Pages with blocks, and the programs that carrying them out must have run."""
RECIPES = {"docs/capture-format.md", "docs/public-adapters.md"}
"""Pages whose block has a test of its own."""

COMPILER, C_COMPILER = shutil.which("g++"), shutil.which("gcc")


class Page:
    """One page's blocks, carried out in order in one folder."""

    def __init__(self, folder):
        self.folder, self.said, self.ran = folder, "", []
        (folder / "examples").symlink_to(ROOT / "examples")

    def do(self, language, text):
        """Carry out one block."""
        if language in ("python", "toml", "c"):
            first = text.splitlines()[0]
            name = re.fullmatch(r"(?:#|//) ([\w.-]+)", first)
            assert name, f"a file's first line is its name in a comment, got {first!r}"
            (self.folder / name[1]).write_text(text)
        elif language == "console":
            lines = text.splitlines()
            assert all(line.startswith("$ ") for line in lines), text
            for line in lines:
                self.run(line[2:])
        elif language == "text":
            for line in text.splitlines():
                assert line in self.said, f"no command so far has said {line!r}"
        else:
            pytest.fail(f"a block in {language!r} that nothing carries out: {text[:60]!r}")

    def run(self, line):
        """Run one command and compare its exit code with the one that the page promises."""
        if line.startswith(INSTALL):
            return
        words = shlex.split(line, comments=True)
        if COMPILER is None and (words[0] in ("g++", "./port", "./judge") or words == ["kvproof", "judge", "cases"]):
            return
        if C_COMPILER is None and (words[0] == "gcc" or any(word.endswith(".so") for word in words)):
            return
        code, said = self.kvproof(words[1:]) if words[0] == "kvproof" else self.program(words)
        promised = EXIT.search(line)
        assert code == (int(promised[1]) if promised else 0), (line, said)
        self.said += said
        self.ran.append(words[0])

    def kvproof(self, words):
        """The command in this process, which is quicker; its port still has one of its own."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.chdir(self.folder):
            return main(words), said.getvalue()

    def program(self, words):
        """Any other command."""
        command = [sys.executable, *PYTHON[words[0]], *words[1:]] if words[0] in PYTHON else words
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def test_no_page_with_blocks_is_left_out():
    pages = {path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
    assert {page for page in pages if "```" in (ROOT / page).read_text()} == PAGES.keys() | RECIPES


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_does_as_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert (ROOT / page).read_text().count("```") == 2 * len(blocks)
    carried = Page(tmp_path)
    for language, text in blocks:
        carried.do(language, text)
    assert PAGES[page] <= set(carried.ran)
