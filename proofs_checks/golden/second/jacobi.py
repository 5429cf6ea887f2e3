"""Eigenvalues and eigenvectors of a small symmetric matrix, by Jacobi's rotations.

Golub and Van Loan, Matrix Computations, Sec. 8.5: each rotation makes one pair of off-diagonal entries zero and takes
their squares away from the sum off the diagonal; cyclic sweeps converge quadratically.
"""

from __future__ import annotations

import mpmath
from mpmath import mpf

MOST_SWEEPS = 60


def eigen(matrix: list[list[mpf]]) -> tuple[list[mpf], list[list[mpf]]]:
    """Give the eigenvalues, falling, and the eigenvectors as rows in the same order; at the ambient precision.

    Errors of the eigenvalues are a few units of that precision, measured against the largest entry of the matrix.
    """
    size = len(matrix)
    rows = [list(row) for row in matrix]
    vectors = [[mpf(i == j) for j in range(size)] for i in range(size)]
    pairs = [(p, q) for p in range(size) for q in range(p + 1, size)]
    negligible = mpmath.eps * max((abs(entry) for row in rows for entry in row), default=mpf(0))
    for _ in range(MOST_SWEEPS):
        if all(abs(rows[p][q]) <= negligible for p, q in pairs):
            order = sorted(range(size), key=lambda index: -rows[index][index])
            return [rows[index][index] for index in order], [vectors[index] for index in order]
        for p, q in pairs:
            rotate_pair(rows, vectors, p, q)
    raise ArithmeticError(f"no convergence in {MOST_SWEEPS} sweeps")


def rotate_pair(rows: list[list[mpf]], vectors: list[list[mpf]], p: int, q: int) -> None:
    """Rotate in the plane of p and q so that the entry (p, q) becomes zero; the smaller of the two angles is taken."""
    if rows[p][q] == 0:
        return
    slope = (rows[q][q] - rows[p][p]) / (2 * rows[p][q])
    tangent = (1 if slope >= 0 else -1) / (abs(slope) + mpmath.sqrt(slope**2 + 1))
    cosine = 1 / mpmath.sqrt(tangent**2 + 1)
    sine = tangent * cosine
    for matrix in (rows, vectors):
        matrix[p], matrix[q] = (
            [cosine * a - sine * b for a, b in zip(matrix[p], matrix[q], strict=True)],
            [sine * a + cosine * b for a, b in zip(matrix[p], matrix[q], strict=True)],
        )
    for row in rows:
        row[p], row[q] = cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]
    rows[p][q] = rows[q][p] = mpf(0)
