"""Golden cases of ReadKV: head maps, dead weights, the ends of the tree's cells."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs
from proofs_checks.judge.cases import readkv_reads as reads
from refimpl.readkv.tree import deployed_table

HEADS = "2 KV heads of {} queries: query head h reads KV head h // G"
CELLS = "float32 numbers just inside both ends of every leaf's cell"
DEAD = "a token of weight 0 has importance 0 and is never worth a refinement"
STORED = "stored_depth 4: gains and depths end there, the 4 low bits are never read (AMB-34)"


def cases() -> list[Case]:
    """Cases of the ReadKV stages."""
    pooled, per_head = Family("readkv_attention", "C"), Family("readkv_restricted_attention", "C")
    encode, choose = Family("readkv_encode", "F"), Family("readkv_choose_depths", "C")
    return [
        *[pooled.probe(f"head-map-G{G}", "G", HEADS.format(G), partial(_heads, G)) for G in (3, 6, 7)],
        *[per_head.probe(f"head-map-G{G}", "G", HEADS.format(G), partial(_rated_heads, G)) for G in (3, 6, 7)],
        pooled.probe("golden-large-logits", "B", "logits of hundreds: exp needs its maximum subtracted", _large_logits),
        pooled.probe("golden-stored-depth-4", "A", STORED, _stored_depth),
        encode.probe("cell-ends", "F", CELLS, _cell_ends, kind="set"),
        choose.exact("dead-weights", "C", DEAD, _dead),
    ]


def _heads(G: int) -> Inputs:
    return reads.budgets(reads.drawn("golden-heads", 2, G, 5, 8), 3, 2)


def _large_logits() -> Inputs:
    """Every key bit and no value bit is bought, so that no choice is left."""
    inputs = reads.drawn("golden-large", 1, 2, 6, 8)
    return reads.budgets({**inputs, "queries": 256.0 * inputs["queries"]}, 8, 0)


def _stored_depth() -> Inputs:
    return reads.budgets({**reads.drawn("golden-stored", 1, 2, 6, 8), "stored_depth": 4}, 4, 4)


def _rated_heads(G: int) -> Inputs:
    return {**reads.drawn("golden-heads", 2, G, 6, 8), "rate": 2.0}


def _cell_ends() -> Inputs:
    splits = np.sort(np.concatenate(deployed_table().thresholds))
    edges = np.concatenate([splits, np.nextafter(splits, np.float32(-np.inf))]).astype(np.float64)
    return {"z": np.sort(np.concatenate([edges, [-(2.0**100), -8.0, 8.0, 2.0**100]]))}


def _dead() -> Inputs:
    return {"importance": np.array([0.0, 2.0, 0.0, 1.0, 0.0]), "gains": np.array([0.5, 0.25, 0.125]), "budget": 12}
