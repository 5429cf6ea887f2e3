"""The option --python: the interpreter that runs a port, such as that of an environment of its own."""

from __future__ import annotations

import argparse
import os


def add_python(parser: argparse.ArgumentParser) -> None:
    """The option --python."""
    text = "interpreter of the port's process, such as that of its own environment; it needs NumPy"
    parser.add_argument("--python", metavar="PATH", type=interpreter, help=text)


def interpreter(path: str) -> str:
    """A path that can be run. Raises ArgumentTypeError, which argparse reports (exit code 2).

    >>> interpreter("/no/such/python")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected an interpreter, got '/no/such/python'
    """
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"expected an interpreter, got {path!r}")
    return path
