"""The demo, on a slice of its real input."""
