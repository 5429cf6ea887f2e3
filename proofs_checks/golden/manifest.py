"""manifest.json: every golden case, in canonical JSON (RFC 8785); what is read is checked field by field.

The JSON Schema beside it says the same to programs in other languages; checking needs no schema library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from proofs_checks.golden.flags import FAMILIES, FLAGS
from proofs_checks.golden.tensors import ContentError
from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.files.tensors import STORED
from proofs_checks.judge.stages import STAGES

FORMAT = 1
NAME = "manifest.json"
DTYPES = ("float32", "bfloat16", "float16")
"""The input dtypes of the ports that bounds are stored for; they accumulate in float32 and write what they read."""

RULES = ("equal", "within", "within-factor", "between", "pages", "summary", "fit")
ROLES = ("output", "float", "int8", "uint8", "index")
HEX = re.compile(r"[0-9a-f]{64}")
ID = re.compile(r"[a-z0-9_]+/[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Entry:
    """One case. ``digest`` is that of the entry itself without this field, so that a changed entry is found."""

    id: str
    stage: str
    family: str
    kind: str
    source: str
    why: str
    flags: list[str]
    file: str
    dtypes: list[str]
    arguments: dict[str, Any]
    lists: dict[str, int]
    results: dict[str, dict[str, Any]]
    tensors: dict[str, dict[str, Any]]
    digest: str = ""

    def sealed(self) -> dict[str, Any]:
        """The entry as JSON, with its digest."""
        plain = {name: value for name, value in asdict(self).items() if name != "digest"}
        return {**plain, "digest": entry_digest(plain)}


@dataclass(frozen=True)
class Manifest:
    """All cases, and the ids of cases that were taken out and must not come back."""

    cases: dict[str, Entry]
    retired: list[str]


def canonical(value: Any) -> bytes:
    """Canonical JSON of objects with ASCII keys, text, whole numbers and short decimals that are not whole.

    For these, sorted keys and no spaces are all that RFC 8785 asks for; a test compares with an implementation of it.

    >>> canonical({"b": [1, True], "a": None})
    b'{"a":null,"b":[1,true]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def entry_digest(plain: Mapping[str, Any]) -> str:
    """SHA-256 of an entry without its digest, in canonical JSON."""
    return hashlib.sha256(canonical(plain)).hexdigest()


def described_flags() -> dict[str, Any]:
    """The flags as the manifest holds them."""
    return {
        name: {
            "class": flag.bug_class,
            "bug": CLASSES[flag.bug_class],
            "sentence": flag.sentence,
            "effect": flag.effect,
        }
        for name, flag in FLAGS.items()
    }


def as_json(manifest: Manifest) -> dict[str, Any]:
    """The whole manifest."""
    return {
        "format": FORMAT,
        "flags": described_flags(),
        "retired": sorted(manifest.retired),
        "cases": [manifest.cases[key].sealed() for key in sorted(manifest.cases)],
    }


class ManifestError(ContentError):
    """The manifest cannot be used; ``case`` is the id of the case in whose entry the fault lies, where it is in one."""

    def __init__(self, message: str, case: str | None = None) -> None:
        super().__init__(message)
        self.case = case


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ManifestError("a key stands twice in one object")
    return found


def read(content: bytes, known: Collection[str] = ()) -> Manifest:
    """Parse and check a manifest. Raises ManifestError that names the case, one of ``known`` ids where these are given.

    Its fields are looked at one by one, whatever `SHA256SUMS` says of the whole file.
    """
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        why = str(error).splitlines()[0][:100]
        raise ManifestError(f"not canonical JSON: {why}", _broken_entry(text, known)) from None
    fields = {"format", "flags", "retired", "cases"}
    if not isinstance(value, dict) or set(value) != fields or not isinstance(value["cases"], list):
        raise ManifestError(f"expected an object of {', '.join(sorted(fields))}")
    if value["format"] != FORMAT:
        raise ManifestError(f"format: expected {FORMAT}, got {value['format']!r}")
    cases: dict[str, Entry] = {}
    for given in value["cases"]:
        entry = _entry(given, known)
        if entry.id in cases:
            raise ManifestError("the id stands twice", entry.id)
        cases[entry.id] = entry
    if value["flags"] != described_flags():
        raise ManifestError("flags: not those of this version")
    retired = value["retired"]
    if not isinstance(retired, list) or not all(isinstance(r, str) for r in retired):
        raise ManifestError("retired: expected a list of ids")
    if set(retired) & set(cases):
        raise ManifestError("a retired id is used again", min(set(retired) & set(cases)))
    if content != canonical(value):
        raise ManifestError("not in canonical form", _broken_entry(text, known))
    return Manifest(cases, retired)


def _broken_entry(text: str, known: Collection[str]) -> str | None:
    """The id of the first entry that is not what it was, found by the text of a canonical manifest alone."""
    body = text.partition('{"cases":[')[2].rpartition('],"flags":')[0]
    for part in re.split(r'(?<=\}),(?=\{"arguments":)', body):
        at = 0
        try:
            entry, at = json.JSONDecoder().raw_decode(part)
            _entry(entry, known)
            if at == len(part):
                continue
        except (ValueError, RecursionError):
            at = 0
        # what follows a whole entry is one whose first letters are broken, so that the two were not told apart
        fields = dict(re.findall(r'"(id|file)":"([^"]*)"', part[at:])[:2])
        return _named(fields, known)
    return None


def _named(given: Mapping[str, Any], known: Collection[str]) -> str | None:
    """The id that an entry means: its own, or that of its file where its own is no known one."""
    ids = [str(given[name]).removesuffix(".safetensors") for name in ("id", "file") if name in given]
    return next((i for i in ids if i in known), ids[0] if ids else None)


def _entry(given: Any, known: Collection[str]) -> Entry:
    if not isinstance(given, dict):
        raise ManifestError("cases: expected objects")
    case, names = _named(given, known), set(Entry.__dataclass_fields__)
    if set(given) != names:
        wrong = sorted(set(given) ^ names)[0]
        raise ManifestError(f"{wrong}: {'missing' if wrong in names else 'no such field'}", case)
    if given["digest"] != entry_digest({name: value for name, value in given.items() if name != "digest"}):
        raise ManifestError("the entry was changed: its digest is another", case)
    problem = _problem(given)
    if problem:
        raise ManifestError(problem, case)
    return Entry(**given)


def _problem(given: Mapping[str, Any]) -> str | None:
    """The first field of an entry that is not what it should be."""
    texts = ("id", "stage", "family", "kind", "source", "why", "file")
    maps = ("arguments", "lists", "results", "tensors")
    for name in texts:
        if not isinstance(given[name], str):
            return f"{name}: expected text"
    for name in maps:
        if not isinstance(given[name], dict):
            return f"{name}: expected an object"
    if not ID.fullmatch(given["id"]) or given["id"].partition("/")[0] != given["stage"]:
        return f"id: expected STAGE/NAME of the stage {given['stage']}"
    known = {"stage": tuple(STAGES), "family": FAMILIES, "kind": ("exact", "bounded", "set")}
    for name, words in known.items():
        if given[name] not in words:
            return f"{name}: {given[name]!r} is not known"
    if given["file"] != f"{given['id']}.safetensors":
        return f"file: expected {given['id']}.safetensors"
    for name, words in {"flags": tuple(FLAGS), "dtypes": DTYPES}.items():
        if not isinstance(given[name], list) or not given[name] or not all(v in words for v in given[name]):
            return f"{name}: expected some of {', '.join(words)}"
    return _results_problem(given) or _tensors_problem(given["tensors"])


def _results_problem(given: Mapping[str, Any]) -> str | None:
    for name, result in given["results"].items():
        if not isinstance(result, dict) or set(result) != {"role", "rule", "shape"}:
            return f"results: {name}: expected role, rule and shape"
        if result["role"] not in ROLES or result["rule"] not in RULES or not _is_shape(result["shape"]):
            return f"results: {name}: unknown role or rule, or no shape"
        for kind in needed(name, result["rule"], given["dtypes"], given["tensors"]):
            if kind not in given["tensors"]:
                return f"tensors: {kind} is missing, which {name} is judged by"
    return None if given["results"] else "results: expected at least one"


def _tensors_problem(tensors: Mapping[str, Any]) -> str | None:
    for name, about in tensors.items():
        if not isinstance(about, dict) or set(about) != {"dtype", "stored", "shape", "sha256"}:
            return f"tensors: {name}: expected dtype, stored, shape and sha256"
        if STORED.get(about["dtype"]) != about["stored"]:
            return f"tensors: {name}: {about['dtype']!r} is not stored as {about['stored']!r}"
        if not _is_shape(about["shape"]) or not HEX.fullmatch(str(about["sha256"])):
            return f"tensors: {name}: no shape, or no SHA-256"
    return None


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)


def bound_name(result: str, dtype: str, tensors: Mapping[str, Any]) -> str:
    """The tensor of a result's bounds for ports of ``dtype``: one for all dtypes, or one each."""
    shared = f"bound/{result}"
    return shared if shared in tensors else f"{shared}/{dtype}"


def needed(result: str, rule: str, dtypes: list[str], tensors: Mapping[str, Any]) -> list[str]:
    """The tensors that a rule reads."""
    if rule in ("within", "within-factor"):
        return [f"expected/{result}", *(bound_name(result, dtype, tensors) for dtype in dtypes)]
    kinds = {
        "equal": ["expected"],
        "between": ["low", "high"],
        "pages": ["must", "may", "count"],
        "summary": ["projector", "projector_bound", "reconstruction", "reconstruction_bound", "band"],
        "fit": ["target", "limit"],
    }
    first = {"summary": "basis", "fit": "left"}.get(rule, result)  # several results are judged together
    return [f"{kind}/{first}" for kind in kinds[rule]]
