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


def checkout_directory(name: str) -> Path:
    """The folder ``name`` of the checkout that this package runs from, for what writes into the repository.

    Raises FixtureError where the package is installed without a checkout.

    >>> checkout_directory("docs").name
    'docs'
    """
    place = Path(__file__).resolve().parent.parent / name
    if not place.is_dir():
        raise FixtureError(f"no {name}/ beside the package; run this in a checkout of the repository")
    return place
