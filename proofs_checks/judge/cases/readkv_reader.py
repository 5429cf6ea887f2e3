"""Cases of ReadKV's readers. A full read hides an allocator's faults, so most budgets are 1 to 3 bits per scalar.

Probes stand in the order in which they isolate: means, rotation, heads, prefixes, softmax, then what is bought.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from proofs_checks.judge.case import Case, Family
from proofs_checks.judge.cases import readkv_reads as reads
from proofs_checks.judge.cases.readkv_inputs import captured_read
from proofs_checks.judge.cases.readkv_reads import drawn, rate

OUTPUT, WEIGHTS, KEYS, VALUES = ("output",), ("weights",), ("key_depths",), ("weights", "value_depths")
READ = (*WEIGHTS, *OUTPUT)
DEPTHS = ("key_depths", "value_depths")
WIDE = ("float32", "float64")
MEAN = "one token at depth 0: the calibrated mean, not 0 (AMB-22); the mean is a fixed point of the rotation"
UNROTATED = "one token at depth 0: the output is rotated back, signs last"
HEADS = "query head h reads KV head h // G: one token, the output is its head's mean"
PREFIX = "weights follow from the key prefixes; the query is a fixed point of the rotation"
ROTATED = "the query is rotated like the keys: signs first, then Hadamard over sqrt(d)"
POOLED = "head 1's queries are 4 times head 0's: one budget over both heads (AMB-21)"
ONE_CHANNEL = "one live channel, budget for many: 8 refinements are bought, the rest is unspent (AMB-20)"
THEOREM_2 = "one key bit finds the token, then all value bits go to it: (1, 0, ...) and (8, 0)"
LIGHT = "weights down to e^-14: every token is worth a refinement, also in the square"
STORED = "stored_depth 4: gains and depths end there, the 4 low bits hold garbage (AMB-34)"
WAITS = "9 tokens at rate 3/2: two pairs go before the last token, though it weighs more than any of theirs"
TWO_ODD = "9 tokens of two heads: pairs begin anew in every head"
PEAK = "the last token is more than 100 nats above the rest: the maximum is of all tokens"
FAR = "token 32,768 has all weight: token numbers of 16 bits are negative"
SERVED = "a served head: many tiles of tokens, and the last one short"
MANY = "more programs than run at once, each of many tiles: a copy not awaited, a bar not there yet"
UNREAD = "every {} is read to depth 2, and the bits below hold garbage"
SHAPES = (
    (1, 1, 33, 64, 2, 2),
    (2, 3, 40, 128, 3, 1),
    (1, 8, 17, 64, 1, 3),
    (2, 7, 9, 128, 2, 2),
    (3, 4, 50, 64, 4, 4),
    (2, 5, 16, 32, 2, 2),
    (1, 6, 32, 32, 2, 3),
)


def probes(stage: Family, spend: Any) -> list[Case]:
    """Probes of both readers; ``spend(inputs, key_rate, value_rate)`` adds the budgets."""

    def case(name: str, suspect: str, why: str, make: Any, keys: int, values: int, **more: Any) -> Case:
        return stage.probe(name, suspect, why, lambda: spend(make(), keys, values), **more)

    return [
        case("mean-of-values", "D", MEAN, reads.fixed_mean, 0, 0, judged=OUTPUT),
        case("inverse-rotation", "E", UNROTATED, partial(reads.means, 1, 1), 0, 0, judged=OUTPUT),
        case("output-heads", "G", HEADS, partial(reads.means, 2, 3), 0, 0, judged=OUTPUT),
        case("key-prefixes", "D", PREFIX, reads.fixed_queries, 2, 2, judged=WEIGHTS),
        case("query-rotation", "E", ROTATED, partial(drawn, "rotation", 1, 1, 9, 16), 2, 2, judged=WEIGHTS),
        case("query-heads", "G", "query heads read their own KV head's keys", reads.drawn_heads, 2, 2, judged=WEIGHTS),
        case("softmax-scale", "B", "an explicit scale replaces 1/sqrt(d)", reads.scaled, 2, 2, judged=WEIGHTS),
        case("equal-weights", "B", "a zero query: 8 weights of 1/8", reads.zero_query, 2, 2, judged=WEIGHTS),
        case(
            "large-logits",
            "B",
            "logits of hundreds: exp needs its maximum subtracted",
            reads.large,
            8,
            2,
            judged=WEIGHTS,
            dtypes=WIDE,
        ),
        case("group-importance", "C", "squares summed over 4 queries", reads.drawn_group, 2, 2, judged=KEYS),
        case("one-live-channel", "C", ONE_CHANNEL, reads.one_channel, 4, 2, judged=KEYS),
        case("value-importance", "C", "squared first-stage weights", reads.value_tokens, 1, 2, judged=VALUES),
        case("light-tokens", "I", LIGHT, reads.light_tokens, 8, 8, judged=VALUES),
        case("value-prefixes", "D", "values at their own tokens' depths", reads.value_tokens, 2, 2, judged=OUTPUT),
    ]


def last_tokens(stage: Family, spend: Any) -> list[Case]:
    """The last token of many holds all weight: in the last tile, and past what 16 bits count."""

    def case(name: str, suspect: str, why: str, T: int, value_rate: int, **more: Any) -> Case:
        return stage.size(
            name, suspect, why, lambda: spend(reads.last_token(T, 128.0), 2, value_rate), judged=READ, **more
        )

    return [
        *[case(f"peak-in-last-tile-of-{T}", "B", PEAK, T, 2, profile="default") for T in (257, 1025)],
        case("token-32768", "A", FAR, 2**15 + 1, 1, profile="deep"),
    ]


def stored_depth(stage: Family, spend: Any) -> Case:
    """The probe of a store of 4 planes."""
    return stage.probe("stored-depth-4", "A", STORED, lambda: spend(reads.stored_4(), 2, 2), poison=reads.low_bits)


def unread(stage: Family, spend: Any) -> list[Case]:
    """Probes of bits that no right reader looks at, whatever its order of coordinates."""
    keys, values = UNREAD.format("channel"), UNREAD.format("token")
    return [
        stage.probe("unread-keys", "A", keys, lambda: spend(reads.even_channels(), 2, 0), poison=reads.unread_keys),
        stage.probe("unread-values", "A", values, lambda: spend(reads.zero_query(), 0, 2), poison=reads.unread_values),
    ]


def attention_cases() -> list[Case]:
    """Cases of `readkv_attention`."""
    stage = Family("readkv_attention", "C")
    cases = probes(stage, reads.budgets)
    cases += [
        stage.probe("pooled-keys", "C", POOLED, reads.pooled_keys, judged=KEYS),
        stage.probe("pooled-values", "C", "a sharp and a flat head: one budget", reads.pooled_values, judged=VALUES),
        stored_depth(stage, reads.budgets),
        *unread(stage, reads.budgets),
        *last_tokens(stage, reads.budgets),
        stage.exact("theorem-2", "C", THEOREM_2, reads.theorem_2),
        stage.probe("no-budget", "C", "budgets 0: all depths 0", partial(rate, "none", 2, 3, 8, 16, 0, 0), kind="set"),
        stage.probe(
            "whole-budget", "C", "budgets N W: all depths W", partial(rate, "all", 2, 3, 9, 16, 8, 8), kind="set"
        ),
        stage.probe("no-tokens", "A", "T = 0 is legal: output 0", partial(rate, "empty", 2, 3, 0, 64, 2, 0)),
        stage.general(
            "capture-2-2", "real queries on 2,041 real tokens, rates 2 and 2", partial(reads.captured, 1, 3, 2, 2)
        ),
        stage.general("capture-3-1", "rates 3 and 1", partial(reads.captured, 2, 5, 3, 1), profile="default"),
        stage.general("capture-1-3", "rates 1 and 3", partial(reads.captured, 0, 7, 1, 3), profile="default"),
        stage.general("capture-8-8", "the Full Reader", partial(reads.captured, 3, 1, 8, 8), profile="default"),
        stage.general("served-2053", SERVED, partial(rate, "served", 1, 7, 2053, 128, 2, 2), profile="default"),
        stage.general("served-33001", MANY, partial(rate, "served", 4, 7, 33001, 128, 2, 2), profile="deep"),
    ]
    for H, G, T, d, key_rate, value_rate in SHAPES:
        name, inputs = f"H{H}-G{G}-T{T}-d{d}", partial(rate, "shape", H, G, T, d, key_rate, value_rate)
        cases.append(stage.general(name, f"random cache at rates {key_rate} and {value_rate}", inputs))
    return cases


def restricted_cases() -> list[Case]:
    """Cases of `readkv_restricted_attention`."""
    stage = Family("readkv_restricted_attention", "C")
    first = "T = 3 at rate 3/2: 3 for the minimum, the pair's step costs 2 and ends buying, 1 is unspent"
    own = "head 1's queries are 100 times head 0's: each head spends its own budget"

    def at(bits: float, make: Any) -> Any:
        return lambda: {**make(), "rate": bits}

    return [
        stage.probe("minimum-depth", "C", "rate 1: every depth is 1", at(1.0, reads.least), kind="set", judged=DEPTHS),
        *probes(stage, reads.rated),
        stage.probe("odd-tail", "A", "9 tokens: the last one alone costs 1", at(2.0, reads.odd), judged=VALUES),
        stage.probe("odd-tokens-two-heads", "C", TWO_ODD, at(2.0, partial(drawn, "two", 2, 3, 9, 16)), judged=VALUES),
        stage.probe("first-that-does-not-fit", "C", first, at(1.5, partial(drawn, "fit", 1, 1, 3, 16)), judged=VALUES),
        stage.probe("pairs", "C", "pairs by summed importance", at(2.5, reads.flat), judged=VALUES),
        stage.illegal("rate-below-1", "C", "rate 1/2 has no room for depth 1: refused", at(0.5, reads.least)),
        stage.probe("budget-of-its-own", "C", own, at(2.5, partial(reads.unequal, 100.0)), judged=KEYS),
        stored_depth(stage, reads.rated),
        unread(stage, reads.rated)[0],
        *last_tokens(stage, reads.rated),
        stage.probe("no-tokens", "A", "T = 0 is legal: output 0", at(2.0, partial(drawn, "empty", 2, 3, 0, 16))),
        stage.general("rate-2", "random cache", at(2.0, partial(drawn, "r2", 2, 3, 41, 64))),
        stage.general("rate-1.25", "a rate that leaves a remainder", at(1.25, partial(drawn, "r1", 1, 8, 33, 128))),
        *[
            stage.size(
                f"group-of-{G}", "G", f"{G} queries of every KV head", at(2.0, partial(drawn, "g", 2, G, 16, 16))
            )
            for G in (1, 2, 4, 5, 6, 8)
        ],
        stage.probe("odd-tail-waits", "A", WAITS, at(1.5, reads.flat_odd), judged=VALUES),
        stage.general("rate-4", "G = 7", at(4.0, partial(drawn, "r4", 2, 7, 18, 64))),
        stage.general("capture-2", "real queries on 2,041 real tokens", at(2.0, partial(captured_read, 1, 3))),
        stage.general("capture-2.5", "rate 5/2", at(2.5, partial(captured_read, 2, 6)), profile="default"),
        stage.general("served-2053", SERVED, at(2.0, partial(drawn, "served", 1, 7, 2053, 128)), profile="default"),
        stage.general("served-33001", MANY, at(2.0, partial(drawn, "served", 4, 7, 33001, 128)), profile="deep"),
    ]
