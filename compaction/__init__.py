"""Compaction: rewrite nodes with many tombstones, move what lives out of mostly dead segments."""
