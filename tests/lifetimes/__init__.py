"""Names, copies, and times to live of streams."""
