"""The end of a value that an attribute of a compiled class held.

In compiled code ``self.x = new`` frees the old value *before* the attribute is set. If freeing it
runs code, or lets go of the interpreter (a file or an LMDB environment is closed), another thread
can read the attribute meanwhile, and gets an object that is half freed: the process dies. So where
more than one thread can see an attribute whose value does such work at its end, the old value is
taken first and used once more behind the assignment::

    before = self.x
    self.x = new
    let_go(before)

``tests/house/test_swaps.py`` looks for assignments that do not. Invariant: never compiled, so that
no compiler can see that nothing is done here.
"""

from __future__ import annotations


def let_go(before: object) -> None:
    """Free what an attribute held, now that it holds something else.

    Args:
        before: the value that was read from the attribute before it was set; the caller has no
            other use for it. It is freed when the caller's name for it ends, if nobody else has it.
    """
