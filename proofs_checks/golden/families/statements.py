"""Golden cases from the statements' tight instances: inputs on which a bound of the papers is nearly reached."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs
from proofs_checks.statements.witnesses import read_witnesses, witness_file

WHY = "the tight instance of {}: {}"


@cache
def _instances() -> dict[str, Any]:
    return {name: instance for name, (_, instance) in read_witnesses(witness_file()).items()}


def cases() -> list[Case]:
    """Tight instances that are calls of a stage. They are rounded to the port's dtypes, so nearly tight."""

    def tight(stage: str, suspect: str, statement: str, why: str, make: Any, **more: Any) -> Case:
        def inputs() -> Inputs:
            return dict(make(_instances()[statement]))

        return Family(stage, suspect).probe(f"tight-{statement}", suspect, WHY.format(statement, why), inputs, **more)

    softmax = "{} of the mass is dropped"
    return [
        tight("sparse_attention", "B", "locks-lemma-1-i", softmax.format("all that a page holds"), _kept_tokens),
        tight("exact_page_scores", "B", "locks-lemma-2", "one key decides the page", _pages),
        tight("exact_page_scores", "B", "locks-proposition-2", "tokens off the kept mode", _pages),
        tight("locks_page_shares", "C", "locks-corollary-3", "no selection keeps more mass", _scores),
        tight("locks_page_shares", "C", "locks-sandwich", "score errors reach the shares whole", _scores),
        tight("locks_build_summary", "H", "locks-proposition-2", "one of two modes is kept", _built),
        tight("locks_build_summary", "H", "locks-corollary-1", "the best subspace of its rank", _built),
        *[
            tight("locks_decode", "C", name, "the output error of a whole step", _step, kind="set", dtypes=("float32",))
            for name in ("locks-theorem-1-ii-single-head-ours", "locks-theorem-1-iii")
        ],
        tight("readkv_choose_depths", "C", "readkv-proposition-8", "greedy buying is optimal", _chosen, kind="set"),
        tight("attention", "B", "readkv-lemma-11-softmax", "a step of the logits moves most mass", _softmax),
        tight("attention", "B", "readkv-lemma-11", "key errors move the output most", _attended),
    ]


def _kept_tokens(instance: Any) -> Inputs:
    """Logits [1, n] as keys of one channel, every token a page; kept [1, n] as pages."""
    logits, kept, values = instance["logits"], instance["kept"], instance["values"]
    pages = np.flatnonzero(kept[0])[None]
    call = {"queries": np.ones((1, 1, 1)), "keys": logits[:, :, None], "values": values, "pages": pages}
    return {**call, "page_size": 1, "softmax_scale": 1.0}


def _pages(instance: Any) -> Inputs:
    queries = np.asarray(instance["queries"])
    return {"queries": queries.reshape(1, 1, -1), "key_pages": np.asarray(instance["keys"])[None]}


def _scores(instance: Any) -> Inputs:
    return {"scores": instance["scores"].reshape(1, -1, instance["scores"].shape[-1])}


def _built(instance: Any) -> Inputs:
    return {"key_pages": instance["keys"][None], "rank": int(instance.get("rank", 1))}


def _step(instance: Any) -> Inputs:
    page_size = int(instance["page_size"])
    call = {name: instance[name] for name in ("queries", "keys", "values")}
    settings = {"rank": int(instance["rank"]), "basis_bits": None, "budget_tokens": int(instance["k"]) * page_size}
    return {**call, **settings, "page_size": page_size}


def _chosen(instance: Any) -> Inputs:
    gains = np.sort(instance["gains"][0, 0])[::-1]
    return {"importance": np.ones(len(gains)), "gains": gains, "budget": int(instance["budget"])}


def _softmax(instance: Any) -> Inputs:
    logits = instance["logits"]
    values = np.eye(logits.shape[1])[None]
    return {"queries": np.ones((1, 1, 1)), "keys": logits[:, :, None], "values": values[:, :, :1], "softmax_scale": 1.0}


def _attended(instance: Any) -> Inputs:
    return {"queries": instance["queries"][:, None], "keys": instance["keys"], "values": instance["values"]}
