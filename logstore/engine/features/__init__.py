"""What is decided about features, which streams have beside entries: one module a feature.

Idempotent IDs that expire, schedules, expiry, settings, retention: a module reads the transaction
and emits frames. What these frames are, how they change the rows of the index, and what a
checkpoint holds of them, is in ``logstore.features``, on a floor below the log.
"""
