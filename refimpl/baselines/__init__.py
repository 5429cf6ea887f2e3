"""The other methods that the two papers measure themselves against, one file each."""
