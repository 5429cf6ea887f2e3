"""Right ports of the fixed-rate codes pass every case and drawn inputs, their choices listed as departures."""

import numpy as np
import pytest
from honest_codes import DEPARTURES, PORTS, kivi_in, qr_in_float32
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_checks.judge.case import Case
from proofs_checks.judge.checks.random_matrices import ALARM, gaussian_mean, hoeffding
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.table_baseline_codes import BASELINE_CODES
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.numbers import Precision
from refimpl.baselines.turboquant import turboquant_rotation

PAIRS = [(name, stage) for name, port in PORTS.items() for stage in port]


def seen(port, stage):
    """The departures of a stage's cases; an assertion for any that is not passed."""
    session, found = LocalSession(build_port(port)), set()
    for case in cases_of(stage):
        outcome = run_case(session, case, "float32")
        assert outcome.verdict in ("PASS", "NOT_PROVIDED"), (case.id, outcome.judgement.faults, outcome.message)
        found |= {d.id for d in outcome.judgement.departures}
    return found


@pytest.mark.parametrize(("name", "stage"), PAIRS)
def test_a_right_port_passes_every_case(name, stage):
    assert seen(PORTS[name], stage) <= DEPARTURES[name]


def test_every_stage_has_a_right_port_written_apart():
    assert {stage for _, stage in PAIRS} == {stage.name for stage in BASELINE_CODES}


def test_choices_are_listed():
    found = set().union(*(seen(PORTS["as-served"], stage) for stage in PORTS["as-served"]))
    assert found == DEPARTURES["as-served"]


def test_codes_by_the_full_scale_are_a_departure():
    follows = {"kivi_quantize": kivi_in(np.float16, follow_stored=False)}
    assert seen(follows, "kivi_quantize") == {"AMB-46"}


seeds = st.integers(0, 10**6)
sizes = st.sampled_from([4, 16, 64])


def rng_of(seed):
    return np.random.default_rng(seed)


@st.composite
def groups(draw):
    rng, group = rng_of(draw(seeds)), draw(st.sampled_from([4, 8]))
    shape = (draw(st.integers(1, 2)), group * draw(st.integers(0, 3)), group * draw(st.integers(1, 2)))
    x = rng.normal(size=(2, *shape)) * 2.0 ** draw(st.integers(-4, 8))
    x[rng.random(x.shape) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.25
    return {"keys": x[0], "values": x[1], "bits": draw(st.integers(1, 8)), "group_size": group}


@st.composite
def vectors(draw):
    rng, d = rng_of(draw(seeds)), draw(sizes)
    x = rng.normal(size=(draw(st.integers(0, 6)), d)) * 2.0 ** draw(st.integers(-6, 12))
    x[rng.random(len(x)) < 0.1] = 0.0
    rotation = turboquant_rotation(d=d, kind=draw(st.sampled_from(["haar", "hadamard"])), seed=draw(seeds))
    levels = np.sort(rng.normal(size=2 ** draw(st.integers(1, 4)))) / np.sqrt(d)
    return {"x": x, "rotation": rotation, "levels": levels}


@st.composite
def coded(draw):
    given_vectors, rng = draw(vectors()), rng_of(draw(seeds))
    N, d = given_vectors["x"].shape
    codes = rng.integers(0, len(given_vectors["levels"]), size=(N, d))
    norm = np.linalg.norm(given_vectors["x"], axis=1)
    table = {name: given_vectors[name] for name in ("rotation", "levels")}
    return {"codes": codes, "norm": norm, **table, "norm_correction": draw(st.booleans())}


@st.composite
def projected(draw):
    rng, d, rows = rng_of(draw(seeds)), draw(sizes), draw(st.integers(1, 40))
    x = rng.normal(size=(draw(st.integers(0, 5)), d)) * 2.0 ** draw(st.integers(-6, 6))
    return {"x": x, "projection": rng.normal(size=(rows, d))}


@st.composite
def signed(draw):
    inputs, rng = draw(projected()), rng_of(draw(seeds))
    rows, d = inputs["projection"].shape
    N = len(inputs["x"])
    given_signs = rng.choice([-1, 1], size=(N, rows))
    queries = rng.normal(size=(3, d))
    return {"signs": given_signs, "norm": rng.random(N), "projection": inputs["projection"], "queries": queries}


@st.composite
def channels(draw):
    rng, d = rng_of(draw(seeds)), draw(sizes)
    H, T = draw(st.integers(1, 2)), draw(st.integers(0, 5))
    parameters = {"mean": rng.normal(size=(H, d)), "scale": np.exp(rng.normal(size=(H, d)))}
    return {"x": rng.normal(size=(H, T, d)) * 3, **parameters, "signs": rng.choice([-1.0, 1.0], size=d)}


@st.composite
def lloyd_coded(draw):
    inputs, rng = draw(channels()), rng_of(draw(seeds))
    x = inputs.pop("x")
    codes = rng.integers(0, 4, size=x.shape)
    return {"codes": codes, "norm": np.linalg.norm(x, axis=-1), **inputs, "norm_correction": draw(st.booleans())}


INPUTS = {
    "kivi_quantize": groups(),
    "turboquant_encode": vectors(),
    "turboquant_decode": coded(),
    "qjl_encode": projected(),
    "qjl_estimate": signed(),
    "lloyd2_encode": channels(),
    "lloyd2_decode": lloyd_coded(),
}


@pytest.mark.parametrize(("name", "stage"), [(n, s) for n, s in PAIRS if s in INPUTS])
def test_no_alarm_on_drawn_inputs(name, stage):
    @settings(max_examples=25, deadline=None)
    @given(INPUTS[stage])
    def run(inputs):
        prepared = prepare(Case(stage, "drawn", "bounded", "A", "drawn", dict), "float32", inputs)
        with np.errstate(all="ignore"):
            answer = STAGES[stage].named(PORTS[name][stage](**prepared.sent))
        judgement = judge(prepared, answer, Precision(), False, lambda case: None)
        assert not judgement.faults, judgement.faults[0].message

    run()


def test_tails_are_those_that_are_claimed():
    """Hoeffding and Gaussian concentration at the alarm's level, against exact binomial and normal tails."""
    from scipy.stats import binom, norm

    count = 2048
    room = hoeffding(count)
    assert 2 * binom.sf(np.floor(count * (0.5 + room)), count, 0.5) <= ALARM
    assert 2 * norm.sf(gaussian_mean(1.0, count) * np.sqrt(count)) <= ALARM


def test_a_law_that_is_not_provided_is_not_counted():
    session = LocalSession(build_port({"turboquant_rotation": qr_in_float32}))
    verdicts = {case.name: run_case(session, case, "float32").verdict for case in cases_of("turboquant_rotation")}
    assert verdicts == {"haar-d32": "PASS", "haar-d8": "PASS", "hadamard-d32": "NOT_PROVIDED"}
