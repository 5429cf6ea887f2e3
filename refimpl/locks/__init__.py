"""Locks: page-local compact key summaries (paper: *Locks*, Sec. 4 and App. A-D)."""
