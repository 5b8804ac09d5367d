"""The Redis protocol: commands, replies, a server, and clients in the same process.

The words of a command become a step (``commands``), the step runs on a store (``command_runner``),
and its reply goes out as RESP2 or RESP3 (``reply``).
"""
