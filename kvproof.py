"""The public face of kvproof: ``import kvproof`` re-exports what users may rely on."""

__version__ = "0.1.0"
