"""What property tests of the stages draw: a shape, a kind of content and a seed; and the inputs that these make.

Every test decorated with `every_shape` runs all 30 pairs of G and d, with every B beside each of them, every content
and open pages of 0..B tokens among them, and then whatever Hypothesis draws.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proofs_checks.judge.cases.inputs import planted_pages, pooled, random_qkv

GROUPS, WIDTHS, PAGE_SIZES = (1, 2, 3, 4, 7, 8), (64, 80, 96, 128, 256), (8, 16, 32)
CONTENTS = (
    "normal",
    "outliers",
    "planted",
    "constant-pages",
    "rank-one-pages",
    "repeated-pages",
    "lattice",
    "large-mean",
    "tiny",
    "equal-200",
    "plus-60000",
    "minus-60000",
)
BITS = (2, 4, 8, "fp", None)


@dataclass(frozen=True)
class Draw:
    """One input of every stage: H KV heads, ``complete`` pages and an open page of ``opened`` tokens (0: none)."""

    G: int
    d: int
    B: int
    complete: int = 2
    opened: int = 0
    H: int = 1
    content: str = "normal"
    seed: int = 0
    rank: int = 4
    bits: int | str | None = 4
    kept: int = 2

    @property
    def tokens(self):
        return self.complete * self.B + self.opened

    @property
    def pages(self):
        return self.complete + (self.opened > 0)

    @property
    def rng(self):
        return np.random.default_rng([self.seed, self.G, self.d, self.B, self.complete])


@st.composite
def draws(draw):
    B = draw(st.sampled_from(PAGE_SIZES))
    complete = draw(st.integers(0, 5))
    return Draw(
        G=draw(st.sampled_from(GROUPS)),
        d=draw(st.sampled_from(WIDTHS)),
        B=B,
        complete=complete,
        opened=draw(st.integers(0 if complete else 1, B)) % B if complete else draw(st.integers(1, B - 1)),
        H=draw(st.integers(1, 2)),
        content=draw(st.sampled_from(CONTENTS)),
        seed=draw(st.integers(0, 2**32 - 1)),
        rank=draw(st.integers(1, B)),
        bits=draw(st.sampled_from(BITS)),
        kept=draw(st.integers(2, 7)),
    )


def shape(i, j):
    """The explicit draw of the i-th G and the j-th d."""
    B = PAGE_SIZES[(i + j) % 3]
    n = len(WIDTHS) * i + j
    opened = (1, B - 1, 0, B // 2, 3)[(2 * i + j) % 5]
    content, bits = CONTENTS[(n + n // len(CONTENTS)) % len(CONTENTS)], BITS[(n + n // 5) % 5]
    return Draw(GROUPS[i], WIDTHS[j], B, 1 + n % 4, opened, 1 + n % 2, content, n, 1 + n % B, bits, 2 + n % 3)


EXPLICIT = tuple(shape(i, j) for i in range(len(GROUPS)) for j in range(len(WIDTHS)))


def every_shape(test):
    """Give a test of one argument ``drawn`` the drawn inputs and all explicit ones."""
    test = given(drawn=draws())(test)
    for drawn in EXPLICIT:
        test = example(drawn=drawn)(test)
    return test


def spiked(drawn, logit, apart):
    """Logits ``logit`` plus noise of size ``apart``: one channel carries the logit, the others the noise."""
    queries, keys = np.zeros((drawn.H, drawn.G, drawn.d)), np.zeros((drawn.H, drawn.tokens, drawn.d))
    queries[..., 0], queries[..., 1:] = 16.0, apart
    keys[..., 0] = logit * np.sqrt(drawn.d) / 16.0
    keys[..., 1:] = apart * drawn.rng.normal(size=(drawn.H, drawn.tokens, drawn.d - 1))
    return queries, keys


def paged_content(drawn):
    """Keys [H, T, d] whose pages have the drawn content."""
    H, T, d, B, rng = drawn.H, drawn.tokens, drawn.d, drawn.B, drawn.rng
    pages = drawn.pages
    if drawn.content == "constant-pages":
        keys = np.repeat(rng.normal(size=(H, pages, d)), B, axis=1)
    elif drawn.content == "rank-one-pages":
        along = rng.normal(size=(H, pages, B, 1)) * rng.normal(size=(H, pages, 1, d))
        keys = (rng.integers(0, 2) * rng.normal(size=(H, pages, 1, d)) + along).reshape(H, pages * B, d)
    elif drawn.content == "repeated-pages":
        keys = np.tile(rng.normal(size=(H, B, d)), (1, pages, 1))
    elif drawn.content == "lattice":
        keys = rng.integers(-2, 3, size=(H, pages * B, d)) / 2.0
    else:
        modes = min(B - 1, 1 + drawn.seed % 12)
        sigma = list(8.0 * 0.6 ** np.arange(modes))
        keys = planted_pages(rng, H, pages, B, d, sigma).reshape(H, pages * B, d)
    return keys[:, :T]


def qkv(drawn):
    """queries [H, G, d], keys and values [H, T, d] of the drawn content."""
    rng = drawn.rng
    inputs = random_qkv(rng, drawn.H, drawn.G, drawn.tokens, drawn.d, 2.0)
    if drawn.content == "normal":
        inputs["keys"] = rng.normal(size=inputs["keys"].shape)
    elif drawn.content == "large-mean":
        inputs["keys"] = inputs["keys"] + 30 * rng.normal(size=(drawn.H, 1, drawn.d))
    elif drawn.content == "tiny":
        inputs = {name: 2.0**-20 * array for name, array in inputs.items()}
    elif drawn.content == "equal-200":
        inputs["queries"], inputs["keys"] = spiked(drawn, 200.0, 0.0)
    elif drawn.content in ("plus-60000", "minus-60000"):
        sign = 1.0 if drawn.content == "plus-60000" else -1.0
        inputs["queries"], inputs["keys"] = spiked(drawn, sign * 60000.0, 1.0)
    elif drawn.content != "outliers":
        inputs["keys"] = paged_content(drawn)
    return inputs


def key_pages(drawn):
    """The complete pages [H, P, B, d]."""
    keys = qkv(drawn)["keys"][:, : drawn.complete * drawn.B]
    return keys.reshape(drawn.H, drawn.complete, drawn.B, drawn.d)


def some_pages(drawn, rng):
    """Distinct pages [H, K] in random order, K from 0 to P."""
    count = int(rng.integers(0, drawn.pages + 1))
    return np.stack([rng.permutation(drawn.pages)[:count] for _ in range(drawn.H)]).astype(np.int64)


def pool(drawn):
    """A shuffled pool with three sequences: the drawn one, an empty one, and its first half again."""
    inputs, rng = qkv(drawn), drawn.rng
    lengths = [drawn.tokens, 0, drawn.tokens // 2]
    blocks = rng.permutation(2 * drawn.pages + 3).tolist()
    table, used = [], 0
    for length in lengths:
        count = -(-length // drawn.B)
        table.append(blocks[used : used + count])
        used += count
    keys, values = ([inputs[n][:, :t] for t in lengths] for n in ("keys", "values"))
    cache = pooled(keys, values, lengths, drawn.B, table, len(blocks), fill=7.0)
    return {"queries": np.stack([inputs["queries"]] * 3) * np.array([1.0, 1.0, 0.5])[:, None, None, None], **cache}


def a_few_shapes(test):
    """As `every_shape`, with a fifth of the profile's random examples: for variants of a stage, which are many."""
    return settings(max_examples=max(settings.default.max_examples // 5, 1))(every_shape(test))
