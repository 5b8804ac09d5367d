"""The commands: one test module each, in this process and as real processes."""
