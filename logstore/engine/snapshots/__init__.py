"""The store as readers see it: the index at one moment, and over it what it lacks of the log."""
