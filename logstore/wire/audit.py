"""The audit log: administration, refused commands (ACL LOG) and failed logins.

Invariants: a possible password never leaves its request, also when the request is refused. Of each
kind a few lines are written at once, then one in some seconds; the next line counts those that were
left out. Refusals and addresses are kept in bounded numbers and lengths, so that no client can fill
a disk or the memory. A failed login gets a delay from here, and its connection waits that long.
Knows no socket.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol, TypeAlias

from logstore.wire.log_limiter import Seldom, shown
from logstore.wire.resp.reply import Reply
from logstore.wire.table import Command

REDACTED = b"(redacted)"
_OF_USERS = frozenset({"acl|setuser", "acl|getuser", "acl|deluser"})
_SECRET_SETTINGS = frozenset(
    (
        b"requirepass masterauth primaryauth masteruser primaryuser tls-key-file-pass "
        b"tls-client-key-file-pass"
    ).split()
)


def without_passwords(command: Command, words: Sequence[bytes]) -> list[bytes]:
    """The words of a request, those that could be a password as ``(redacted)``; as in Redis also
    all that stands behind ACL SETUSER, GETUSER and DELUSER."""
    public = list(words)
    if command.name == "auth":
        public[1:] = [REDACTED] * (len(public) - 1)
    elif command.name in _OF_USERS:
        public[2:] = [REDACTED] * (len(public) - 2)
    elif command.name == "config|set":
        for at in range(2, len(public) - 1, 2):
            if public[at].lower() in _SECRET_SETTINGS:
                public[at + 1] = REDACTED
    elif command.name == "hello":
        _hello(public)
    return public


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


log = logging.getLogger("logstore.audit")
AT_ONCE = 20  # lines of a kind
EACH_S = 5.0  # another one may be written
WORDS_MAX = 16  # of a command
ADMINISTRATION = frozenset(
    {
        "config|set",
        "config|resetstat",
        "acl|setuser",
        "acl|deluser",
        "acl|load",
        "acl|save",
        "acl|log",
        "flushall",
        "flushdb",
        "shutdown",
        "client|kill",
        "monitor",
        "save",
        "bgsave",
        "slowlog|reset",
    }
)
_NO_PASSWORD = (b"+", b"-", b"~", b"%", b"&", b"(")
_NO_PASSWORDS = frozenset(
    (
        b"on off nopass resetpass reset allkeys resetkeys allcommands nocommands allchannels "
        b"resetchannels clearselectors sanitize-payload skip-sanitize-payload"
    ).split()
)


class AuditedClient(Protocol):
    """A client, as far as the logs tell of it."""

    address: str
    name: bytes
    trusted: bool

    @property
    def user_name(self) -> bytes:
        """The name of the user that the client is logged in as."""
        ...


class Audit:
    """The log of one server."""

    def __init__(self) -> None:
        self._administration, self._refusals, self._logins = (
            Seldom(log, at_once=AT_ONCE, each_s=EACH_S) for _ in range(3)
        )

    def command(self, client: AuditedClient, command: Command, words: Sequence[bytes]) -> None:
        """A client asks for administration, and may."""
        if not client.trusted:
            text = " ".join(shown(word)[1:-1] for word in _public(command, words)[:WORDS_MAX])
            more = " ..." if len(words) > WORDS_MAX else ""
            self._administration.write(
                logging.INFO,
                "user %s at %s: %s%s",
                shown(client.user_name),
                client.address,
                text,
                more,
            )

    def refused(self, client: AuditedClient, reason: Reason, what: bytes) -> None:
        """A user may not do this."""
        if not client.trusted:
            self._refusals.write(
                logging.WARNING,
                "user %s at %s was refused the %s %s",
                shown(client.user_name),
                client.address,
                reason,
                shown(what),
            )

    def login(self, client: AuditedClient) -> None:
        """A client is a user now."""
        self._logins.write(
            logging.DEBUG, "user %s logged in from %s", shown(client.user_name), client.address
        )


def _public(command: Command, words: Sequence[bytes]) -> list[bytes]:
    """The words without passwords; of ACL more than the other clients see."""
    if command.name == "acl|deluser":
        return list(words)
    if command.name != "acl|setuser":
        return without_passwords(command, words)
    rules = [
        rule if rule.startswith(_NO_PASSWORD) or rule.lower() in _NO_PASSWORDS else REDACTED
        for rule in words[3:]
    ]
    return [*words[:3], *rules]


Reason: TypeAlias = Literal["auth", "command", "key"]
DENIALS_MAX = 128
SAME_MS = 60_000
LOOKED_AT = 10  # newest entries that may be of the same refusal
TEXT_MAX_BYTES = 1024


@dataclass(slots=True)
class Denial:
    """One entry of ACL LOG."""

    number: int
    reason: Reason
    context: str  # "toplevel" or "multi"
    what: bytes
    user: bytes
    client: bytes
    made_ms: int
    last_ms: int
    count: int = 1

    def as_reply(self, now_ms: int) -> Reply:
        """As ACL LOG tells it."""
        return {
            b"count": self.count,
            b"reason": self.reason.encode(),
            b"context": self.context.encode(),
            b"object": self.what,
            b"username": self.user,
            b"age-seconds": (now_ms - self.last_ms) / 1000,
            b"client-info": self.client,
            b"entry-id": self.number,
            b"timestamp-created": self.made_ms,
            b"timestamp-last-updated": self.last_ms,
        }


class Denials:
    """The refusals of one server."""

    def __init__(self) -> None:
        self.counts: dict[Reason, int] = {"auth": 0, "command": 0, "key": 0}
        self.most = DENIALS_MAX  # acllog-max-len
        self._entries: deque[Denial] = deque()  # the newest first
        self._next = 0
        self._mutex = threading.Lock()  # a read that waited is refused in a thread

    def note(
        self, reason: Reason, context: str, what: bytes, user: bytes, client: bytes, times: int
    ) -> None:
        """A client, as CLIENT LIST shows it, was refused something, one time or in a row."""
        what, user = what[:TEXT_MAX_BYTES], user[:TEXT_MAX_BYTES]
        with self._mutex:
            self.counts[reason] += times
            self._enter(reason, context, what, user, client, times)

    def _enter(
        self, reason: Reason, context: str, what: bytes, user: bytes, client: bytes, times: int
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        for place, entry in enumerate(islice(self._entries, LOOKED_AT)):
            if (entry.reason, entry.context, entry.what, entry.user) == (
                reason,
                context,
                what,
                user,
            ):
                if abs(now_ms - entry.last_ms) > SAME_MS:
                    continue
                entry.client, entry.last_ms = client, now_ms
                entry.count += times
                del self._entries[place]
                self._entries.appendleft(entry)
                return
        self._entries.appendleft(
            Denial(self._next, reason, context, what, user, client, now_ms, now_ms, times)
        )
        self._next += 1
        self.trim()

    def trim(self) -> None:
        """Keep no more than the setting says."""
        while len(self._entries) > max(0, self.most):
            self._entries.pop()

    def clear(self) -> None:
        """As ACL LOG RESET."""
        with self._mutex:
            self._entries.clear()

    def newest(self, most: int) -> list[Reply]:
        """As ACL LOG tells them."""
        now_ms = time.time_ns() // 1_000_000
        with self._mutex:
            return [entry.as_reply(now_ms) for entry in islice(self._entries, most)]


DELAY_FIRST_S = 0.05
DELAY_MAX_S = 2.0
ADDRESS_FORGET_S = 300.0
ADDRESSES_MAX = 4096


class Logins:
    """The failed logins of one server."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by host: how many
        self._log = Seldom()

    def failed(self, address: str, user: bytes) -> float:
        """Note one; for how many seconds its answer is to wait: twice as long each time, to 2."""
        self._log.warn("a login failed: user %s, from %s", shown(user), address)
        host = address.rpartition(":")[0] or address
        now = time.monotonic()
        count, before = self._failures.pop(host, (0, now))
        count = 1 if now - before > ADDRESS_FORGET_S else count + 1
        self._failures[host] = (count, now)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(DELAY_FIRST_S * 2.0 ** min(count - 1, 20), DELAY_MAX_S)
