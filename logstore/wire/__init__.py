"""The Redis protocol: commands, replies, a server, and clients in the same process.

Above the public classes of the store: words of a command become a step (``commands``), the step runs on the
store (``runner``), and its reply goes out as RESP2 or RESP3 (``reply``).
"""
