"""Forced interleavings: one process is stopped between two steps, and others go on around it."""
