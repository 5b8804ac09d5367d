"""Commits of many threads and processes, locks, forks, interrupts, a lost index."""
