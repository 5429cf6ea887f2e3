"""Kernels of ReadKV: codec, planes, allocation, and the two-stage reader."""
