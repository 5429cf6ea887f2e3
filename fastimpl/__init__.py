"""Triton twins of the reference, file for file where a kernel exists. Imports neither `refimpl` nor `proofs_checks`."""
