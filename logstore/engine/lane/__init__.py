"""The fast lane of plain commits: adds, deletes, and what groups do, in compiled, typed code.

`native.pyx` is all of it; without a compiler there is no lane, and everything goes through
``engine.commit``, which writes the same bytes.
"""
