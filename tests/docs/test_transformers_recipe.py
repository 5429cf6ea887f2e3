"""The capture recipe of docs/capture-format.md, carried out on a small model with random weights of the same kind."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.integrations import sdpa_attention

from proofs_checks.capture import load_capture
from proofs_checks.numbers import round_to

ROOT = Path(__file__).parents[2]
LAYERS, KV_HEADS, GROUP, HEAD_SIZE = 21, 2, 3, 8


def save_small_model(folder):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=KV_HEADS * GROUP * HEAD_SIZE,
        intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=KV_HEADS * GROUP,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)


# The recipe says past_key_values, which older versions of Transformers have alone.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_recipe_writes_what_attention_saw(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "capture-format.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    save_small_model(tmp_path / "HuggingFaceTB" / "SmolLM2-135M-Instruct")
    (tmp_path / "prompt.txt").write_text("a b " * 10)
    calls, attend = [], sdpa_attention.sdpa_attention_forward

    def seen_by_attention(module, query, key, value, *args, **options):
        calls.append((query.numpy(), key.numpy(), value.numpy()))
        return attend(module, query, key, value, *args, **options)

    monkeypatch.setattr(sdpa_attention, "sdpa_attention_forward", seen_by_attention)
    exec(compile(recipe, "recipe", "exec"), {})
    capture = load_capture(tmp_path / "capture.safetensors")
    steps = capture["prompt.queries"]
    by_step = [calls[i : i + LAYERS] for i in range(LAYERS, len(calls), LAYERS)]  # the prefill comes first
    assert steps.shape[0] == len(by_step) == 8
    for j, layer in enumerate((1, 7, 18, 20)):
        for step, made in zip(steps, by_step, strict=True):
            np.testing.assert_array_equal(step[j], round_to(made[layer][0][0, :, -1], "bfloat16"))
        for part, name in ((1, "prompt.keys"), (2, "prompt.values")):
            np.testing.assert_array_equal(capture[name][j], round_to(by_step[-1][layer][part][0], "bfloat16"))
