"""Known failures: `kvproof-expected.toml`, one table [[expected]] per case, each with a reason, a link and a last day.

A waiver hides nothing for good: an unknown id is wrong usage, a waived case that passes is a failure, and so is a
waiver that has expired.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from proofs_checks.judge.dialects import find_anywhere
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.outcome import Outcome, case_name
from proofs_checks.judge.report import BAD

FILE = "kvproof-expected.toml"
KEYS = ("id", "reason", "link", "expires")


class WaiverError(Exception):
    """The file of waivers cannot be used (exit code 2)."""


@dataclass(frozen=True)
class Waiver:
    """One case that is known to fail. ``id`` as reports print it; the last day on which it counts is ``expires``."""

    id: str
    reason: str
    link: str
    expires: date


Waivers = Mapping[str, Waiver]


def beside(port: str) -> Path | None:
    """The file of waivers next to a port's file or folder (in the working directory for a module name), if any."""
    path = Path(port)
    folder = path.resolve().parent if path.exists() else Path.cwd()
    found = folder / FILE
    return found if found.is_file() else None


def read_waivers(path: str | Path) -> dict[str, Waiver]:
    """The waivers of a file by id. Raises WaiverError that names the entry and what it lacks."""
    try:
        content = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise WaiverError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WaiverError(f"{path}: not TOML: {error}") from None
    entries = content.pop("expected", [])
    if content or not isinstance(entries, list):
        raise WaiverError(f"{path}: expected only tables [[expected]], got {', '.join(content) or 'expected = ...'}")
    waivers: dict[str, Waiver] = {}
    for number, entry in enumerate(entries, start=1):
        waiver = _waiver(entry, f"{path}: entry {number}")
        if waiver.id in waivers:
            raise WaiverError(f"{path}: {waiver.id} is listed twice")
        waivers[waiver.id] = waiver
    return waivers


def _waiver(entry: Any, where: str) -> Waiver:
    if not isinstance(entry, dict):
        raise WaiverError(f"{where}: expected a table, got {entry!r}")
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise WaiverError(f"{where}: expected {', '.join(KEYS)}, got {unknown[0]!r}")
    for key in ("id", "reason", "link"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise WaiverError(f"{where}: {key}: expected a text, got {entry.get(key)!r}")
    expires = entry.get("expires")
    if not isinstance(expires, date) or isinstance(expires, datetime):
        raise WaiverError(f"{where}: expires: expected a date such as 2030-01-31, got {expires!r}")
    case_id, _, dtype = entry["id"].partition("@")
    try:
        case, _ = find_anywhere(case_id)
    except KeyError:
        raise WaiverError(f"{where}: no case {case_id!r}; see kvproof list --cases") from None
    if (dtype or "float32") not in case.dtypes:
        raise WaiverError(f"{where}: {case_id} has inputs in {', '.join(case.dtypes)}, not {dtype or 'float32'}")
    return Waiver(case_name(case, dtype or "float32"), entry["reason"].strip(), entry["link"].strip(), expires)


def waived(outcome: Outcome, waivers: Waivers, today: date | None = None) -> Outcome:
    """The outcome in the light of the waivers: WAIVED where it fails as expected, FAIL where the waiver is at fault."""
    waiver = waivers.get(outcome.name)
    if waiver is None:
        return outcome
    if waiver.expires < (today or date.today()):
        then = f"; {outcome.text}" if outcome.text else ""
        text = f"its waiver expired on {waiver.expires} ({waiver.reason}, {waiver.link}){then}"
        return replace(outcome, verdict="FAIL", judgement=Judgement(), message=text)
    if outcome.verdict in BAD:
        text = f"{outcome.verdict} as expected until {waiver.expires} ({waiver.reason}, {waiver.link})"
        return replace(outcome, verdict="WAIVED", judgement=Judgement(), message=text)
    if outcome.verdict == "PASS":
        text = f"passes, but is expected to fail ({waiver.reason}, {waiver.link}); delete its waiver"
        return replace(outcome, verdict="FAIL", message=text)
    return outcome
