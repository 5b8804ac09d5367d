"""Reading by ID: what a process keeps of streams and nodes, and how an entry is found in it.

`native.pyx` is the read core, `pure.py` has the twin of its cache of nodes; the twin of the rest is
``engine.streams.read``, which asks a snapshot each time. `loading.py` says which is there.

Invariants: what is kept is what a snapshot says that stands at the same position of the log, in the
same generation of the index; it is used only while that position is the published end, and no
commit is in progress. What the core cannot tell, or doubts, it does not tell: the twin reads it
from a snapshot, and raises what is to be raised. It may not know LMDB: rows are handed to it.
"""
