"""Locks App. A.3, Step 2: averaged shares move by at most 2 eta in the log if every score moves by at most eta."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT, log_sum_exp_guard
from proofs_checks.statements.sampling import magnitudes, normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-sandwich",
    source="Locks App. A.3, group-share sandwich",
    claim="If every score of every query head is off by at most eta, every page's group-averaged share is off by at "
    "most "
    "2 eta in the log.",
    hypotheses="G >= 1 and P >= 1; finite scores.",
    kind=Kind.UPPER_BOUND,
    tight="One page of vanishing share goes up by eta, all others down by eta.",
    hazard="Shares underflow to 0 and their logs to nan: log-shares s - LSE(s) are compared.",
    finding="Sharp as the page's share vanishes, for any G.",
)
SEARCH = ("scores", "error")


def hypotheses(instance: Instance) -> None:
    """Scores [N, G, P] with at least one head and one page."""
    require(min(instance["scores"].shape[1:]) >= 1, "G >= 1 and P >= 1", instance["scores"].shape)
    require(np.isfinite(instance["scores"]).all(), "finite scores")


def log_shares(scores: FloatArray) -> FloatArray:
    """Log of the group-averaged share: [N, G, P] -> [N, P], never through a share that underflows.

    >>> np.exp(log_shares(np.log([[[3.0, 1.0], [5.0, 5.0]]]))).round(12).tolist()
    [[0.625, 0.375]]
    """
    heads = scores - log_sum_exp(scores)[..., None]  # [N, G, P]
    return log_sum_exp(np.moveaxis(heads, 1, -1)) - np.log(scores.shape[1])


def left(instance: Instance) -> FloatArray:
    """The largest |log estimated share - log exact share|. [N]."""
    scores = instance["scores"]
    moved: FloatArray = np.abs(log_shares(scores + instance["error"]) - log_shares(scores)).max(axis=-1)
    return moved


def right(instance: Instance) -> FloatArray:
    """2 eta, eta the largest score error as rounded. [N]."""
    scores = instance["scores"]
    eta: FloatArray = np.abs((scores + instance["error"]) - scores).max(axis=(-2, -1))
    return 2 * eta


def guard(instance: Instance) -> FloatArray:
    """For both sets of scores: a log-sum-exp over pages, one over heads, a subtraction, log G. [N]."""
    total = np.zeros(len(instance["scores"]))
    for scores in (instance["scores"], instance["scores"] + instance["error"]):
        spread = 2 * np.abs(scores).max(axis=(-2, -1)) + np.log(scores.shape[1] * scores.shape[2]) + 1
        heads = log_sum_exp_guard(scores).max(axis=-1)
        total = total + heads + (scores.shape[1] + 20) * UNIT * 2 * spread
    return 1.1 * total


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """A page 60 nats below the other: its share moves by 2 eta.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return {"scores": np.array([[[-60.0, 0.0]]]), "error": np.array([[[1.0, -1.0]]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random scores with wide spreads, errors of full or random size."""
    heads, pages = small(rng, 1, 4), small(rng, 1, 8)
    error = rng.uniform(-1, 1, (count, heads, pages))
    if rng.random() < 0.5:
        error = np.sign(error)
    return {
        "scores": normal(rng, count, heads, pages, high=2.3),
        "error": error * magnitudes(rng, count, 2, -3, 1),
    }


def cases() -> dict[str, Instance]:
    """A single page has share 1 whatever its score; equal errors cancel in the share."""
    return {
        "one-page": {"scores": np.zeros((1, 2, 1)), "error": np.ones((1, 2, 1))},
        "common-error": {"scores": np.zeros((1, 1, 3)), "error": np.ones((1, 1, 3))},
    }


def on_capture(step: Any) -> Instance:
    """Exact scores of the step's pages, and the summaries' errors, one batch entry per KV head."""
    from proofs_checks.statements.retention import retention

    found = retention(step.group())
    return {"scores": found.exact, "error": found.estimated - found.exact}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, the error as given."""
    from proofs_checks.statements.rigorous import balls, each, each_row, largest, log_sum_exp

    scores, error = balls(instance["scores"][0]), balls(instance["error"][0])

    def logs(table: Any) -> Any:
        heads = table - each_row(log_sum_exp, table)[:, None]
        return each_row(log_sum_exp, heads.T)

    return largest(each(abs, logs(scores + error) - logs(scores))), 2 * largest(each(abs, error))
