"""The child process that holds the port: it imports it, makes one call at a time, and reports what came back.

Run as ``python -m proofs_checks.judge.worker PORT READ_FD WRITE_FD``. It must survive nothing: whatever the port does
to its process, the parent turns into a verdict.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from proofs_checks.judge import delivery, shared_library, wire
from proofs_checks.judge.backend import Backend
from proofs_checks.judge.declared import CONSTANTS


def load_port(spec: str) -> ModuleType:
    """Open a shared library, or import a port by file path, by the folder of a package, or by module name.

    A path is anything that ends in .py, names a file, or is a folder with an ``__init__.py``. The port's own folder
    comes first on the path, as for a script, unless its name is one of the standard library's: those keep theirs.
    """
    if shared_library.is_shared_library(spec):
        return shared_library.load(spec)
    sys.dont_write_bytecode = True  # else a port edited within a second, to the same length, is judged as it was
    path = Path(spec)
    package = (path / "__init__.py").is_file()
    if not (spec.endswith(".py") or path.is_file() or package):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(spec)
    path = path.resolve()
    taken = path.stem in sys.stdlib_module_names or path.stem in sys.modules
    name = f"port_{path.stem}" if taken else path.stem
    sys.path.insert(len(sys.path) if taken else 0, str(path.parent))
    inside = [str(path)] if package else None
    source = path / "__init__.py" if package else path
    description = importlib.util.spec_from_file_location(name, source, submodule_search_locations=inside)
    if description is None or description.loader is None:
        raise ImportError(f"{spec}: not a Python file")
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module
    description.loader.exec_module(module)
    return module


def describe(port: ModuleType, device: str | None) -> dict[str, Any]:
    """What the port declares and which functions it has."""
    declared: dict[str, Any] = {name: getattr(port, name, default) for name, default in CONSTANTS.items()}
    for name in ("DTYPES", "LAWS"):
        several = isinstance(declared[name], (list, tuple))
        declared[name] = [_spelled(v) for v in (declared[name] if several else [declared[name]])]
    for name in ("ACCUMULATE", "OUTPUT", "FRAMEWORK", "DEVICE", "TIES", "DIALECT"):
        declared[name] = None if declared[name] is None else _spelled(declared[name])
    if device:
        declared["DEVICE"] = device
    functions = [name for name, value in vars(port).items() if callable(value) and not isinstance(value, type)]
    return {"constants": declared, "functions": [name for name in functions if not name.startswith("_")]}


def _spelled(value: Any) -> str:
    """A constant as a string: torch.bfloat16, np.float32 and "float32" are all taken."""
    return str(getattr(value, "__name__", value)).removeprefix("torch.")


def call_stage(port: ModuleType, backend: Backend, header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Make one call. Returns the reply's header and arrays."""
    function = getattr(port, header["stage"])
    deliver = delivery.WAYS[header.get("delivery", "plain")]
    given = deliver(backend, arrays, header["dtypes"])
    arguments = {**given, **header["plain"]}
    prepared = _prepared_results(function, backend, header)
    if prepared is not None:
        arguments["out"] = prepared
    missing = _unsupported(function, arguments, header["optional"])
    if missing:
        return {"status": "not_provided", "message": f"takes no {missing}"}, {}
    problem = _signature_problem(function, arguments)
    if problem:
        return {"status": "error", "message": problem, "refused": False}, {}
    before = {name: backend.bytes_of(a) for name, a in given.items()}
    try:
        result = function(**arguments)
    except NotImplementedError as error:
        return {"status": "not_provided", "message": str(error) or "raised NotImplementedError"}, {}
    except BaseException as error:
        return _failed(error), {}
    if header.get("delivery") == "reuse":  # that was the old content; the same buffers now hold the new one
        return _again(function, backend, header, arrays, given, arguments)
    result = prepared if result is None and prepared is not None else result
    for name, content in before.items():
        if backend.bytes_of(given[name]) != content:
            return {"status": "wrong", "message": f"{name}: the call changed its input", "suspect": "K"}, {}
    return _collect(backend, result, given, header)


def _again(
    function: Any, backend: Backend, header: dict[str, Any], arrays: dict[str, Any], given: Any, arguments: Any
) -> Any:
    """Write the case's content into the buffers of the call just made, and call again."""
    for name, array in arrays.items():
        backend.overwrite(given[name], backend.give(array, header["dtypes"].get(name)))
    try:
        result = function(**arguments)
    except BaseException as error:
        return _failed(error, "second call in the same buffers: "), {}
    result = arguments.get("out") if result is None else result
    return _collect(backend, result, given, header)


def _prepared_results(function: Any, backend: Backend, header: dict[str, Any]) -> dict[str, Any] | None:
    """Preallocated, poisoned results for a port that takes ``out``; None for any other."""
    taken, described = inspect.signature(function).parameters.get("out"), header.get("out")
    if taken is None or (not described and taken.default is not taken.empty):
        return None

    def prepare(result: list[Any]) -> Any:
        """One array of [shape, dtype], or a list of them."""
        if not result or not isinstance(result[-1], str):
            return [prepare(part) for part in result]
        shape, dtype = result
        return backend.give(delivery.poisoned(shape, dtype, header["poison"]), dtype)

    return {name: prepare(result) for name, result in (described or {}).items()}


def _unsupported(function: Any, arguments: dict[str, Any], optional: list[str]) -> str | None:
    """The first optional keyword of this call that the port's signature does not have."""
    names = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in names.values())
    return next((o for o in optional if o in arguments and o not in names and not takes_any), None)


def _signature_problem(function: Any, arguments: dict[str, Any]) -> str | None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        expected = f"{function.__name__}(*, {', '.join(arguments)})"
        return f"signature: called as {expected}, the port has {inspect.signature(function)}: {error}"
    return None


def _failed(error: BaseException, when: str = "") -> dict[str, Any]:
    """The reply to a call that raised."""
    if isinstance(error, shared_library.WrongResultError):
        return {"status": "wrong", "message": f"{when}{error}", "suspect": error.suspect}
    return {"status": "error", "message": f"{when}{_raised(error)}"}


def _raised(error: BaseException) -> str:
    """One line: the exception and the port's line that raised it."""
    if isinstance(error, shared_library.LibraryError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    text = str(error).strip().splitlines()
    place = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r}){place}"
    return f"raised {type(error).__name__}: {text[0][:300] if text else ''}{place}"


def _collect(backend: Backend, result: Any, given: dict[str, Any], header: dict[str, Any]) -> Any:
    """The results as NumPy arrays, or the sentence that says why they are unusable."""
    names = header["results"]
    if len(names) == 1 and not isinstance(result, dict):
        result = {names[0]: result}
    if not isinstance(result, dict):
        return {"status": "wrong", "message": f"expected a dict of {', '.join(names)}, got {type(result).__name__}"}, {}
    absent = [n for n in names if n not in result]
    if absent:
        return {"status": "wrong", "message": f"results: expected {', '.join(names)}; {', '.join(absent)} missing"}, {}
    collected: dict[str, Any] = {}
    parts: dict[str, int] = {}
    try:
        for name in names:
            if isinstance(result[name], (list, tuple)) and name in header.get("lists", ()):
                parts[name] = len(result[name])
                collected |= {f"{name}_{i}": backend.take(v, f"{name}[{i}]") for i, v in enumerate(result[name])}
            else:
                collected[name] = backend.take(result[name], name)
            for other, value in given.items():
                if backend.overlap(result[name], value):
                    text = f"{name}: the result shares memory with the input {other}"
                    return {"status": "wrong", "message": text, "suspect": "K"}, {}
    except BaseException as error:
        return {"status": "wrong", "message": str(error) or _raised(error)}, {}
    return {"status": "ok", "lists": parts}, collected


def serve(spec: str, incoming: int, outgoing: int) -> None:
    """Answer messages until the parent closes its end."""
    port: Any = None
    backend: Any = None
    while True:
        message = _read(incoming)
        if message is None:
            return
        header, arrays = wire.decode(message)
        reply: dict[str, Any]
        out: dict[str, Any] = {}
        try:
            if header["op"] == "load":
                port = load_port(spec)
                about = describe(port, header.get("device"))
                framework = about["constants"]["FRAMEWORK"]
                compiled = isinstance(port, shared_library.SharedLibrary)
                known = framework in ("numpy", "torch")
                backend = Backend(framework, about["constants"]["DEVICE"], compiled) if known else None
                reply = {"status": "ok", **about}
            else:
                reply, out = call_stage(port, backend, header, arrays)
        except BaseException as error:
            reply = {"status": "error", "message": _raised(error)}
        data = memoryview(wire.encode(reply, out))
        while data:
            data = data[os.write(outgoing, data) :]


def _read(descriptor: int) -> bytearray | None:
    """One whole message; None where the other end closed. Filled in place: a message may be half a gigabyte."""
    prefix = bytearray(wire.LENGTHS)
    if not _fill(descriptor, memoryview(prefix)):
        return None
    message = bytearray(wire.LENGTHS + wire.sizes(bytes(prefix)))
    message[: wire.LENGTHS] = prefix
    return message if _fill(descriptor, memoryview(message)[wire.LENGTHS :]) else None


def _fill(descriptor: int, part: memoryview) -> bool:
    while part:
        count = os.readv(descriptor, [part[: 1 << 20]])
        if not count:
            return False
        part = part[count:]
    return True


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
