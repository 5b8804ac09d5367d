"""Group commit: from a queue of operations to frames, the log, the index and the answers."""
