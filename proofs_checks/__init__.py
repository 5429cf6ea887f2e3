"""Theorems as executable checks, derived error bounds, and the kit that judges ports. Importing it loads no torch."""
