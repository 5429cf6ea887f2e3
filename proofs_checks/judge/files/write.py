"""`kvproof cases`: write the calls of the suite as files, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from proofs_checks.judge.case import Case
from proofs_checks.judge.dialects import PAPER
from proofs_checks.judge.files.layout import (
    CALL,
    FORMAT,
    INPUTS,
    MANIFEST,
    call_files,
    calls_of,
    chosen_cases,
    folder_of,
)
from proofs_checks.judge.files.tensors import save_tensors
from proofs_checks.version import version
from proofs_checks.writing import dump_json


class FolderError(Exception):
    """The folder cannot be written or is none of ours (exit code 2)."""


def write_cases(
    directory: str | Path,
    stages: Sequence[str],
    profile: str,
    dtypes: Sequence[str],
    progress: Callable[[str], None] | None = None,
    dialect: str = PAPER,
) -> int:
    """Write every case of ``stages`` in a profile, in each of ``dtypes`` that it can have; returns the calls written.

    The cases and the shapes of their results are those of ``dialect``.

    Raises FolderError where ``directory`` exists and holds anything, or cannot be written.
    """
    target = Path(directory)
    _refuse(target)
    building = None
    try:
        building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
        count, done = 0, ""
        for case, dtype in chosen_cases(stages, profile, dtypes, dialect):
            if progress and case.stage != done:
                progress(case.stage)
            done = case.stage
            count += _write_calls(building, case, dtype, dialect)
        chosen = {
            "dialect": dialect,
            "profile": profile,
            "stages": list(stages),
            "dtypes": list(dtypes),
            "calls": count,
        }
        (building / MANIFEST).write_text(dump_json({"format": FORMAT, "kvproof": version(), **chosen}))
        os.chmod(building, 0o755)
        os.replace(building, target)
    except OSError as error:
        raise FolderError(f"cannot write {target}: {error.strerror}") from None
    finally:
        if building is not None and building.exists():
            shutil.rmtree(building)
    return count


def _refuse(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise FolderError(f"{target} is no folder; name one that does not exist yet")
    if target.is_dir() and any(target.iterdir()):
        raise FolderError(f"{target} is not empty; name a folder that does not exist yet")
    if not target.absolute().parent.is_dir():
        raise FolderError(f"no folder {target.parent}; create it first")


def _write_calls(building: Path, case: Case, dtype: str, dialect: str) -> int:
    calls = calls_of(case, dtype, dialect)
    for prepared in calls:
        folder = building / folder_of(case, dtype, prepared.changed)
        folder.mkdir(parents=True)
        files = call_files(prepared, dtype)
        save_tensors(folder / INPUTS, files.tensors, files.dtypes)
        (folder / CALL).write_text(dump_json(files.call))
    return len(calls)
