"""Memory that processes share: the control block, wait words, the writer lock, counters.

It owns layouts and bytes; it knows no streams and no groups.
"""
