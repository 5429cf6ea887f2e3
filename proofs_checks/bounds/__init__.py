"""Rounding-error bounds, derived, one function per stage."""
