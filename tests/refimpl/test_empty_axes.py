"""Every axis of every public function of refimpl at length 0: a result of the same kind, or an error that names it."""

import re

import numpy as np
import pytest
import valid_calls_baselines
import valid_calls_locks
import valid_calls_readkv
from argument_kinds import ArrayKind

from refimpl.checks import ArgumentError

TABLES = (valid_calls_locks, valid_calls_readkv, valid_calls_baselines)

NO_HEADS, NO_KEYS = "queries: expected at least one query head, got G=0", "keys: expected at least one token, got T=0"
NO_BLOCKS = "key_pool: expected blocks of at least one token, got B=0"
NO_TOKENS = "key_pages: expected at least one token per page, got "
TEXTS = {
    ("merge_attention", "S"): "outputs: expected at least one split, got S=0",
    ("locks_page_shares", "G"): "scores: expected at least one query head, got G=0",
    ("page_values", "G"): "scores: expected at least one query head, got G=0",
    ("coverage_identity", "K"): "pages: expected at least one page per head, got none",
    ("output_error", "K"): "pages: expected at least one page per head, got none",
    **{(f, "G"): NO_HEADS for f in ("locks_decode", "locks_decode_paged", "oracle_decode", "decode", "decode_paged")},
    **{(f, "G"): NO_HEADS for f in ("shadowkv_chunks", "rocketkv_tokens")},
    **{(f, "B"): NO_BLOCKS for f in ("paged_attention", "paged_sparse_attention", "locks_decode_paged")},
    ("decode_paged", "B"): NO_BLOCKS,
    ("calibration_key_importance", "T"): "rotated_queries: expected at least one calibration query, got n=0",
    ("codebook_encode", "P"): "codewords: expected at least one, got N=0",
    ("codebook_scores", "B"): "codes: expected at least one token per page, got B=0",
    ("codebook_train", "T"): "entries: expected at most one per token, T=0, got 3",
    ("expected_query_moments", "T"): "queries: expected more than 4 tokens, got T=0",
    ("expected_attention_scores", "G"): "query_mean: expected at least one query head, got G=0",
    ("kvzip_scores", "B"): "queries: expected at least one, got G=3, n=0",
    ("kvzip_scores", "G"): "queries: expected at least one, got G=0, n=5",
    **{
        (f, "d"): "x: expected at least one channel, got d=0"
        for f in ("qjl_inner_products", "turboquant_inner_products")
    },
    ("quest_build_summary", "B"): NO_TOKENS + "n=0",
    ("bucket_basis_pages", "B"): NO_TOKENS + "B=0",
    ("captured_energy", "B"): NO_TOKENS + "B=0",
    ("shared_basis_scores", "B"): "coordinates: expected at least one token per page, got B=0",
    ("sequence_basis", "T"): NO_KEYS,
    ("rkv_scores", "B"): "queries: expected 1..T-1 queries of a group, got w=0, T=18, G=3",
    ("rkv_scores", "G"): "queries: expected 1..T-1 queries of a group, got w=5, T=18, G=0",
    ("rkv_scores", "T"): "queries: expected 1..T-1 queries of a group, got w=5, T=0, G=3",
    ("rocketkv_snap", "T"): "queries: expected a window of at most T=0 queries, got w=5",
    ("sparq_attention", "T"): "keys: expected at least the current token, got T=0",
    ("sparq_nested_attention", "T"): "key_codes: expected at least the current token, got T=0",
    ("triattention_scores", "S"): "offsets: expected at least one, got O=0",
    ("turboquant_pack_slots", "d"): "key_codes: expected an even number of channels, got d=0",
}
"""What functions say that refuse an empty axis itself; elsewhere it may break the range of another argument."""


def letters(arguments):
    """The axis letters that arrays alone hold."""
    held = {a for kind in arguments.values() if kind.axes for a in kind.axes.split() if not a.isdigit()}
    others = {
        a for kind in arguments.values() if kind.axes and not isinstance(kind, ArrayKind) for a in kind.axes.split()
    }
    return sorted(held - others)


CASES = [
    pytest.param(function, arguments, letter, id=f"{function.__module__}.{function.__qualname__}-{letter}")
    for table in TABLES
    for function, arguments in table.CALLS
    for letter in letters(arguments)
    if "sizes" not in arguments
]


def emptied(kind, letter):
    value = kind.value
    for axis, held in enumerate((kind.axes or "").split()):
        value = value.take([], axis=axis) if held == letter else value
    return value


def parts(result):
    """Name -> array of a result: a dictionary, a record, or one array or number."""
    named = result if isinstance(result, dict) else getattr(result, "__dict__", None) or {"": result}
    return {name: np.asarray(part) for name, part in named.items()}


def outcome(function, arguments):
    """The parts of the result, or the text of the refusal."""
    try:
        return parts(function(**arguments))
    except ArgumentError as error:
        return str(error)


@pytest.mark.parametrize(("function", "arguments", "letter"), CASES)
def test_an_axis_of_length_zero(function, arguments, letter):
    text = TEXTS.get((function.__qualname__, letter))
    usual = outcome(function, {name: kind.value for name, kind in arguments.items()})
    empty = outcome(function, {name: emptied(kind, letter) for name, kind in arguments.items()})
    if isinstance(empty, str):
        assert any(re.match(rf"{name}( \([^)]*\))?: expected .*, got ", empty) for name in arguments), empty
        assert empty == text or (text is None and "at least one" not in empty)
        return
    assert text is None
    assert set(empty) == set(usual)
    for name, part in empty.items():
        assert (part.ndim, part.dtype) == (usual[name].ndim, usual[name].dtype), name
        assert all(a <= b for a, b in zip(part.shape, usual[name].shape, strict=True)), name
        assert part.dtype.kind != "f" or not np.isnan(part).any(), name
