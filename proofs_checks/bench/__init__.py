"""Times kernels beside the fastest dense peer, and compiles them for absent targets. Loads torch when asked."""
