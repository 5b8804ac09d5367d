"""Interchange with real servers: DUMP payloads, RDB files, and what is hostile of them."""
