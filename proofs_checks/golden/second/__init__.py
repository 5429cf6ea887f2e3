"""A second reference, written from the papers alone: page summaries and the two-stage reader, slowly and to 50 digits.

It shares no line, and no arithmetic library, with `refimpl`: plain lists of exact fractions, and mpmath where a root or
an exponential leaves the rationals. Where the two references agree on an input, an error would have to be made twice,
in two different ways. Read it beside the papers: `summary.py` with Locks Sec. 4, `tree.py`, `allocation.py` and
`reader.py` with ReadKV Sec. 3, Alg. 1 and App. D.

Numbers go in as ints, floats or fractions, in nested lists; each means exactly the rational number that it is.
"""
