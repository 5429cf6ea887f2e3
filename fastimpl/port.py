"""The Triton kernels as a port: every attention and Locks stage under its name, on torch tensors."""

from fastimpl.attention import (
    attention,
    merge_attention,
    paged_attention,
    paged_sparse_attention,
    sparse_attention,
)

FRAMEWORK = "torch"
DTYPES = ("bfloat16", "float16", "float32")
ACCUMULATE = "float32"
TIES = "lowest_index"

__all__ = [
    "attention",
    "merge_attention",
    "paged_attention",
    "paged_sparse_attention",
    "sparse_attention",
]
