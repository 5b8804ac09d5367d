"""The log as docs/format.md describes it, read once more: what is alive, and where it lies.

Follows the log from its first commit on, a few frames at each look, and keeps what it read: old
frames may go afterwards. Written from that page alone: nothing of the reader, of apply or of the
accounting of the product is used, only the crc32c library. Segments that are removed are kept for
it by ``Keeping``.

Invariants: it knows no clock and no IDs but those in frames; a frame that it cannot account for is
an error, so that a test that uses it ends.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgpack
from crc32c import crc32c

from logstore.format import segment_of
from logstore.fs import FileSystem

ID = tuple[int, int]
HEAD = struct.Struct("<IIQQIBBH")
(SEAL, CREATE, DROP, OPEN, APPEND, NODE, TOMBSTONE, TRIM, RECORD, ADOPT, DROP_SEGMENT) = range(
    1, 12
)
RENAME = 43
OTHERS = {32, 33, 34, 35, 36, 37, 39, 40, 41, 42, 0x81}  # they move no node
MAIN, COMPACTED = 0, 1
NODE_HEAD = struct.Struct("<QQQQQI")  # of OPEN and NODE, before the listpack


class Keeping(FileSystem):
    """The file system, but that a segment which is removed stays where the follower finds it."""

    def __init__(self, graveyard: Path) -> None:
        self.graveyard = graveyard
        graveyard.mkdir()

    def remove(self, path: Path) -> None:
        """Remove a file; of a segment the bytes are kept."""
        if path.suffix == ".log" and path.exists():
            os.link(path, self.graveyard / path.name)
        super().remove(path)


class Frame(NamedTuple):
    """A frame, checked."""

    at: int  # its position
    kind: int
    last: bool
    commit: int
    payload: bytes


class Held(NamedTuple):
    """A frame that holds entries: from one ID to another, of a listpack of so many bytes."""

    kind: int
    stream: int
    first: ID
    last: ID
    size_bytes: int
    entries: int  # deleted ones included


@dataclass
class Node:
    """A sealed node: where it lies, and what was deleted from it since."""

    position: int
    size_bytes: int  # of the payload
    live_at_first: int
    last: ID
    dead: set[int] = field(default_factory=set)

    @property
    def live(self) -> int:
        return self.live_at_first - len(self.dead)


def _integer_bytes(value: int) -> int:
    """How long a listpack's element with a small number is, its back length included."""
    return 2 if value < 128 else 3 if value < 4096 else 4 if value < 32768 else 5


def _integer(lp: bytes, at: int) -> tuple[int, int]:
    """An integer of a listpack, not below 0, and where the next element begins."""
    first = lp[at]
    if first < 0x80:
        return first, at + 2
    if first & 0xE0 == 0xC0:
        return (first & 0x1F) << 8 | lp[at + 1], at + 3
    size = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}[first]
    return int.from_bytes(lp[at + 1 : at + 1 + size], "little"), at + 2 + size


@dataclass
class Open:
    """The open node: the listpack of its OPEN frame, and what came behind it."""

    version: int
    master: ID
    last: ID
    live: int
    deleted: int
    rest_bytes: int  # but for the two counters

    @classmethod
    def of(cls, version: int, master: ID, last: ID, lp: bytes) -> Open:
        live, at = _integer(lp, 6)
        deleted, at = _integer(lp, at)
        return cls(version, master, last, live, deleted, len(lp) - (at - 6))

    @property
    def size_bytes(self) -> int:
        """Of its listpack."""
        return self.rest_bytes + _integer_bytes(self.live) + _integer_bytes(self.deleted)


@dataclass
class Stream:
    """What the frames say of a stream."""

    name: bytes
    length: int = 0
    added: int = 0
    last: ID = (0, 0)
    first: ID = (0, 0)
    max_deleted: ID = (0, 0)
    nodes: dict[ID, Node] = field(default_factory=dict)
    open: Open | None = None

    def masters(self) -> list[ID]:
        """Of all nodes, in order."""
        return sorted([*self.nodes, *([self.open.master] if self.open else [])])


@dataclass
class Segment:
    """A segment that counts."""

    role: int
    created_ms: int
    end: int = 0  # of a sealed one


@dataclass
class Tally:
    """What was written since somebody looked last."""

    commits: int = 0
    commit_bytes: int = 0
    added_bytes: int = 0  # of entries in nodes
    seals: int = 0
    notes: int = 0
    reopened: int = 0
    tombstones: int = 0
    joined: int = 0  # nodes that became one in a compaction
    adopted: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


class Log:
    """Follows the log of one store."""

    def __init__(self, store: Path, graveyard: Path) -> None:
        self.folder, self.graveyard = store / "log", graveyard
        store_file = (store / "STORE").read_bytes()
        size = struct.unpack_from("<8sHHII", store_file)[3]
        self.settings = msgpack.unpackb(store_file[20 : 20 + size])
        self.uuid: bytes = self.settings["uuid"]
        self.version = struct.unpack_from("<8sH", store_file)[1]
        self.seed = crc32c(self.uuid)
        self.streams: dict[int, Stream] = {}
        self.segments: dict[int, Segment] = {}
        self.tally = Tally()
        self.kept: dict[int, list[Held]] = {}
        self.number, self.offset = 1, 64
        self.end = (0, 0)  # where the last commit ends, if need be in the segment before
        self.begin(1, MAIN)

    # -- reading ------------------------------------------------------------------------------
    def path(self, number: int) -> Path:
        """A segment's file, or what is kept of it."""
        name = f"{number:020d}.log"
        there = self.folder / name
        return there if there.exists() else self.graveyard / name

    def begin(self, number: int, role: int) -> None:
        """A segment counts from now on."""
        magic, _, found, _, named, uuid, _, _, created_ms, _, crc = struct.unpack(
            "<8sHBBI16sQQQII", (head := self.path(number).read_bytes()[:64])
        )
        assert (magic, found, named, uuid) == (b"LGSTSEG\x00", role, number, self.uuid)
        assert crc == crc32c(head[:60])
        self.segments[number] = Segment(role, created_ms)

    def frame(self, data: bytes, number: int, offset: int) -> Frame | None:
        """The frame there, None if there is no whole and sound one."""
        if len(data) < offset + 32:
            return None
        crc, size, commit, _, _, kind, flags, mark = HEAD.unpack_from(data, offset)
        payload = data[offset + 32 : offset + 32 + size]
        at = number << 32 | offset
        sound = crc32c(payload, crc32c(at.to_bytes(8, "little") + data[offset + 4 : offset + 32],
                                       self.seed))  # fmt: skip
        if not kind or mark != 0xF5A9 or len(payload) < size or crc != sound:
            return None
        return Frame(at, kind, bool(flags & 1), commit, payload)

    def follow(self) -> None:
        """Read on to the end."""
        while True:
            with self.path(self.number).open("rb") as file:
                file.seek(self.offset)
                data = bytes(self.offset) + file.read()
            went_on = False
            while (found := self.frame(data, self.number, self.offset)) is not None:
                size = 32 + len(found.payload)
                self.offset += size
                self.end = self.number, self.offset
                self.tally.commit_bytes += size
                self.tally.commits += found.last
                if found.kind == SEAL:
                    self._seal(found)
                    went_on = True
                    break
                self.apply(found)
            if not went_on:
                return

    def _seal(self, found: Frame) -> None:
        self.tally.seals += 1
        self.tally.commits -= 1  # it is nobody's commit
        self.tally.commit_bytes -= 36
        self.segments[self.number].end = self.offset
        (self.number,) = struct.unpack("<I", found.payload)
        self.offset = 64
        self.begin(self.number, MAIN)

    # -- what frames do -----------------------------------------------------------------------
    def apply(self, found: Frame) -> None:
        """What a frame changes."""
        payload = found.payload
        if found.kind in OTHERS:
            self.tally.notes += found.kind == 0x81
            return
        if found.kind in (ADOPT, DROP_SEGMENT):
            if found.kind == ADOPT:
                self._adopt(payload)
            else:
                (number,) = struct.unpack("<I", payload)
                del self.segments[number]
                self.tally.dropped.append(number)
            return
        number = int.from_bytes(payload[:8], "little")
        if found.kind == CREATE:
            self.streams[number] = Stream(payload[8:])
            return
        stream = self.streams[number]
        if found.kind == DROP:
            del self.streams[number]
        elif found.kind == RENAME:
            stream.name = payload[8:]
        else:
            change = {
                OPEN: self._open, APPEND: self._append, NODE: self._node, TRIM: self._trim,
                TOMBSTONE: self._tombstone, RECORD: self._record,
            }[found.kind]  # fmt: skip
            change(stream, found)

    def _trim(self, stream: Stream, found: Frame) -> None:
        _, *ids = struct.unpack("<QQQQQ", found.payload)
        low, high = (ids[0], ids[1]), (ids[2], ids[3])
        for master in [each for each in stream.nodes if low <= each <= high]:
            del stream.nodes[master]
        if stream.open and low <= stream.open.master <= high:
            stream.open = None

    def _record(self, stream: Stream, found: Frame) -> None:
        _, stream.length, stream.added, *ids = struct.unpack("<QQQQQQQQQ", found.payload)
        stream.last, stream.first = (ids[0], ids[1]), (ids[2], ids[3])
        stream.max_deleted = ids[4], ids[5]

    def _open(self, stream: Stream, found: Frame) -> None:
        _, *ids, entries = NODE_HEAD.unpack_from(found.payload)
        lp = found.payload[NODE_HEAD.size :]
        master, last = (ids[0], ids[1]), (ids[2], ids[3])
        sealed = stream.nodes.pop(master, None)
        if entries:
            self.tally.added_bytes += len(lp)
            if not stream.length:
                stream.first = master
            stream.length += entries
            stream.added += entries
            stream.last = last
        elif sealed:
            last = sealed.last
            self.tally.reopened += 1
        elif stream.open:
            last = stream.open.last
        stream.open = Open.of(found.at, master, last, lp)

    def _append(self, stream: Stream, found: Frame) -> None:
        payload = found.payload
        _, ms, seq, entries, _ = struct.unpack_from("<QQQII", payload)
        node = stream.open
        assert node
        size = len(payload) - 32
        self.tally.added_bytes += size
        node.rest_bytes += size
        node.live += entries
        node.last = stream.last = (ms, seq)
        stream.length += entries
        stream.added += entries

    def _node(self, stream: Stream, found: Frame) -> None:
        _, *ids, live = NODE_HEAD.unpack_from(found.payload)
        master = (ids[0], ids[1])
        assert master not in stream.nodes
        if stream.open and stream.open.master == master:
            stream.open = None
        else:
            self.tally.added_bytes += len(found.payload) - NODE_HEAD.size
        stream.nodes[master] = Node(found.at, len(found.payload), live, (ids[2], ids[3]))

    def _tombstone(self, stream: Stream, found: Frame) -> None:
        payload = found.payload
        _, ms, seq, version = struct.unpack_from("<QQQQ", payload)
        ordinals = [each for (each,) in struct.iter_unpack("<I", payload[32:])]
        if stream.open and stream.open.version == version:
            stream.open.live -= len(ordinals)
            stream.open.deleted += len(ordinals)
            return
        node = stream.nodes[ms, seq]
        self.tally.tombstones += len(ordinals)
        assert node.position == version
        assert not node.dead & set(ordinals)
        node.dead |= set(ordinals)

    def _adopt(self, payload: bytes) -> None:
        segment, items = struct.unpack_from("<II", payload)
        if segment not in self.segments:
            self.begin(segment, COMPACTED)
            self.segments[segment].end = self.path(segment).stat().st_size
            self.tally.adopted.append(segment)
        data = self.path(segment).read_bytes()
        at = 8
        for _ in range(items):
            number, *ids, offset, size, live, count = struct.unpack_from("<QQQQQIIII", payload, at)
            at += 56
            replaced = list(struct.iter_unpack("<QQ", payload[at : at + 16 * count]))
            at += 16 * count
            stream = self.streams[number]
            gone = [stream.nodes.pop((ms, seq)) for ms, seq in replaced]
            assert sum(node.live for node in gone) == live
            self.tally.joined += count > 1
            if not size:
                continue
            found = self.frame(data, segment, offset)
            assert found
            assert (found.kind, len(found.payload)) == (NODE, size)
            assert NODE_HEAD.unpack_from(found.payload) == (number, *ids, live)
            master, last = (ids[0], ids[1]), (ids[2], ids[3])
            stream.nodes[master] = Node(found.at, size, live, last)

    # -- what is told -------------------------------------------------------------------------
    def taken(self) -> Tally:
        """What was written since it was taken last."""
        found, self.tally = self.tally, Tally()
        return found

    def named(self, name: bytes) -> Stream:
        """The stream that has a name: it was given it last."""
        return [each for each in self.streams.values() if each.name == name][-1]

    def live(self) -> dict[int, tuple[int, int]]:
        """Live payload bytes and live nodes, by segment."""
        found = dict.fromkeys(self.segments, (0, 0))
        for stream in self.streams.values():
            for node in stream.nodes.values():
                size, count = found[segment_of(node.position)]
                found[segment_of(node.position)] = size + node.size_bytes, count + 1
        return found

    def parts_of_nodes(self, there: list[bytes]) -> tuple[int, int]:
        """Bytes of the nodes of these streams: of entries that are alive, of deleted ones."""
        alive = tombstoned = 0
        for stream in map(self.named, there):
            nodes = [
                (node.size_bytes, len(node.dead), node.live_at_first)
                for node in stream.nodes.values()
            ]
            if stream.open is not None:
                of = stream.open.live + stream.open.deleted
                nodes.append((stream.open.size_bytes, stream.open.deleted, of))
            gone = [size * dead // max(1, of) for size, dead, of in nodes]
            alive += sum(size for size, _, _ in nodes) - sum(gone)
            tombstoned += sum(gone)
        return alive, tombstoned

    def deleted_bytes(self, there: list[bytes]) -> dict[int, int]:
        """Bytes of deleted entries, by segment; ``there``: names of streams that did not expire.

        Of each frame with a whole node the share of its listpack bytes that the entries which are
        not alive any more are of its entries; of all appends to a node together, as of that node.
        """
        alive = {id(self.named(name)) for name in there}
        found = dict.fromkeys(self.segments, 0)
        for number in self.segments:
            appended: dict[tuple[int, ID], tuple[int, int, int]] = {}
            for held in self._held(number):
                stream = self.streams.get(held.stream)
                if stream is None or id(stream) not in alive:
                    found[number] += held.size_bytes
                elif stream.length != stream.added:
                    node, gone, of = self._gone(stream, held)
                    if held.kind == APPEND and node is not None:
                        size = appended.get((held.stream, node), (0, 0, 0))[0] + held.size_bytes
                        appended[held.stream, node] = size, gone, of
                    else:
                        found[number] += held.size_bytes * gone // max(1, of)
            found[number] += sum(size * gone // max(1, of) for size, gone, of in appended.values())
        return found

    @staticmethod
    def _gone(stream: Stream, held: Held) -> tuple[ID | None, int, int]:
        """The node that holds the last ID, and how many of how many entries are gone."""
        if not stream.length or (held.kind != APPEND and held.last < stream.first):
            return None, 1, 1
        if stream.open and stream.open.master <= held.last:
            of = stream.open.live + stream.open.deleted
            return stream.open.master, stream.open.deleted, of
        master = max((each for each in stream.nodes if each <= held.last), default=None)
        node = None if master is None else stream.nodes[master]
        if node is None or node.last < held.first:
            return None, 1, 1
        if held.kind == NODE:
            return master, max(0, held.entries - node.live), held.entries
        return master, len(node.dead), node.live_at_first

    def _held(self, number: int) -> list[Held]:
        """The frames of a segment that hold entries."""
        if number in self.kept:
            return self.kept[number]
        data = self.path(number).read_bytes()
        end = self.segments[number].end or self.offset
        found, offset = [], 64
        while offset < end and (frame := self.frame(data, number, offset)) is not None:
            offset += 32 + len(frame.payload)
            if frame.kind == APPEND:
                of, ms, seq, entries, _ = struct.unpack_from("<QQQII", frame.payload)
                size = len(frame.payload) - 32
                found.append(Held(frame.kind, of, (ms, seq), (ms, seq), size, entries))
            elif frame.kind in (OPEN, NODE):
                of, *ids, _ = NODE_HEAD.unpack_from(frame.payload)
                lp = frame.payload[NODE_HEAD.size :]
                live, at = _integer(lp, 6)
                held = live + _integer(lp, at)[0]
                found.append(
                    Held(frame.kind, of, (ids[0], ids[1]), (ids[2], ids[3]), len(lp), held)
                )
        if self.segments[number].end:
            self.kept[number] = found
        return found

    def file_bytes(self, number: int) -> int:
        """Of a segment's file, or of what was."""
        return self.path(number).stat().st_size
