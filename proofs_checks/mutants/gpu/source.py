"""Writes a copy of `fastimpl`, edited or not, with a port file beside it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from proofs_checks.mutants.gpu.registry import KernelMutant

PORT = """\
from fastimpl.{module} import *
from fastimpl.{module} import ACCUMULATE, DTYPES, FRAMEWORK, TIES
"""
"""The port's file: its own folder comes first on the path, so that it finds the copy."""


class StaleEditError(ValueError):
    """The text that a mutant edits is not in its file, or is there more than once."""


def package_folder() -> Path:
    """Where `fastimpl` lies; it is not imported."""
    found = importlib.util.find_spec("fastimpl")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations)))


def edited(mutant: KernelMutant, text: str) -> str:
    """``text`` of the mutant's file with its edit. Raises StaleEditError unless the edited text stands there once."""
    count = text.count(mutant.old)
    if count != 1:
        raise StaleEditError(
            f"{mutant.id}: expected {mutant.old!r} once in fastimpl/{mutant.file}, found {count} times"
        )
    return text.replace(mutant.old, mutant.new)


def write_port(folder: Path, mutant: KernelMutant | None, module: str = "port") -> Path:
    """Copy `fastimpl` into ``folder``, make the edit (None: none), and return the path of the port's file."""
    copy = folder / "fastimpl"
    shutil.copytree(package_folder(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        file = copy / mutant.file
        file.write_text(edited(mutant, file.read_text()))
        module = mutant.port
    port = folder / "kernels.py"
    port.write_text(PORT.format(module=module))
    return port
