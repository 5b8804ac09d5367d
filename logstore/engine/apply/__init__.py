"""From frames to the index: the one place that changes what the index says.

The same code applies a commit when it is made and when the log is replayed.
"""
