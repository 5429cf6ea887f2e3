"""The report as JUnit XML: a suite per stage, a test case per case and dtype."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from proofs_checks.judge.report import Record, Report, StageReport

SKIPPED = ("NOT_PROVIDED", "REFUSED", "WAIVED")
ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold; a port's exception may hold anything."""


def legal(text: str) -> str:
    """Text that XML can hold.

    >>> legal("a" + chr(0) + "b")
    'a?b'
    """
    return ILLEGAL.sub("?", text)


def junit(report: Report) -> str:
    """XML as pytest and CI servers read it. A port that cannot be used is one suite with one error."""
    root = ElementTree.Element("testsuites", name="kvproof")
    for row in report.stages:
        if row.records:
            _suite(root, report, row)
    if report.verdict == "ERROR":
        suite = ElementTree.SubElement(root, "testsuite", name="port", tests="1", failures="0", errors="1", skipped="0")
        case = ElementTree.SubElement(suite, "testcase", classname="kvproof", name="load", time="0.000")
        ElementTree.SubElement(case, "error", message=legal("; ".join(report.notes)))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, report: Report, row: StageReport) -> None:
    counts = {
        "tests": len(row.records),
        "failures": sum(r.verdict == "FAIL" for r in row.records),
        "errors": sum(r.verdict in ("ERROR", "TIMEOUT") for r in row.records),
        "skipped": sum(r.verdict in SKIPPED for r in row.records),
    }
    words = {"name": row.stage, "time": f"{row.seconds:.3f}", **{name: str(n) for name, n in counts.items()}}
    suite = ElementTree.SubElement(root, "testsuite", words)
    repro = {failure.case: failure.repro for failure in row.failures}
    for record in row.records:
        _case(suite, row.stage, record, repro.get(record.case, ""))


def _case(suite: ElementTree.Element, stage: str, record: Record, repro: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"kvproof.{stage}", name=record.case, time=f"{record.seconds:.3f}"
    )
    message = legal(record.message)
    if record.verdict in SKIPPED:
        ElementTree.SubElement(case, "skipped", message=f"{record.verdict}: {message}")
    elif record.verdict != "PASS":
        tag = "failure" if record.verdict == "FAIL" else "error"
        wrong = ElementTree.SubElement(case, tag, message=message, type=record.verdict)
        wrong.text = legal(f"{record.message}\n{repro}")
