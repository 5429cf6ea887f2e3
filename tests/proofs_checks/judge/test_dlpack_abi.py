"""What crosses the C ABI: tensors with their true layout, scalars with their kind, results one by one."""

import ctypes
import inspect
from functools import partial

import numpy as np
import pytest
from compiled import CC, c_library

from proofs_checks.judge import delivery, dlpack, shared_library

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")


@pytest.fixture
def library(tmp_path):
    return partial(c_library, tmp_path)


ECHO = """
/* lse: the shape, strides, offset and dtype of queries, then what else came; output: untouched but for its strides */
KVPROOF_STAGE(attention) {
    UNUSED;
    float* says = (float*)first(results[1].tensor);
    const DLTensor* queries = given(arguments, 0);
    for (int axis = 0; axis < 3; ++axis) *says++ = (float)queries->shape[axis];
    for (int axis = 0; axis < 3; ++axis) *says++ = (float)queries->strides[axis];
    *says++ = (float)queries->byte_offset;
    *says++ = queries->dtype.code;
    *says++ = queries->dtype.bits;
    *says++ = queries->dtype.lanes;
    *says++ = (float)queries->ndim;
    *says++ = (float)queries->device.device_type;
    *says++ = (float)((uintptr_t)queries->data % 256);
    *says++ = (float)argument_count;
    const kvproof_argument* last = &arguments[argument_count - 1];
    *says++ = (float)last->kind;
    *says++ = last->kind == KVPROOF_REAL ? (float)last->value.real : last->kind == KVPROOF_INTEGER
        ? (float)last->value.integer : last->kind == KVPROOF_STRING ? (float)strlen(last->value.string) : -1.0f;
    return KVPROOF_OK;
}
"""


class Bits:
    """Gives arrays as the worker does to a compiled port."""

    give = staticmethod(dlpack.fresh)


def echoed(port, queries, **more):
    out = {"output": np.zeros(2, np.float32), "lse": np.zeros(16, np.float32)}
    port.attention(queries=queries, **more, out=out)
    return out["lse"].astype(int).tolist()


@pytest.mark.parametrize(("dtype", "code", "bits"), [("float32", 2, 32), ("bfloat16", 4, 16)])
def test_a_view_arrives_with_its_true_strides_offset_and_dtype(dtype, code, bits, library):
    port = shared_library.load(library(ECHO))
    plain = {"queries": np.ones((3, 5, 8), np.float32)}
    said = echoed(port, delivery.plain(Bits, plain, {"queries": dtype})["queries"])
    assert said == [3, 5, 8, 40, 8, 1, 0, code, bits, 1, 3, 1, 0, 1, 1, -1]
    # by hand: storage [5 + 2, 2 x 3 + 2, 8], view [1:-1, 1:-1:2] with its axes swapped; first element at [1, 1, 0]
    said = echoed(port, delivery.strided(Bits, plain, {"queries": dtype})["queries"])
    assert said == [3, 5, 8, 16, 64, 1, (64 + 8) * bits // 8, code, bits, 1, 3, 1, 0, 1, 1, -1]


@pytest.mark.parametrize(
    ("value", "kind", "seen"), [(None, 0, -1), (3, 2, 3), (True, 2, 1), (2.0, 3, 2), ("fünf", 4, 5)]
)
def test_scalars_strings_and_none_arrive_with_their_kind(value, kind, seen, library):
    port = shared_library.load(library(ECHO))
    assert echoed(port, np.ones((1, 1, 8), np.float32), values=value)[-3:] == [2, kind, seen]


def test_the_structures_are_laid_out_as_in_the_header(tmp_path, library):
    sizes = "KVPROOF_STAGE(attention) { UNUSED; return (int)(sizeof(DLTensor) * 10000 + sizeof(kvproof_argument) * 100"
    port = shared_library.load(library(sizes + " + sizeof(kvproof_result)); }"))
    ours = ctypes.sizeof(dlpack.Tensor), ctypes.sizeof(shared_library.Argument), ctypes.sizeof(shared_library.Result)
    with pytest.raises(shared_library.LibraryError, match=f"returned {ours[0] * 10000 + ours[1] * 100 + ours[2]}:"):
        port.attention(out={})


def test_keywords_follow_the_stage_table_and_optional_ones_the_declaration(library):
    stage = "KVPROOF_STAGE(readkv_choose_depths) { UNUSED; return argument_count; }"
    port = shared_library.load(library(stage))
    assert list(inspect.signature(port.readkv_choose_depths).parameters) == ["importance", "gains", "budget", "out"]
    declare = 'KVPROOF_EXPORT const char* kvproof_declare(void) { return "{\\"OPTIONAL\\": [\\"minimum_depth\\"]}"; }'
    port = shared_library.load(library(stage + declare))
    names = list(inspect.signature(port.readkv_choose_depths).parameters)
    assert names == ["importance", "gains", "budget", "minimum_depth", "out"]


LISTS = """
/* every result: how many elements it has, and in its first element which result it is */
KVPROOF_STAGE(readkv_tree) {
    UNUSED;
    for (int i = 0; i < result_count; ++i)
        for (int64_t j = 0; j < results[i].tensor->shape[0]; ++j)
            ((float*)first(results[i].tensor))[j] = (float)i;
    return (int)arguments[0].value.integer == 2 ? KVPROOF_OK : KVPROOF_ERROR;
}
"""


def test_results_that_are_lists_arrive_one_by_one(library):
    results = shared_library.load(library(LISTS)).readkv_tree(depth=2)
    assert [t.tolist() for t in results["thresholds"]] == [[0], [1, 1]]
    assert [c.tolist() for c in results["centroids"]] == [[2], [3, 3], [4, 4, 4, 4]]
    assert results["gains"].tolist() == [5, 5]


def test_illegal_arguments_are_not_put_to_a_library(library):
    port = shared_library.load(library(LISTS))
    with pytest.raises(NotImplementedError, match="illegal arguments"):
        port.readkv_tree(depth=-1)


def test_an_unknown_keyword_is_refused(library):
    with pytest.raises(TypeError, match="unexpected keyword argument 'masks'"):
        shared_library.load(library(ECHO)).attention(masks=1, out={})
