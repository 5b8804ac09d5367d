"""Deciding that a stream is called otherwise.

Invariants: a stream is its number, so all that is its goes along: entries, groups and what is
pending, settings, what is scheduled or remembered of producers, and when it expires. Who had the
new name goes first, in the same commit; who waits under either name is woken.
"""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams.add import existing
from logstore.engine.streams.removal import vacate
from logstore.log.lifeframe import Rename
from logstore.options import check_name


def rename(state: WriteTxn, old: bytes, new: bytes, *, replace: bool = True) -> bool:
    """Give a stream another name; False if that is a stream's already and ``replace`` is False.

    To the name that it has it is nothing. StreamNotFoundError, TooLargeError.
    """
    record = existing(state, old)
    if state.record_by_name(new) is not None and not replace:
        return False
    if old != new:
        check_name(new, "a stream name")
        vacate(state, new)
        state.emit(Rename(record.number, new))
    return True
