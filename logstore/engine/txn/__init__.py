"""What a write transaction reads and changes: records, nodes, groups and pending entries lists."""
