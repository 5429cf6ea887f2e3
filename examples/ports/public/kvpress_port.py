"""The public package `kvpress` as a port: the scores of its Expected Attention.

The press is given the stage's query statistics in the place of those that it would take from a model's hidden states.
"""

PACKAGE = "kvpress"
VERSION = "0.5.5"
MODULES = ("kvpress",)
REQUIRES = ("torch==2.13.0",)
DRIVES = "ExpectedAttentionPress.score"

FRAMEWORK = "torch"


def expected_attention_scores(*, keys, values, query_mean, query_covariance, sinks=4):
    from types import SimpleNamespace

    from kvpress import ExpectedAttentionPress

    H, G, d = query_mean.shape
    press = ExpectedAttentionPress(n_sink=sinks)
    statistics = query_mean.reshape(1, H * G, d), query_covariance.reshape(1, H * G, d, d)
    press.get_query_statistics = lambda module, hidden_states: statistics
    layer = SimpleNamespace(config=SimpleNamespace(num_attention_heads=H * G, num_key_value_heads=H), head_dim=d)
    return press.score(layer, None, keys[None], values[None], None, {})[0]
