"""A stream as a value that other servers read: dumping, restoring and copying it."""
