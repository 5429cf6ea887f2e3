"""Right ports that do it another way pass; what the papers leave open is listed as a departure, never failed."""

import numpy as np
import pytest

from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.mutants.readkv_parts import Parts, attention_of, restricted_of
from proofs_checks.mutants.readkv_quantiser import _rounds, _tree_by
from proofs_checks.numbers import round_bfloat16
from refimpl.readkv.affine import affine_quantize
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.codec import readkv_encode
from refimpl.readkv.importance import readkv_key_importance
from refimpl.readkv.planes import readkv_pack_key_planes, readkv_unpack_key_planes
from refimpl.readkv.rotation import fast_hadamard, readkv_rotate
from refimpl.readkv.tree import deployed_table

READERS = ("readkv_attention", "readkv_restricted_attention")


def departures(stages, **replacements):
    """The departures that a port with these stages shows; fails on any case that is not passed."""
    session, seen = LocalSession(build_port(replacements)), set()
    for stage in stages:
        for case in cases_of(stage):
            if case.profile == "quick":
                outcome = run_case(session, case, "float32")
                assert outcome.verdict == "PASS", (case.id, outcome.judgement.faults, outcome.message)
                seen |= {d.id for d in outcome.judgement.departures}
    return seen


def in_sequency_order(*, x, signs):
    """Rows by number of sign changes: the Walsh matrix, which is its own transpose like the natural one."""
    d = x.shape[-1]
    if d & (d - 1):
        raise ValueError(d)
    order = np.argsort(np.count_nonzero(np.diff(fast_hadamard(np.eye(d)), axis=1), axis=1))
    return readkv_rotate(x=x, signs=signs)[..., order]


def scaled_in_every_round(*, x, signs):
    """float32, 1/sqrt(2) per round."""
    d, half = x.shape[-1], 1
    if d & (d - 1):
        raise ValueError(d)
    x = (x * signs).astype(np.float32)
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        x = x.reshape(*x.shape[:-3], d) * np.float32(np.sqrt(0.5))
        half *= 2
    return x


def by_matrix(*, x, signs):
    d = x.shape[-1]
    if d & (d - 1):
        raise ValueError(d)
    matrix = (fast_hadamard(np.eye(d)) / np.sqrt(d)).astype(np.float32)
    return (x * signs).astype(np.float32) @ matrix


def with_high_bit_first(*, codes):
    bits = np.unpackbits(codes.T[..., None], axis=-1)  # [d, T, 8]
    return np.packbits(np.moveaxis(bits, -1, 0), axis=-1)


def from_high_bit_first(*, planes, tokens):
    bits = np.unpackbits(planes, axis=-1, count=tokens)
    return np.packbits(np.moveaxis(bits, 0, -1), axis=-1)[..., 0].T.copy()


def test_another_order_of_coordinates_is_a_departure_and_its_readers_pass():
    found = departures(("readkv_rotate", *READERS), readkv_rotate=in_sequency_order)
    assert found == {"AMB-16"}


def test_another_bit_order_is_a_departure_if_packing_and_unpacking_agree():
    found = departures(
        ("readkv_pack_key_planes", "readkv_unpack_key_planes"),
        readkv_pack_key_planes=with_high_bit_first,
        readkv_unpack_key_planes=from_high_bit_first,
    )
    assert found == {"AMB-18"}


@pytest.mark.parametrize(
    ("pack", "unpack", "failing"),
    [
        (with_high_bit_first, readkv_unpack_key_planes, "readkv_pack_key_planes"),
        (readkv_pack_key_planes, from_high_bit_first, "readkv_unpack_key_planes"),
        (
            lambda *, codes: readkv_pack_key_planes(codes=codes)[::-1].copy(),
            lambda *, planes, tokens: readkv_unpack_key_planes(planes=planes[::-1], tokens=tokens),
            "readkv_pack_key_planes",  # agree with each other, but the first planes hold no prefix
        ),
    ],
)
def test_layouts_that_lose_bits_or_prefixes_fail(pack, unpack, failing):
    session = LocalSession(build_port({"readkv_pack_key_planes": pack, "readkv_unpack_key_planes": unpack}))
    outcomes = [run_case(session, c, "float32") for c in cases_of(failing)]
    assert any(o.verdict == "FAIL" for o in outcomes)


@pytest.mark.parametrize("rotate", [scaled_in_every_round, by_matrix])
def test_other_sums_of_the_rotation_pass(rotate):
    assert departures(("readkv_rotate", *READERS), readkv_rotate=rotate) == set()


def test_a_tree_of_50_rounds_passes_with_all_that_uses_it():
    stages = ("readkv_tree", "readkv_encode", "readkv_decode", *READERS)
    assert departures(stages, readkv_tree=lambda *, depth: _tree_by(_rounds(50), depth)) == set()


def test_a_factor_on_all_importances_passes():
    def mean(*, rotated_queries, key_scale):
        return readkv_key_importance(rotated_queries=rotated_queries, key_scale=key_scale) / rotated_queries.shape[1]

    assert departures(("readkv_key_importance", *READERS), readkv_key_importance=mean) == set()


def test_ties_to_the_higher_item_pass_where_nothing_else_is_declared():
    def mirrored(*, importance, gains, budget, minimum_depth=0):
        depths = readkv_choose_depths(
            importance=importance[::-1], gains=gains, budget=budget, minimum_depth=minimum_depth
        )
        return depths[::-1].copy()

    assert departures(("readkv_choose_depths", *READERS), readkv_choose_depths=mirrored) == set()


def test_a_value_on_a_split_may_go_down():
    def lower(*, z):
        node = np.zeros(z.shape, dtype=np.int64)
        for thresholds in deployed_table().thresholds:
            node = 2 * node + (z > thresholds[node])
        return node.astype(np.uint8)

    on_splits = {"z": np.concatenate(deployed_table().thresholds)}
    assert not np.array_equal(lower(**on_splits), readkv_encode(**on_splits))
    assert departures(("readkv_encode",), readkv_encode=lower) == set()


def test_a_key_mean_that_shifts_all_logits_alike_may_be_dropped():
    parts = Parts(restore_keys=lambda mean, scale, z: scale[:, None] * z)
    readers = {"readkv_attention": attention_of(parts), "readkv_restricted_attention": restricted_of(parts)}
    assert departures(READERS, **readers) == set()


def affine_stored(rounded):
    """Affine rows whose scale and zero go through a storage format."""

    def stored(*, x, bits):
        result = affine_quantize(x=x, bits=bits)
        return {**result, **{n: rounded(result[n]) for n in ("scale", "zero")}}

    return stored


def test_affine_scales_in_half_precision_are_a_departure():
    assert departures(("affine_quantize",), affine_quantize=affine_stored(round_bfloat16)) == {"AMB-08"}


def test_a_minimum_that_float16_cannot_hold_fails_there_alone():
    def half(numbers):
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16).astype(np.float32)

    session = LocalSession(build_port({"affine_quantize": affine_stored(half)}))
    failed = {c.name for c in cases_of("affine_quantize") if run_case(session, c, "float32").verdict != "PASS"}
    assert failed == {"below-minus-65504", "below-minus-65504-at-d128"}


def in_bfloat16(function):
    """The function's result rounded to bf16, as an operand of a tensor core."""
    return lambda *arguments: round_bfloat16(function(*arguments)).astype(float)


def test_tensor_core_operands_pass_with_half_precision_inputs():
    """Rotated queries, keys, weights, values and the mixed value in bf16; sums and the softmax in float32."""
    right = Parts()
    parts = Parts(
        rotate=in_bfloat16(right.rotate),
        restore_keys=in_bfloat16(right.restore_keys),
        restore_values=in_bfloat16(right.restore_values),
        mix=in_bfloat16(lambda weights, values, depths: right.mix(round_bfloat16(weights), values, depths)),
        back=in_bfloat16(right.back),
    )
    readers = {"readkv_attention": attention_of(parts), "readkv_restricted_attention": restricted_of(parts)}
    session = LocalSession(build_port(readers, DTYPES=("bfloat16",)))
    for stage in READERS:
        for case in cases_of(stage):
            if case.profile == "quick" and "bfloat16" in case.dtypes:
                outcome = run_case(session, case, "bfloat16")
                assert outcome.verdict == "PASS", (case.id, outcome.judgement.faults, outcome.message)
    float32 = LocalSession(build_port(readers))
    assert any(run_case(float32, c, "float32").verdict == "FAIL" for c in cases_of("readkv_attention"))
