"""What the log tells an operator of who did what: administration, refusals, logins.

Invariants: no password is written; of each kind a few lines at once and then one in some seconds,
the rest is counted in the next line, so that nobody can fill a disk. Knows no socket.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.wire.log_limiter import Seldom, shown
from logstore.wire.redaction import REDACTED, without_passwords

if TYPE_CHECKING:
    from logstore.wire.denials import Reason
    from logstore.wire.session import Session
    from logstore.wire.table import Command

log = logging.getLogger("logstore.audit")
AT_ONCE = 20  # lines of a kind
EACH_S = 5.0  # another one may be written
WORDS_MAX = 16  # of a command
_ADMINISTRATION = frozenset(
    {"config|set", "config|resetstat", "acl|setuser", "acl|deluser", "acl|load", "acl|save",
     "acl|log", "flushall", "flushdb", "shutdown", "client|kill", "monitor", "save", "bgsave",
     "slowlog|reset"}
)  # fmt: skip
_NO_PASSWORD = (b"+", b"-", b"~", b"%", b"&", b"(")
_NO_PASSWORDS = frozenset(
    {b"on", b"off", b"nopass", b"resetpass", b"reset", b"allkeys", b"resetkeys", b"allcommands",
     b"nocommands", b"allchannels", b"resetchannels", b"clearselectors", b"sanitize-payload",
     b"skip-sanitize-payload"}
)  # fmt: skip


class Audit:
    """The log of one server."""

    def __init__(self) -> None:
        self._administration, self._refusals, self._logins = (
            Seldom(log, at_once=AT_ONCE, each_s=EACH_S) for _ in range(3)
        )

    def command(self, session: Session, command: Command, words: Sequence[bytes]) -> None:
        """A client asks for this, and may: a line if it is administration."""
        if command.name in _ADMINISTRATION and not session.trusted:
            told = " ".join(shown(each)[1:-1] for each in _public(command, words)[:WORDS_MAX])
            more = " ..." if len(words) > WORDS_MAX else ""
            self._administration.write(
                logging.INFO, "user %s at %s: %s%s", shown(session.user.name), session.address,
                told, more,
            )  # fmt: skip

    def refused(self, session: Session, reason: Reason, what: bytes) -> None:
        """A user may not do this."""
        if not session.trusted:
            self._refusals.write(
                logging.WARNING, "user %s at %s was refused the %s %s", shown(session.user.name),
                session.address, reason, shown(what),
            )  # fmt: skip

    def login(self, session: Session) -> None:
        """A client is a user now."""
        self._logins.write(
            logging.DEBUG, "user %s logged in from %s", shown(session.user.name), session.address
        )


def _public(command: Command, words: Sequence[bytes]) -> list[bytes]:
    """The words without passwords; more of ACL than the other clients are told."""
    if command.name == "acl|deluser":
        return list(words)
    if command.name != "acl|setuser":
        return without_passwords(command, words)
    rules = [
        each if each.startswith(_NO_PASSWORD) or each.lower() in _NO_PASSWORDS else REDACTED
        for each in words[3:]
    ]
    return [*words[:3], *rules]
