"""The public package `locks-kv` 0.1.4 as a port: its functions that run without a GPU, judged in the paper dialect.

Install it with ``pip install --no-deps locks-kv==0.1.4``; torch and triton are needed, vLLM is not. This file only
reshapes arrays and calls the package. Expected verdict: FAIL. The package departs from the paper on purpose (budget
without the forced pages, zero modes kept, int8 query), and the report shows where.

What is called for each stage:
- ``locks_build_summary``: ``rki4_build_refresh``. It stores only codes; the centroid, basis and coefficients are what
  it takes absolute values of just before coding them, and a torch function mode listens there.
- ``locks_quantize_summary``: ``_write_post``, the coding half of the build, on the summary given.
- ``locks_pack_basis``, ``locks_unpack_basis``: ``_pack_ibit``, ``_unpack_ibit``.
- ``locks_score_pages``: the same coding (its scorer reads codes), then ``rki4_score_torch``. Ranks below its own are
  padded with zero modes.
- ``locks_select_pages``: ``derive_page_params`` and the torch twin of ``topb_select``, with ``budget_pages`` set to
  budget_tokens // page_size, as its users set it.
- ``sparse_attention``, ``paged_sparse_attention``: ``sparse_paged_decode_batched``. It returns no log-sum-exp; the lse
  here is the sum of the split states (m, l) that its kernel leaves in the state's buffers.
- ``locks_decode``, ``locks_decode_paged``: these one after another, with its option ``combine="max"``: the default
  ``"nrm"`` is a CUDA kernel without a twin. locks_kv_port_dialect.py has the package judged by its own rules.

Not here: dense attention and the merge (no lse comes back), dequantised summaries and group shares (only inside its
kernels), exact scores (in a module that imports vLLM). Rank and bits are those of the process (``LOCKS_RKI4_RANK``,
default 8, and ``LOCKS_RKI4_IBITS``, default 4); others, and shapes that ``validate_geometry`` refuses (pages other
than 16, 32, 64 tokens; d other than 64, 128, 256; more than 8 query heads per KV head), raise NotImplementedError.

Keys, values and queries arrive in bf16, the format of the package's caches. Triton runs in its interpreter, which has
two defects: ``tl.dot`` of bf16 operands multiplies bit patterns, so they are widened to float32 here (exactly; what
the kernel casts to fp16 is unchanged), and ``tensor_bool | scalar_bool`` makes a mask that stores refuse, so that
``topb_select`` itself cannot run and its twin, with which it shares the contract, stands in.
"""

import os

PACKAGE = "locks-kv"
VERSION = "0.1.4"
MODULES = ("locks", "locks.selection", "locks.attention")
INSTALL = ("--no-deps",)  # it asks for vLLM, which what is driven here does not import
REQUIRES = ("torch==2.13.0", "triton")
DRIVES = (
    "its functions that run without a GPU, by the paper: build, coding, scores, selection, sparse attention, decode"
)

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
os.environ["LOCKS_FORCE_SCORE_TORCH"] = "1"  # the scorer's torch twin instead of the CUDA kernel

try:
    import torch
    from locks import __version__ as installed
    from locks.attention import ResidentVSource, ensure_stage_b_buffers, sparse_paged_decode_batched
    from locks.selection import Rki4State, derive_page_params, rki4_build_refresh
    from locks.selection.rki4_build import _pack_ibit, _write_post
    from locks.selection.rki4_score_cuda import rki4_score_state
    from locks.selection.rki4_score_torch import _unpack_ibit, rki4_score_torch
    from locks.selection.rki4_state import IBITS, RNK
    from locks.selection.select import _topb_select_torch

    if installed != "0.1.4":
        raise ImportError(f"version {installed} is installed")
except ImportError as error:
    needed = f"this port needs torch, triton and locks-kv: pip install --no-deps locks-kv==0.1.4 ({error})"
    raise ImportError(needed) from error

FRAMEWORK = "torch"
DTYPES = ("bfloat16",)
TIES = "lowest_index"
SPLITS = 128  # the package's own number of split slots


def _state(*, page_size, d, H, G=1, blocks=1, pages=1, requests=1, budget_pages=None, rank=RNK):
    """The package's state for one layer; shapes that it does not support are not provided."""
    try:
        Rki4State.validate_geometry(head_dim=d, G=G, page=page_size, rank=rank)
    except AssertionError as error:
        raise NotImplementedError(str(error)) from None
    st = Rki4State(
        "cpu",
        num_layers=1,
        num_blocks=blocks,
        n_kv=H,
        G=G,
        head_dim=d,
        page=page_size,
        max_reqs=requests,
        max_pages=max(pages, 1),
        budget_pages=budget_pages,
        combine="max",
    )
    st.D = st.d  # the decode kernel's name for it
    return st


def _coded(bits):
    if bits != IBITS:
        raise NotImplementedError(f"a basis in {bits} bits: this process codes {IBITS} bits (LOCKS_RKI4_IBITS)")


def _int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def _rows(count):
    """Block table of one request whose logical pages are its physical blocks."""
    return torch.arange(count, dtype=torch.int32)[None]


def _int_rows(block_table):
    """A block table as the package's kernels read it: int32, row after row."""
    return block_table.to(torch.int32).contiguous()


class _BeforeCoding(torch.overrides.TorchFunctionMode):
    """Keeps what `abs` is taken of: in the package's build the basis, the coefficients and the centroid, so ordered."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.abs:
            self.seen.append(args[0])
        return function(*args, **(kwargs or {}))


def locks_build_summary(*, key_pages, rank):
    H, P, B, d = key_pages.shape
    st = _state(page_size=B, d=d, H=H, blocks=P, pages=P, rank=rank)
    if P == 0:  # the package returns before it builds anything
        shapes = {"centroid": (H, 0, d), "basis": (H, 0, d, rank), "coefficients": (H, 0, B, rank)}
        return {name: torch.zeros(shape) for name, shape in shapes.items()}
    pool = key_pages.permute(1, 2, 0, 3).contiguous()  # [P, B, H, d]
    with _BeforeCoding() as before:
        rki4_build_refresh(st, 0, pool, _rows(P), _int32(P * B), 1, force=True)
    basis, coefficients, centroid = (x.transpose(0, 1).contiguous() for x in before.seen)
    return {"centroid": centroid, "basis": basis, "coefficients": coefficients}


def _code(st, centroid, basis, coefficients):
    """Let the package code a summary into blocks 0..P-1 of ``st``.

    Its coding half computes C = U sqrt(S2) and V = D^T U / sqrt(S2) first. With S2 = 1, U = C gives these
    coefficients exactly, and U = (identity; 0), D = (V^T; 0) gives this basis exactly: two calls, of each one half.
    """
    H, P, B, r = coefficients.shape
    mu, V, C = (x.transpose(0, 1).contiguous() for x in (centroid, basis, coefficients))  # [P, H, ...]
    ones, at = torch.ones(P, H, B), (torch.zeros(P, dtype=torch.int64), torch.arange(P))
    tag = torch.zeros(P, H, st.tagw)
    U, deviations = torch.zeros(P, H, B, B), torch.zeros(P, H, B, st.d)
    U[..., :RNK, B - RNK :] = torch.eye(RNK)
    deviations[..., :r, :] = V.transpose(-1, -2)
    _write_post(st, mu, deviations, ones, U, tag, *at)
    basis_codes, basis_scale = st.pp_v4[0, :P].clone(), st.pp_vs[0, :P].clone()
    U = torch.zeros(P, H, B, B)
    U[..., B - RNK : B - RNK + r] = C
    _write_post(st, mu, deviations, ones, U, tag, *at)
    st.pp_v4[0, :P], st.pp_vs[0, :P] = basis_codes, basis_scale


def locks_quantize_summary(*, centroid, basis, coefficients, basis_bits):
    _coded(basis_bits)
    H, P, B, r = coefficients.shape
    st = _state(page_size=B, d=centroid.shape[-1], H=H, blocks=P, rank=r)
    _code(st, centroid, basis, coefficients)
    packed = st.pp_v4[0, :P].transpose(0, 1)  # [H, P, r, d bits / 8]
    return {
        "centroid_codes": st.pp_mu8[0].transpose(0, 1).contiguous(),
        "centroid_scale": st.pp_mus[0].T.float(),
        "basis_codes": _basis_codes(packed),
        "basis_scale": st.pp_vs[0].transpose(0, 1).float(),
        "coefficient_codes": st.pp_c8[0].transpose(0, 1).contiguous(),
        "coefficient_scale": st.pp_cs[0].transpose(0, 1).float(),
    }


def locks_pack_basis(*, basis_codes):
    _coded(4)
    return _pack_ibit(basis_codes.transpose(-1, -2).contiguous())


def locks_unpack_basis(*, basis_bytes):
    _coded(4)
    return _basis_codes(basis_bytes)


def _basis_codes(basis_bytes):
    """Bytes [H, P, r, d bits / 8] as codes [H, P, d, r]."""
    d = basis_bytes.shape[-1] * 8 // IBITS
    return _unpack_ibit(basis_bytes.to(torch.int16), d).to(torch.int8).transpose(-1, -2).contiguous()


def _scale(softmax_scale, d):
    return d**-0.5 if softmax_scale is None else softmax_scale


def locks_score_pages(*, queries, centroid, basis, coefficients, softmax_scale=None):
    H, P, B, r = coefficients.shape
    G, d = queries.shape[1:]
    if r > RNK:
        raise NotImplementedError(f"rank {r}: this process keeps {RNK} modes (LOCKS_RKI4_RANK)")
    # one page more than is scored: the package never scores the most recent page
    st = _state(page_size=B, d=d, H=H, G=G, blocks=P + 1, pages=P + 1)
    _code(st, centroid, basis, coefficients)
    lengths = _int32((P + 1) * B)
    derive_page_params(st, lengths, 1)
    rki4_score_torch(st, 0, queries.reshape(1, H * G, d), _rows(P + 1), lengths, 1, _scale(softmax_scale, d))
    return st.score_h[0, :, :, :P].clone()


def locks_select_pages(*, shares, budget_tokens, page_size):
    H, P = shares.shape
    st = _state(page_size=page_size, d=64, H=H, pages=P, budget_pages=budget_tokens // page_size)
    st.score[0] = shares
    derive_page_params(st, _int32(P * page_size), 1)
    _topb_select_torch(st, 1)
    return _kept(st)[0]


def _kept(st):
    """The page table as int64 up to its longest row, [N, H, K]; -1 pads."""
    return st.page_table[..., : int(st.page_cnt.max())].to(torch.int64)


def _attend(st, queries, key_pool, value_pool, block_table, tokens, scale):
    """Its sparse decode over the state's page table: output [N, H, G, d], lse [N, H, G]."""
    N, H, G, d = queries.shape
    ensure_stage_b_buffers(st, "cpu", SPLITS)
    st.m_part.fill_(float("-inf"))  # splits that hold no page write nothing
    st.l_part.zero_()
    cache = torch.stack([key_pool, value_pool]).float()
    out = torch.zeros(N, H * G, d, dtype=queries.dtype)
    flat = queries.reshape(N, H * G, d).float()
    sparse_paged_decode_batched(flat, cache, block_table, tokens, st, out, ResidentVSource(cache), scale=scale)
    return out.reshape(N, H, G, d), torch.logsumexp(st.m_part + torch.log(st.l_part), dim=2)


def paged_sparse_attention(*, queries, key_pool, value_pool, block_table, tokens, pages, softmax_scale=None):
    N, H, G, d = queries.shape
    width = max(block_table.shape[1], pages.shape[2])
    st = _state(page_size=key_pool.shape[1], d=d, H=H, G=G, pages=width, requests=N)
    st.page_table.fill_(-1)
    for n in range(N):
        for h in range(H):
            row = pages[n, h][pages[n, h] >= 0]
            st.page_table[n, h, : len(row)] = row
            st.page_cnt[n, h] = len(row)
    table, lengths = _int_rows(block_table), tokens.to(torch.int32).contiguous()
    output, lse = _attend(st, queries, key_pool, value_pool, table, lengths, _scale(softmax_scale, d))
    return {"output": output, "lse": lse}


def _pooled(x, page_size):
    """Keys or values [H, T, d] as blocks [ceil(T/B), B, H, d], at least one; the open block ends in zeros."""
    H, T, d = x.shape
    blocks = max(-(-T // page_size), 1)
    padded = torch.zeros(H, blocks * page_size, d, dtype=x.dtype)
    padded[:, :T] = x
    return padded.reshape(H, blocks, page_size, d).permute(1, 2, 0, 3).contiguous()


def sparse_attention(*, queries, keys, values, pages, page_size, softmax_scale=None):
    key_pool, value_pool = _pooled(keys, page_size), _pooled(values, page_size)
    state = paged_sparse_attention(
        queries=queries[None],
        key_pool=key_pool,
        value_pool=value_pool,
        block_table=_rows(len(key_pool)),
        tokens=_int32(keys.shape[1]),
        pages=pages[None],
        softmax_scale=softmax_scale,
    )
    return {name: value[0] for name, value in state.items()}


def locks_decode_paged(
    *, queries, key_pool, value_pool, block_table, tokens, rank, basis_bits, budget_tokens, softmax_scale=None
):
    call = (queries, key_pool, value_pool, block_table, tokens, rank, basis_bits, softmax_scale)
    return decode_step(*call, budget_pages=budget_tokens // key_pool.shape[1], score_and_combine=rki4_score_state)


def decode_step(
    queries,
    key_pool,
    value_pool,
    block_table,
    tokens,
    rank,
    basis_bits,
    softmax_scale,
    *,
    budget_pages,
    score_and_combine,
):
    """Build, score and combine (leaving each page's value in ``st.score``), select, attend."""
    _coded(basis_bits)
    N, H, G, d = queries.shape
    blocks, B = key_pool.shape[:2]
    table, lengths = _int_rows(block_table), tokens.to(torch.int32).contiguous()
    scale = _scale(softmax_scale, d)
    st = _state(
        page_size=B,
        d=d,
        H=H,
        G=G,
        blocks=blocks,
        pages=table.shape[1],
        requests=N,
        budget_pages=budget_pages,
        rank=rank,
    )
    # at a decode step the package's summaries cover the tokens before this one
    rki4_build_refresh(st, 0, key_pool, table, (lengths - 1).clamp_min(0), N)
    derive_page_params(st, lengths, N)
    score_and_combine(st, 0, queries.reshape(N, H * G, d), table, lengths, N, scale)
    _topb_select_torch(st, N)
    output, _ = _attend(st, queries, key_pool, value_pool, table, lengths, scale)
    return {"output": output, "pages": _kept(st)}


def locks_decode(*, queries, keys, values, rank, basis_bits, budget_tokens, page_size, softmax_scale=None):
    settings = {"rank": rank, "basis_bits": basis_bits, "budget_tokens": budget_tokens}
    return alone(locks_decode_paged, queries, keys, values, page_size, **settings, softmax_scale=softmax_scale)


def alone(decode_paged, queries, keys, values, page_size, **settings):
    """A paged decode step of one contiguous sequence."""
    key_pool, value_pool = _pooled(keys, page_size), _pooled(values, page_size)
    step = decode_paged(
        queries=queries[None],
        key_pool=key_pool,
        value_pool=value_pool,
        block_table=_rows(len(key_pool)),
        tokens=_int32(keys.shape[1]),
        **settings,
    )
    return {name: value[0] for name, value in step.items()}
