"""Benchmarks: ratios of means against a peer in the same run. ``python -m benchmarks``."""
