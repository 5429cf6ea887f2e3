"""Every argument of every reference function, spoilt in every way: ArgumentError that starts with its name."""

import numpy as np
import pytest
from draws import Draw
from stage_inputs import INPUTS

from proofs_checks.judge.stages import STAGES as EVERY_STAGE
from refimpl.checks import ArgumentError

VALID = {stage: build(Draw(2, 64, 8, complete=3, opened=2, rank=3, bits=4, kept=3)) for stage, build in INPUTS.items()}
STAGES = {name: row for name, row in EVERY_STAGE.items() if name in VALID}  # ReadKV's refusals: tests/refimpl/readkv
VALID["sparse_attention"]["pages"] = np.array([[0, 3]])
VALID["paged_sparse_attention"]["pages"] = np.array([[[0, 3, -1]], [[-1, -1, -1]], [[1, 0, -1]]])
MINUS_INFINITY = {("merge_attention", "lses"), ("locks_page_shares", "scores")}  # log-masses of empty sets (AMB-26)
READ_THROUGH = {"key_pool", "value_pool"}  # what no sequence holds may be anything


def arrays(*roles):
    """(stage, argument) of every array argument with one of these roles."""
    return [(s, n) for s, row in STAGES.items() for n, role in row.arguments.items() if role in roles]


FLOATS, INTEGERS = arrays("input", "float"), arrays("int8", "uint8", "index")


def refused(stage, **spoilt):
    """The message with which the reference refuses the valid call with some arguments replaced."""
    with pytest.raises(ArgumentError) as caught:
        STAGES[stage].reference(**(VALID[stage] | spoilt))
    return str(caught.value)


@pytest.mark.parametrize("stage", STAGES)
def test_the_valid_call_is_accepted(stage):
    STAGES[stage].reference(**VALID[stage])


@pytest.mark.parametrize(("stage", "name"), FLOATS + INTEGERS)
@pytest.mark.parametrize("reshape", [lambda a: a[None], lambda a: a[0], lambda a: a.ravel()[0]])
def test_another_number_of_axes(stage, name, reshape):
    array = VALID[stage][name]
    message = refused(stage, **{name: reshape(array)})
    assert message.startswith(f"{name}: expected shape [")
    assert message.endswith(f"got {list(np.shape(reshape(array)))}")


AXES = {
    "queries": "HGd",
    "keys": "HTd",
    "values": "HTd",
    "outputs": "SHGd",
    "lses": "SHG",
    "pages": "HK",
    "key_pool": "MBHd",
    "value_pool": "MBHd",
    "block_table": "NC",
    "tokens": "N",
    "key_pages": "HPBd",
    "centroid": "HPd",
    "basis": "HPdr",
    "coefficients": "HPBr",
    "centroid_codes": "HPd",
    "centroid_scale": "HP",
    "basis_codes": "HPdr",
    "basis_scale": "HPr",
    "coefficient_codes": "HPBr",
    "coefficient_scale": "HPB",
    "basis_bytes": "HPrj",
    "scores": "HGP",
    "shares": "HP",
}
PAGED_AXES = {"queries": "NHGd", "pages": "NHK"}


@pytest.mark.parametrize(("stage", "name"), FLOATS + INTEGERS)
def test_an_axis_that_disagrees_with_the_other_arguments(stage, name):
    """The one of the two that is read later is named; an axis of one argument alone is free."""
    axes = AXES | (PAGED_AXES if "key_pool" in VALID[stage] else {})
    array = VALID[stage][name]
    arguments = [n for n, value in VALID[stage].items() if isinstance(value, np.ndarray)]
    for axis, letter in enumerate(axes[name]):
        shared = {n for n in arguments if letter in axes[n]}
        if len(shared) > 1:
            longer = np.concatenate([array, array.take([0], axis=axis)], axis=axis)
            assert refused(stage, **{name: longer}).partition(":")[0] in shared


@pytest.mark.parametrize(("stage", "name"), FLOATS)
@pytest.mark.parametrize("dtype", [complex, bool, str, object])
def test_a_type_that_is_not_real(stage, name, dtype):
    assert refused(stage, **{name: VALID[stage][name].astype(dtype)}).startswith(name)


@pytest.mark.parametrize(("stage", "name"), FLOATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite(stage, name, value):
    array = VALID[stage][name].astype(np.float64)
    if name in READ_THROUGH:  # the first token of the first sequence
        index = (int(VALID[stage]["block_table"][0, 0]), 0, 0, 1)
    elif stage == "sparse_attention" and name != "queries":
        index = (0, int(VALID[stage]["pages"][0, 0]) * 8, 1)
    else:
        index = (0,) * array.ndim
    array[index] = value
    if value == -np.inf and (stage, name) in MINUS_INFINITY:
        STAGES[stage].reference(**(VALID[stage] | {name: array}))
        return
    message = refused(stage, **{name: array})
    assert message.startswith(name)
    assert f"got {value}" in message


@pytest.mark.parametrize(("stage", "name"), INTEGERS)
@pytest.mark.parametrize("dtype", [np.float64, bool, str])
def test_integers_of_another_type(stage, name, dtype):
    assert refused(stage, **{name: VALID[stage][name].astype(dtype)}).startswith(name)


OUT_OF_RANGE = {
    "pages": (-2, 99),
    "block_table": (-1, 99),
    "tokens": (-1, 999),
    "basis_codes": (-129, 128),
    "centroid_codes": (-129, 128),
    "coefficient_codes": (-129, 128),
    "basis_bytes": (-1, 256),
}


@pytest.mark.parametrize(("stage", "name"), INTEGERS)
@pytest.mark.parametrize("end", [0, 1])
def test_integers_out_of_range(stage, name, end):
    array = VALID[stage][name].astype(np.int64)
    array[(0,) * array.ndim] = OUT_OF_RANGE[name][end]
    expected = "block_table" if name == "tokens" and end else name  # too many tokens: the table has no block for them
    assert refused(stage, **{name: array}).startswith(expected)


@pytest.mark.parametrize("value", [-9, 8])
def test_a_code_that_no_nibble_holds(value):
    codes = VALID["locks_pack_basis"]["basis_codes"].copy()
    codes[0, 0, 0, 0] = value
    assert refused("locks_pack_basis", basis_codes=codes).startswith("basis_codes: expected values in -8..7, got")


def test_an_odd_number_of_channels_to_pack():
    assert refused("locks_pack_basis", basis_codes=np.zeros((1, 1, 3, 2), int)).startswith(
        "basis_codes: expected an even"
    )


@pytest.mark.parametrize("stage", ["sparse_attention", "paged_sparse_attention"])
def test_a_page_listed_twice(stage):
    pages = VALID[stage]["pages"].copy()
    pages = np.full((*pages.shape[:-1], 2), 0) if stage == "sparse_attention" else np.full((3, 1, 2), -1)
    pages[(0,) * (pages.ndim - 1)] = 1
    assert refused(stage, pages=pages).startswith("pages: expected distinct pages")


SCALARS = {
    "page_size": (0, -1, 8.0, "8", None, True),
    "budget_tokens": (0, -3, 8, 24.0, "24", None, True),  # 8 tokens are one page: sink and most recent do not fit
    "rank": (0, -1, 9, 3.0, "3", None, True),
    "basis_bits": (0, 3, 4.0, "4", "int4", True),
}
PLAIN = [
    (s, n, v) for s, row in STAGES.items() for n, role in row.arguments.items() if role == "plain" for v in SCALARS[n]
]


@pytest.mark.parametrize(("stage", "name", "value"), PLAIN)
def test_parameters(stage, name, value):
    message = refused(stage, **{name: value})
    assert message.startswith(f"{name}: expected")
    assert message.endswith(f"got {value!r}")


@pytest.mark.parametrize("bits", ["fp", None])
def test_a_basis_that_is_not_quantised_has_no_codes(bits):
    assert refused("locks_quantize_summary", basis_bits=bits).startswith("basis_bits: expected one of 2, 4, 8, got")


SCALED = [s for s, row in STAGES.items() if "softmax_scale" in row.optional]


@pytest.mark.parametrize("stage", SCALED)
@pytest.mark.parametrize("value", [np.nan, np.inf, "0.5", [0.5], True])
def test_softmax_scales(stage, value):
    assert refused(stage, softmax_scale=value).startswith("softmax_scale: expected a finite number, got")


@pytest.mark.parametrize("value", ["mean", None, 3])
def test_combine_rules(value):
    message = refused("locks_page_shares", combine=value)
    assert message == f"combine: expected one of 'share_average', 'group_max', 'group_mass', got {value!r}"


def test_nothing_to_merge_and_no_query_heads():
    empty = {"outputs": np.zeros((0, 1, 1, 4)), "lses": np.zeros((0, 1, 1))}
    assert refused("merge_attention", **empty) == "outputs: expected at least one split, got S=0"
    assert (
        refused("locks_page_shares", scores=np.zeros((1, 0, 3))) == "scores: expected at least one query head, got G=0"
    )
