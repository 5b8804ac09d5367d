"""Threads in the background: work that is due, and checkpoints."""
