"""Wrong on purpose: splits whose log-masses are in nats are merged as if they were in bits."""

import numpy as np
from numpy_port import *  # noqa: F403


def merge_attention(*, outputs, lses):
    top = lses.max(axis=0)
    safe = np.where(np.isneginf(top), np.float32(0), top)
    weights = np.exp2(lses - safe)
    total = weights.sum(axis=0)
    output = (weights[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, np.float32(1))[..., None]
    with np.errstate(divide="ignore"):
        return {"output": output, "lse": np.log2(total) + safe}
