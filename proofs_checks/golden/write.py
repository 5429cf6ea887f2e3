"""`kvproof golden write`: evaluate every golden case in 50 digits and write the whole set, or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from proofs_checks.golden import manifest as manifests
from proofs_checks.golden.check import SUMS, inputs_of, load_case, load_manifest, read_sums
from proofs_checks.golden.collect import golden_cases
from proofs_checks.golden.flags import family_of, flags_of
from proofs_checks.golden.job import GoldenError
from proofs_checks.golden.make import make
from proofs_checks.golden.manifest import Entry, Manifest
from proofs_checks.golden.tensors import ContentError, digest, dump
from proofs_checks.judge.case import Case
from proofs_checks.judge.stages import STAGES

Progress = Callable[[str], None]


def stored_inputs(place: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The inputs of every case that lies under ``place``, by id, and the retired ids; nothing where no set is.

    An input that was stored once is data: it is read again, not drawn again, whatever NumPy draws today.
    """
    if not (place / manifests.NAME).is_file():
        return {}, []
    try:
        sums = read_sums((place / SUMS).read_bytes())
        manifest = load_manifest((place / manifests.NAME).read_bytes(), sums)
        found = {
            entry.id: inputs_of(entry, load_case((place / entry.file).read_bytes(), entry, sums))
            for entry in manifest.cases.values()
        }
    except (ContentError, OSError) as error:
        raise GoldenError(f"{place}: the stored inputs cannot be used: {error}") from None
    return found, manifest.retired


def content_of(case: Case, inputs: Mapping[str, Any]) -> tuple[bytes, Entry]:
    """One case's file and its entry in the manifest."""
    made = make(case, inputs)
    content, described = dump(made.tensors, made.true_dtypes)
    entry = Entry(
        id=case.id,
        stage=case.stage,
        family=family_of(case),
        kind=case.kind,
        source=STAGES[case.stage].source,
        why=case.why,
        flags=flags_of(case),
        file=f"{case.id}.safetensors",
        dtypes=list(made.dtypes),
        arguments=made.arguments,
        lists=made.lists,
        results=made.results,
        tensors=described,
    )
    return content, entry


def write(
    target: Path, source: Path | None = None, stages: Sequence[str] = (), progress: Progress | None = None
) -> int:
    """Write the golden set to ``target`` and return the number of cases; what was there is replaced at the end.

    ``source`` holds the set whose inputs are used again. A case that it has and that is no longer golden is retired.
    """
    inputs, retired = stored_inputs(source or target)
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".golden.", dir=target.parent))
    try:
        entries, sums = {}, {}
        for stage in stages or STAGES:
            if progress:
                progress(stage)
            for case in golden_cases(stage):
                (building / stage).mkdir(exist_ok=True)
                if case.id in retired:
                    raise GoldenError(f"{case.id}: a retired id is used again")
                content, entry = content_of(case, inputs.get(case.id) or case.inputs())
                (building / entry.file).write_bytes(content)
                entries[case.id], sums[entry.file] = entry, digest(content)
        manifest = Manifest(entries, sorted({*retired, *(set(inputs) - set(entries))}))
        text = manifests.canonical(manifests.as_json(manifest))
        (building / manifests.NAME).write_bytes(text)
        sums[manifests.NAME] = digest(text)
        (building / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), encoding="ascii")
        _replace(building, target)
    finally:
        if building.exists():
            shutil.rmtree(building)
    return len(entries)


def _replace(building: Path, target: Path) -> None:
    """Put the finished folder where the old one is; the old one goes last."""
    os.chmod(building, 0o755)
    old = target.with_name(f".{target.name}.old")
    if target.exists():
        os.replace(target, old)
    os.replace(building, target)
    if old.exists():
        shutil.rmtree(old)
