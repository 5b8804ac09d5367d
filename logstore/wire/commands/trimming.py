"""The options of trimming, which XADD and XTRIM share; XTRIM."""

from __future__ import annotations

from logstore.engine.streams import trim
from logstore.engine.streams.trim import TrimRule
from logstore.ids import StreamID
from logstore.wire.command_words import I64_MAX, Words, strict_id
from logstore.wire.failures import SYNTAX, Failed
from logstore.wire.session import Session
from logstore.wire.steps import Change, Step
from logstore.wire.table import Command

_TWICE = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
REFERENCES = {b"KEEPREF": "keep", b"DELREF": "delete", b"ACKED": "acked"}
_ONE_BY_ONE = ("delete", "acked")
NOTHING = TrimRule(I64_MAX, None, True, None)


def trim_options(command: str, profile: str) -> TrimOptions:
    """A parser of the options for a command, as those of a profile have it."""
    return TrimOptions(command, profile)


class TrimOptions:
    """MAXLEN, MINID, LIMIT and the modes of references, in any order."""

    def __init__(self, command: str, profile: str) -> None:
        self._command = command
        self._profile = profile
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
        elif word in REFERENCES and self._references is None and self._profile != "valkey-9":
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
        """What they say together; None if they ask for no trimming."""
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
            self._maxlen, self._minid, self._approximate, self._limit,
            references=self._references or "keep",
        )  # fmt: skip


def xtrim(session: Session, words: Words) -> Step:
    """As XTRIM."""
    key = words.next()
    parser = trim_options("xtrim", session.service.profile)
    while len(words):
        if not parser.take(words):
            raise Failed(SYNTAX)
    rule = parser.rule()
    return Change(lambda state: trim.trim_named(state, key, rule), frees=True)


COMMANDS = [
    Command("xtrim", -4, xtrim, ("write",), (1, 1, 1), "5.0.0",
            "O(N), N entries trimmed; whole nodes go at once",
            summary="Takes away the oldest entries of a stream.",
            categories=("write", "stream", "slow")),
]  # fmt: skip
