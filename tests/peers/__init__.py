"""The peers: real Redis and Valkey servers that judge our bytes, and the payloads of DUMP."""
