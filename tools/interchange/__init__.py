"""Commands that carry entries between a store and files, or servers of Redis and Valkey."""
