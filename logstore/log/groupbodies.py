"""What frames say of consumer groups, as typed tuples; ``groupframe`` packs and unpacks them.

Invariants: IDs are packed, 16 bytes big endian, in ascending order; a group and a consumer are
named by number, so that a replay looks nothing up.
"""

from __future__ import annotations

from logstore.tuples import NamedTuple


class Group(NamedTuple):
    """A group was made (``group`` 0), or its last delivered ID was set."""

    stream: int
    group: int
    last_ms: int
    last_seq: int
    entries_read: int
    name: bytes


class GroupDrop(NamedTuple):
    """A group was removed, with its consumers and pending entries."""

    stream: int
    group: int


class Consumer(NamedTuple):
    """A consumer was made or seen; or, with ``alive`` 0, removed with its pending entries."""

    group: int
    consumer: int
    seen_ms: int
    active_ms: int
    alive: int
    name: bytes


class Deliver(NamedTuple):
    """New entries were handed to a consumer, once each."""

    group: int
    consumer: int
    time_ms: int
    last_ms: int
    last_seq: int
    entries_read: int
    noack: int
    ids: bytes


class Ack(NamedTuple):
    """Entries are no longer pending."""

    group: int
    ids: bytes


class Claim(NamedTuple):
    """Entries are pending with this consumer; the delivery time and count of each after.

    ``consumer`` 0: they were given back, and the time is their place in the line.
    """

    group: int
    consumer: int
    seen_ms: int
    active_ms: int
    items: tuple[tuple[int, int, int, int], ...]
