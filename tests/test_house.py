"""The house is easy to read: no long file or function without a reason, and no import goes in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("refimpl", "fastimpl", "proofs_checks")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FILE, FUNCTION, KERNEL = 300, 40, 80
LONG: dict[str, str] = {}
"""Files and functions over the limit, each with its reason."""


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_level_imports(path):
    """Names of our modules that importing this one imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def functions(path):
    """Every function: its name, its lines without the docstring, whether it is a kernel."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            said = ast.get_docstring(node, clean=False)
            lines = node.end_lineno - node.lineno + 1 - (len(said.splitlines()) if said else 0)
            kernel = any("jit" in ast.unparse(d) for d in node.decorator_list)
            yield node.name, lines, kernel


def test_no_import_goes_in_a_circle():
    names = {name_of(path) for path in MODULES}
    graph = {name_of(path): set(top_level_imports(path)) & names - {name_of(path)} for path in MODULES}
    assert len(tuple(TopologicalSorter(graph).static_order())) == len(names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_and_functions_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE or name_of(path) in LONG, lines
    for name, length, kernel in functions(path):
        assert length <= (KERNEL if kernel else FUNCTION) or f"{name_of(path)}.{name}" in LONG, (name, length)
