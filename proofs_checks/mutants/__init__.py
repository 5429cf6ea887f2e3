"""Deliberately broken and deliberately honest ports."""
