"""Waiting: reads that sleep until entries come, and the queue of a group."""
