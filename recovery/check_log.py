"""The part of ``check`` that reads the log: every frame of every segment, and hints against them.

Invariants: nothing below the store's directory is written; LOCK is only held for the moment in
which sizes are read, so that a commit under way is not taken for a torn tail. What comes later is
not looked at here; a segment that goes meanwhile is passed over: the replay tells whether it may be
missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from logstore import format as fmt
from logstore.codec import codec
from logstore.errors import CorruptionError, CorruptNodeError
from logstore.fs import FileSystem
from logstore.log import chain, hint, names, reader
from logstore.log import frame as frames
from logstore.log.writer import crc_seed
from logstore.recovery import index_validity, shutdown_marker
from logstore.recovery.check_report import CheckReport
from logstore.recovery.report import Damage

LOCK_WAIT_S = 5.0
Progress = Callable[[int, int], None]


class LogCheck:
    """One check: what it has seen of the log so far."""

    def __init__(self, fs: FileSystem, path: Path, uuid: bytes, progress: Progress | None) -> None:
        self._fs, self._path, self._uuid = fs, path, uuid
        self._seed = crc_seed(uuid)
        self._progress = progress
        self.report = CheckReport()
        self._promised = index_validity.promised(fs, path, shutdown_marker.read(fs, path))
        self._offsets: dict[int, set[int]] = {}  # of nodes, by segment
        self._ends: dict[int, int] = {}  # of segments, as they were at the start
        self._adopted: set[int] = set()  # compacted segments that a commit or a checkpoint names
        self._dropped: set[int] = set()
        self._done = self._total = 0

    def _links(self) -> list[tuple[chain.Link, int]]:
        """All segments with the ends they had at one moment without a commit under way."""
        lock = None
        if self._fs.exists(self._path / names.LOCK):
            lock = self._fs.open(self._path / names.LOCK)
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while lock is not None and not lock.try_lock(exclusive=True):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            mains = {
                link.number: link for link in chain.main_links(self._fs, self._path, self._uuid)
            }
            heads = chain.heads(self._fs, self._path, self._uuid)
        finally:
            if lock is not None:
                lock.close()
        found: list[tuple[chain.Link, int]] = []
        for number, (head, size) in heads.items():
            link = mains.get(number)
            if link is None:
                link = chain.Link(number, fmt.SEGMENT_HEAD_BYTES, size, size, head.created_ms)
            found.append((link, head.role))
        return found

    # -- the log ------------------------------------------------------------------------------
    def _segment(self, link: chain.Link, role: int, *, last: bool) -> None:
        try:
            file = self._fs.open(names.segment(self._path, link.number))
        except FileNotFoundError:
            self._advance(link.end_offset)
            return
        items: list[tuple[int, int, int]] = []
        sound = True
        good = committed = link.start_offset
        commit, ordinal = 0, 0
        try:
            while good < link.end_offset:
                try:
                    for found in reader.scan(file, self._seed, link.number, good, link.end_offset):
                        self._frame(link, found, role, (commit, ordinal), sound=sound)
                        items.append((found.offset, found.kind, found.crc))
                        commit, ordinal = found.commit, found.ordinal
                        good = found.end_offset
                        if found.last:
                            committed = good
                            self.report.commits += role == fmt.Role.MAIN
                except CorruptionError as exc:
                    sound = False
                    if last and not self._durable_behind(file, link, good, commit):
                        break
                    good = self._pass_over(file, link, good, commit, exc.message)
        finally:
            file.close()
        if last and committed < link.end_offset:
            self.report.tail_segment, self.report.tail_offset = link.number, committed
            self.report.tail_bytes = link.end_offset - committed
        elif committed < link.end_offset and sound:
            self._damage(link.number, committed, link.end_offset, "the last commit is not whole")
        self._hint(link, items, sound=sound)
        self.report.log_bytes += link.end_offset
        self._advance(link.end_offset)

    def _frame(
        self, link: chain.Link, found: reader.LogFrame, role: int, before: tuple[int, int], *,
        sound: bool,
    ) -> None:  # fmt: skip
        self.report.frames += 1
        commit, ordinal = before
        follows = found.commit == commit and found.ordinal == ordinal + 1
        begins = found.ordinal == 0 and (not commit or found.commit == commit + 1)
        if role == fmt.Role.MAIN and sound and not follows and not begins:
            self._damage(link.number, found.offset, found.end_offset, "commits are out of order")
        body = found.body()
        if isinstance(body, frames.Node | frames.Open) and body.data is not None:
            self._node(link, found, body)
        elif isinstance(body, frames.Adopt):
            self._adopted.add(body.segment)
        elif isinstance(body, frames.DropSegment):
            self._dropped.add(body.segment)

    def _node(
        self, link: chain.Link, found: reader.LogFrame, body: frames.Node | frames.Open
    ) -> None:
        assert body.data is not None
        try:
            codec().validate(body.data, body.master_ms, body.master_seq)
        except CorruptNodeError as exc:
            self._damage(link.number, found.offset, found.end_offset, exc.message)
            return
        if isinstance(body, frames.Node):
            self.report.nodes += 1
            self._offsets.setdefault(link.number, set()).add(found.offset)
            live, _ = codec().counts(body.data)
            if live != body.entries:
                why = f"a node has {live} live entries, its frame says {body.entries}"
                self._damage(link.number, found.offset, found.end_offset, why)

    def _durable_behind(self, file: reader.Bytes, link: chain.Link, good: int, commit: int) -> bool:
        return reader.behind(
            file, self._seed, link.number, good, link.end_offset, self._promised, commit or None
        ).damaged

    def _pass_over(
        self, file: reader.Bytes, link: chain.Link, good: int, commit: int, why: str
    ) -> int:
        upto = reader.resume_offset(
            file, self._seed, link.number, good, link.end_offset, commit or None
        )
        self._damage(link.number, good, upto, why)
        return upto

    def _came_since(self, number: int, offset: int) -> bool:
        """Whether a node stands there, in a part of the log that was not there at the start."""
        if offset < self._ends.get(number, 0):
            return False
        try:
            file = self._fs.open(names.segment(self._path, number))
        except FileNotFoundError:
            return False
        try:
            found = reader.read_frame(file, self._seed, number, offset, file.size_bytes())
        except CorruptionError:
            return False
        finally:
            file.close()
        return found.kind == fmt.Kind.NODE

    def _hint(self, link: chain.Link, items: list[tuple[int, int, int]], *, sound: bool) -> None:
        if not self._fs.exists(names.hint(self._path, link.number)):
            return
        self.report.hints += 1
        kept = hint.read(self._fs, self._path, self._uuid, link)
        found = None if kept is None else [(each.offset, each.kind, each.crc) for each in kept]
        fits = found is not None and _of_hint(items) <= set(found)
        if sound and found is not None:  # each append is an item, or joined to one behind it
            fits = fits and set(found) <= set(items) and found == sorted(found)
        if not fits and self._fs.exists(names.hint(self._path, link.number)):
            why = "the hint does not fit its segment: remove the .hint file, it is made anew"
            self._damage(link.number, 0, 0, why)

    def _damage(self, segment: int, start: int, end: int, why: str) -> None:
        self.report.damage.append(Damage(segment, start, end, why))

    def _advance(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)


def _of_hint(items: list[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """The frames that are items of every hint."""
    return {each for each in items if each[1] != fmt.Kind.APPEND}
