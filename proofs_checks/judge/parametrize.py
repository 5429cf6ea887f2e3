"""`proofs_checks.parametrize`: the bundled cases in one's own test file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proofs_checks.judge.live_cases import PortCase, port_cases
from proofs_checks.judge.pytest_plugin import check
from proofs_checks.judge.waivers import beside, read_waivers


@dataclass(frozen=True)
class TestableCase:
    """What the test's argument is."""

    __test__ = False  # not a test class, for pytest's collection

    port_case: PortCase

    @property
    def id(self) -> str:
        """The id as reports print it."""
        return self.port_case.id

    @property
    def stage(self) -> str:
        """The stage that the case calls."""
        return self.port_case.case.stage

    def check(self) -> None:
        """Call the port and judge its answer: passes, skips, xfails, or raises with what `kvproof verify` says."""
        __tracebackhide__ = True
        check(self.port_case)


def spelling(port: Any, test_file: str | None) -> str:
    """A port as the judge takes it: a module by its file, a path also relative to the test's file.

    >>> import proofs_checks.version
    >>> Path(spelling(proofs_checks.version, None)).name, spelling("package.port", None)
    ('version.py', 'package.port')
    """
    if isinstance(port, ModuleType):
        return port.__file__ or port.__name__
    name = str(port)
    near = Path(test_file).parent / name if test_file else None
    return (
        str(near)
        if near and name.endswith((".py", ".so", ".dylib")) and not Path(name).exists() and near.exists()
        else name
    )


def parametrized(
    port: Any,
    profile: str,
    stages: Sequence[str] | None,
    argument: str,
    test_file: str | None,
    device: str | None = None,
    timeout: float = 20.0,
    expected: str | None = None,
) -> pytest.MarkDecorator:
    """The decorator; see `proofs_checks.parametrize`. Raises PortError, WaiverError or ValueError at collection."""
    name = spelling(port, test_file)
    known = expected or beside(name)
    cases = port_cases(name, profile, stages, device, timeout, read_waivers(known) if known else None)
    return pytest.mark.parametrize(argument, [pytest.param(TestableCase(c), id=c.id) for c in cases])
