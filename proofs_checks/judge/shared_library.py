"""Shared libraries as ports: every exported ``kvproof_<stage>`` becomes a function that takes keywords and ``out``.

The C side is `examples/ports/c/kvproof_port.h`. All else (deliveries, poison, limits, verdicts) is as for any port.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from proofs_checks.judge import dlpack
from proofs_checks.judge.declared import CONSTANTS
from proofs_checks.judge.delivery import POISONS, poisoned

PREFIX = "kvproof_"
DECLARE = "kvproof_declare"
NOT_IMPLEMENTED = 1
MESSAGE_SIZE = 1024

NONE, TENSOR, INTEGER, REAL, STRING = range(5)
MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


class LibraryError(Exception):
    """The library cannot be used, or reported that a call failed; the text is the whole line to show."""


class WrongResultError(Exception):
    """What the library left in its results' memory is wrong, whatever the values; ``suspect`` is the class of fault."""

    def __init__(self, message: str, suspect: str) -> None:
        super().__init__(message)
        self.suspect = suspect


class SharedLibrary(ModuleType):
    """A library as a module: its declared constants and a function for every stage."""


class _Value(ctypes.Union):
    _fields_ = (
        ("tensor", ctypes.POINTER(dlpack.Tensor)),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("string", ctypes.c_char_p),
    )


class Argument(ctypes.Structure):
    """``kvproof_argument``."""

    _fields_ = (("name", ctypes.c_char_p), ("kind", ctypes.c_int32), ("value", _Value))


class Result(ctypes.Structure):
    """``kvproof_result``."""

    _fields_ = (("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(dlpack.Tensor)))


ENTRY = [
    ctypes.POINTER(Argument),
    ctypes.c_int,
    ctypes.POINTER(Result),
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
]
"""Argument types of every stage's function."""


def is_shared_library(spec: str) -> bool:
    """Whether a port's spelling is the path of a shared library; a compiled Python module is none.

    >>> is_shared_library("./libport.so.2"), is_shared_library("port.py"), is_shared_library("package.port")
    (True, False, False)
    """
    if not re.search(r"\.(so|dylib)(\.\d+)*$", spec):
        return False
    content = Path(spec).read_bytes() if Path(spec).is_file() else b""
    return PREFIX.encode() in content or b"PyInit_" not in content


def load(spec: str) -> SharedLibrary:
    """Open the library and wrap its stages. Raises LibraryError with one line where it is no usable port."""
    path = Path(spec).resolve()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LibraryError(f"{error.strerror}") from None
    _check_machine(content)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        reason = (str(error).splitlines() or [""])[0].removeprefix(f"{path}: ")
        raise LibraryError(f"no shared library that this machine can load: {reason}") from None
    found = sorted({match.decode() for match in re.findall(rb"kvproof_[A-Za-z0-9_]+", content)} - {DECLARE})
    names = [name.removeprefix(PREFIX) for name in found if hasattr(library, name)]
    if not names:
        raise LibraryError(_nothing_exported(content, library))
    port = SharedLibrary(path.stem)
    declared = _declared(library)
    vars(port).update({name: value for name, value in declared.items() if name in CONSTANTS})
    for name in names:
        setattr(port, name, _stage_function(library, name, declared))
    return port


def _check_machine(content: bytes) -> None:
    """Refuse an ELF file of another machine: the system's loader only says that there is no such file."""
    with open(sys.executable, "rb") as stream:
        own = stream.read(20)
    if content[:4] == own[:4] == b"\x7fELF" and len(content) >= 20:
        theirs, ours = (int.from_bytes(header[18:20], sys.byteorder) for header in (content, own))
        if theirs != ours:
            built, here = (MACHINES.get(number, f"ELF machine {number}") for number in (theirs, ours))
            raise LibraryError(f"built for another machine: {built}, expected {here}")


def _nothing_exported(content: bytes, library: ctypes.CDLL) -> str:
    """Why a library has no stage, with what its author should write instead."""
    from proofs_checks.judge.stages import STAGES  # not above: a Python port's worker needs no reference

    for stage in STAGES:
        name = PREFIX + stage
        if f"_Z{len(name)}{name}".encode() in content:
            return f'no stage is exported: {name} has a C++ name, declare it extern "C"'
        if name.encode() in content:
            return f"no stage is exported: {name} is in the file but hidden; give it default visibility"
        if hasattr(library, stage):
            return f"no stage is exported: {stage} must be named {name}"
    return f"no stage is exported: expected functions such as {PREFIX}attention; kvproof list names the stages"


def _declared(library: ctypes.CDLL) -> dict[str, Any]:
    """The constants that ``kvproof_declare`` returns as JSON. Raises LibraryError for what is none."""
    if not hasattr(library, DECLARE):
        return {}
    declare = getattr(library, DECLARE)
    declare.restype, declare.argtypes = ctypes.c_char_p, []
    text = declare()
    try:
        constants = json.loads((text or b"").decode())
    except ValueError as error:
        raise LibraryError(f"{DECLARE}: expected a JSON object, got {(text or b'')[:80]!r}: {error}") from None
    if not isinstance(constants, dict):
        raise LibraryError(f"{DECLARE}: expected a JSON object, got {text[:80]!r}")
    for name in constants:
        if name not in (*CONSTANTS, "OPTIONAL"):
            raise LibraryError(f"{DECLARE}: no constant {name!r}; expected some of {', '.join(CONSTANTS)}, OPTIONAL")
    taken = constants.get("OPTIONAL", [])
    if not isinstance(taken, list) or not all(isinstance(name, str) for name in taken):
        raise LibraryError(f"{DECLARE}: OPTIONAL: expected a list of names, got {taken!r}")
    return constants


def _stage_function(library: ctypes.CDLL, name: str, declared: Mapping[str, Any]) -> Callable[..., Any]:
    """The Python function of one stage: keywords in the stage table's order, and ``out``, a dict of arrays to fill."""
    from proofs_checks.judge.stages import STAGES

    entry = getattr(library, PREFIX + name)
    entry.restype, entry.argtypes = ctypes.c_int, ENTRY
    stage = STAGES.get(name)  # None for a misspelt one, which is only here to be named
    keywords: list[str] = []
    if stage is not None:
        every = dict.fromkeys((*stage.arguments, *stage.optional))
        keywords = [word for word in every if word not in stage.optional or word in declared.get("OPTIONAL", [])]

    def call(*, out: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any] | None:
        unknown = [word for word in arguments if word not in keywords]
        if unknown:
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")
        ordered = {word: arguments[word] for word in keywords if word in arguments}
        made = _prepared(stage, ordered, declared.get("ACCUMULATE", "float32")) if out is None else out
        _call(entry, name, ordered, made)
        return made if out is None else None

    call.__name__ = name
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None) for word in (*keywords, "out")]
    )
    return call


def _prepared(stage: Any, arguments: Mapping[str, Any], accumulate: str) -> dict[str, Any]:
    """Poisoned results for a stage whose results are lists, which the judge does not prepare.

    Raises NotImplementedError for arguments that are illegal: there is no result's shape to prepare then.
    """
    try:
        reference = stage.named(stage.reference(**stage.exact_inputs(arguments)))
    except ValueError:
        text = "a library is not asked to refuse illegal arguments: there are no results to prepare"
        raise NotImplementedError(text) from None

    def poison(value: Any) -> Any:
        return dlpack.fresh(poisoned(list(np.shape(value)), accumulate, 0), accumulate)

    return {
        name: [poison(v) for v in value] if name in stage.lists else poison(value) for name, value in reference.items()
    }


def _call(entry: Any, name: str, arguments: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    """One call through the ABI: describe, call, look at what was written, hand it over."""
    keep: list[Any] = []  # what the structures point to
    given = [_argument(word, value, keep) for word, value in _flat(arguments)]
    targets = {word: _target(array) for word, array in _flat(out)}
    wanted = []
    for word, target in targets.items():
        tensor = dlpack.describe(getattr(target, "array", target), from_start=False)
        keep.append(tensor)
        wanted.append(Result(word.encode(), ctypes.pointer(tensor)))
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    code = entry(
        (Argument * len(given))(*given), len(given), (Result * len(wanted))(*wanted), len(wanted), message, MESSAGE_SIZE
    )
    said = " ".join(message.raw.split(b"\0")[0].decode(errors="replace").split())
    if code == NOT_IMPLEMENTED:
        raise NotImplementedError(said or f"{PREFIX}{name} returned {code}")
    if code != 0:
        raise LibraryError(f"{PREFIX}{name} returned {code}: {said or 'no message'}")
    for word, array in _flat(out):
        target = targets[word]
        if isinstance(target, dlpack.Guarded):
            _check_written(word, array, target)
            array[...] = target.array


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, a list of arrays as name_0, name_1, ..."""
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            yield from ((f"{name}_{i}", item) for i, item in enumerate(value))
        else:
            yield name, value


def _target(array: Any) -> Any:
    """Where the library writes a result: between guards in main memory, in place on a device."""
    return dlpack.Guarded(array) if isinstance(array, np.ndarray) else array


def _argument(name: str, value: Any, keep: list[Any]) -> Argument:
    argument = Argument(name.encode(), NONE)
    if isinstance(value, str):
        argument.kind, argument.value.string = STRING, value.encode()
    elif isinstance(value, (bool, int)):
        argument.kind, argument.value.integer = INTEGER, int(value)
    elif isinstance(value, float):
        argument.kind, argument.value.real = REAL, value
    elif value is not None:
        tensor = dlpack.describe(value)
        argument.kind, argument.value.tensor = TENSOR, ctypes.pointer(tensor)
        keep.append(tensor)
    keep.append(argument)
    return argument


def _check_written(name: str, before: Any, target: dlpack.Guarded) -> None:
    """Raise WrongResultError for a write beside the result, or for poison left in it that no answer can be."""
    side = target.overrun()
    if side:
        raise WrongResultError(f"{name}: the call wrote {side} its memory, outside of the result", "I")
    old, new = dlpack.widened(before), dlpack.widened(target.array)
    if old.dtype.kind != "f":
        return
    never = np.isnan(old) | (np.isfinite(old) & (old < POISONS[1] / 2))  # half: the poison's bf16 is above it
    bits = f"u{old.dtype.itemsize}"  # a NaN that the call computed itself has other bits, as a rule
    left = np.argwhere(never & (old.view(bits) == new.view(bits)))
    if len(left):
        index = tuple(int(i) for i in left[0])
        text = (
            f"{name}{list(index)} still holds {old[index]:g} as before the call; {len(left)} of {old.size} not written"
        )
        raise WrongResultError(text, "K")
