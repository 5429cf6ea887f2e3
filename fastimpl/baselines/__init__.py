"""Triton twins of the other systems: small and plain, one file per method."""
