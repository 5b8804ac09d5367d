"""Who was refused what: the counts that INFO tells, and the entries of ACL LOG.

Invariants: of the same refusal within a minute there is one entry, with a count; entries are few,
and what they hold of a key or name is short, so that a client cannot fill the memory. Knows no
user.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from logstore.wire.commands.clients import line_of
from logstore.wire.reply import Reply

if TYPE_CHECKING:
    from logstore.wire.session import Session

Reason: TypeAlias = Literal["auth", "command", "key"]
ENTRIES_MAX = 128
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

    def told(self, now_ms: int) -> Reply:
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
        self.most = ENTRIES_MAX  # acllog-max-len
        self._entries: deque[Denial] = deque()  # the newest first
        self._next = 0
        self._mutex = threading.Lock()  # a read that waited is refused in a thread

    def note(
        self, session: Session, reason: Reason, what: bytes, user: bytes, times: int = 1
    ) -> None:  # fmt: skip
        """A client was refused something, one time or in a row."""
        context = "toplevel" if session.multi is None else "multi"
        what, user = what[:TEXT_MAX_BYTES], user[:TEXT_MAX_BYTES]
        client = line_of(session).rstrip(b"\n")
        with self._mutex:
            self.counts[reason] += times
            self._enter(reason, context, what, user, client, times)

    def _enter(
        self, reason: Reason, context: str, what: bytes, user: bytes, client: bytes, times: int
    ) -> None:  # fmt: skip
        now_ms = time.time_ns() // 1_000_000
        for place, each in enumerate(islice(self._entries, LOOKED_AT)):
            if (each.reason, each.context, each.what, each.user) == (reason, context, what, user):
                if abs(now_ms - each.last_ms) > SAME_MS:
                    continue
                each.client, each.last_ms = client, now_ms
                each.count += times
                del self._entries[place]
                self._entries.appendleft(each)
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
            return [each.told(now_ms) for each in islice(self._entries, most)]
