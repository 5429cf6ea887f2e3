"""docs/public-ports.md from docs/public-ports.json."""

from __future__ import annotations

import re
from typing import Any

SHOWN = 3
"""Messages shown per stage; further failing cases are named."""

HEAD = """# Public packages, judged

<!-- generated: kvproof public --markdown docs/public-ports.md --json docs/public-ports.json -->

Packages from the public index that implement something this project has a reference for, judged by the same cases as
any other port. Each was installed by version into an environment of its own; an adapter under `examples/ports` puts the
stages' names on its functions and changes nothing else. [How an adapter is written](public-adapters.md); a package that
is not listed is judged the same way.

What a verdict means. **right**: every case that applies to the package passed. Otherwise, how many did; the rows say
which did not. **does not run**: it could not be installed or imported here. A case that a package does not claim to
handle (a law, a number of bits, a kind of rotation) is not counted. Departures are choices that the papers leave open
([the list](ambiguities.md)); they are no faults.

One command repeats an entry: `kvproof public --package NAME` makes the environment under `.public/` and judges the
package; one call is made again by `kvproof repro CASE --port ADAPTER --python .public/ENVIRONMENT/bin/python`. Where an
entry is out of date or unfair, its adapter is the place to say so.
"""


def render(document: dict[str, Any]) -> str:
    """The page's text from the document that `kvproof public --json` writes."""
    entries = document["ports"]
    right, cases = (sum(s[name] for entry in entries for s in entry["stages"]) for name in ("passed", "cases"))
    lines = [
        HEAD,
        f"Of the {cases} cases that are counted below, {right} are right.",
        "",
        "| package | version | judged | verdict | stages right | stages wrong |",
        "|---|---|---|---|---|---|",
    ]
    for entry in entries:
        good = [s["stage"] for s in entry["stages"] if s["verdict"] == "PASS"]
        bad = [s["stage"] for s in entry["stages"] if s["verdict"] != "PASS"]
        link = f"[{entry['package']}](#{anchor(title(entry))})"
        cells = [link, entry["version"], _adapter_name(entry), _verdict(entry)]
        lines.append(f"| {' | '.join([*cells, _listed(good), _listed(bad)])} |")
    for entry in entries:
        lines += ["", *_section(entry)]
    return "\n".join(lines) + "\n"


def title(entry: dict[str, Any]) -> str:
    """The heading of an entry: package, version, adapter where it has several, and what it was judged with."""
    extra = f", with {', '.join(entry['with'])}" if entry["with"] else ""
    return f"{entry['package']} {entry['version']} ({_adapter_name(entry)}{extra})"


def anchor(heading: str) -> str:
    """The anchor that a heading gets on the usual hosts.

    >>> anchor("turboquant 0.2.0 (turboquant, with numpy<2.4)")
    'turboquant-020-turboquant-with-numpy24'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _verdict(entry: dict[str, Any]) -> str:
    """The verdict in words, with the cases that were right."""
    right, cases = (sum(stage[name] for stage in entry["stages"]) for name in ("passed", "cases"))
    if entry["verdict"] == "does not run":
        return "**does not run**"
    return f"**right** in all {cases} cases" if entry["verdict"] == "right" else f"**{right} of {cases} cases right**"


def _adapter_name(entry: dict[str, Any]) -> str:
    return str(entry["adapter"]).rsplit("/", 1)[-1].removesuffix("_port.py").removesuffix(".py")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _section(entry: dict[str, Any]) -> list[str]:
    found = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
    lines = [f"## {title(entry)}", "", f"Verdict: {_verdict(entry)}. Driven: {entry['drives']}."]
    lines.append(
        f"Adapter: `{entry['adapter']}`; environment: `{entry['environment']}`{', ' + found if found else ''}."
    )
    lines += [f"Note: {note}." for note in entry["notes"]]
    if entry["reason"]:
        lines += ["", f"It does not run here: {entry['reason']}."]
    right = [s for s in entry["stages"] if s["verdict"] == "PASS"]
    if right:
        lines += ["", "Right:", ""]
        lines += [f"- `{s['stage']}`: {_counted(s['cases'])}{_ratio(s)}" for s in right]
    for stage in entry["stages"]:
        if stage["verdict"] != "PASS":
            lines += ["", *_wrong(entry, stage)]
    if entry["departures"]:
        lines += ["", "Departures, no faults:", ""]
        lines += [f"- {d['id']}: {d['what']}" for d in entry["departures"]]
    return lines


def _counted(cases: int) -> str:
    return f"{cases} case{'' if cases == 1 else 's'}"


def _ratio(stage: dict[str, Any]) -> str:
    return "" if not stage["worst_ratio"] else f", largest error {stage['worst_ratio']:.2g} of its bound"


def _wrong(entry: dict[str, Any], stage: dict[str, Any]) -> list[str]:
    """What failed, one line per message, with the call that shows it."""
    failures = stage["failures"]
    lines = [f"Not right: `{stage['stage']}` ({stage['passed']} of {_counted(stage['cases'])} right).", ""]
    told: dict[str, list[dict[str, str]]] = {}
    for failure in failures:
        told.setdefault(failure["message"], []).append(failure)
    for message, same in list(told.items())[:SHOWN]:
        others = [name for name in dict.fromkeys(_name(f) for f in same) if name != _name(same[0])]
        also = f" The same of {_listed(others)}." if others else ""
        lines.append(f"- `{_name(same[0])}` ({same[0]['why']}): {message}.{also}")
    rest = list(dict.fromkeys(_name(f) for same in list(told.values())[SHOWN:] for f in same))
    if rest:
        lines.append(f"- also {_listed(rest)}.")
    case, _, dtype = failures[0]["case"].partition("@")
    words = ["kvproof repro", case, "--port", entry["adapter"], *(["--dtype", dtype] if dtype else [])]
    lines += ["", f"    {' '.join(words)} --python .public/{entry['environment']}/bin/python"]
    return lines


def _name(failure: dict[str, str]) -> str:
    """The case without stage and dtype."""
    return failure["case"].partition("/")[2].partition("@")[0]
