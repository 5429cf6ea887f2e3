"""ReadKV: progressive codes with query-adaptive prefix reads (paper: *ReadKV*, Sec. 2-4 and App. A-G)."""
