"""The web view of a store, as a process, asked by a plain client and by a real browser."""
