"""Getting entries out of a store that can no longer be opened, into a new one."""
