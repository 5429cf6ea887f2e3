"""Float64 NumPy reference of every algorithm of the two papers, written to be read beside them."""
