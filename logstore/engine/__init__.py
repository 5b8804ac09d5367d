"""The engine: lock, decide, commit, apply, tail, sync, snapshot, wake, pins.

It decides what an operation does (a pure step: the state read, the frames to write), commits the
frames, and applies them to the index. ``apply`` is the one place that changes the index.
"""
