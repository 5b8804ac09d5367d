"""XDEL, XDELEX, XSETID, and what of XACKDEL they share: a block of IDs with their number."""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import delete, lifecycle
from logstore.ids import StreamID
from logstore.wire.command_words import Words, ids, integer, strict_id
from logstore.wire.commands.trimming import REFERENCES
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.session import Session
from logstore.wire.steps import Change, Step, ok
from logstore.wire.table import Command

SINCE_8_2 = frozenset({"redis-8.2", "redis-8.10"})


def xdel(_session: Session, words: Words) -> Step:
    """As XDEL."""
    key = words.next()
    wanted = ids(words.rest(), ascending=True)

    def op(state: WriteTxn) -> int:
        if state.record_by_name(key) is None:
            return 0  # the peers do not look at the IDs then
        return delete.delete(state, key, wanted())

    return Change(op, frees=True)


class IdBlock:
    """``[KEEPREF|DELREF|ACKED] IDS numids id ...``, in any order."""

    def __init__(self, words: Words) -> None:
        self.mode = "keep"
        found: list[bytes] | None = None
        given = False
        while len(words):
            word = words.option()
            if word in REFERENCES:
                if given:
                    raise Failed(SYNTAX)
                given, self.mode = True, REFERENCES[word]
            elif word == b"IDS" and found is None:
                found = self._block(words)
            else:
                raise Failed(SYNTAX)
        if found is None:
            raise Failed("ERR IDS option is required")
        self.count = len(found)
        self.ids = ids(found)  # only where there is a stream, as the peers do

    @staticmethod
    def _block(words: Words) -> list[bytes]:
        if not len(words):
            raise Failed(SYNTAX)
        count = integer(words.next(), "ERR Number of IDs must be a positive integer")
        if count <= 0:
            raise Failed("ERR Number of IDs must be a positive integer")
        if count > len(words):
            raise Failed("ERR The `numids` parameter must match the number of arguments")
        return [words.next() for _ in range(count)]


def xdelex(_session: Session, words: Words) -> Step:
    """As XDELEX."""
    key = words.next()
    block = IdBlock(words)

    def op(state: WriteTxn) -> list[int]:
        if state.record_by_name(key) is None:
            return [-1] * block.count
        return list(delete.delete_ids(state, key, block.ids(), block.mode))

    return Change(op, frees=True)


def xsetid(_session: Session, words: Words) -> Step:
    """As XSETID."""
    key = words.next()
    last = strict_id(words.next())
    added: int | None = None
    deleted: StreamID | None = None
    while len(words):
        word = words.option()
        if word == b"ENTRIESADDED":
            added = words.integer()
            if added < 0:
                raise Failed("ERR entries_added must be positive")
        elif word == b"MAXDELETEDID":
            deleted = strict_id(words.next())
            if last < deleted:
                raise Failed(
                    "ERR The ID specified in XSETID is smaller than the provided "
                    "max_deleted_entry_id"
                )
        else:
            raise Failed(SYNTAX)
    return Change(lambda state: lifecycle.set_id(state, key, last, added, deleted), ok)


_SLOW = ("write", "stream", "slow")
_FAST = ("write", "stream", "fast")
COMMANDS = [
    Command("xdel", -3, xdel, ("write", "fast"), (1, 1, 1), "5.0.0", "O(N), N IDs",
            summary="Deletes entries by ID; tells how many there were.", categories=_FAST),
    Command("xdelex", -5, xdelex, ("write", "fast"), (1, 1, 1), "8.2.0", "O(N), N IDs",
            summary="Deletes entries, and says what of groups' references to them becomes.",
            categories=_FAST, levels=SINCE_8_2),
    Command("xsetid", -3, xsetid, ("write", "denyoom", "fast"), (1, 1, 1), "5.0.0", "O(1)",
            summary="Sets the last ID of a stream.", categories=_FAST),
]  # fmt: skip
