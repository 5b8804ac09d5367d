"""Compaction: node level and segment level, by call and by command; erasure.

Stands above the engine and calls it. Its output lies in segments of its own, inert until one adopt
commit publishes them; it may be killed at any moment.
"""
