"""Right ways of computing the stages that round differently from one another, as kernels do.

Each takes the place of a function of examples/ports/numpy_port.py, whose other functions then call it. All arithmetic
is float32; `rz` marks sums that truncate toward zero, as tensor cores do.
"""

import math

import numpy as np

from proofs_checks.numbers import round_bfloat16, round_to

F = np.float32
LOG2E, LN2 = F(math.log2(math.e)), F(math.log(2))


def scale_of(softmax_scale, d):
    return F(softmax_scale if softmax_scale is not None else 1 / math.sqrt(d))


def sequential(terms):
    """Sum over the last axis from left to right in float32."""
    total = np.zeros(terms.shape[:-1], F)
    for i in range(terms.shape[-1]):
        total = total + terms[..., i]
    return total


def pairwise(terms):
    """Sum over the last axis by halves."""
    while terms.shape[-1] > 1:
        half = terms.shape[-1] // 2
        rest = terms[..., 2 * half :]
        terms = np.concatenate([terms[..., :half] + terms[..., half : 2 * half], rest], axis=-1)
    return terms[..., 0] if terms.shape[-1] else np.zeros(terms.shape[:-1], F)


def rz(x):
    """float64 truncated to float32."""
    near = x.astype(F)
    return np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, F(0)), near)


def truncating(terms):
    """Sum over the last axis from left to right, every product and sum truncated."""
    total = np.zeros(terms.shape[:-1], F)
    for i in range(terms.shape[-1]):
        total = rz(total.astype(np.float64) + terms[..., i].astype(np.float64))
    return total


def logits_by(add):
    """Logits [G, T] with the given summation."""
    return lambda queries, keys, scale: add(queries[:, None] * keys[None]) * scale


def prescaled(queries, keys, scale):
    return (queries * scale) @ keys.T


def plain(queries, keys, scale):
    return (queries @ keys.T) * scale


def empty(logits, values):
    return np.zeros((logits.shape[0], values.shape[-1]), F), np.full(logits.shape[0], -np.inf, F)


def by_exp2(logits, values):
    """Softmax in base 2, lse converted back."""
    if logits.shape[-1] == 0:
        return empty(logits, values)
    z = logits * LOG2E
    top = z.max(axis=-1, keepdims=True)
    weights = np.exp2(z - top)
    total = weights.sum(axis=-1, keepdims=True)
    return (weights @ values) / total, ((np.log2(total) + top) * LN2)[:, 0]


def by_lse(logits, values):
    """Weights exp(z - lse), never divided."""
    if logits.shape[-1] == 0:
        return empty(logits, values)
    top = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)) + top
    return np.exp(logits - lse) @ values, lse[:, 0]


def online(logits, values):
    """One token at a time, rescaling whenever the maximum rises."""
    if logits.shape[-1] == 0:
        return empty(logits, values)
    top, total = np.full((len(logits), 1), -np.inf, F), np.zeros((len(logits), 1), F)
    state = np.zeros((len(logits), values.shape[-1]), F)
    for t in range(logits.shape[-1]):
        raised = np.maximum(top, logits[:, t, None])
        keep, weight = np.exp(top - raised), np.exp(logits[:, t, None] - raised)
        total, state, top = total * keep + weight, state * keep + weight * values[t], raised
    return state * (F(1) / total), (np.log(total) + top)[:, 0]


def online_exp2(logits, values):
    """The same in base 2, the loop of most kernels."""
    output, lse = online_base2(logits * LOG2E, values)
    return output, lse * LN2


def online_base2(z, values):
    if z.shape[-1] == 0:
        return empty(z, values)
    top, total = np.full((len(z), 1), -np.inf, F), np.zeros((len(z), 1), F)
    state = np.zeros((len(z), values.shape[-1]), F)
    for t in range(z.shape[-1]):
        raised = np.maximum(top, z[:, t, None])
        keep, weight = np.exp2(top - raised), np.exp2(z[:, t, None] - raised)
        total, state, top = total * keep + weight, state * keep + weight * values[t], raised
    return state / total, (np.log2(total) + top)[:, 0]


def split(logits, values, splits=3):
    """Partial softmaxes of three splits, merged with weights exp(lse_s - lse)."""
    if logits.shape[-1] == 0:
        return empty(logits, values)
    parts = [by_exp2(logits[:, i], values[i]) for i in np.array_split(np.arange(logits.shape[-1]), splits)]
    lses = np.stack([p[1] for p in parts])
    top = lses.max(axis=0)
    lse = np.log(np.exp(lses - top).sum(axis=0)) + top
    return sum(np.exp(part_lse - lse)[:, None] * part for part, part_lse in parts), lse


def cast_weights(dtype):
    """Weights rounded to the inputs' half-precision dtype before the product with the values."""

    def state(logits, values):
        if logits.shape[-1] == 0:
            return empty(logits, values)
        top = logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits - top)
        total = weights.sum(axis=-1, keepdims=True)
        return (round_to(weights, dtype).astype(F) @ values) / total, (np.log(total) + top)[:, 0]

    return state


def attention_with(logits, state):
    """The function `_one` of the NumPy port from a way to get logits and a way to get the softmax's state."""
    return lambda queries, keys, values, scale: state(logits(queries, keys, scale), values)


LOGITS = {
    "plain": plain,
    "prescaled": prescaled,
    "sequential": logits_by(sequential),
    "pairwise": logits_by(pairwise),
    "truncating": logits_by(truncating),
}
STATES = {
    "exp2": by_exp2,
    "lse": by_lse,
    "online": online,
    "online-exp2": online_exp2,
    "split": split,
}


def merge_by_lse(*, outputs, lses):
    """exp(lse_s - lse) as the combine step of split kernels has it."""
    top = lses.max(axis=0)
    safe = np.where(np.isneginf(top), F(0), top)
    with np.errstate(divide="ignore"):
        lse = np.log2(np.exp2((lses - safe) * LOG2E).sum(axis=0)) * LN2 + safe
    weights = np.exp(lses - np.where(np.isneginf(lse), F(0), lse))[..., None]
    return {"output": np.where(weights > 0, weights * outputs, F(0)).sum(axis=0), "lse": lse}


def merge_one_by_one(*, outputs, lses):
    """States folded from the left, two at a time, as a cascade of merges does."""
    output, lse = outputs[0] * np.where(np.isneginf(lses[0]), F(0), F(1))[..., None], lses[0]
    for other, other_lse in zip(outputs[1:], lses[1:], strict=True):
        top = np.maximum(lse, other_lse)
        safe = np.where(np.isneginf(top), F(0), top)
        a, b = np.exp(lse - safe), np.exp(other_lse - safe)
        total = a + b
        share = np.divide(F(1), total, out=np.zeros_like(total), where=total > 0)[..., None]
        output = a[..., None] * share * output + np.where(b > 0, b, F(0))[..., None] * share * other
        with np.errstate(divide="ignore"):
            lse = np.log(total) + safe
    return {"output": output, "lse": lse}


def half_inputs(function, dtype):
    """A stage on half-precision inputs: float32 inside, the output rounded back."""

    def stage(**inputs):
        wide = {n: v.astype(F) if getattr(v, "dtype", None) == np.float16 else v for n, v in inputs.items()}
        answer = function(**wide)
        if isinstance(answer, dict) and "output" in answer:
            rounding = round_bfloat16 if dtype == "bfloat16" else np.float16
            answer = answer | {"output": rounding(answer["output"])}
        return answer

    return stage
