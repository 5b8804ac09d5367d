"""What frames say of streams and segments, as typed tuples; ``frame`` packs and unpacks them.

Invariants: a body is a physical result (nodes dropped, ordinals set, the record after); replaying
it computes no trim, no clock and no ID.
"""

from __future__ import annotations

from logstore.tuples import NamedTuple


class Seal(NamedTuple):
    """The segment ends here; the next one has this number."""

    next_segment: int


class Create(NamedTuple):
    """A stream was created."""

    stream: int
    name: bytes


class Drop(NamedTuple):
    """A stream was removed with all its nodes."""

    stream: int


class Open(NamedTuple):
    """The whole listpack of the open node; ``entries`` of them are new to the stream."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    entries: int
    data: bytes | None


class Append(NamedTuple):
    """Listpack bytes added to the open node."""

    stream: int
    last_ms: int
    last_seq: int
    entries: int
    elements: int
    data: bytes | None


class Node(NamedTuple):
    """A sealed node; replaces the open node of the same master ID."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    entries: int  # live ones in the listpack
    data: bytes | None


class Tombstone(NamedTuple):
    """Entries of one version of a node were deleted."""

    stream: int
    master_ms: int
    master_seq: int
    version: int
    ordinals: tuple[int, ...]


class Trim(NamedTuple):
    """All nodes with master IDs in the closed interval were dropped."""

    stream: int
    from_ms: int
    from_seq: int
    to_ms: int
    to_seq: int


class Record(NamedTuple):
    """The stream's record after."""

    stream: int
    length: int
    entries_added: int
    last_ms: int
    last_seq: int
    first_ms: int
    first_seq: int
    max_deleted_ms: int
    max_deleted_seq: int


class AdoptItem(NamedTuple):
    """A node of a compacted segment takes the place of the nodes it was made from."""

    stream: int
    master_ms: int
    master_seq: int
    last_ms: int
    last_seq: int
    offset: int
    payload_bytes: int
    entries: int
    replaced: tuple[tuple[int, int], ...]


class Adopt(NamedTuple):
    """A compacted segment is published."""

    segment: int
    items: tuple[AdoptItem, ...]


class DropSegment(NamedTuple):
    """Nothing lives in the segment any more; its file may go once this is durable."""

    segment: int


class Note(NamedTuple):
    """A remark; changes nothing."""

    text: bytes
