"""What went wrong, in one line for whoever typed the command."""

from __future__ import annotations

from refimpl.checks import ArgumentError

EXTRAS = {"distributed": "dask"}
"""Modules that another extra than `microscope` brings."""


def told(error: Exception) -> str:
    """One line on a file, an extra or an argument that could not be used.

    >>> told(ModuleNotFoundError("No module named 'gguf'", name="gguf"))
    "gguf is not installed; pip install 'kvproof[microscope]'"
    >>> told(FileNotFoundError(2, "No such file or directory", "mine.safetensors"))
    'mine.safetensors: No such file or directory'
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = error.name.partition(".")[0]
        return f"{module} is not installed; pip install 'kvproof[{EXTRAS.get(module, 'microscope')}]'"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ArgumentError):
        return str(error)
    return f"{type(error).__name__}: {error}"
