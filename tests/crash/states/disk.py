"""A disk in memory: what was written, what of it is durable, and what a crash may leave.

Files are told apart by number, so that a name that comes or goes takes no bytes along. Invariants:
bytes are durable by a sync of their file, names by a sync of their directory, and by nothing else.
Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SECTOR = 512
ZERO, ONES = b"\x00", b"\xff"


class Event(NamedTuple):
    """One operation as it was recorded; ``path`` is relative to the root of the disk."""

    kind: str  # create, write, truncate, sync, rename, remove, make_directory, sync_directory, mark
    path: str
    inode: int = 0
    offset: int = 0  # of a write; the size after a truncate
    data: bytes = b""
    target: str = ""  # of a rename


SYNCS = ("sync", "sync_directory")


@dataclass
class Inode:
    """A file: durable bytes, the writes since, and the bytes as every process sees them."""

    durable: bytes = b""
    pending: list[Event] = field(default_factory=list)
    current: bytearray = field(default_factory=bytearray)
    past: bytes = b""  # the most it ever held: what a lost block may show again


@dataclass
class Directory:
    """Names as they are and as they are on the disk."""

    now: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)


Image = dict[str, bytes | None]  # path: content, None for a directory


class Disk:
    """All of it; ``apply`` follows a recording."""

    def __init__(self) -> None:
        self.root = Directory()
        self.inodes: dict[int, Inode] = {}

    def load(self, image: Image, inodes: dict[str, int], durable: dict[str, bytes]) -> None:
        """Begin with what is durable already; of the files in ``durable`` only that much is."""
        for path in sorted(image):
            content = image[path]
            folder, name = self._parent(path)
            made: Inode | Directory = Directory()
            if content is not None:
                made = Inode(content, [], bytearray(content), content)
                self.inodes[inodes[path]] = made
                if path in durable:
                    made.durable, at = durable[path], len(durable[path])
                    made.pending = [Event("write", path, inodes[path], at, content[at:])]
            folder.now[name] = folder.durable[name] = made

    def _directory(self, path: str) -> Directory:
        found: Inode | Directory = self.root
        for part in path.split("/"):
            if part not in {"", "."}:
                assert isinstance(found, Directory)
                found = found.now[part]
        assert isinstance(found, Directory)
        return found

    def _parent(self, path: str) -> tuple[Directory, str]:
        folder, _, name = path.rpartition("/")
        return self._directory(folder), name

    def apply(self, event: Event) -> None:
        """Follow one operation."""
        if event.kind in {"write", "truncate", "sync"}:
            self._to_file(event)
        elif event.kind == "sync_directory":
            found = self._directory(event.path)
            found.durable = dict(found.now)
        elif event.kind != "mark":
            self._to_names(event)

    def _to_file(self, event: Event) -> None:
        inode = self.inodes[event.inode]
        if event.kind == "sync":
            inode.durable, inode.pending = bytes(inode.current), []
            return
        before = bytes(inode.current)
        if len(before) > len(inode.past):
            inode.past = before
        inode.pending.append(event)
        _do(inode.current, event)

    def _to_names(self, event: Event) -> None:
        folder, name = self._parent(event.path)
        if event.kind == "create":
            self.inodes[event.inode] = folder.now[name] = Inode()
        elif event.kind == "make_directory":
            folder.now[name] = Directory()
        elif event.kind == "remove":
            folder.now.pop(name, None)
        else:
            into, new = self._parent(event.target)
            into.now[new] = folder.now.pop(name)

    # -- what is left ---------------------------------------------------------------------------
    def everything(self) -> Image:
        """What a kill leaves: the kernel has it all."""
        image: Image = {}
        _walk(self.root, "", image, lambda folder: folder.now, _seen)
        return image

    def durable(self) -> Image:
        """What a power cut leaves at least."""
        image: Image = {}
        _walk(self.root, "", image, lambda folder: folder.durable, lambda inode: inode.durable)
        return image

    def grown(self, fill: str) -> Image:
        """What a power cut may leave, too: every name and size, and no un-synced byte; in its place
        zeros, or (``past``) what the file held there before."""
        image: Image = {}
        _walk(self.root, "", image, lambda folder: folder.now, lambda inode: _grown(inode, fill))
        return image

    def after_power_cut(self, rng: random.Random) -> Image:
        """What a power cut may leave: some of the names, some of the blocks, others as they were,
        zero, 0xFF, or with what once stood there or elsewhere."""
        lost = Losses(rng, [bytes(each.current) for each in self.inodes.values() if each.current])
        image: Image = {}
        _walk(self.root, "", image, lost.names, lost.content)
        return image


def _seen(inode: Inode) -> bytes:
    return bytes(inode.current) if inode.pending else inode.durable


def _grown(inode: Inode, fill: str) -> bytes:
    out = bytearray(inode.durable)
    if inode.pending and len(out) < len(inode.current):
        size = len(inode.current)
        out += inode.past[len(out) : size] if fill == "past" else b""
        out.extend(bytes(size - len(out)))
    return bytes(out)


def _do(content: bytearray, event: Event) -> None:
    end = event.offset + len(event.data)
    if event.kind == "truncate":
        del content[event.offset :]
        end = event.offset
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if event.kind == "write":
        content[event.offset : end] = event.data


def _walk(folder: Directory, path: str, image: Image, names: Any, content: Any) -> None:
    for name, found in sorted(names(folder).items()):
        if isinstance(found, Inode):
            image[path + name] = content(found)
        else:
            image[path + name] = None
            _walk(found, f"{path}{name}/", image, names, content)


class Losses:
    """One power cut: what of the un-synced names and blocks it takes."""

    def __init__(self, rng: random.Random, elsewhere: list[bytes]) -> None:
        self._rng = rng
        self._keep_names = rng.choice((0.0, 0.3, 0.7, 1.0, 1.0))
        self._keep_blocks = rng.choice((0.0, 0.2, 0.5, 0.8, 0.95, 1.0))
        self._filler = rng.choice(("zero", "ones", "past", "elsewhere", "mixed"))
        self._elsewhere = elsewhere
        self._contents: dict[int, bytes] = {}

    def names(self, folder: Directory) -> dict[str, Inode | Directory]:
        """The names that are found again: each as it is, or as it was synced."""
        found: dict[str, Inode | Directory] = {}
        for name in sorted({*folder.now, *folder.durable}):
            now, then = folder.now.get(name), folder.durable.get(name)
            kept = now if now is then or self._rng.random() < self._keep_names else then
            if kept is not None:
                found[name] = kept
        return found

    def content(self, inode: Inode) -> bytes:
        """The bytes of a file; the same under each of its names."""
        if not inode.pending:
            return inode.durable
        if id(inode) not in self._contents:
            self._contents[id(inode)] = self._content(inode)
        return self._contents[id(inode)]

    def _content(self, inode: Inode) -> bytes:
        rng, out = self._rng, bytearray(inode.durable)
        written = 0
        for event in inode.pending:
            if event.kind == "truncate":
                if rng.random() < self._keep_blocks:
                    _do(out, event)
                continue
            for start, part in _sectors(event):
                written = max(written, start + len(part))
                if rng.random() >= self._keep_blocks:
                    continue
                kept = part
                if rng.random() < 0.08:  # torn
                    kept = part[: rng.randint(0, len(part))]
                self._fill(out, inode, start)
                _do(out, event._replace(kind="write", offset=start, data=kept))
        size = rng.choice((len(out), len(inode.current), max(len(out), written), self._size(inode)))
        if size < len(inode.durable) and len(inode.current) >= len(inode.durable):
            size = len(out)  # a file that only grew does not get shorter
        del out[size:]
        self._fill(out, inode, size)
        return bytes(out)

    def _size(self, inode: Inode) -> int:
        low, high = sorted((len(inode.durable), len(inode.current)))
        return self._rng.randint(low, high)

    def _fill(self, out: bytearray, inode: Inode, upto: int) -> None:
        """Blocks that were given to the file, and never written."""
        while len(out) < upto:
            start = len(out)
            size = min(upto, (start // SECTOR + 1) * SECTOR) - start
            out.extend(self._stale(inode, start, size))

    def _stale(self, inode: Inode, start: int, size: int) -> bytes:
        kind = self._filler
        if kind == "mixed":
            kind = self._rng.choice(("zero", "ones", "past", "elsewhere"))
        if kind == "ones":
            return ONES * size
        found = b""
        if kind == "past":
            found = inode.past[start : start + size]
        elif kind == "elsewhere" and self._elsewhere:
            other = self._rng.choice(self._elsewhere)
            at = self._rng.randrange(0, len(other), SECTOR)
            if self._rng.random() < 0.3:
                at = start  # the same place of another file
            found = other[at : at + size]
        return found + bytes(size - len(found))


def _sectors(event: Event) -> list[tuple[int, bytes]]:
    """A write by sectors of the file."""
    parts: list[tuple[int, bytes]] = []
    done = 0
    while done < len(event.data):
        start = event.offset + done
        size = min(SECTOR - start % SECTOR, len(event.data) - done)
        parts.append((start, event.data[done : done + size]))
        done += size
    return parts
