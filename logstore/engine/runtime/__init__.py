"""What a process holds open of a store: snapshots of its index, segments, pins."""
