"""Wrong kernels of ReadKV's reader."""

from proofs_checks.mutants.gpu.registry import kernel_mutant

kernel_mutant(
    "gpu-readkv-reversed-planes", "readkv_attention", "D", "the packed cache holds the last bit of a path first",
    first="key-prefixes", file="readkv/encoder.py",
    old="return (code >> (7 - plane)) & 1", new="return (code >> plane) & 1",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-depth-off-by-one", "readkv_attention", "D", "channels are read one plane less deep than was chosen",
    first="key-prefixes", file="readkv/prefix.py",
    old="depth = tl.load(depths + row * D + channel, mask=live, other=0)",
    new="depth = tl.maximum(tl.load(depths + row * D + channel, mask=live, other=0) - 1, 0)",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-slots-one-shallower", "readkv_attention", "D", "slots are made one plane less deep than was chosen",
    first="H1-G8-T17-d64", file="readkv/slots.py",
    old="depth = tl.load(depths + row * D + channel, mask=live, other=0)",
    new="depth = tl.maximum(tl.load(depths + row * D + channel, mask=live, other=0) - 1, 0)",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-importance-from-exact-attention", "readkv_attention", "C",
    "value depths are chosen by the attention that all stored key bits give", first="value-importance",
    file="readkv/chain.py",
    old="        self.choose_values()\n",
    new="        kept = self.key_depths.clone()\n        self.key_depths.fill_(self.cache.stored_depth)\n"
    "        self.read_keys()\n        self.choose_values()\n"
    "        exact, bars = self.importance.clone(), self.allocation.state.clone()\n"
    "        self.key_depths.copy_(kept)\n        self.read_keys()\n        self.allocation.bins.zero_()\n"
    "        self.allocation.state.zero_()\n        self.choose_values()\n"
    "        self.importance.copy_(exact)\n        self.allocation.state.copy_(bars)\n",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-no-inverse-rotation", "readkv_attention", "E", "the output is not rotated back",
    first="inverse-rotation", file="readkv/merge.py",
    old="result = tl.sum(value[:, None] * turn, 0) * inverse_root * sign", new="result = value",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-stale-schedule", "readkv_attention", "J", "a captured step keeps the key depths of its first run",
    first="reused-buffers", file="readkv/chain.py", old="        self.choose_keys()\n        self.read_keys()\n",
    new="        kept = getattr(self, 'kept', None)\n        self.choose_keys()\n        if kept is not None:\n"
    "            self.key_depths.copy_(kept)\n        self.kept = self.key_depths.clone()\n        self.read_keys()\n",
    port="replayed",
)  # fmt: skip
kernel_mutant(
    "gpu-readkv-state-not-reset", "readkv_attention", "J",
    "a captured step keeps the count of those who have come: from the second run on, programs do not wait",
    first="reused-buffers", file="readkv/merge.py", new="",
    old="        tl.store(state + pool * STATE + tl.arange(0, STATE), tl.zeros([STATE], tl.int64))\n",
    port="replayed",
)  # fmt: skip
