"""Times kernels beside the fastest dense peer, and compiles them for targets that are not here. Loads torch when asked."""
