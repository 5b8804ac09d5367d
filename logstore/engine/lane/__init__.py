"""The fast lane of plain adds: a commit of one append frame, in compiled code with typed data.

`native.pyx` is all of it; without a compiler there is no lane, and every add goes through
``engine.commit``, which writes the same bytes.
"""
