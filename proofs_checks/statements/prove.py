"""Run every statement: tight instance, named cases, the shipped capture, random and searched instances; a row each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proofs_checks.statements import rigorous
from proofs_checks.statements.capture_steps import shipped_cut
from proofs_checks.statements.search import Hunt, climb, fields_of, pick, target
from proofs_checks.statements.statement import Instance, Kind, StatementModule


@dataclass(frozen=True)
class Profile:
    """How hard to try one statement."""

    instances: int  # random instances to draw
    batch: int  # of one shape each
    finite: int  # batches of a statement about a finite family, which repeats itself
    seconds: float  # of processor time for the random instances; a sixth of it for identities
    climbs: int
    evaluations: int
    examples: int


PROFILES = {
    "ci": Profile(instances=6000, batch=60, finite=10, seconds=1.0, climbs=1, evaluations=150, examples=25),
    "deep": Profile(instances=10**6, batch=1000, finite=100, seconds=120.0, climbs=6, evaluations=600, examples=150),
}


@dataclass(frozen=True)
class Row:
    """One line of ``kvproof prove``."""

    id: str
    source: str
    verdict: str  # HOLDS, REFUTED, VACUOUS, NO_CONSTANT, NOT_APPLICABLE
    instances: int
    tightest_ratio: float | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        """The row with DESIGN's field names."""
        return asdict(self)


def decided_by_balls(module: StatementModule, instance: Instance, scale: float = 1.0) -> bool | None:
    """Whether ball arithmetic confirms a violation of one instance; None if it has no say (no enclosure, no flint)."""
    enclose = getattr(module, "enclose", None)
    if enclose is None or not rigorous.available():
        return None
    with rigorous.precision():
        left, right = enclose(instance)
        if module.ABOUT.kind is Kind.UPPER_BOUND:
            return bool(left > right * rigorous.ball(scale))
        return bool(left < right / rigorous.ball(scale))


def hunt_down(module: StatementModule, profile: Profile, seed: int) -> Hunt:
    """Try to break one statement within the profile's budget."""
    hunt, rng = Hunt(module), np.random.default_rng([seed, len(module.ABOUT.id), *module.ABOUT.id.encode()])
    hunt.look(module.tight_instance())
    for instance in getattr(module, "cases", dict)().values():
        hunt.look(instance)
    for instance in getattr(module, "families", list)():
        hunt.look(instance)
    if hasattr(module, "on_capture") and (step := shipped_cut()) is not None:
        hunt.try_look(module.on_capture(step))
    bound = module.ABOUT.kind in (Kind.UPPER_BOUND, Kind.LOWER_BOUND)
    deadline = time.process_time() + profile.seconds / (1 if bound else 6)
    batches = profile.finite if module.ABOUT.exhaustive else profile.instances
    while batches > 0 and hunt.instances < profile.instances and time.process_time() < deadline:
        hunt.look(module.sample(rng, profile.batch))
        batches -= 1
    names = fields_of(module)
    for _ in range(profile.climbs if names else 0):
        start = small_instance(module, rng, names)
        climb(hunt, start, names, profile.evaluations)
        target(hunt, start, names, profile.examples)
    return hunt


def small_instance(module: StatementModule, rng: np.random.Generator, names: tuple[str, ...]) -> Instance:
    """The tightest single instance of a few small random batches: a place to start climbing from."""
    best: tuple[float, Instance] | None = None
    for _ in range(6):
        batch = module.sample(rng, 20)
        slack = module.check(batch)
        size = sum(batch[f][0].size for f in names)
        ratios = np.where(np.isnan(slack.ratios), -1.0, slack.ratios)
        score = float(np.max(ratios)) - 0.01 * size  # short vectors are searched better
        if best is None or score > best[0]:
            best = score, pick(batch, int(np.argmax(ratios)))
    assert best is not None
    return best[1]


def prove_one(module: StatementModule, profile: Profile, seed: int = 0) -> Row:
    """The row of one statement as the papers state it."""
    about = module.ABOUT
    try:
        hunt = hunt_down(module, profile, seed)
    except ImportError as error:
        return Row(about.id, about.source, "NOT_APPLICABLE", 0, None, f"{error.name} is not installed (extra certify)")
    confirmed, cleared = 0, 0
    for instance in hunt.violations[:10]:
        if decided_by_balls(module, instance) is False:
            cleared += 1
        else:
            confirmed += 1
    wrong = sum(decided_by_balls(module, instance) is True for instance in hunt.undecided)
    reason = ""
    if confirmed or wrong:
        reason = f"{confirmed + wrong} instances violate the statement beyond rounding"
    elif cleared:
        reason = f"{cleared} violations beyond the guard were cleared by ball arithmetic: the guard is too narrow"
    elif hunt.undecided_count:
        reason = f"{hunt.undecided_count} float64 violations within the guard"
        if getattr(module, "enclose", None) and rigorous.available():
            reason += f"; ball arithmetic looked at {len(hunt.undecided)} and found none"
    verdict = "REFUTED" if confirmed or wrong else "HOLDS"
    return Row(about.id, about.source, verdict, hunt.instances, hunt.tightest, reason)


def scaled_one(module: StatementModule, scale: float) -> Row:
    """The row of one statement with its bound scaled: the tight instance has to refute it."""
    about, instance = module.ABOUT, module.tight_instance()
    try:
        slack = module.check(instance)
    except ImportError as error:
        return Row(about.id, about.source, "NOT_APPLICABLE", 0, None, f"{error.name} is not installed (extra certify)")
    if about.no_constant:
        return Row(about.id, about.source, "NO_CONSTANT", len(slack.left), slack.tightest, about.no_constant)
    scaled = module.check(instance, scale)
    refuted = bool(scaled.violated.any())
    if refuted and decided_by_balls(module, pick(instance, int(np.argmax(scaled.violated))), scale) is False:
        refuted = False
    reason = f"the tight instance refutes the bound scaled by {scale:g}" if refuted else "the scaled bound survives"
    return Row(about.id, about.source, "REFUTED" if refuted else "HOLDS", len(slack.left), slack.tightest, reason)


def prove(
    modules: Iterable[StatementModule], *, profile: str = "ci", scale: float | None = None, seed: int = 0
) -> Iterable[Row]:
    """One row per statement, as it is done. ``scale`` (such as 0.9) asks for the refutation of the scaled bounds."""
    for module in modules:
        yield prove_one(module, PROFILES[profile], seed) if scale is None else scaled_one(module, scale)
