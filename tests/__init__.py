"""The tests: one folder a room, and the house rules."""
