"""Wrong on purpose: KV heads are tiled over the query heads instead of repeated."""

import numpy as np
from numpy_port import *  # noqa: F403
from numpy_port import attention as right_attention


def attention(*, queries, keys, values, softmax_scale=None):
    heads, group, d = queries.shape
    tiled = np.tile(np.arange(heads), group)
    flat = queries.reshape(heads * group, 1, d)
    state = right_attention(queries=flat, keys=keys[tiled], values=values[tiled], softmax_scale=softmax_scale)
    return {"output": state["output"].reshape(heads, group, d), "lse": state["lse"].reshape(heads, group)}
