"""The Redis protocol itself: requests as words, what words mean, replies as bytes.

Knows no store and no command.
"""
