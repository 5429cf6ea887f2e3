"""Right ports of the attention and Locks stages that round differently, and fresh inputs of a stage from a seed."""

from dataclasses import dataclass, replace

import draws
import honest_locks as locks
import honest_variants as attention
import numpy as np
from judged import judged, port_from
from stage_inputs import INPUTS

from refimpl import port as reference

STAGES = tuple(name for name in INPUTS if not name.startswith(("readkv", "lloyd", "affine")))
HALVES = (
    "attention",
    "sparse_attention",
    "paged_attention",
    "locks_build_summary",
    "locks_score_pages",
    "locks_decode",
)


@dataclass(frozen=True)
class HonestPort:
    """A right port in this process: its functions by stage, and the input dtype it is judged at."""

    functions: dict
    dtype: str = "float32"
    lowest_index: bool = False


def _with(**functions):
    """The NumPy port with some of its functions replaced, also where its other functions call them."""
    port = port_from("numpy_port")
    for name, function in functions.items():
        setattr(port, name, function)
    return {stage: getattr(port, stage) for stage in STAGES}


def _head(logits, state):
    return attention.attention_with(attention.LOGITS[logits], attention.STATES[state])


def _half(dtype):
    port = _with(_one=attention.attention_with(attention.plain, attention.cast_weights(dtype)))
    return {stage: attention.half_inputs(port[stage], dtype) for stage in HALVES}


def honest_ports():
    """Every port by name; each differs from the others in the bits of some answers."""
    return {
        "refimpl.port": HonestPort({s: getattr(reference, s) for s in STAGES}, lowest_index=True),
        "numpy_port": HonestPort(_with()),
        "base 2, online, truncating": HonestPort(
            _with(
                _one=_head("truncating", "online-exp2"),
                merge_attention=attention.merge_one_by_one,
                locks_build_summary=locks.by_gram,
                _quantize=locks.by_reciprocal,
                _log_sum_exp=locks.log_sum_exp2,
            )
        ),
        "split, normalised by lse, SVD": HonestPort(
            _with(
                _one=_head("pairwise", "split"),
                merge_attention=attention.merge_by_lse,
                locks_build_summary=locks.BUILDS["svd-flipped"],
                _quantize=locks.by_level,
                locks_score_pages=locks.score_rebuilt,
                locks_page_shares=locks.shares_by_lse,
            )
        ),
        "sequential, turned subspaces": HonestPort(
            _with(
                _one=_head("sequential", "lse"),
                locks_build_summary=locks.BUILDS["svd-turned"],
                locks_score_pages=locks.score_sequentially,
            )
        ),
        "bfloat16 inputs and weights": HonestPort(_half("bfloat16"), "bfloat16"),
        "float16 inputs and weights": HonestPort(_half("float16"), "float16"),
    }


def drawn_by(seed, count):
    """``count`` fresh draws: sizes, content and numbers all follow from the seed."""
    rng = np.random.default_rng([seed, 20])
    for _ in range(count):
        shape = draws.EXPLICIT[int(rng.integers(len(draws.EXPLICIT)))]
        content = draws.CONTENTS[int(rng.integers(len(draws.CONTENTS)))]
        bits = draws.BITS[int(rng.integers(len(draws.BITS)))]
        yield replace(shape, content=content, bits=bits, seed=int(rng.integers(2**32)), kept=int(rng.integers(2, 7)))


def judgements(port, stage, seed, count):
    """What the judge says of one stage of an honest port on the draws of a seed, with the draws."""
    for drawn in drawn_by(seed, count):
        function = port.functions[stage]
        yield drawn, judged(stage, function, INPUTS[stage](drawn), port.dtype, lowest_index=port.lowest_index)
