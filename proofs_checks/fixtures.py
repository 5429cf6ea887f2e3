"""Where the golden files are: beside a checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path


class FixtureError(Exception):
    """A fixture is missing or unreadable; the message says which and what to do."""


def fixtures_directory() -> Path:
    """The folder that holds captures and golden files.

    Raises FixtureError where there is none.

    >>> (fixtures_directory() / "captures").is_dir()
    True
    """
    package = Path(__file__).resolve().parent
    for place in (package / "fixtures", package.parent / "fixtures"):
        if (place / "captures").is_dir():
            return place
    raise FixtureError(f"fixtures: expected beside {package}; reinstall kvproof or use a full checkout")
