"""What streams have beside their entries, as it is stored: one module a feature.

A module says all that the log, the index, a checkpoint and recovery must know of its feature: the
kinds of its frames, the rows of its database, how a frame changes the rows, how the rows get into a
checkpoint and out of it. ``logstore.engine.features`` decides: it reads a transaction and emits
frames. The modules here say what a frame means.
"""
