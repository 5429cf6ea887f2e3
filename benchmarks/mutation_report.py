"""Write docs/mutation.md from the results of benchmarks/mutation.py and the reasons in benchmarks/mutation_reasons.toml.

Run: python benchmarks/mutation_report.py. A survivor gets the first reason whose pattern is found in "module.function:
old lines => new lines"; one without a reason is listed as open.
"""

import json
from collections import Counter, defaultdict
from importlib.metadata import version

from mutation import HISTORY, REASONS, RESULTS, ROOT, SLOWER, TEST_SECONDS, reason_of

from proofs_checks.writing import write_whole

OPEN = {"name": "Open", "why": "No reason is known: a test is missing.", "equivalent": False}
PAGE = """# Mutation run

Would the tests of the reference notice a wrong expression? mutmut {version} changes one expression of `refimpl` at a time.
A mutant counts as killed when a test of `tests/refimpl` or an example in a docstring fails, or (timeout) takes {slower} times
as long as without it. A function's tests run the fastest first; after {seconds:g} CPU seconds of them the mutant counts as
survived. Property tests draw 30 examples, unshrunk. What a pattern in `benchmarks/mutation_reasons.toml` explains as
equivalent is not run. Again: `python -m tox run -e mutation`; this page is written by `benchmarks/mutation_report.py`.

{scope}

| | mutants |
|---|--:|
| killed | {killed} |
| of these by the clock | {timeout} |
| survived, with a reason below | {explained} |
| survived, open | {open} |
| equivalent, explained below | {equivalent} |
| **killed, of all that are not equivalent** | **{net:.1f}%** |
| killed, of all | {rate:.1f}% |

## What the first whole run found

{history}

## By file

{table}

## Survivors
"""


def main():
    results = json.loads(RESULTS.read_text())
    files, known = defaultdict(Counter), defaultdict(list)
    for name, entry in sorted(results.items()):
        module, _, function = name.rpartition(".")
        files[module]["not run"] += entry["total"] - len(entry["mutants"])
        for mutant, status in entry["mutants"].items():
            text = entry["changes"].get(mutant, "")
            reason = reason_of(name, text) or OPEN if status not in ("killed", "timeout") else None
            if status == "equivalent" and not reason["equivalent"]:  # the pattern that spared it was narrowed since
                status, reason = "not run", None
            files[module][status] += 1
            if reason is None:
                continue
            files[module]["open"] += reason is OPEN
            files[module]["same"] += reason["equivalent"]
            known[reason["name"]].append(f"- {module}.{plain(function)}: {shorten(text)}")
    write_whole(ROOT / "docs" / "mutation.md", page(files, known))


def plain(function):
    """The function's or method's own name: x_select_one, xǁViewǁquery."""
    return function.removeprefix("x").removeprefix("_").strip("ǁ").replace("ǁ", ".")


def shorten(text, width=90):
    """The old and the new lines around where they differ."""
    old, _, new = text.partition(" => ")
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, start - 30)
    cut = [("…" if start else "") + part[start : start + width] for part in (old, new)]
    return " => ".join(f"`` {part} ``" if part else "nothing" for part in cut)


def page(files, known):
    count = sum(files.values(), Counter())
    alive = count["survived"] + count["no tests"] + count["equivalent"] - count["same"]
    killed = count["killed"] + count["timeout"]
    total, whole = killed + alive + count["same"], sum(count.values()) - count["open"] - count["same"]
    net = killed / max(1, killed + alive)
    scope = f"All {total} mutants of {len(files)} files were run."
    if total < whole:
        scope = f"{total} of the {whole} mutants of {len(files)} files were run: a random sample, since the order is that of"
        scope += " a hash."
    rows = ["| file | killed | survived | of these open | equivalent | not run |", "|---|--:|--:|--:|--:|--:|"]
    for module, c in sorted(files.items()):
        here = c["survived"] + c["no tests"] + c["equivalent"] - c["same"]
        cells = c["killed"] + c["timeout"], here, c["open"], c["same"], c["not run"]
        rows.append(f"| {module.replace('.', '/')}.py | " + " | ".join(map(str, cells)) + " |")
    text = PAGE.format(
        version=version("mutmut"), slower=SLOWER, seconds=TEST_SECONDS, scope=scope, table="\n".join(rows),
        history=HISTORY.strip(), killed=killed, timeout=count["timeout"], explained=alive - count["open"], open=count["open"],
        equivalent=count["same"], net=100 * net, rate=100 * killed / max(1, total),
    )  # fmt: skip
    for reason in [*REASONS, OPEN]:
        listed = known[reason["name"]]
        if listed:
            text += f"\n### {reason['name']} ({len(listed)})\n\n{reason['why']}\n"
            text += "" if reason["equivalent"] else "\n" + "\n".join(sorted(listed)) + "\n"
    return text


if __name__ == "__main__":
    main()
