"""ReadKV Lemma 11, Eq. (5): o - o^ = V^T (alpha - alpha^) + E_V^T alpha^."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import readkv_lemma_11
from proofs_checks.statements.attention_error import attention_error, needs_head
from proofs_checks.statements.guard import average_guard, dot_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.attention import attend
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-lemma-11-identity",
    source="ReadKV Lemma 11, Eq. (5)",
    claim="The output error is the attention error weighed by the centred values, and the value error weighed by the "
    "reconstructed attention.",
    hypotheses="As Lemma 11.",
    kind=Kind.IDENTITY,
    tight="Every instance.",
    no_constant="an identity; there is no bound to scale",
    hazard="Two outputs of size |V| are subtracted: the error is measured against |V|.",
)
hypotheses = needs_head


def left(instance: Instance) -> FloatArray:
    """||o - o^|| from two runs of the reference's attention. [N]."""
    queries = instance["queries"][:, None]
    scale = 1 / np.sqrt(instance["keys"].shape[2])
    exact = attend(queries, instance["keys"], instance["values"], scale)["output"][:, 0]
    read = attend(queries, instance["keys_hat"], instance["values_hat"], scale)["output"][:, 0]
    norm: FloatArray = np.linalg.norm(exact - read, axis=-1)
    return norm


def right(instance: Instance) -> FloatArray:
    """||V_c^T (alpha - alpha^) + E_V^T alpha^||. [N]."""
    return attention_error(instance).output_error


def guard(instance: Instance) -> FloatArray:
    """Two attentions with rounded logits, and the decomposition's own guard. [N]."""
    one = attention_error(instance)
    total = one.output_guard
    root = np.sqrt(one.width)
    for keys, values in (("keys", "values"), ("keys_hat", "values_hat")):
        logits = np.einsum("nd,ntd->nt", instance["queries"], instance[keys]) / root
        largest = np.linalg.norm(instance[values], axis=-1).max(axis=-1)
        shift = 3 * dot_guard(instance["queries"][:, None], instance[keys]).max(axis=-1) / root
        total = total + average_guard(logits, instance[values]) + 2.1 * shift * largest
    return 1.1 * total


check = checker(ABOUT, hypotheses, left, right, guard)
tight_instance, sample, cases = readkv_lemma_11.tight_instance, readkv_lemma_11.sample, readkv_lemma_11.cases
on_capture = readkv_lemma_11.on_capture
