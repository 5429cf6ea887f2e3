"""`kvproof golden check`: every file is what it was, every field makes sense, and the reference lies within."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proofs_checks.fixtures import FixtureError, fixtures_directory
from proofs_checks.golden import manifest as manifests
from proofs_checks.golden.judging import faults
from proofs_checks.golden.manifest import Entry, Manifest, ManifestError
from proofs_checks.golden.storable import storable
from proofs_checks.golden.tensors import ContentError, digest, load, parse
from proofs_checks.judge.stages import STAGES

SUMS = "SHA256SUMS"
MOST = 24 << 20
"""Bytes of everything under fixtures/."""

Sums = Mapping[str, str]


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong with the golden files."""

    file: str
    case: str | None
    message: str


def golden_directory() -> Path:
    """Where the golden files lie. Raises FixtureError where there are none."""
    place = fixtures_directory() / "golden"
    if not (place / manifests.NAME).is_file():
        raise FixtureError(f"{place}: no {manifests.NAME}; reinstall kvproof or use a full checkout")
    return place


def read_sums(content: bytes) -> dict[str, str]:
    """Digest of every file, as `sha256sum` writes them. Raises ContentError."""
    sums = {}
    *lines, last = content.decode("utf-8", "replace").split("\n")  # splitlines would take other bytes for line ends
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        found, gap, name = line[:64], line[64:66], line[66:]
        if not manifests.HEX.fullmatch(found) or gap != "  " or not name or name in sums:
            raise ContentError(f"line {number}: expected a SHA-256, two spaces and a new name, got {line[:80]!r}")
        sums[name] = found
    if last:
        raise ContentError(f"line {len(sums)}: expected a line feed at its end")
    return sums


def load_case(content: bytes, entry: Entry, sums: Sums) -> dict[str, Any]:
    """The tensors of one case's file. Raises ContentError unless each byte is the one that was written."""
    entries = parse(content)
    for name in sorted(set(entries) ^ set(entry.tensors)):
        raise ContentError(f"{name}: {'not in the manifest' if name in entries else 'missing'}", name)
    tensors = {name: load(entries[name], about, name) for name, about in entry.tensors.items()}
    if sums.get(entry.file) != digest(content):
        raise ContentError(f"its bytes are not those of {SUMS}")
    return tensors


def load_manifest(content: bytes, sums: Sums) -> Manifest:
    """The manifest. Raises ManifestError unless it is the one that was written."""
    manifest = manifests.read(content, {name.removesuffix(".safetensors") for name in sums})
    if sums.get(manifests.NAME) != digest(content):
        raise ManifestError(f"its bytes are not those of {SUMS}")
    return manifest


def inputs_of(entry: Entry, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """A case's call: its scalars, its tensors, and lists put together."""
    given = {n.removeprefix("inputs/"): t for n, t in tensors.items() if n.startswith("inputs/")}
    for name, count in entry.lists.items():
        given[name] = [given.pop(f"{name}_{i}") for i in range(count)]
    return {**entry.arguments, **given}


def flat(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results with lists taken apart: name_0, name_1, ..."""
    arrays: dict[str, Any] = {}
    for name, value in results.items():
        several = isinstance(value, (list, tuple))
        arrays |= {f"{name}_{i}": np.asarray(v) for i, v in enumerate(value)} if several else {name: np.asarray(value)}
    return arrays


def reference_faults(entry: Entry, tensors: Mapping[str, Any]) -> list[str]:
    """What the float64 reference gets wrong by the stored bounds: nothing, unless file or reference is wrong."""
    stage = STAGES[entry.stage]
    answer = flat(stage.named(stage.reference(**stage.exact_inputs(inputs_of(entry, tensors)))))
    roles = {"int8": np.int8, "uint8": np.uint8}
    for name, about in entry.results.items():
        if about["role"] in roles and np.array_equal(answer[name], answer[name].astype(roles[about["role"]])):
            answer[name] = answer[name].astype(roles[about["role"]])
    return [f"the reference: {text}" for dtype in entry.dtypes[:1] for text in faults(entry, tensors, answer, dtype)]


def check(place: Path, only: Sequence[str] | None = None) -> tuple[int, list[Failure]]:
    """Check the set under ``place``, or some stages of it; how many cases were checked, and what is wrong."""
    try:
        sums = read_sums(_read(place, SUMS))
    except ContentError as error:
        return 0, [Failure(SUMS, None, str(error))]
    try:
        manifest = load_manifest(_read(place, manifests.NAME), sums)
    except ContentError as error:
        return 0, [Failure(manifests.NAME, getattr(error, "case", None), str(error))]
    entries = [e for e in manifest.cases.values() if only is None or e.stage in only]
    found = list(lint(place, manifest, sums))
    for entry in entries:
        found += check_case(place, entry, sums)
    return len(entries), found


def check_case(place: Path, entry: Entry, sums: Sums) -> list[Failure]:
    """What is wrong with one case's file."""
    try:
        tensors = load_case(_read(place, entry.file), entry, sums)
        messages = reference_faults(entry, tensors)
    except ContentError as error:
        messages = [str(error)]
    return [Failure(entry.file, entry.id, message) for message in messages]


def _read(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except OSError as error:
        raise ContentError(f"cannot be read: {error.strerror}") from None


def lint(place: Path, manifest: Manifest, sums: Sums) -> Iterator[Failure]:
    """Stages without a family, strange or missing files, files of no case, and a set that has grown too large."""
    for stage in STAGES:
        if storable(stage) and not any(entry.stage == stage for entry in manifest.cases.values()):
            yield Failure(manifests.NAME, None, f"stage {stage} has no case")
    known = {manifests.NAME, *(entry.file for entry in manifest.cases.values())}
    present = {p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()} - {SUMS}
    for name in sorted(known ^ set(sums)):
        yield Failure(SUMS, None, f"{name}: {'has no digest' if name in known else 'belongs to no case'}")
    for name in sorted(present - known):
        yield Failure(name, None, "belongs to no case")
    size = sum(p.stat().st_size for p in place.parent.rglob("*") if p.is_file())
    if size > MOST:
        yield Failure(".", None, f"{size} bytes under {place.parent.name}/, at most {MOST}")
