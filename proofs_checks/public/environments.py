"""One virtual environment per package; what most of them need lies once in an environment that all can see."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SHARED = ("torch==2.13.0", "triton", "numpy", "scipy", "safetensors", "rich")
"""Installed once, for whichever package does not ask for something else. A range would bring a CUDA build of torch."""

INSTALL_TIMEOUT = 1800.0
IMPORT_TIMEOUT = 300.0


@dataclass(frozen=True)
class Environment:
    """An environment that is ready, or the reason why it is not; ``notes`` says what was done to get there."""

    python: Path
    failure: str | None = None
    notes: tuple[str, ...] = ()


def prepare(
    folder: Path, name: str, requirements: tuple[str, ...], options: tuple[str, ...], modules: tuple[str, ...]
) -> Environment:
    """Make the environment ``folder/name`` with ``requirements``, the first of which is the package itself.

    ``options`` are the installer's, for the package alone. An existing one is used as it is. A package that asks for
    another Python is installed all the same, with a note. What fails is the environment's ``failure``, never an
    exception of ours.
    """
    place = folder / name
    python, done = place / "bin" / "python", place / "installed.json"
    if done.exists():
        return _imported(Environment(python, None, tuple(json.loads(done.read_text())["notes"])), modules)
    _create(place, shared(folder))
    package, *others = requirements
    notes: list[str] = []
    failure = _install(python, [*options, package]) if not others or options else _install(python, [package, *others])
    if failure and "different python version" in failure:
        version = ".".join(map(str, sys.version_info[:2]))
        notes.append(f"its metadata asks for another Python; installed on {version} with that check off")
        failure = _install(python, ["--ignore-requires-python", *options, package, *(() if options else others)])
    if not failure and options and others:
        failure = _install(python, others)
    if failure:
        shutil.rmtree(place)
        return Environment(python, f"cannot be installed: {_reason(failure)}", tuple(notes))
    done.write_text(json.dumps({"requirements": requirements, "notes": notes}))
    return _imported(Environment(python, None, tuple(notes)), modules)


def shared(folder: Path) -> Path:
    """The site-packages of the environment that all others see, made where there is none."""
    place = folder / "shared"
    if not (place / "installed.json").exists():
        _create(place, None)
        failure = _install(place / "bin" / "python", list(SHARED))
        if failure:
            shutil.rmtree(place)
            raise OSError(f"cannot install {', '.join(SHARED)}: {_reason(failure)}")
        (place / "installed.json").write_text("{}")
    return _site_packages(place)


def versions(python: Path, names: tuple[str, ...] = ("numpy", "torch")) -> dict[str, str]:
    """The versions of ``names`` that an environment's interpreter sees, and its own under "python"."""
    code = (
        "import sys,json\nfrom importlib.metadata import version, PackageNotFoundError\n"
        "out={'python': '.'.join(map(str, sys.version_info[:3]))}\n"
        "for n in sys.argv[1:]:\n"
        "    try: out[n]=version(n)\n"
        "    except PackageNotFoundError: pass\n"
        "print(json.dumps(out))"
    )
    done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _site_packages(place: Path) -> Path:
    return next((place / "lib").glob("python*/site-packages")).resolve()


def _create(place: Path, seen: Path | None) -> None:
    """An empty environment that also sees the packages in ``seen``, its own first."""
    if place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True)
    if seen is not None:
        (_site_packages(place) / "shared.pth").write_text(f"{seen}\n")


def _install(python: Path, words: list[str]) -> str | None:
    """Run the installer; None where it went well, else all that it said."""
    command = [str(python), "-m", "pip", "install", "--quiet", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"ERROR: no end within {INSTALL_TIMEOUT:g} s"
    return None if done.returncode == 0 else f"{done.stdout}\n{done.stderr}"


def _reason(said: str) -> str:
    """The installer's last line that names an error, without where it looked."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no message"])[-1].removeprefix("ERROR: ")[:300]


def _imported(environment: Environment, modules: tuple[str, ...]) -> Environment:
    """The environment, with the failure of the first module that cannot be imported."""
    for module in modules:
        try:
            done = subprocess.run(
                [environment.python, "-c", f"import {module}"], capture_output=True, text=True, timeout=IMPORT_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Environment(environment.python, f"import {module}: no end within {IMPORT_TIMEOUT:g} s")
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            return Environment(environment.python, f"import {module}: {last[:300]}", environment.notes)
    return environment
