"""Selection and whole decode steps of the reference against 50 digits.

A decode step has no bound of its own. Its shares, known in 50 digits, must lie in the enclosure that the judge gives a
port of float64 precision; its pages must be those of the exact shares (no share of these inputs lies near another,
except where they tie exactly); its output must be attention over them within the bound of sparse attention.
"""

import numpy as np
import pytest
import small_inputs as small

from proofs_checks.bounds.attention import sparse_attention_bound
from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.golden import fifty_digits
from proofs_checks.golden.digits import mp, mpf
from proofs_checks.numbers import REFERENCE
from refimpl.attention import sparse_attention
from refimpl.locks.decode import locks_decode, locks_decode_paged
from refimpl.locks.select import locks_select_pages

SELECTIONS = {
    "random": (small.normal(40, 3, 9), 16, 4),
    "ties": (np.array([[0.1, 0.3, 0.3, 0.1, 0.3, 0.0]]), 16, 4),
    "signed-zeros": (np.array([[1.0, -0.0, 0.0, -0.0, 1.0]]), 12, 4),
    "no-free-slot": (small.normal(41, 2, 5), 8, 4),
    "budget-not-a-multiple": (small.normal(42, 2, 6), 9, 4),
    "one-page": (np.ones((2, 1)), 1, 4),
    "as-many-pages-as-kept": (small.normal(43, 2, 4), 16, 4),
    "fewer-pages-than-kept": (small.normal(44, 2, 3), 64, 4),
    "no-pages": (np.zeros((2, 0)), 16, 4),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection_takes_the_largest_again_and_again(name):
    shares, budget, page_size = SELECTIONS[name]
    call = {"shares": shares, "budget_tokens": budget, "page_size": page_size}
    assert locks_select_pages(**call).tolist() == fifty_digits.locks_select_pages(**call)["pages"]


def decode_inputs(H, G, T, d, B, rank, budget, size=2.0):
    return small.qkv(H, G, T, d, size) | {"rank": rank, "budget_tokens": budget, "page_size": B}


def constant_pages():
    """Every key of a page the same: no modes, scores log B + z, pages 1 and 2 tie."""
    inputs = decode_inputs(1, 2, 20, 4, 4, 2, 12)
    level = np.array([0.0, 1.0, 1.0, 0.5, 3.0])
    return inputs | {"keys": np.repeat(level, 4)[None, :, None] * np.ones((1, 20, 4)), "queries": np.ones((1, 2, 4))}


def huge(value):
    inputs = small.constant_logits(value, 14, apart=1.0)
    return inputs | {"rank": 1, "budget_tokens": 8, "page_size": 4}


DECODES = {
    "open-page": decode_inputs(2, 2, 22, 4, 4, 2, 12),
    "open-page-of-one": decode_inputs(1, 3, 17, 5, 4, 3, 12),
    "complete-pages": decode_inputs(1, 1, 20, 4, 4, 2, 12),
    "full-rank": decode_inputs(1, 2, 18, 6, 4, 4, 12),
    "fewer-pages-than-kept": decode_inputs(1, 2, 10, 4, 4, 2, 64),
    "one-token": decode_inputs(1, 2, 1, 4, 4, 2, 8),
    "constant-pages": constant_pages(),
    "logits-of-plus-60000": huge(60000.0),
    "logits-of-minus-60000": huge(-60000.0),
    "logits-of-200": huge(200.0),
}


@pytest.mark.parametrize("bits", [2, 4, 8, "fp", None])
@pytest.mark.parametrize("name", DECODES)
def test_a_decode_step_agrees_with_fifty_digits(name, bits):
    inputs = DECODES[name] | {"basis_bits": bits}
    answer = locks_decode(**inputs)
    settings = (inputs["rank"], bits, inputs["page_size"])
    low, high = decode_enclosure(inputs["queries"], inputs["keys"], *settings, None, REFERENCE)
    for h, (queries, keys) in enumerate(zip(inputs["queries"], inputs["keys"], strict=True)):
        shares = fifty_digits.decode_shares(queries, keys, *settings)
        assert all(a <= s <= b for a, s, b in zip(low[h].tolist(), shares, high[h].tolist(), strict=True))
        kept = min(-(-inputs["budget_tokens"] // inputs["page_size"]), len(shares))
        assert answer["pages"][h].tolist() == fifty_digits.top_pages(shares, kept)
    sparse = {n: inputs[n] for n in ("queries", "keys", "values", "page_size")} | {"pages": answer["pages"]}
    bound = sparse_attention_bound(sparse, sparse_attention(**sparse), REFERENCE)["output"]
    assert fifty_digits.ratio(answer["output"], fifty_digits.sparse_attention(**sparse)["output"], bound) <= 1


def test_no_tokens_give_zero_and_no_pages():
    answer = locks_decode(**decode_inputs(2, 3, 0, 4, 4, 2, 12), basis_bits=4)
    assert not answer["output"].any()
    assert answer["pages"].shape == (2, 0)


@pytest.mark.parametrize("bits", [4, None])
def test_a_paged_step_is_the_step_of_each_gathered_sequence(bits):
    """Blocks of 3 tokens, rank 2; sequences of 7, 0 and 4 tokens; the rows of pages end in -1."""
    inputs = small.batch(d=4, size=3.0) | {"rank": 2, "basis_bits": bits, "budget_tokens": 6}
    answer = locks_decode_paged(**inputs)
    assert answer["pages"].shape == (3, 2, 2)
    for n, length in enumerate(inputs["tokens"].tolist()):
        for h in range(2):
            keys, values = (
                np.array(fifty_digits.cached(inputs[p], inputs["block_table"][n], length, h)).reshape(length, 4)
                for p in ("key_pool", "value_pool")
            )
            shares = fifty_digits.decode_shares(inputs["queries"][n, h], keys, 2, bits, 3)
            kept = fifty_digits.top_pages(shares, min(2, len(shares)))
            assert answer["pages"][n, h].tolist() == kept + [-1] * (2 - len(kept))
            call = {"queries": inputs["queries"][n, h, None], "keys": keys[None], "values": values[None]}
            call |= {"pages": np.array([kept], dtype=np.int64).reshape(1, -1), "page_size": 3}
            bound = sparse_attention_bound(call, sparse_attention(**call), REFERENCE)["output"]
            exact = fifty_digits.sparse_attention(**call)["output"]
            assert fifty_digits.ratio(answer["output"][n, h, None], exact, bound) <= 1


def test_quantised_shares_differ_from_those_of_the_built_summary():
    """Guards the test above against an evaluation that forgets to quantise."""
    inputs = DECODES["open-page"]
    shares = [
        fifty_digits.decode_shares(inputs["queries"][0], inputs["keys"][0], 2, bits, 4) for bits in (2, 4, 8, None)
    ]
    for a in range(4):
        for b in range(a):
            assert max(abs(x - y) for x, y in zip(shares[a], shares[b], strict=True)) > mpf(10) ** -6
    assert all(abs(mp.fsum(s) - 1) < mpf(10) ** -45 for s in shares)
