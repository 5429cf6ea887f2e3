"""No ReadKV stage of a right port is failed, whatever is drawn: the float32 example port, the reference as a port."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_checks.judge.case import Case
from proofs_checks.judge.cases.readkv_inputs import gains_of, random_cache, random_queries, signs_of
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import Precision
from refimpl import port as reference
from refimpl.readkv.affine import affine_quantize
from refimpl.readkv.planes import readkv_pack_key_planes, readkv_pack_value_planes
from refimpl.readkv.tree import deployed_table

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ports" / "numpy_port.py"
description = importlib.util.spec_from_file_location("numpy_port_of_readkv", EXAMPLE)
NUMPY_PORT = importlib.util.module_from_spec(description)
description.loader.exec_module(NUMPY_PORT)

WIDTHS = st.sampled_from([1, 2, 4, 8, 16, 64, 128])
seeds = st.integers(0, 2**32 - 1)


@st.composite
def heads(draw):
    """H, G, T, d with every group size and odd token counts."""
    H, G = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 3, 4, 7, 8]))
    return H, G, draw(st.integers(0, 21)), draw(WIDTHS)


def rng_of(seed):
    return np.random.default_rng(seed)


@st.composite
def codes(draw):
    rng, T, d = rng_of(draw(seeds)), draw(st.integers(0, 20)), draw(st.integers(1, 20))
    return rng.integers(0, 256, size=(T, d))


@st.composite
def numbers(draw):
    """Numbers of very different sizes, with exact zeros and repeated rows."""
    rng = rng_of(draw(seeds))
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 5)), draw(WIDTHS))
    x = rng.normal(size=shape) * 2.0 ** draw(st.integers(-30, 30)) + draw(st.sampled_from([0.0, 0.0, 5.0]))
    x[rng.random(shape) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    return x


@st.composite
def encode_inputs(draw):
    """Normal numbers, and splits of the tree themselves."""
    rng = rng_of(draw(seeds))
    z = rng.normal(size=draw(st.integers(0, 40))) * draw(st.sampled_from([0.01, 1.0, 3.0, 1e6]))
    splits = np.concatenate(deployed_table().thresholds)
    return {"z": np.concatenate([z, rng.choice(splits, size=5)])}


@st.composite
def decode_inputs(draw):
    drawn = draw(codes())
    depth = draw(st.sampled_from(["one", "channels", "tokens"]))
    rng = rng_of(draw(seeds))
    if depth == "one":
        return {"codes": drawn, "depth": draw(st.integers(0, 8))}
    shape = (1, drawn.shape[1]) if depth == "channels" else (drawn.shape[0], 1)
    return {"codes": drawn, "depth": rng.integers(0, 9, size=shape)}


@st.composite
def choose_inputs(draw):
    """Importances with ties, zeros and 60 decades of range; every kind of budget and minimum."""
    rng, N, W = rng_of(draw(seeds)), draw(st.integers(0, 40)), draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["equal", "few", "wide", "zeros"]))
    importance = {
        "equal": np.ones(N),
        "few": rng.integers(0, 4, size=N).astype(float),
        "wide": 10.0 ** rng.uniform(-40, 20, size=N),
        "zeros": np.zeros(N),
    }[kind]
    least = draw(st.integers(0, W))
    gains = gains_of(W) if draw(st.booleans()) else np.sort(rng.integers(0, 4, size=W) / 4.0)[::-1]
    return {
        "importance": importance,
        "gains": gains,
        "budget": draw(st.integers(N * least, N * W)),
        "minimum_depth": least,
    }


@st.composite
def reader_inputs(draw):
    H, G, T, d = draw(heads())
    name = f"drawn{draw(st.integers(0, 10**6))}"
    queries = random_queries(name, H, G, d, draw(st.sampled_from([0.0, 0.1, 1.0, 10.0])))
    inputs = {"queries": queries, **random_cache(name, H, T, d)}
    if draw(st.booleans()):
        inputs["stored_depth"] = draw(st.integers(1, 8))
    if draw(st.booleans()):
        inputs["softmax_scale"] = draw(st.sampled_from([0.125, 1.0]))
    return inputs


@st.composite
def attention_inputs(draw):
    inputs = draw(reader_inputs())
    (H, T, d), W = inputs["key_codes"].shape, inputs.get("stored_depth", 8)
    return {
        **inputs,
        "key_budget": draw(st.integers(0, H * d * W)),
        "value_budget": draw(st.integers(0, H * T * W)),
    }


@st.composite
def restricted_inputs(draw):
    inputs = draw(reader_inputs())
    quarters = draw(st.integers(4, 4 * inputs.get("stored_depth", 8)))
    return {**inputs, "rate": quarters / 4}


@st.composite
def importance_inputs(draw):
    (H, G, _, d), rng = draw(heads()), rng_of(draw(seeds))
    return {
        "rotated_queries": rng.normal(size=(H, G, d)) * 2.0 ** draw(st.integers(-20, 20)),
        "key_scale": np.exp(2 * rng.normal(size=(H, d))),
    }


@st.composite
def weight_inputs(draw):
    (H, G, T, _), rng = draw(heads()), rng_of(draw(seeds))
    logits = rng.normal(size=(H, G, T)) * draw(st.sampled_from([0.0, 1.0, 50.0]))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    inputs = {"weights": weights / weights.sum(axis=-1, keepdims=True)}
    return {**inputs, "value_head_weight": rng.random(H)} if draw(st.booleans()) else inputs


def affine(draws):
    return st.tuples(draws, st.integers(1, 8)).map(lambda pair: {"x": pair[0], "bits": pair[1]})


def rotated(x):
    return {"x": x, "signs": signs_of(x.shape[-1], "drawn")}


def affine_codes(inputs):
    return affine_quantize(x=inputs["x"].astype(np.float32), bits=inputs["bits"])


INPUTS = {
    "readkv_tree": st.fixed_dictionaries({"depth": st.integers(1, 8)}),
    "readkv_rotate": numbers().map(rotated),
    "readkv_encode": encode_inputs(),
    "readkv_decode": decode_inputs(),
    "readkv_pack_key_planes": codes().map(lambda c: {"codes": c}),
    "readkv_unpack_key_planes": codes().map(lambda c: {"planes": readkv_pack_key_planes(codes=c), "tokens": len(c)}),
    "readkv_pack_value_planes": codes().map(lambda c: {"codes": c}),
    "readkv_unpack_value_planes": codes().map(
        lambda c: {"planes": readkv_pack_value_planes(codes=c), "channels": c.shape[1]}
    ),
    "readkv_key_importance": importance_inputs(),
    "readkv_value_importance": weight_inputs(),
    "readkv_choose_depths": choose_inputs(),
    "readkv_attention": attention_inputs(),
    "readkv_restricted_attention": restricted_inputs(),
    "lloyd_max_codebook": st.fixed_dictionaries(
        {"bits": st.integers(1, 6), "law": st.sampled_from(["normal", "sphere"]), "d": st.sampled_from([4, 16, 128])}
    ),
    "affine_quantize": affine(numbers()),
    "affine_dequantize": affine(numbers()).map(affine_codes),
}
SLOW = ("readkv_tree", "lloyd_max_codebook")


def ask_of(port):
    def ask(case):
        if isinstance(case, str):
            return port.readkv_tree(depth=8) if case == "readkv_tree/depth-8" else None
        return STAGES[case.stage].named(getattr(port, case.stage)(**prepare(case, "float32").carried))

    return ask


def judged(port, stage, inputs, lowest_index):
    prepared = prepare(Case(stage, "drawn", "bounded", "A", "drawn", dict), "float32", inputs)
    with np.errstate(all="ignore"):  # a port may overflow on its way to a right answer
        answer = STAGES[stage].named(getattr(port, stage)(**prepared.sent))
    judgement = judge(prepared, answer, Precision(), lowest_index, ask_of(port))
    assert not judgement.faults, judgement.faults[0].message
    assert not judgement.departures, judgement.departures[0].what


def test_every_readkv_stage_is_drawn():
    assert set(INPUTS) == {s for s in STAGES if s.startswith(("readkv", "lloyd_", "affine"))}


@pytest.mark.parametrize("stage", INPUTS)
def test_the_float32_numpy_port_raises_no_alarm(stage):
    @settings(max_examples=5 if stage in SLOW else 40, deadline=None)
    @given(INPUTS[stage])
    def run(inputs):
        judged(NUMPY_PORT, stage, inputs, False)

    run()


@pytest.mark.parametrize("stage", INPUTS)
def test_the_reference_as_a_port_raises_no_alarm(stage):
    @settings(max_examples=5 if stage in SLOW else 20, deadline=None)
    @given(INPUTS[stage])
    def run(inputs):
        judged(reference, stage, inputs, True)

    run()
