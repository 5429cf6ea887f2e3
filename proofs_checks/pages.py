"""Generated pages of docs/."""

from __future__ import annotations

import sys
from collections.abc import Callable

from proofs_checks.fixtures import FixtureError, checkout_directory


def write_page(name: str, render: Callable[[], str]) -> int:
    """Write docs/``name`` of this checkout; the exit code: 0 when done, 3 outside a checkout."""
    try:
        page = checkout_directory("docs") / name
    except FixtureError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 3
    page.write_text(render(), encoding="utf-8")
    return 0
