"""Calls and answers as files, for ports in any language: `kvproof cases` and `kvproof judge`."""
