"""The Triton twins of the other systems pass their stages in the interpreter; what a kernel cannot take is refused."""

import os

import pytest

from proofs_checks.judge.verify import verify

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from fastimpl.baselines.quest import quest_pages, quest_scores  # noqa: E402
from fastimpl.baselines.sparq import sparq_attention  # noqa: E402
from fastimpl.checks import ArgumentError  # noqa: E402

WIDE = torch.ones(1, 2, 5)
SCORES = torch.ones(1, 1, 4)
STAGES = (
    "quest_envelope", "quest_scores", "quest_pages", "centroid_scores", "moment_scores", "shared_basis_scores",
    "sparq_attention",
)  # fmt: skip


def test_the_interpreted_kernels_pass_their_stages(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    report = verify("fastimpl.port", list(STAGES), "quick", None, 240.0)
    assert report.verdict == "PASS", report
    assert [s.stage for s in report.stages if s.verdict == "PASS"] == list(STAGES)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: quest_scores(queries=torch.ones(1, 1, 4), minimum=WIDE, maximum=WIDE), "minimum"),
        (lambda: quest_pages(scores=SCORES, budget_tokens=16, page_size=0), "page_size"),
        (lambda: quest_pages(scores=SCORES, budget_tokens=16, page_size=16, recent_pages=4), "recent_pages"),
        (lambda: step(rank=5), "rank"),
        (lambda: step(ranking="mass"), "ranking"),
        (lambda: step(keys=torch.ones(1, 0, 4), values=torch.ones(1, 0, 4)), "keys"),
        (lambda: step(queries=[[[1.0]]]), "queries"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(call, name):
    with pytest.raises(ArgumentError, match=f"^{name}: expected"):
        call()


def step(**changed):
    """A SparQ step over three tokens with some arguments changed."""
    right = {"queries": torch.ones(1, 1, 4), "keys": torch.ones(1, 3, 4), "values": torch.ones(1, 3, 4)}
    return sparq_attention(**{**right, "rank": 2, "kept_tokens": 1, **changed})
