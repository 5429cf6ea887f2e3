"""What locks-kv-0.1.4 does differently from the paper, and what each difference costs on the shipped capture.

The costs are stored in costs.json as `measured` gives them; ``python -m proofs_checks.judge.locks_kv.costs`` measures
again and prints the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proofs_checks.judge.judgement import Departure
from refimpl.locks.dialect import LOCKS_KV_0_1_4

BUDGET, RANK, PAGE_SIZE = 256, 8, 16
DIGITS = 4
FILE = Path(__file__).with_name("costs.json")

WHAT = {
    "combine": (
        "AMB-01/combine",
        "pages rank by the sum over the group of exp(score - largest score of all pages but the most recent), "
        "not by the average share of all pages",
    ),
    "forced_inside_budget": (
        "AMB-04/forced_inside_budget",
        "sink and most recent page are kept besides the budget, so two pages more are read",
    ),
    "scale_bf16": (
        "AMB-08/scale_bf16",
        "scales are rounded to bf16 after the codes were computed with the exact ones",
    ),
    "scale_floor": ("AMB-09/scale_floor", "no scale is below 1e-8, that of a line of zeros included"),
    "eigenvalue_floor": (
        "AMB-10/eigenvalue_floor",
        "zero modes are kept, their eigenvalues raised to 1e-10, so that their columns are not of unit length",
    ),
    "ascending": ("AMB-32/ascending", "modes are stored in ascending order, the largest last"),
    "query_int8": (
        f"{LOCKS_KV_0_1_4.name}/query_int8",
        "every query head is rounded to int8 before it is scored; Eq. (1) takes it exactly",
    ),
}
"""Id and words of every switch of the profile; the id has that of the ambiguity where there is one."""


def departures() -> list[Departure]:
    """Every documented difference with its cost.

    >>> [d.id for d in departures()][:2]
    ['AMB-01/combine', 'AMB-04/forced_inside_budget']
    """
    stored = json.loads(FILE.read_text())
    return [Departure(name, what, _spelled(stored, switch)) for switch, (name, what) in WHAT.items()]


def _spelled(stored: dict[str, Any], switch: str) -> str:
    """One line: what is lost of the covered mass, below 0 what is gained, on each part of the capture."""
    parts = [
        f"{capture} {costs[switch]['group mean']:.{DIGITS}f} ({costs[switch]['least covered head']:.{DIGITS}f} for its "
        f"least covered head), {costs[switch]['other pages']:.1%} other pages"
        for capture, costs in stored["coverage lost"].items()
    ]
    budget = stored["measured"]["budget_tokens"]
    return f"group-mean coverage lost at {budget} tokens per KV head: {'; '.join(parts)}"


def measured() -> dict[str, Any]:
    """The content of costs.json, measured on the shipped capture, one switch at a time (about ten seconds).

    Coverage is of the exact attention: its mean over the group (what Cor. 3 maximises), that of the group's least
    covered head, and the part of the paper's pages that are not chosen.
    """
    from proofs_checks.fixtures import fixtures_directory  # not at the top: judging needs no capture and no microscope
    from proofs_checks.microscope.accumulate import Results
    from proofs_checks.microscope.departures import measure_departures
    from proofs_checks.microscope.source import load_capture
    from proofs_checks.microscope.steps import page_context

    lost: dict[str, Any] = {}
    for capture in load_capture(fixtures_directory() / "captures" / "smollm2_135m_instruct_q4_1.safetensors"):
        results = Results()
        for trace in capture.heads():
            measure_departures(trace, page_context(trace, PAGE_SIZE), RANK, BUDGET, results)

        def value(profile: str, measure: str, name: str = capture.name, found: Any = results) -> float:
            return float(found["departures", name, BUDGET, profile, measure].value)

        lost[capture.name] = {
            switch: {
                "group mean": _rounded(value("paper", "mean") - value(switch, "mean")),
                "least covered head": _rounded(value("paper", "worst") - value(switch, "worst")),
                "other pages": _rounded(value(switch, "other pages")),
            }
            for switch in WHAT
        }
    how = {
        "by": "proofs_checks.microscope.departures",
        "budget_tokens": BUDGET,
        "rank": RANK,
        "basis_bits": 4,
        "page_size": PAGE_SIZE,
    }
    return {"measured": how, "coverage lost": lost}


def _rounded(x: float) -> float:
    return round(x, DIGITS) + 0.0  # no -0.0


if __name__ == "__main__":
    print(json.dumps(measured(), indent=1))
