"""Settings kept with streams and groups."""
