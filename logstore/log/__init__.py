"""The log: frames, segments, hints, checkpoints.

Never imports the index: an index entry is derived from the log, so it is no evidence about it.
"""
