"""Adapters: files that put the stages' names on a public package's functions, and say which package that is.

An adapter is a port like any other, with these constants of its own at the top, read here without importing it:
PACKAGE and VERSION, what is installed; MODULES, what must be importable; DRIVES, which of its functions are called; and
where they are needed INSTALL (options of the installer), REQUIRES (what it needs besides what it asks for) and
ALSO_WITH (lists of requirements to judge it with once more, such as an older NumPy).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs_checks.fixtures import checkout_directory
from proofs_checks.judge.declared import PortError

NEEDED = ("PACKAGE", "VERSION", "MODULES", "DRIVES")
SEVERAL = ("MODULES", "INSTALL", "REQUIRES")
WORDS = (*NEEDED, "INSTALL", "REQUIRES", "ALSO_WITH")


@dataclass(frozen=True)
class Adapter:
    """One adapter file."""

    path: Path
    package: str
    """Name in the package index."""
    version: str
    modules: tuple[str, ...]
    """Imported first: a package that cannot be imported does not run, whatever its functions do."""
    drives: str
    install: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    also_with: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem.removesuffix("_port")


def read_adapter(path: Path) -> Adapter:
    """The constants of one adapter, from its text. Raises PortError that names what is missing or of a wrong form.

    >>> from proofs_checks.fixtures import checkout_directory
    >>> read_adapter(checkout_directory("examples") / "ports" / "public" / "turboquant_pro_port.py").package
    'turboquant-pro'
    """
    given = constants(path)
    for word in NEEDED:
        if word not in given:
            raise PortError(f"{path.name}: expected a constant {word} at the top, got none")
    for word in ("PACKAGE", "VERSION", "DRIVES"):
        if not isinstance(given[word], str) or not given[word].strip():
            raise PortError(f"{path.name}: {word}: expected a text, got {given[word]!r}")
    for word in SEVERAL:
        given[word] = _texts(path, word, given.get(word, ()))
    also = given.get("ALSO_WITH", ())
    if not isinstance(also, (tuple, list)):
        raise PortError(f"{path.name}: ALSO_WITH: expected a tuple of tuples of texts, got {also!r}")
    return Adapter(
        path,
        given["PACKAGE"],
        given["VERSION"],
        given["MODULES"],
        " ".join(given["DRIVES"].split()),
        given["INSTALL"],
        given["REQUIRES"],
        tuple(_texts(path, "ALSO_WITH", one) for one in also),
    )


def _texts(path: Path, word: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (tuple, list)) or not all(isinstance(one, str) for one in value):
        raise PortError(f"{path.name}: {word}: expected a tuple of texts, got {value!r}")
    return tuple(value)


def constants(path: Path) -> dict[str, Any]:
    """The adapter's own constants in a file, unimported; PortError for a file that is no Python or a computed one."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise PortError(f"{path}: expected a Python file: {error}") from None
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in WORDS:
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                raise PortError(f"{path.name}: {node.targets[0].id}: expected a literal") from None
    return found


def adapters(package: str | None = None) -> list[Adapter]:
    """All adapters of the checkout by name, or those of one package. Raises PortError where there are none.

    Files under examples/ports that do not name a package are ports, not adapters.
    """
    folder = checkout_directory("examples") / "ports"
    files = sorted([*folder.glob("*.py"), *(folder / "public").glob("*.py")], key=lambda path: path.name)
    every = [read_adapter(path) for path in files if "PACKAGE" in constants(path)]
    chosen = [one for one in every if package is None or package in (one.package, one.name)]
    if not chosen:
        known = ", ".join(dict.fromkeys(one.package for one in every))
        raise PortError(f"--package: expected one of {known}, got {package!r}")
    return chosen
