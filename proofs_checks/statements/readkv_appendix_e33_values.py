"""ReadKV App. E.3.3, sharpness for values.

M equal residual rows make the exact value error m times the diagonal one.
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import readkv_appendix_e33_keys
from proofs_checks.statements.attention_error import AttentionError
from proofs_checks.statements.readkv_appendix_e33_keys import guard, hypotheses, right
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-e33-values",
    source="ReadKV App. E.3.3, values",
    claim="m identical unit value-residual rows under uniform attention have ||E_V^T alpha^||^2 = m A_V: no "
    "dimension-free constant can replace kappa_V.",
    hypotheses="m >= 1, T = m.",
    kind=Kind.LOWER_BOUND,
    tight="Every m: equality, and kappa_V = m.",
    finding="Sharp.",
    exhaustive=True,
)


def head(m: int) -> AttentionError:
    """The example at one m: value residuals e_1 in every row."""
    zero = np.zeros((1, m, 2))
    values = zero + np.array([1.0, 0.0])
    return AttentionError(
        {"queries": np.zeros((1, 2)), "keys": zero, "keys_hat": zero, "values": values, "values_hat": zero}
    )


def left(instance: Instance) -> FloatArray:
    """||E_V^T alpha^||^2 / A_V. [N]."""
    heads = [head(int(m)) for m in instance["m"]]
    return np.array([float(np.sum(one.value_error[0] ** 2) / one.value_energy[0]) for one in heads])


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """m = 1, 2, 64; kappa_V is m as well.

    >>> check(tight_instance()).left.round(9).tolist(), round(float(head(64).value_coherence[0]), 9)
    ([1.0, 2.0, 64.0], 64.0)
    """
    return readkv_appendix_e33_keys.tight_instance()


sample = readkv_appendix_e33_keys.sample
