"""Eigenvectors of many small symmetric matrices by two-sided Jacobi with XOR pairs (Locks Sec. 4, the page's modes).

Round r of a sweep pairs row i with row i ^ r, so B / 2 disjoint rotations run at once and B - 1 rounds meet every pair:

    r = 1: (0 1)(2 3)(4 5)(6 7)    r = 2: (0 2)(1 3)(4 6)(5 7)    r = 3: (0 3)(1 2)(4 7)(5 6)   ...

Both members of a pair compute their own rotation from the same three numbers: with delta = a_pp' - a_ii seen from row i
and b = a_ip, tan = sign(delta) 2b / (|delta| + sqrt(delta^2 + 4 b^2)); the partner sees -delta and so the opposite
angle. Nothing is communicated but rows. Rounding makes a_ip and a_pi differ, so both take the lower row's: among modes
of zero energy, which are all rounding, two opinions would be two angles and the transform no rotation.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fastimpl.device import INTERPRETED

SWEEPS = 12
"""At most; random pages take six, graded ones eight or nine."""


@triton.jit
def off_diagonal(gram, diagonal):
    """Largest ||off-diagonal||^2 / ||matrix||^2 among gram [M, B, B]."""
    square = gram * gram
    off = tl.sum(tl.sum(tl.where(diagonal[None], 0.0, square), 2), 1)
    whole = tl.sum(tl.sum(square, 2), 1)
    return tl.max(off / tl.where(whole > 0, whole, 1.0), 0)


@triton.jit
def jacobi(gram, M: tl.constexpr, B: tl.constexpr, SWEEPS: tl.constexpr):
    """Eigenvalues [M, B], unordered, and eigenvectors [M, B, B] (row i belongs to eigenvalue i) of gram [M, B, B].

    Sweeps until what is off the diagonal is float32 rounding, at most ``SWEEPS`` times: random pages take six of
    them, graded ones eight or nine, pages of one token none.
    """
    i = tl.arange(0, B)
    diagonal = i[:, None] == i[None, :]
    vectors = tl.broadcast_to(tl.where(diagonal, 1.0, 0.0)[None], [M, B, B])
    left = SWEEPS
    if off_diagonal(gram, diagonal) < 1e-13:
        left = 0
    while left > 0:
        for step in range(1, B):
            gram, vectors = rotate_pairs(gram, vectors, i ^ step, M, B)
        left -= 1
        if off_diagonal(gram, diagonal) < 1e-13:  # (3e-7)^2: rounding leaves 1e-7 to 3e-7
            left = 0
    return tl.sum(tl.where(diagonal[None], gram, 0.0), 2), vectors


@triton.jit
def rotate_pairs(gram, vectors, partner, M: tl.constexpr, B: tl.constexpr):
    """One round: every row and its partner are rotated so that their common entry vanishes."""
    i = tl.arange(0, B)
    diagonal = i[:, None] == i[None, :]
    own = tl.sum(tl.where(diagonal[None], gram, 0.0), 2)  # [M, B]
    cross = 2.0 * tl.sum(tl.where((partner[:, None] == i[None, :])[None], gram, 0.0), 2)
    swap = tl.broadcast_to(partner[None, :], [M, B])
    delta = tl.gather(own, swap, 1) - own
    low = tl.broadcast_to((i < partner)[None, :], [M, B])
    cross = tl.where(low, cross, tl.gather(cross, swap, 1))
    sign = tl.where((delta > 0) | ((delta == 0) & low), 1.0, -1.0)
    size = tl.abs(delta) + tl.sqrt(delta * delta + cross * cross)
    tangent = tl.where(size > 0, sign * cross / tl.where(size > 0, size, 1.0), 0.0)
    cosine = 1.0 / tl.sqrt(tangent * tangent + 1.0)
    sine = tangent * cosine
    row = tl.broadcast_to(partner[None, :, None], [M, B, B])
    column = tl.broadcast_to(partner[None, None, :], [M, B, B])
    gram = cosine[:, :, None] * gram - sine[:, :, None] * tl.gather(gram, row, 1)
    gram = cosine[:, None, :] * gram - sine[:, None, :] * tl.gather(gram, column, 2)
    vectors = cosine[:, :, None] * vectors - sine[:, :, None] * tl.gather(vectors, row, 1)
    return gram, vectors


@triton.jit
def store_sorted(vectors, value, vector, M: tl.constexpr, B: tl.constexpr):
    """Write the eigenvectors of M matrices to ``vectors`` [M, B, B] by falling eigenvalue."""
    i = tl.arange(0, B)
    ahead = (value[:, None, :] > value[:, :, None]) | (
        (value[:, None, :] == value[:, :, None]) & (i[None, :] < i[:, None])[None]
    )
    rank = tl.sum(ahead.to(tl.int32), 2)  # [M, B]
    at = (tl.arange(0, M)[:, None] * B + rank) * B
    tl.store(vectors + at[:, :, None] + i[None, None, :], vector)


SWAP = tl.constexpr("shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;")


@triton.jit
def across(x, distance):
    """The value of the lane whose number is this one's ^ ``distance``; one element per thread (NVIDIA)."""
    return tl.inline_asm_elementwise(SWAP, "=f,f,r", [x, distance], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def lane_rotation(own, cross, i, r: tl.constexpr):
    """Cosine and sine of this lane's rotation with lane i ^ r."""
    low = (i & r) < ((i ^ r) & r)  # r's highest bit decides, and it differs between the two
    cross = 2.0 * tl.where(low, cross, across(cross, r))
    delta = across(own, r) - own
    sign = tl.where((delta > 0) | ((delta == 0) & low), 1.0, -1.0)
    size = tl.abs(delta) + tl.sqrt(delta * delta + cross * cross)
    tangent = tl.where(size > 1e-37, sign * cross / tl.maximum(size, 1e-37), 0.0)
    cosine = tl.rsqrt(tangent * tangent + 1.0)
    return cosine, tangent * cosine


@triton.jit
def lane_round(rows, vectors, i, r: tl.constexpr):
    """One round of rotations of 16 x 16 matrices held one row per lane: register k holds entry [i, i ^ k]."""
    cosine, sine = lane_rotation(rows[0], rows[r], i, r)
    turned = ()
    for k in tl.static_range(16):
        turned = turned + (cosine * rows[k] - sine * across(rows[k ^ r], r),)
    new_rows, new_vectors = (), ()
    for k in tl.static_range(16):  # column i ^ k turns with lane i ^ k's angle, its partner is register k ^ r
        c, s = cosine, sine
        if k > 0:
            c, s = across(cosine, k), across(sine, k)
        new_rows = new_rows + (c * turned[k] - s * turned[k ^ r],)
        new_vectors = new_vectors + (c * vectors[k] - s * vectors[k ^ r],)
    return new_rows, new_vectors


@triton.jit
def jacobi_of_lanes(grams, vectors, M: tl.constexpr, SWEEPS: tl.constexpr):
    """Eigenvectors [M, 16, 16] by falling eigenvalue of M matrices 16 x 16, two to a warp, a row to a lane (NVIDIA)."""
    lane = tl.arange(0, 16 * M)
    i, matrix = lane & 15, lane >> 4
    rows, columns = (), ()
    for k in tl.static_range(16):
        row = tl.load(grams + matrix * 256 + i * 16 + (i ^ k))
        rows = rows + (row,)
        columns = columns + (row * 0.0 + (1.0 if k == 0 else 0.0),)
    left = SWEEPS
    while left > 0:
        for r in tl.static_range(1, 16):
            rows, columns = lane_round(rows, columns, i, r)
        left -= 1
        off, whole = rows[0] * 0.0, rows[0] * rows[0]
        for k in tl.static_range(1, 16):
            off += rows[k] * rows[k]
        for k in tl.static_range(4):
            off += across(off, 1 << k)
            whole += across(whole, 1 << k)
        if tl.max(off - 1e-10 * whole, 0) <= 0.0:
            left = 0
    own = rows[0]
    rank = i * 0
    for k in tl.static_range(1, 16):
        other = across(own, k)
        rank += ((other > own) | ((other == own) & ((i ^ k) < i))).to(tl.int32)
    place = rank.to(tl.float32)
    for k in tl.static_range(16):
        where = place
        if k > 0:
            where = across(place, k)
        tl.store(vectors + (matrix * 16 + where.to(tl.int32)) * 16 + i, columns[k])


@triton.jit
def jacobi_kernel(grams, vectors, M: tl.constexpr, B: tl.constexpr, SWEEPS: tl.constexpr, PTX: tl.constexpr):
    """Eigenvectors of ``grams`` [.., B, B], largest eigenvalue first, to ``vectors`` [.., B, B]; M to a program."""
    first = tl.program_id(0).to(tl.int64) * (M * B * B)
    if PTX:
        jacobi_of_lanes(grams + first, vectors + first, M, SWEEPS)
    else:
        page, i = tl.arange(0, M), tl.arange(0, B)
        gram = tl.load(grams + first + (page[:, None, None] * B + i[None, :, None]) * B + i[None, None, :])
        value, vector = jacobi(gram, M, B, SWEEPS)
        store_sorted(vectors + first, value, vector, M, B)


MATRICES_PER_PROGRAM = 64 if INTERPRETED.value else 1
"""The interpreter pays per operation, the device per register."""


def eigenvectors(grams: torch.Tensor, vectors: torch.Tensor, branch: str = "auto") -> None:
    """Write the eigenvectors of grams [n, B, B], sorted, as rows of vectors [>= n, B, B]; n a power of two or even."""
    n, B, _ = grams.shape
    nvidia = grams.device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    ptx = branch != "plain" and nvidia and B == 16 and n % 2 == 0
    M = 2 if ptx else min(MATRICES_PER_PROGRAM, n)
    jacobi_kernel[(n // M,)](grams, vectors, M=M, B=B, SWEEPS=SWEEPS, PTX=ptx, num_warps=1 if ptx else 4)
