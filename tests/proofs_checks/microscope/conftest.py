"""What the microscope's tests share: the shipped capture, expected numbers, and small synthetic traces."""

import json
from pathlib import Path

import numpy as np
import pytest

from proofs_checks.fixtures import fixtures_directory
from proofs_checks.microscope.source import HeadTrace, Rope, load_capture


@pytest.fixture(scope="session")
def expected():
    return json.loads((Path(__file__).parent / "expected.json").read_text())


@pytest.fixture(scope="session")
def shipped():
    path = fixtures_directory() / "captures" / "smollm2_135m_instruct_q4_1.safetensors"
    return {capture.name: capture for capture in load_capture(path)}


@pytest.fixture
def trace():
    """A small trace: 3 steps, 2 query heads, 70 keys of 8 channels; the last step sees 66 of them."""
    rng = np.random.default_rng(7)
    return HeadTrace(
        capture="synthetic",
        layer=0,
        head=0,
        keys=rng.standard_normal((70, 8)) * 2,
        values=rng.standard_normal((70, 8)),
        stored_queries=rng.standard_normal((3, 2, 8)) * 2,
        positions=np.array([63, 64, 65]),
        rope=Rope(100.0),
        carriers=((9, 11),),
        key_moments=(np.zeros(8), np.diag(np.arange(8.0) + 1)),
        first_head_keys=rng.standard_normal((70, 8)),
    )
