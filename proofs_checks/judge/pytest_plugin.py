"""The pytest plugin: `pytest --kvproof-port my_port` runs every bundled case as a test of its own.

pytest loads this file in every run of whoever has kvproof installed, so it imports nothing of kvproof, NumPy or torch
before a port is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from proofs_checks.judge.live_cases import PortCase

SKIPPED = ("NOT_PROVIDED", "REFUSED")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `kvproof verify` under pytest."""
    group = parser.getgroup("kvproof", "judge a port of Locks or ReadKV case by case")
    group.addoption(
        "--kvproof-port", metavar="PORT", help="a module name, or the path of a Python file or a shared library"
    )
    group.addoption("--kvproof-profile", choices=("quick", "default", "deep"), default="default")
    group.addoption("--kvproof-stages", metavar="A,B", help="only these stages")
    group.addoption("--kvproof-device", metavar="DEVICE", help="overrides the port's DEVICE")
    group.addoption("--kvproof-stage-timeout", type=float, default=20.0, metavar="SECONDS", help="limit of one call")
    group.addoption("--kvproof-expected", metavar="FILE", help="known failures, default kvproof-expected.toml")


class CaseItem(pytest.Item):
    """One case of the port."""

    def __init__(self, *, case: PortCase, **more: Any) -> None:
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        """Run the case; skip where there is nothing to judge."""
        check(self.case)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where pytest says the test is."""
        return self.path, None, self.case.id


class PortCollector(pytest.Collector):
    """The cases of one port."""

    def collect(self) -> Iterator[CaseItem]:
        """One item per case and dtype, named by the case's id."""
        from proofs_checks.judge.live_cases import port_cases
        from proofs_checks.judge.waivers import beside, read_waivers

        option = self.config.option
        stages = option.kvproof_stages.split(",") if option.kvproof_stages else None
        known = option.kvproof_expected or beside(option.kvproof_port)
        cases = port_cases(
            option.kvproof_port,
            option.kvproof_profile,
            stages,
            option.kvproof_device,
            option.kvproof_stage_timeout,
            read_waivers(known) if known else None,
        )
        for case in cases:
            yield CaseItem.from_parent(self, name=case.id, case=case)


def check(case: PortCase) -> None:
    """Run a case and tell pytest: pass, skip, xfail, or fail in the words of `kvproof verify`."""
    __tracebackhide__ = True
    outcome = case.run()
    if outcome.verdict in SKIPPED:
        pytest.skip(f"{outcome.verdict}: {outcome.message}")
    if outcome.verdict == "WAIVED":
        pytest.xfail(outcome.message)
    if outcome.verdict != "PASS":
        pytest.fail(case.explain(outcome), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the port's cases, before -k and the like choose among the tests."""
    port = config.option.kvproof_port
    if port is None:
        return
    collector = PortCollector.from_parent(session, name=port, nodeid=port)
    try:
        items.extend(collector.collect())
    except Exception as error:
        if type(error).__name__ in ("PortError", "WaiverError", "ValueError"):
            raise pytest.UsageError(f"--kvproof-port: {error}") from None
        raise
