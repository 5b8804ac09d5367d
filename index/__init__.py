"""The index: LMDB in generations, rebuilt from the log. Knows positions and IDs, parses no node."""
