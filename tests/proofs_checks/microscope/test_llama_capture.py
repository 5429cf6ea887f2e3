"""The NumPy Llama and the capture made with it, on a tiny random model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from proofs_checks.microscope import gguf_capture, gguf_model
from proofs_checks.microscope.gguf_capture import capture_needles, held_out_moments, rope_of, trace_prompt
from proofs_checks.microscope.llama import Llama, LlamaConfig, causal_attention, rotary
from proofs_checks.microscope.needles import Needle, answers, build_needle
from proofs_checks.microscope.rotation_control import rotate
from proofs_checks.microscope.source import Rope, check_digests, load_capture
from proofs_checks.microscope.writer import CaptureWriter
from refimpl.attention import attention
from refimpl.checks import ArgumentError

CONFIG = LlamaConfig(layers=3, query_heads=4, kv_heads=2, head_size=8, rope_theta=1000.0, norm_epsilon=1e-5)
VOCABULARY, WIDTH, HIDDEN = 300, 32, 48
SINGLE = np.finfo(np.float32).eps


def gguf_tensors(seed=0):
    """Tensors as a GGUF reader gives them: q and k rows interleaved the way llama.cpp stores them."""
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    tensors = {"token_embd.weight": matrix(VOCABULARY, WIDTH) * 4, "output_norm.weight": np.ones(WIDTH, np.float32)}
    for i in range(CONFIG.layers):
        shapes = {"attn_q": (32, WIDTH), "attn_k": (16, WIDTH), "attn_v": (16, WIDTH), "attn_output": (WIDTH, 32),
                  "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}  # fmt: skip
        tensors |= {f"blk.{i}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": np.ones(WIDTH, np.float32) for name in ("attn_norm", "ffn_norm")}
    return tensors


def metadata():
    return {
        "general.architecture": "llama", "llama.block_count": 3, "llama.embedding_length": WIDTH,
        "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 1000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip


@pytest.fixture
def model():
    tensors = gguf_tensors()
    config = gguf_model.config_of(metadata(), tensors)
    assert config == CONFIG
    return Llama(config, gguf_model.weights_of(config, tensors), watched=(0, 2))


def test_rows_of_q_are_put_back_into_two_halves():
    """llama.cpp stores row 2f of a head for channel f and row 2f + 1 for channel f + d/2."""
    half_split = np.arange(16, dtype=np.float32)[:, None]
    stored = half_split.reshape(2, 2, 4, 1).swapaxes(1, 2).reshape(16, 1)
    assert stored[:4, 0].tolist() == [0, 4, 1, 5]
    assert np.array_equal(gguf_model.unpermute(stored, 2), half_split)


def test_another_architecture_is_refused():
    with pytest.raises(ArgumentError, match="llama"):
        gguf_model.config_of(metadata() | {"general.architecture": "qwen2"}, {})


def test_one_token_at_a_time_gives_the_whole_prompts_logits(model):
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, 17)
    together = model.feed(tokens)
    model.reset()
    model.feed(tokens[:16])
    apart = model.feed(tokens[16:])
    # three layers of sums of at most 48 float32 terms; logits of order 10
    assert np.abs(together - apart).max() <= 3 * 48 * 8 * SINGLE * np.abs(together).max()


def test_later_tokens_do_not_change_earlier_keys(model):
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, 12)
    model.feed(tokens)
    long = model.cache.keys[2][:8].copy()
    model.reset()
    model.feed(tokens[:8])
    assert np.abs(long - model.cache.keys[2]).max() <= 3 * 48 * 8 * SINGLE * np.abs(long).max()


def test_blocks_of_queries_are_causal(monkeypatch):
    rng = np.random.default_rng(3)
    queries, keys, values = (rng.standard_normal(s).astype(np.float32) for s in ((9, 4, 8), (11, 2, 8), (11, 2, 8)))
    monkeypatch.setattr("proofs_checks.microscope.llama.QUERY_BLOCK", 4)
    result = causal_attention(queries, keys, values)
    for i in range(9):
        seen = 11 - 9 + i + 1
        exact = attention(
            queries=queries[i].reshape(2, 2, 8),
            keys=np.swapaxes(keys[:seen], 0, 1),
            values=np.swapaxes(values[:seen], 0, 1),
        )["output"]
        # float32 logits of 8 terms below 20 in size, exponentials, and sums of at most 11 terms
        assert np.abs(result[i].reshape(2, 2, 8) - exact).max() <= 20 * 32 * SINGLE * np.abs(values).max()


def test_rotary_is_the_rotation_that_the_control_undoes():
    x = np.random.default_rng(4).standard_normal((5, 2, 8)).astype(np.float32)
    turned = rotary(x, np.arange(5), CONFIG)
    exact = rotate(np.swapaxes(x, 0, 1).astype(np.float64), np.arange(5), Rope(1000.0))
    assert np.abs(np.swapaxes(turned, 0, 1) - exact).max() <= 4 * SINGLE * np.abs(x).max()  # two products and a sum


def test_captured_steps_are_what_attention_consumed(model):
    prompt = np.random.default_rng(5).integers(0, VOCABULARY, 20).tolist()
    trace = trace_prompt(model, prompt, 4)
    assert trace.positions.tolist() == [19, 20, 21, 22]
    assert trace.keys.shape == (2, 2, 23, 8)
    assert trace.queries.shape == (4, 2, 4, 8)
    model.reset()  # the same sequence at once: the last query and all keys must come out again
    model.feed([*prompt, *trace.produced[:3]])
    slack = 3 * 48 * 8 * SINGLE
    assert np.abs(model.seen[2][-1] - trace.queries[3, 1]).max() <= slack * np.abs(trace.queries).max()
    assert np.abs(np.swapaxes(model.cache.keys[2], 0, 1) - trace.keys[1]).max() <= slack * np.abs(trace.keys).max()


def test_moments_are_those_of_the_pieces(model, monkeypatch):
    monkeypatch.setattr(gguf_capture, "CALIBRATION_TOKENS", 16)
    tokens = np.random.default_rng(6).integers(0, VOCABULARY, 32).tolist()
    mean, covariance = held_out_moments(model, tokens)
    pieces = []
    for start in (0, 16):
        model.reset()
        model.feed(tokens[start : start + 16])
        pieces.append(model.cache.values[2][:, 1])
    values = np.concatenate(pieces).astype(np.float64)
    size = np.abs(values).max()
    assert np.abs(mean[1, 1, 1] - values.mean(axis=0)).max() <= 32 * SINGLE * size
    assert np.abs(covariance[1, 1, 1] - np.cov(values, rowvar=False, bias=True)).max() <= 64 * SINGLE * size**2


class LetterTokenizer:
    """One token per character."""

    class _Ids:
        def __init__(self, ids):
            self.ids = ids

    def encode(self, text):
        return self._Ids([min(ord(c), VOCABULARY - 1) for c in text])

    def decode(self, ids):
        return "".join(map(chr, ids))


def test_prompts_that_the_model_answers_wrongly_are_refused_and_recorded(model):
    tokenizer, writer = LetterTokenizer(), CaptureWriter({"model": "random", "text": "none", "synthetic": True})
    kept = capture_needles(
        model, tokenizer, tokenizer.encode("word " * 80).ids, writer, tokens=260, count=2, steps=9
    )  # fmt: skip
    assert kept == []
    assert writer.sets == []
    assert [entry["depth"] for entry in writer.about["refused"]] == [0.25, 0.75]


def test_prompts_that_are_answered_rightly_become_sets(model, monkeypatch, tmp_path):
    tokenizer, writer = LetterTokenizer(), CaptureWriter({"model": "random", "text": "none", "synthetic": True})
    monkeypatch.setattr(gguf_capture, "answers", lambda needle, text: needle.depth > 0.5)
    (needle,) = capture_needles(
        model, tokenizer, tokenizer.encode("word " * 80).ids, writer, tokens=260, count=2, steps=9
    )
    writer.write(tmp_path / "tiny.safetensors")
    check_digests(tmp_path / "tiny.safetensors")
    (capture,) = load_capture(tmp_path / "tiny.safetensors")
    start, stop = capture.carriers[0]
    assert tokenizer.decode(needle.tokens[start:stop]).strip() == needle.value
    assert capture.name == "needle-1"
    assert capture.layers == (0, 2)
    manifest = json.loads((tmp_path / "tiny.json").read_text())
    assert manifest["sets"][0]["rope"] == {"theta": 1000.0, "pairing": "half-split"}
    assert len(manifest["refused"]) == 1


def test_rescaled_frequencies_are_not_called_plain_rotary(model):
    scaled = Llama(replace(CONFIG, rope_factors=(1.0, 1.0, 2.0, 8.0)), model.weights)
    assert rope_of(scaled) is None
    assert rope_of(model) == {"theta": 1000.0, "pairing": "half-split"}


def test_a_haystack_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="needle"):
        build_needle([1, 2, 3], lambda text: [ord(c) for c in text], tokens=300, depth=0.5, seed=0)


@pytest.mark.parametrize(
    ("text", "right"), [(" 1234567.", True), ("1234567", True), (" 12345678", False), (" 123", False)]
)
def test_answers_are_checked_to_the_last_digit(text, right):
    assert answers(Needle("k", "1234567", [], (0, 0), 0.0), text) is right
