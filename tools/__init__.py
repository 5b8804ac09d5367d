"""The commands: one module each, run as `logstore NAME`."""
