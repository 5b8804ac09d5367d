"""What takes entries away: XDEL, XDELEX, XTRIM; XSETID; and the options that other commands share.

``TrimOptions`` is also of XADD, ``IdBlock`` (IDs behind their number) also of XACKDEL.
"""

from __future__ import annotations

from logstore.api.opening import OpenStore
from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.streams import lifecycle, removal
from logstore.engine.streams.removal import TrimRule
from logstore.ids import StreamID
from logstore.options import Profile
from logstore.wire.partial_commits import ALL, counting, listing
from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.words import I64_MAX, Words, ids, integer, strict_id
from logstore.wire.service import Client
from logstore.wire.steps import Change, Step, ok
from logstore.wire.table import Command, is_valkey

_TWICE = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
REFERENCES = {b"KEEPREF": "keep", b"DELREF": "delete", b"ACKED": "acked"}
_ONE_BY_ONE = ("delete", "acked")
NOTHING = TrimRule(I64_MAX, None, True, None)


def trim_options(command: str, profile: Profile) -> TrimOptions:
    """A parser of the options for a command, as those of a profile have it."""
    return TrimOptions(command, profile)


class TrimOptions:
    """MAXLEN, MINID, LIMIT and the modes of references, in any order."""

    def __init__(self, command: str, profile: Profile) -> None:
        self._command = command
        self._profile: Profile = profile
        self._maxlen: int | None = None
        self._minid: StreamID | None = None
        self._approximate = False
        self._limit: int | None = None
        self._references: str | None = None

    def take(self, words: Words) -> bool:
        """Take one option, if one stands here."""
        word = words.peek()
        if word in (b"MAXLEN", b"MINID"):
            words.next()
            self._strategy(word, words)
        elif word == b"LIMIT":
            words.next()
            self._limit = words.integer()
            if self._limit < 0:
                raise Failed("ERR The LIMIT argument must be >= 0.")
        elif word in REFERENCES and self._references is None and not is_valkey(self._profile):
            words.next()
            self._references = REFERENCES[word]
        else:
            return False
        return True

    def _strategy(self, word: bytes, words: Words) -> None:
        if self._maxlen is not None or self._minid is not None:
            raise Failed(_TWICE)
        self._approximate = words.take(b"~")
        if not self._approximate:
            words.take(b"=")
        if word == b"MAXLEN":
            self._maxlen = words.integer()
            if self._maxlen < 0:
                raise Failed("ERR The MAXLEN argument must be >= 0.")
        else:
            self._minid = strict_id(words.next())

    def rule(self) -> TrimRule | None:
        """The rule that the options make together; None if they ask for no trimming."""
        given = self._maxlen is not None or self._minid is not None
        if self._limit and not given:  # the peers take 0 for no limit here
            raise Failed(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            )
        if not given and self._command == "xtrim":
            raise Failed("ERR syntax error, XTRIM must be called with a trimming strategy")
        if self._limit is not None and not self._approximate:
            raise Failed("ERR syntax error, LIMIT cannot be used without the special ~ option")
        if not given:
            return None
        if self._approximate and self._profile == "redis-8.2" and self._references in _ONE_BY_ONE:
            return NOTHING  # since 8.6 they go one by one
        return TrimRule(
            self._maxlen,
            self._minid,
            self._approximate,
            self._limit,
            references=self._references or "keep",
        )


def xtrim(client: Client, words: Words) -> Step:
    """As XTRIM."""
    key = words.next()
    parser = trim_options("xtrim", client.service.profile)
    while len(words):
        if not parser.take(words):
            raise Failed(SYNTAX)
    rule = parser.rule()
    return Change(lambda state: removal.trim_named(state, key, rule), frees=True)


# XDELEX and XACKDEL; options with the same words are of Redis only.
WITH_MODES = frozenset({"redis-8.2", "redis-8.10", "valkey-9.2"})


def xdel(_client: Client, words: Words) -> Step:
    """As XDEL."""
    key = words.next()
    given = words.rest()
    wanted = ids(given, ascending=True)

    def op(state: WriteTxn, items: slice = ALL) -> int:
        if state.record_by_name(key) is None:
            return 0  # the peers do not look at the IDs then
        return removal.delete(state, key, wanted()[items])

    def beside(opened: OpenStore[bytes]) -> int | None:
        try:
            return opened.delete_plain(key, wanted()[0])
        except Failed:  # it is no ID: that is told only if there is a stream
            return None

    parts = counting(len(given), op)
    return Change(op, frees=True, beside=beside if len(given) == 1 else None, parts=parts)


class IdBlock:
    """``[KEEPREF|DELREF|ACKED] IDS numids id ...``, in any order."""

    def __init__(self, words: Words) -> None:
        self.mode = "keep"
        block: list[bytes] | None = None
        given = False
        while len(words):
            word = words.option()
            if word in REFERENCES:
                if given:
                    raise Failed(SYNTAX)
                given, self.mode = True, REFERENCES[word]
            elif word == b"IDS" and block is None:
                block = self._block(words)
            else:
                raise Failed(SYNTAX)
        if block is None:
            raise Failed("ERR IDS option is required")
        self.count = len(block)
        self.ids = ids(block)  # only where there is a stream, as the peers do

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


def xdelex(_client: Client, words: Words) -> Step:
    """As XDELEX."""
    key = words.next()
    block = IdBlock(words)

    def op(state: WriteTxn, items: slice = ALL) -> list[int]:
        if state.record_by_name(key) is None:
            return [-1] * len(range(block.count)[items])
        return list(removal.delete_ids(state, key, block.ids()[items], block.mode))

    return Change(op, frees=True, parts=listing(block.count, op))


def xsetid(client: Client, words: Words) -> Step:
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
    newest = client.service.profile == "redis-8.10"

    def op(state: WriteTxn) -> None:
        lifecycle.set_id(state, key, last, added, deleted, reads_follow=newest)

    return Change(op, ok)


_SLOW = ("write", "stream", "slow")
_FAST = ("write", "stream", "fast")
COMMANDS = [
    Command("xdel", -3, xdel, ("write", "fast"), (1, 1, 1), "5.0.0", "O(N), N IDs",
            summary="Deletes entries by ID; tells how many there were.", categories=_FAST),
    Command("xdelex", -5, xdelex, ("write", "fast"), (1, 1, 1), "8.2.0", "O(N), N IDs",
            summary="Deletes entries, and says what of groups' references to them becomes.",
            categories=_FAST, levels=WITH_MODES),
    Command("xsetid", -3, xsetid, ("write", "denyoom", "fast"), (1, 1, 1), "5.0.0", "O(1)",
            summary="Sets the last ID of a stream.", categories=_FAST),
    Command("xtrim", -4, xtrim, ("write",), (1, 1, 1), "5.0.0",
            "O(N), N entries trimmed; whole nodes go at once",
            summary="Takes away the oldest entries of a stream.",
            categories=_SLOW),
]  # fmt: skip
