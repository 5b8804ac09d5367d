"""``logstore sql``: DuckDB over the streams of a store, for a shell and at a prompt."""
