"""Needle prompts: a fact hidden in a long text, the question about it, and whether the answer was right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Encode = Callable[[str], list[int]]

WORDS = (
    "quiet",
    "amber",
    "north",
    "hollow",
    "silver",
    "early",
    "harbor",
    "meadow",
    "signal",
    "garden",
    "bridge",
    "valley",
)


@dataclass(frozen=True)
class Needle:
    """A prompt and where its answer stands."""

    key: str
    value: str
    tokens: list[int]
    """The prompt; its last token is the last of the forced answer prefix."""
    value_span: tuple[int, int]
    """Token span [start, stop) of the value inside the hidden sentence."""
    depth: float


def draw_needle(seed: int) -> tuple[str, str]:
    """A key of two words and a value of seven digits.

    >>> key, value = draw_needle(0)
    >>> len(value), value.isdigit(), key.count("-")
    (7, True, 1)
    """
    generator = random.Random(seed)
    return "-".join(generator.sample(WORDS, 2)), str(generator.randrange(10**6, 10**7))


def build_needle(haystack: Sequence[int], encode: Encode, *, tokens: int, depth: float, seed: int) -> Needle:
    """A prompt of at most ``tokens`` tokens with the fact at relative ``depth`` of the haystack.

    Args:
        haystack: token ids of a long text; as many as fit are used. encode: text to token ids.
        tokens: length of the prompt. depth: 0..1. seed: picks key and value.

    Raises ValueError if the haystack is too short or the budget leaves no room for it.

    >>> spell = lambda text: [ord(c) for c in text]
    >>> needle = build_needle(spell("x" * 400), spell, tokens=300, depth=0.5, seed=1)
    >>> len(needle.tokens) <= 300
    True
    >>> start, stop = needle.value_span
    >>> "".join(map(chr, needle.tokens[start:stop])).strip() == needle.value
    True
    """
    key, value = draw_needle(seed)
    before, number, after = encode(f"\n\nThe secret number of {key} is"), encode(f" {value}"), encode(".\n\n")
    question = encode(f"\n\nQuestion: What is the secret number of {key}?\nAnswer: The secret number of {key} is")
    room = tokens - len(before) - len(number) - len(after) - len(question)
    if room < 2 or len(haystack) < room:
        raise ValueError(
            f"needle: expected a text of at least {max(room, 2)} tokens for a prompt of {tokens}, got {len(haystack)}"
        )
    place = round(depth * room)
    start = place + len(before)
    prompt = [*haystack[:place], *before, *number, *after, *haystack[place:room], *question]
    return Needle(key, value, prompt, (start, start + len(number)), depth)


def answers(needle: Needle, text: str) -> bool:
    """Whether a generated continuation begins with the value, leading space aside.

    >>> needle = Needle("k", "1234567", [], (0, 0), 0.5)
    >>> answers(needle, " 1234567."), answers(needle, " 12345678")
    (True, False)
    """
    said = text.strip()
    return said.startswith(needle.value) and not said[len(needle.value) :][:1].isdigit()
