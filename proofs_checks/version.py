"""The version of the installed distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The installed version, or "not installed" in a bare checkout."""
    try:
        return installed("kvproof")
    except PackageNotFoundError:
        return "not installed"
