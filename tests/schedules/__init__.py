"""Entries that wait for their time."""
