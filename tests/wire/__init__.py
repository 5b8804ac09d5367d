"""The Redis protocol: a server of a store beside real ones."""
