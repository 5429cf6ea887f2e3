"""Theorems as executable checks, derived error bounds, and the kit that judges ports. Importing it loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def parametrize(
    port: Any, *, profile: str = "default", stages: Sequence[str] | None = None, argument: str = "case", **more: Any
) -> Any:
    """A pytest decorator that gives a test every bundled case of ``port``, to be judged by ``case.check()``.

    ``port`` is a module, a module name, or the path of a Python file (also relative to the test's own file). ``more``
    may hold ``device``, ``timeout`` (seconds per call) and ``expected`` (the path of known failures).
    pytest and NumPy are imported here and not with this package.
    """
    import sys

    from proofs_checks.judge.parametrize import parametrized

    beside = sys._getframe(1).f_globals.get("__file__")
    return parametrized(port, profile, stages, argument, beside, **more)
