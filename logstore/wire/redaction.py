"""Requests as others may see them, in MONITOR, SLOWLOG and the log: without passwords.

Invariant: what could be a password never leaves its request, also when the request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.wire.table import Command

REDACTED = b"(redacted)"
_OF_USERS = frozenset({"acl|setuser", "acl|getuser", "acl|deluser"})
_SECRET_SETTINGS = frozenset(
    {b"requirepass", b"masterauth", b"primaryauth", b"masteruser", b"primaryuser",
     b"tls-key-file-pass", b"tls-client-key-file-pass"}
)  # fmt: skip


def without_passwords(command: Command, words: Sequence[bytes]) -> list[bytes]:
    """The words of a request, those that could be a password as ``(redacted)``; as in Redis also
    all that stands behind ACL SETUSER, GETUSER and DELUSER."""
    found = list(words)
    if command.name == "auth":
        found[1:] = [REDACTED] * (len(found) - 1)
    elif command.name in _OF_USERS:
        found[2:] = [REDACTED] * (len(found) - 2)
    elif command.name == "config|set":
        for at in range(2, len(found) - 1, 2):
            if found[at].lower() in _SECRET_SETTINGS:
                found[at + 1] = REDACTED
    elif command.name == "hello":
        _hello(found)
    return found


def _hello(words: list[bytes]) -> None:
    """HELLO: the two words behind each AUTH, as the command reads them."""
    at = 2
    while at < len(words):
        if words[at].upper() == b"AUTH":
            behind = range(at + 1, min(at + 3, len(words)))
            words[at + 1 : at + 3] = [REDACTED] * len(behind)
            at += 2
        elif words[at].upper() == b"SETNAME":
            at += 1
        at += 1
