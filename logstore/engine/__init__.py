"""The engine: lock, decide, commit, apply, tail, sync, snapshot, wake, pins.

It decides what an operation does, commits the frames that say so, and applies them to the index.
``apply`` is the one place that changes the index. Deciding is not a pure step: an operation reads
through the write transaction, and each frame that it appends is applied at once, so that the next
decision of the same commit sees it. What holds is that an operation refuses before its first frame,
that it reads no clock but the transaction's, and that applying a frame decides nothing.
"""
