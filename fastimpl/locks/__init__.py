"""Triton twins of `refimpl.locks`."""
