"""Damage of every kind: found, at the granularity of a frame, and never read as something else."""
