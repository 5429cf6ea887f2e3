"""`kvproof judge`: a session whose answers are files. Nothing in the folder is believed: calls are made anew."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from proofs_checks.judge.case import PROFILES, Case, within_profile
from proofs_checks.judge.declared import CONSTANTS, Declared, PortError
from proofs_checks.judge.dialects import DIALECTS, PAPER
from proofs_checks.judge.files import layout
from proofs_checks.judge.files.tensors import HEADER, FileError, load_tensors, read_plain
from proofs_checks.judge.judging import Prepared
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import FORMATS, bfloat16_from_bits

DECLARABLE = ("DTYPES", "ACCUMULATE", "OUTPUT", "TIES", "REPRODUCIBLE", "LAWS", "DIALECT")
WIDEST = 8
"""Bytes of the widest number that a program may write."""


class ResultError(FileError):
    """An answer that can be read and does not have the results of its stage: the port's fault, not the file's."""


@dataclass(frozen=True)
class Manifest:
    """What `kvproof cases` wrote."""

    profile: str
    stages: tuple[str, ...]
    dtypes: tuple[str, ...]
    dialect: str = PAPER


@dataclass(frozen=True)
class FileSession:
    """A folder of calls and answers."""

    spec: str
    folder: Path
    manifest: Manifest
    declared: Declared
    answers: dict[str, Any] = field(default_factory=dict)

    def takes(self, case: Case) -> bool:
        """Whether the folder holds the case."""
        profiles = within_profile(case, self.manifest.profile)
        return profiles and layout.in_files(case) and case.stage in self.manifest.stages

    def renew(self) -> bool:
        """Files remember nothing."""
        return False

    def call(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """Read one answer, after making sure that its inputs are still those of the case."""
        place = layout.folder_of(prepared.case, dtype, prepared.changed)
        try:
            folder = self._enter(place)
            if not os.path.lexists(folder / layout.OUTPUTS):
                return {"status": "not_provided", "message": f"no {place}/{layout.OUTPUTS}"}
            self._check_inputs(folder, prepared, dtype)
            return {"status": "ok", "results": _results(folder, prepared, dtype)}
        except ResultError as error:
            return {"status": "wrong", "message": f"{place}: {error}"}
        except FileError as error:
            return {"status": "error", "message": f"{place}: {error}", "suspect": "L"}

    def _enter(self, place: Any) -> Path:
        """The call's folder, every step of it a folder and no link."""
        folder = self.folder
        for part in place.parts:
            folder = folder / part
            if folder.is_symlink():
                raise FileError(f"{part} is a symbolic link, expected a folder")
            if not folder.is_dir():
                raise FileError(f"{part} is {'not a folder' if folder.exists() else 'missing'}")
        return folder

    def _check_inputs(self, folder: Path, prepared: Prepared, dtype: str) -> None:
        """Raise FileError where call or inputs are not those of the case, regenerated here."""
        files = layout.call_files(prepared, dtype)
        call = json.loads(json.dumps(files.call))
        try:
            described = read_json(folder / layout.CALL)
            given = load_tensors(folder / layout.INPUTS, _size(files.tensors.values()))
        except FileNotFoundError as error:
            raise FileError(f"{Path(error.filename).name} is missing") from None
        for key in sorted(set(call) | set(described)):
            if described.get(key) != call.get(key):
                want, got = (json.dumps(d.get(key))[:80] for d in (call, described))
                raise FileError(f"{layout.CALL}: {key} was changed: expected {want}, got {got}")
        for name in sorted(set(files.tensors) | set(given)):
            if name not in given or name not in files.tensors:
                raise FileError(f"{layout.INPUTS}: {name} is {'missing' if name not in given else 'no input'}")
            self._same(name, files.tensors[name], given[name], files.dtypes[name])

    def _same(self, name: str, want: Any, got: Any, dtype: str) -> None:
        if dtype == "bfloat16":
            want = (np.asarray(want).view(np.uint32) >> 16).astype(np.uint16)
        if want.dtype != got.dtype or want.shape != got.shape or want.tobytes() != got.tobytes():
            why = "changed, or written by another version of kvproof or NumPy; write the cases anew"
            raise FileError(f"{layout.INPUTS}: {name} is not the case's: {why}")


def _size(arrays: Any) -> int:
    return sum(np.asarray(a).nbytes for a in arrays)


def _results(folder: Path, prepared: Prepared, dtype: str) -> dict[str, Any]:
    """The answer's arrays, lists put together. Raises FileError for what is missing, strange or byte-swapped."""
    expected = layout.results_of(prepared, dtype)
    most = sum(WIDEST * int(np.prod(r["shape"])) for r in expected.values()) + HEADER
    found = load_tensors(folder / layout.OUTPUTS, most)
    for name in found:
        if name not in expected:
            raise ResultError(f"{layout.OUTPUTS}: no result is called {name[:80]!r}; expected {', '.join(expected)}")
    results: dict[str, Any] = {}
    for name, described in expected.items():
        if name not in found:
            raise ResultError(f"{layout.OUTPUTS}: {name} is missing; expected {', '.join(expected)}")
        bits = described["role"] in ("output", "float") and found[name].dtype == np.uint16
        results[name] = bfloat16_from_bits(found[name]) if bits else found[name]
    for name in prepared.stage.results:
        reference = prepared.reference[name]
        several = isinstance(reference, (list, tuple))
        value = [results.pop(f"{name}_{i}") for i in range(len(reference))] if several else results.pop(name)
        for got, want in zip(value, reference, strict=True) if several else [(value, reference)]:
            if byte_swapped(got, want):
                raise FileError(f"{layout.OUTPUTS}: {name}: its bytes are swapped; safetensors is little-endian")
        results[name] = value
    return results


def byte_swapped(answer: Any, reference: Any) -> bool:
    """Whether an answer is far off as it stands and near the reference once its bytes are swapped.

    Far is an error of the reference's own size or more, near one below half of it: a right answer is never far.

    >>> byte_swapped(np.array([1.5, 2.5]).byteswap(), np.array([1.5, 2.5]))
    True
    """
    want = np.asarray(reference, dtype=np.float64)
    if answer.shape != want.shape or answer.dtype.itemsize == 1 or answer.size == 0:
        return False
    finite = np.isfinite(want)
    with np.errstate(all="ignore"):
        errors = [
            np.nan_to_num(np.abs(values.astype(np.float64) - want)[finite], nan=np.inf).max(initial=0.0)
            for values in (answer, answer.byteswap())
        ]
    size = np.abs(want[finite]).max(initial=0.0)
    return bool(errors[0] >= size and errors[1] < size / 2)


def read_json(path: Path, most: int = 1 << 20) -> dict[str, Any]:
    """A JSON object. Raises FileError where the file is none, FileNotFoundError where there is no file."""
    try:
        value = json.loads(read_plain(path, most))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path.name}: not JSON: {type(error).__name__}: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise FileError(f"{path.name}: expected a JSON object, got {type(value).__name__}")
    return value


def strangers(session: FileSession) -> list[str]:
    """A line for every entry of the stages' folders that belongs to no case; such entries are never opened."""
    manifest = session.manifest
    chosen = layout.chosen_cases(manifest.stages, manifest.profile, manifest.dtypes, manifest.dialect)
    known = {
        layout.folder_of(case, dtype, part) for case, dtype in chosen for part in (False, case.relation is not None)
    }
    lines = []
    for stage in manifest.stages:
        place = session.folder / stage
        for entry in sorted(place.iterdir()) if place.is_dir() and not place.is_symlink() else []:
            if PurePosixPath(stage, entry.name) not in known:
                lines.append(f"{stage}/{entry.name!r} belongs to no case and was not opened")
    return lines


@contextmanager
def file_session(directory: str) -> Iterator[FileSession]:
    """Open a folder that `kvproof cases` wrote. Raises PortError where it cannot be used."""
    folder = Path(directory)
    try:
        manifest = _manifest(folder)
        constants = _constants(folder, manifest)
    except FileError as error:
        raise PortError(f"{directory}: {error}") from None
    answered = _answered(folder, manifest)
    if not answered:
        raise PortError(f"{directory}: no call has an {layout.OUTPUTS} beside it yet; the program writes them")
    declared = Declared.read({"constants": constants, "functions": answered})
    if declared.dialect != manifest.dialect:
        raise PortError(
            f"{directory}: port.json: DIALECT is {declared.dialect}, but the cases were written for "
            f"{manifest.dialect}; see kvproof cases --dialect"
        )
    left_out = [d for d in declared.dtypes if d not in manifest.dtypes]
    if left_out:
        raise PortError(
            f"{directory}: port.json: DTYPES has {left_out[0]}, but the cases were written in "
            f"{', '.join(manifest.dtypes)}; see kvproof cases --dtypes"
        )
    yield FileSession(directory, folder, manifest, declared)


def _manifest(folder: Path) -> Manifest:
    try:
        value = read_json(folder / layout.MANIFEST)
    except FileNotFoundError:
        raise FileError(f"no {layout.MANIFEST}: no folder of cases; write one with kvproof cases DIR") from None
    if value.get("format") != layout.FORMAT:
        raise FileError(f"{layout.MANIFEST}: format: expected {layout.FORMAT}, got {value.get('format')!r}")
    lists = {key: value.get(key) for key in ("stages", "dtypes")}
    for key, known in (("stages", tuple(STAGES)), ("dtypes", tuple(FORMATS))):
        entries = lists[key]
        if not isinstance(entries, list) or not entries or not all(isinstance(e, str) and e in known for e in entries):
            raise FileError(f"{layout.MANIFEST}: {key}: expected known {key}, got {str(entries)[:80]}")
    if value.get("profile") not in PROFILES:
        raise FileError(f"{layout.MANIFEST}: profile: expected one of {', '.join(PROFILES)}")
    if value.get("dialect", PAPER) not in DIALECTS:
        raise FileError(f"{layout.MANIFEST}: dialect: expected one of {', '.join(DIALECTS)}")
    chosen = (value["profile"], tuple(value["stages"]), tuple(value["dtypes"]))
    return Manifest(*chosen, value.get("dialect", PAPER))


def _constants(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """The constants that port.json declares, over the defaults."""
    try:
        given = read_json(folder / layout.PORT)
    except FileNotFoundError:
        given = {}
    for key in given:
        if key not in DECLARABLE:
            raise FileError(f"{layout.PORT}: expected some of {', '.join(DECLARABLE)}, got {key[:40]!r}")
    constants = {**CONSTANTS, "DTYPES": list(manifest.dtypes), "DIALECT": manifest.dialect, **given}
    for key in ("DTYPES", "LAWS"):
        constants[key] = constants[key] if isinstance(constants[key], list) else [constants[key]]
    return constants


def _answered(folder: Path, manifest: Manifest) -> list[str]:
    """The stages of which some call has an answer, or something in its place."""
    found = []
    for stage in manifest.stages:
        place = folder / stage
        entries = sorted(place.iterdir()) if place.is_dir() else []
        if place.is_symlink() or any(os.path.lexists(entry / layout.OUTPUTS) for entry in entries):
            found.append(stage)
    return found
