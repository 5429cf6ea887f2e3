"""A trial of the deep profile: a decode step over half a million tokens whose best pages no summary can hide.

Kernels that copy records ahead go round their ring more than once there; on a few hundred pages they never do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.bounds.attention import one_head
from proofs_checks.judge.case import Calls, Inputs, generator
from proofs_checks.judge.judgement import Fault, Judgement, compare
from refimpl.attention import attend, tokens_of_pages

CHANNELS, G, PAGE = 128, 2, 16
PAGES, CHOSEN = 2**15, 126
"""Complete pages, and how many of them outweigh the rest."""


def many_pages() -> Inputs:
    """32,768 pages and five tokens; 126 pages have a logit of 128 more than the rest, in channel 0 alone.

    No summary can hide that: |q| |k| / sqrt(d) is 18 at most without channel 0, so that logits of 128 - 18 stand
    against 18 + log 16, and estimates leave out 18 at most of each and round codes by less than 10.
    """
    rng = generator("planted pages", "tokens")
    count = PAGES * PAGE + 5
    block = rng.standard_normal((4096, CHANNELS), dtype=np.float32)
    keys, values = (np.resize(block[::step], (count, CHANNELS)) for step in (1, -1))
    keys[:, 0] = 0.0
    keys[:-5].reshape(PAGES, PAGE, CHANNELS)[planted(), :, 0] = 32.0
    queries = rng.standard_normal((1, G, CHANNELS), dtype=np.float32)
    queries[..., 0] = 45.25
    served = {"rank": 8, "basis_bits": 4, "budget_tokens": (CHOSEN + 2) * PAGE, "page_size": PAGE}
    return {"queries": queries, "keys": keys[None], "values": values[None], **served}


def planted() -> Any:
    """Pages [126] that must be chosen, ascending; neither the first nor the last."""
    return np.sort(1 + generator("planted pages", "chosen").permutation(PAGES - 1)[:CHOSEN])


def planted_pages(calls: Calls, inputs: Inputs) -> Judgement:
    """The planted pages, the sink and the open page, and attention over their tokens."""
    pages = np.array([0, *planted(), PAGES])
    answer = calls.ask(inputs, {"output": (1, G, CHANNELS), "pages": (1, len(pages))})
    judgement, wrong = Judgement(), np.setxor1d(answer["pages"], pages)
    if wrong.size:
        text = f"pages[0]: {wrong.size} pages are missing or too many, page {wrong[0]} first"
        judgement.faults.append(Fault("pages", (0,), text))
    chosen = tokens_of_pages(pages, PAGE, inputs["keys"].shape[1])
    queries = inputs["queries"].astype(np.float64)
    keys, values = (inputs[name][:, chosen].astype(np.float64) for name in ("keys", "values"))
    right = attend(queries, keys, values, 1 / np.sqrt(CHANNELS))["output"]
    bound, _ = one_head(queries[0], keys[0], values[0], 1 / np.sqrt(CHANNELS), calls.precision)
    compare(judgement, "output", answer["output"], right, bound[None])
    return judgement
