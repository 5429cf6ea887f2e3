"""Wrong kernels of attention and of Locks."""

from proofs_checks.mutants.gpu.registry import kernel_mutant

RUN, ATTENTION, SELECT, RECORD = "attend_run.py", "attention.py", "locks/select.py", "locks/record.py"
RING = "locks/score_ring.py"

kernel_mutant(
    "gpu-tf32-dot", "attention", "I", "float32 products in TF32, Triton's default: 13 bits are lost",
    file="device.py", old='input_precision="ieee"', new='input_precision="tf32"',
)  # fmt: skip
kernel_mutant(
    "gpu-mask-fill", "attention", "A", "logits of tokens past the end are 0, not -inf",
    file=RUN, old='tl.where(inside[None, :], dot(query, tl.trans(key)) * scale_log2, float("-inf"))',
    new="dot(query, tl.trans(key)) * scale_log2",
)  # fmt: skip
kernel_mutant(
    "gpu-last-tile", "sparse_attention", "A", "the last page is read to its end, past T",
    file=RUN, old="(page * PAGE + position % PAGE < length)", new="(page * PAGE < length)",
)  # fmt: skip
kernel_mutant(
    "gpu-merge-nats", "attention", "B", "splits are weighed with 2^(natural log-mass)",
    file=ATTENTION, old='other=float("-inf")) * LOG2E', new='other=float("-inf"))',
)  # fmt: skip
kernel_mutant(
    "gpu-merge-empty-split", "merge_attention", "B", "-inf is taken from -inf where every split is empty",
    file=ATTENTION, old="shift = finite_or_zero(higher)", new="shift = higher",
)  # fmt: skip
kernel_mutant(
    "gpu-workspace-unwritten", "attention", "K", "a split without tokens writes no log-mass into the workspace",
    first="token-count-70001", file=RUN, old='tl.where(empty, float("-inf"), mass), mask=group < G)',
    new="mass, mask=(group < G) & (empty == 0))",
)  # fmt: skip
kernel_mutant(
    "gpu-32-bit-offset", "paged_attention", "I", "the offset of a block is a 32-bit product",
    first="far-blocks", file=RUN, old="keys + (block * stride_kb",
    new="keys + (block.to(tl.int32) * stride_kb.to(tl.int32)",
)  # fmt: skip
kernel_mutant(
    "gpu-stride-from-shape", "paged_attention", "A", "a block's stride is rebuilt from the shape",
    first="strided-views", file="paging.py",
    old="strides = [(x.stride(0), x.stride(1), x.stride(2)) for x in (keys, values)]",
    new="strides = [(x.shape[1] * x.shape[2] * x.shape[3], x.stride(1), x.stride(2)) for x in (keys, values)]",
)  # fmt: skip
kernel_mutant(
    "gpu-no-dependency-wait", "locks_decode_paged", "I", "a kernel does not wait for the results of the one before",
    first="reused-buffers", port="replayed", file="device.py", old="        tl.extra.cuda.gdc_wait()\n", new="",
)  # fmt: skip
kernel_mutant(
    "gpu-jacobi-three-sweeps", "locks_build_summary", "H", "three Jacobi sweeps: eigenvectors have not converged",
    first="one-strong-mode", file="locks/jacobi.py", old="SWEEPS = 12", new="SWEEPS = 3",
)  # fmt: skip
kernel_mutant(
    "gpu-bounded-candidates", "locks_select_pages", "C", "a chunk hands on 4 candidates at most",
    file=SELECT, old="self.survivors = min(kept, self.chunk)", new="self.survivors = min(kept, self.chunk, 4)",
)  # fmt: skip
kernel_mutant(
    "gpu-tie-order", "locks_select_pages", "C", "of equal shares the first threads' win: no order by page",
    file=SELECT, old="keep = more + same * (earlier <= room).to(tl.int32)",
    new="keep = more + same * (earlier > tl.sum(same, 0) - room).to(tl.int32)",
)  # fmt: skip
kernel_mutant(
    "gpu-scale-as-bf16", "locks_decode", "D", "a float32 scale is read as if it were bfloat16",
    first="d80-G7", file=RECORD, old="element: tl.constexpr = tl.float16 if HALF else tl.float32",
    new="element: tl.constexpr = tl.float16 if HALF else tl.bfloat16",
)  # fmt: skip
kernel_mutant(
    "gpu-stale-table", "paged_attention", "J", "a captured step keeps the block table of its first run",
    first="reused-buffers", file="replayed.py", old="    assert isinstance(tokens, torch.Tensor)\n",
    new="    object.__setattr__(cache, 'block_table', table.clone())\n", port="replayed",
)  # fmt: skip
kernel_mutant(
    "gpu-stale-lengths", "locks_decode_paged", "J", "a captured step keeps the lengths of its first run",
    first="reused-buffers", file="replayed.py", old="    assert isinstance(tokens, torch.Tensor)\n",
    new="    object.__setattr__(cache, 'tokens', tokens.clone())\n", port="replayed",
)  # fmt: skip
kernel_mutant(
    "gpu-missing-barrier", "locks_decode", "I", "a warp reads the counts before all warps have added theirs",
    first="planted-pages-of-32768", file="locks/select_ptx.py", old="bar.sync 0; sub.u32 in, 31, lane;",
    new="sub.u32 in, 31, lane;",
)  # fmt: skip
kernel_mutant(
    "gpu-missing-tally-barrier", "locks_decode", "I", "places are counted before all warps have voted",
    first="planted-pages-of-32768", file="locks/select_ptx.py", old="bar.sync 0; shl.b32 t, lane, 4;",
    new="shl.b32 t, lane, 4;",
)  # fmt: skip
kernel_mutant(
    "gpu-copy-not-awaited", "locks_decode", "I", "records are used before their copy into shared memory has arrived",
    first="planted-pages-of-32768", file=RING, new="",
    old="""                "ARRIVED: mbarrier.try_wait.parity.shared::cta.b64 done, [gate], phase;",
                "@!done bra ARRIVED;",
""",
)  # fmt: skip
kernel_mutant(
    "gpu-int4-sign", "locks_decode", "D", "the sign bit of int4 codes is lost on the way to the matrix unit",
    first="served-mode-0", file="locks/score_ptx.py", old="0x03C003C0, 0x4E004E00, 0x6A",
    new="0x03C003C0, 0x4C004C00, 0x6A",
)  # fmt: skip
kernel_mutant(
    "gpu-selection-room", "locks_decode", "C", "the first of the pages at the threshold is dropped",
    first="d128-G8", file="locks/select_ptx.py", old="setp.lt.s32 here, earlier, room;",
    new="setp.gt.s32 here, earlier, 0;",
)  # fmt: skip
