"""The best k by score on the device, the lower index first among equals. Mirrors `refimpl.baselines.choose.best`."""

from __future__ import annotations

import torch


def best(scores: torch.Tensor, kept: int) -> torch.Tensor:
    """Indices [..., min(kept, N)] of the largest of scores [..., N], ascending.

    >>> best(torch.tensor([0.0, 2.0, 2.0, 1.0]), 3).tolist()
    [1, 2, 3]
    """
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return torch.sort(order[..., : min(kept, scores.shape[-1])], dim=-1).values
