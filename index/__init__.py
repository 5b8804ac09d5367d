"""The index: an LMDB environment, derived from the log and never evidence about it.

Knows positions and IDs; never parses a node, never reads a segment.
"""
