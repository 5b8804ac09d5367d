"""The Spark source, in one real session."""
