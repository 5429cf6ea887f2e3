"""Wrong on purpose: int4 codes are unpacked as nibble - 7 instead of two's complement."""

import numpy as np
from numpy_port import *  # noqa: F403


def locks_unpack_basis(*, basis_bytes):
    nibbles = np.stack([basis_bytes & 15, basis_bytes >> 4], axis=-1).reshape(*basis_bytes.shape[:-1], -1)
    return np.swapaxes(nibbles.astype(np.int8) - np.int8(7), -1, -2)
