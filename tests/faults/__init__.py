"""Prevents a disk that fails, is full, or may not be written to from losing anything."""
