"""Scans: plans of ID ranges, reading a split, Arrow. Reading a split needs no LMDB."""
