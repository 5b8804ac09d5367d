"""What streams have beside their entries, as it is stored: one module a feature.

A module says all that the log, the index, a checkpoint and recovery must know of its feature: the
kinds of its frames, the rows of its database, how a frame changes the rows, how the rows get into a
checkpoint and out of it. What an operation decides about it, and what a feature does
unasked, is the module of the same name in ``logstore.engine.features``: that one reads a
transaction and emits frames, this one says what a frame means.
"""
