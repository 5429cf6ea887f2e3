"""Writes and reads golden files."""
