"""The papers' measurements on real captured queries, keys and values."""
