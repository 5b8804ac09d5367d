"""``check``: verify a store without changing anything.

Steps: (1) STORE; (2) every frame of every segment, CRC, order of commits, and the nodes in them as
deeply as the servers do it; (3) hints and checkpoints against the log; (4) a replay into a private
index, every locator and every length against what was found; (5) the store's own index against that
replay, where it was closed cleanly and can be read without touching it.

Beside where damage is, it says whose entries stood there. The hint of a sealed segment lists its
frames in another file, so it still tells what stood in bytes that are damaged, or that the disk
does not give back. Without a hint, the entries beside them tell: what is missing of a stream has
IDs between those.

Invariants: nothing below the store's directory is written; what others do meanwhile is not taken
for damage: what seems to be missing is looked for where the log has grown, and if segments or
checkpoints came or went, all of it is looked at once more. ``checklog`` reads segments and hints.
Whose entries stood in damaged bytes is no evidence that an entry is gone: a node may be stored more
than once. Where nothing is known, nothing is said.
"""

from __future__ import annotations

import itertools
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logstore import format as fmt
from logstore.codec import codec
from logstore.engine.runtime.engine import Engine
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, CorruptNodeError, Error, UnreadableError
from logstore.format import Kind
from logstore.fs import LOCAL, FileSystem
from logstore.ids import MAX_ID, ZERO_ID, StreamID
from logstore.index.keys import FIRST_RECORD_BYTES, StreamRecord
from logstore.log import chain, checkpoint_file, file_names, hint, log_reader, storefile
from logstore.log import frame as frames
from logstore.log.chain import Link
from logstore.log.segment_writer import crc_seed
from logstore.options import StoreOptions
from logstore.recovery import compare, index_validity, readonly, repaired_view
from logstore.recovery.report import Damage, LostEntries
from logstore.tuples import NamedTuple

_BY_HINT = "as the segment's hint says"
_BETWEEN = "perhaps: not known, but for the entries beside the damage"


class _EntrySpan(NamedTuple):
    """What a frame adds to a stream: entries up to ``last``; from ``first`` on, if it says so."""

    stream: int
    first: StreamID | None
    last: StreamID
    entries: int


def concerned(
    fs: FileSystem,
    path: Path,
    uuid: bytes,
    damage: list[Damage],
    links: Mapping[int, Link],
    known: Mapping[int, bytes],
) -> list[LostEntries]:
    """Entries of streams, by the damage that they stood in; ``known``: names of streams."""
    found: list[LostEntries] = []
    for each in damage:
        link = links.get(each.segment)
        if link is None or each.to_offset <= max(each.from_offset, link.start_offset):
            continue
        kept = hint.read(fs, path, uuid, link)
        if kept is not None:
            later = (links[number] for number in sorted(links) if number > each.segment)
            spans, why = _listed(kept, each, _nodes(fs, path, uuid, later)), _BY_HINT
        else:
            spans, why = _between(fs, path, uuid, link, each), _BETWEEN
        for stream, first, last, entries, offset in spans:
            name = known.get(stream)
            if name is not None:  # else it was dropped
                found.append(LostEntries(name, first, last, entries, each.segment, offset, why))
    return found


_Told = tuple[int, StreamID, StreamID, int | None, int]


def _span(frame: log_reader.LogFrame) -> _EntrySpan | None:
    if frame.kind in (Kind.NODE, Kind.OPEN):
        stream, ms, seq, last_ms, last_seq, entries = fmt.NODE_BODY.unpack_from(frame.payload)
        return _EntrySpan(stream, StreamID(ms, seq), StreamID(last_ms, last_seq), entries)
    if frame.kind == Kind.APPEND:
        stream, ms, seq, entries, _ = fmt.APPEND_BODY.unpack_from(frame.payload)
        return _EntrySpan(stream, None, StreamID(ms, seq), entries)
    return None


def _nodes(fs: FileSystem, path: Path, uuid: bytes, links: Iterable[Link]) -> Iterator[_EntrySpan]:
    """The sealed nodes of segments, as their hints list them."""
    for link in links:
        for frame in hint.read(fs, path, uuid, link) or ():
            span = _span(frame) if frame.kind == Kind.NODE else None
            if span is not None:
                yield span


def _listed(
    kept: list[log_reader.LogFrame], damage: Damage, later: Iterable[_EntrySpan]
) -> Iterator[_Told]:
    """By the hint. What was added to an open node, and is sealed elsewhere, is not named."""
    spans = [(frame, span) for frame in kept if (span := _span(frame)) is not None]
    hit = [(frame, span) for frame, span in spans if _hit(frame, damage)]
    sealed: list[_EntrySpan] = []
    if any(frame.kind != Kind.NODE for frame, _ in hit):
        streams = {span.stream for _, span in hit}
        here = (
            each for frame, each in spans if frame.kind == Kind.NODE and (frame, each) not in hit
        )
        sealed = [each for each in itertools.chain(here, later) if each.stream in streams]
    before: dict[int, StreamID] = {}
    for frame, span in spans:
        stream, first, last, entries = span
        if (frame, span) in hit and (frame.kind == Kind.NODE or not _in_one(span, sealed)):
            if first is None:
                first = min(last, before.get(stream, ZERO_ID).next())
            yield stream, first, last, entries, frame.offset
        before[stream] = max(last, before.get(stream, ZERO_ID))


def _in_one(span: _EntrySpan, nodes: list[_EntrySpan]) -> bool:
    return any(
        each.stream == span.stream and (each.first or ZERO_ID) <= span.last <= each.last
        for each in nodes
    )


def _hit(frame: log_reader.LogFrame, damage: Damage) -> bool:
    return frame.offset < damage.to_offset and damage.from_offset < frame.end_offset


def _between(
    fs: FileSystem, path: Path, uuid: bytes, link: Link, damage: Damage
) -> Iterator[_Told]:
    """By the frames beside the damage, of each stream that has one in the segment."""
    before: dict[int, StreamID] = {}
    behind: dict[int, StreamID] = {}
    file = fs.open(file_names.segment(path, link.number))
    try:
        for frame in log_reader.next_valid(
            file, crc_seed(uuid), link.number, link.start_offset, link.end_offset
        ):
            span = _span(frame)
            if span is None:
                continue
            if frame.offset < damage.from_offset:
                before[span.stream] = span.last
            else:
                behind.setdefault(span.stream, span.first or span.last)
    except CorruptionError:
        return
    finally:
        file.close()
    for stream in sorted({*before, *behind}):
        first = before.get(stream, ZERO_ID).next()
        last = behind[stream].previous() if stream in behind else MAX_ID
        if first <= last:
            yield stream, first, last, None, damage.from_offset


LOCK_WAIT_S = 5.0
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class CheckReport:
    """What was verified and what was found."""

    segments: int = 0
    frames: int = 0
    commits: int = 0
    nodes: int = 0
    log_bytes: int = 0
    streams: int = 0
    entries: int = 0
    checkpoints: int = 0
    hints: int = 0
    index: str = "not compared"
    tail_segment: int = 0
    tail_offset: int = 0
    tail_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    concerned: list[LostEntries] = field(default_factory=list)  # whose entries stood there

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        found["damage"] = [damage._asdict() for damage in self.damage]
        found["concerned"] = [entries.as_dict() for entries in self.concerned]
        found["clean"] = not self.damage and not self.tail_bytes
        return found


TRIES = 3


def check(
    path: Path,
    *,
    progress: Progress | None = None,
    careful: bool = False,
    fs: FileSystem = LOCAL,
) -> CheckReport:
    """Verify the store at ``path``; typed errors only where there is nothing to verify.

    ``careful``: a process of its own looks first whether the index can be read at all.
    """
    left = TRIES
    while True:
        left -= 1
        before = _names(fs, path)
        report = _once(fs, path, progress, careful=careful)
        if not report.damage or not left or _names(fs, path) == before:
            return report


def _names(fs: FileSystem, path: Path) -> tuple[object, ...]:
    """What a compaction, a checkpoint or a close changes: damage that was found while it changed
    is looked for again."""
    kept = (*fs.names(path / file_names.LOG), *fs.names(path / file_names.CHECKPOINTS))
    return index_validity.read_marker(fs, path), *sorted(
        each for each in kept if file_names.TEMPORARY not in each
    )


def _once(fs: FileSystem, path: Path, progress: Progress | None, *, careful: bool) -> CheckReport:
    content = storefile.read(fs, path)
    try:
        chain.heads(fs, path, content.uuid)
    except CorruptionError as exc:
        return _past_heads(fs, path, progress, exc)
    return _Check(fs, path, content.uuid, progress, careful=careful).run()


def _past_heads(
    fs: FileSystem, path: Path, progress: Progress | None, why: CorruptionError
) -> CheckReport:
    """A segment's header is damaged: the rest is looked at all the same."""
    home = fs.temporary_directory()
    try:
        repaired = repaired_view.Repaired(fs, path, home)
        report = _Check(repaired.fs, path, repaired.content.uuid, progress).run()
    except Error:
        raise why from None
    finally:
        fs.remove_tree(home)
    report.damage[:0] = repaired.damage
    return report


class _Check:
    """One check: what it has seen so far."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        uuid: bytes,
        progress: Progress | None,
        *,
        careful: bool = False,
    ) -> None:
        self._fs, self._path, self._uuid = fs, path, uuid
        self._seed = crc_seed(uuid)
        self._progress = progress
        self.report = CheckReport()
        self._promised = index_validity.promised(fs, path, index_validity.read_marker(fs, path))
        self._offsets: dict[int, array[int]] = {}  # of nodes, by segment; ascending
        self._ends: dict[int, int] = {}  # of segments, as they were at the start
        self._adopted: set[int] = set()  # compacted segments that a commit or a checkpoint names
        self._dropped: set[int] = set()
        self._streams: dict[int, bytes] = {}  # names, as far as frames and checkpoints have them
        self._done = self._total = 0
        self._careful = careful

    def run(self) -> CheckReport:
        """All steps."""
        links = self._links()
        self.report.segments = len(links)
        self._ends = {link.number: link.end_offset for link, _ in links}
        self._total = sum(link.end_offset for link, _ in links)
        mains = [link.number for link, role in links if role == fmt.Role.MAIN]
        for link, role in links:
            self._segment(link, role, last=link.number == max(mains, default=0))
        self._newest(max(mains, default=0))
        self._checkpoints()
        if index_validity.marker_is_damaged(self._fs, self._path):
            self._damage(0, 0, 0, "BOOT is damaged: the index is rebuilt when the store is opened")
        self._pass_over_garbage({link.number for link, role in links if role != fmt.Role.MAIN})
        if not self.report.damage:
            self._replay()
        else:
            damage, by_number = self.report.damage, {link.number: link for link, _ in links}
            self.report.concerned = concerned(
                self._fs, self._path, self._uuid, damage, by_number, self._streams
            )
        return self.report

    def _links(self) -> list[tuple[chain.Link, int]]:
        """All segments with the ends they had at one moment without a commit under way."""
        lock = None
        if self._fs.exists(self._path / file_names.LOCK):
            lock = self._fs.open(self._path / file_names.LOCK)
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
            file = self._fs.open(file_names.segment(self._path, link.number))
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
                    for found in log_reader.scan(
                        file, self._seed, link.number, good, link.end_offset
                    ):
                        self._frame(link, found, role, (commit, ordinal), sound=sound)
                        items.append((found.offset, found.kind, found.crc))
                        commit, ordinal = found.commit, found.ordinal
                        good = found.end_offset
                        if found.last:
                            committed = good
                            self.report.commits += role == fmt.Role.MAIN
                except CorruptionError as exc:
                    sound = False
                    tail = last and not isinstance(exc, UnreadableError)  # no crash leaves that
                    if tail and not self._durable_behind(file, link, good, commit):
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
        self,
        link: chain.Link,
        found: log_reader.LogFrame,
        role: int,
        before: tuple[int, int],
        *,
        sound: bool,
    ) -> None:
        self.report.frames += 1
        commit, ordinal = before
        follows = found.commit == commit and found.ordinal == ordinal + 1
        begins = found.ordinal == 0 and (not commit or found.commit == commit + 1)
        if role == fmt.Role.MAIN and sound and not follows and not begins:
            self._damage(link.number, found.offset, found.end_offset, "commits are out of order")
        body = found.body()
        if isinstance(body, frames.Node | frames.Open) and body.data is not None:
            self._node(link, found, body)
        elif isinstance(body, frames.Create | frames.Rename):
            self._streams[body.stream] = body.name
        elif isinstance(body, frames.Drop):
            self._streams.pop(body.stream, None)
        elif isinstance(body, frames.Adopt):
            self._adopted.add(body.segment)
        elif isinstance(body, frames.DropSegment):
            self._dropped.add(body.segment)

    def _node(
        self, link: chain.Link, found: log_reader.LogFrame, body: frames.Node | frames.Open
    ) -> None:
        assert body.data is not None
        try:
            codec().validate(body.data, body.master_ms, body.master_seq)
        except CorruptNodeError as exc:
            self._damage(link.number, found.offset, found.end_offset, exc.message)
            return
        if isinstance(body, frames.Node):
            self.report.nodes += 1
            self._offsets.setdefault(link.number, array("Q")).append(found.offset)
            live, _ = codec().counts(body.data)
            if live != body.entries:
                why = f"a node has {live} live entries, its frame says {body.entries}"
                self._damage(link.number, found.offset, found.end_offset, why)

    def _durable_behind(
        self, file: log_reader.ByteSource, link: chain.Link, good: int, commit: int
    ) -> bool:
        return log_reader.behind(
            file, self._seed, link.number, good, link.end_offset, self._promised, commit or None
        ).damaged

    def _pass_over(
        self, file: log_reader.ByteSource, link: chain.Link, good: int, commit: int, why: str
    ) -> int:
        upto = log_reader.resume_offset(
            file, self._seed, link.number, good, link.end_offset, commit or None
        )
        self._damage(link.number, good, upto, why)
        return upto

    def _came_since(self, number: int, offset: int) -> bool:
        """Whether a node stands there, in a part of the log that was not there at the start."""
        if offset < self._ends.get(number, 0):
            return False
        try:
            file = self._fs.open(file_names.segment(self._path, number))
        except FileNotFoundError:
            return False
        try:
            found = log_reader.read_frame(file, self._seed, number, offset, file.size_bytes())
        except CorruptionError:
            return False
        finally:
            file.close()
        return found.kind == fmt.Kind.NODE

    def _hint(self, link: chain.Link, items: list[tuple[int, int, int]], *, sound: bool) -> None:
        if not self._fs.exists(file_names.hint(self._path, link.number)):
            return
        self.report.hints += 1
        kept = hint.read(self._fs, self._path, self._uuid, link)
        found = None if kept is None else [(each.offset, each.kind, each.crc) for each in kept]
        fits = found is not None and _of_hint(items) <= set(found)
        if sound and found is not None:  # each append is an item, or joined to one behind it
            fits = fits and set(found) <= set(items) and found == sorted(found)
        if not fits and self._fs.exists(file_names.hint(self._path, link.number)):
            why = "the hint does not fit its segment: remove the .hint file, it is made anew"
            self._damage(link.number, 0, 0, why)

    def _damage(self, segment: int, start: int, end: int, why: str) -> None:
        self.report.damage.append(Damage(segment, start, end, why))

    def _advance(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)

    # -- checkpoints, and what is missing -------------------------------------------------------
    def _newest(self, last: int) -> None:
        """Whether the log lacks its newest segments, as the hint of the last one there shows."""
        lost = hint.lost_successor(self._fs, self._path, self._uuid, last)
        if lost:
            why = f"segment {lost} is missing, which stood behind segment {last}"
            self._damage(lost, 0, 0, why)

    def _checkpoints(self) -> None:
        newest: set[int] = set()
        positions = file_names.checkpoints(self._fs, self._path)
        for position in positions:
            self.report.checkpoints += 1
            number, offset = fmt.position_parts(position)
            try:
                head, chunks = checkpoint_file.read(self._fs, self._path, self._uuid, position)
            except FileNotFoundError:
                continue  # a newer one came
            except Error as exc:
                self._damage(number, offset, offset, exc.message)
                continue
            if not checkpoint_file.fits_log(self._fs, self._path, self._uuid, head):
                # An older one was removed before segments behind it were dropped; a power cut may
                # have kept its name, since nothing relies on that removal.
                older = position in positions[: -checkpoint_file.KEPT]
                if older and not self._fs.exists(file_names.segment(self._path, number)):
                    continue
                self._damage(number, offset, offset, "the log lacks the commit of a checkpoint")
                continue
            newest = {
                row[0] for chunk in chunks if chunk["kind"] == "live" for row in chunk["rows"]
            }
            for chunk in chunks:
                if chunk["kind"] == "streams":
                    self._names_in(chunk)
            self._adopted |= newest
        for number in sorted(newest - {*self._ends} - self._dropped):
            if not self._fs.exists(file_names.segment(self._path, number)):
                why = f"segment {number} is missing, and no frame says that it was dropped"
                self._damage(number, 0, 0, why)

    def _names_in(self, chunk: dict[str, Any]) -> None:
        """Streams of a checkpoint, whose first frames may be in no segment any more."""
        head_bytes = chunk.get("head_bytes", FIRST_RECORD_BYTES)
        for number, packed in chunk["rows"]:
            self._streams.setdefault(number, StreamRecord.unpack(number, packed, head_bytes).name)

    def _pass_over_garbage(self, compacted: set[int]) -> None:
        """A compacted segment that nothing names is what a compaction that was cut off had written;
        the next one removes it. Where something else cannot be read, that may have named it."""
        garbage = compacted - self._adopted
        others = [each for each in self.report.damage if each.segment not in garbage]
        if not others:
            self.report.damage = others

    # -- what follows from the log ------------------------------------------------------------
    def _replay(self) -> None:
        options = StoreOptions(readonly=True, background=False)
        try:
            engine, recovered = readonly.open_engine(self._fs, self._path, options)
        except Error as exc:
            self._damage(exc.segment or 0, exc.offset or 0, exc.offset or 0, exc.message)
            return
        try:
            self.report.damage.extend(recovered.damage)
            engine.follow = None  # one moment, not the newest
            for record in snapshot.read(engine, lambda view: list(view.index.records())):
                self._stream(engine, record)
            self.report.index = compare.with_own_index(
                engine, self.report.damage, careful=self._careful
            )
        finally:
            readonly.close_engine(engine)

    def _stream(self, engine: Engine, record: StreamRecord) -> None:
        def count(view: Snapshot) -> int:
            total = 0
            for ref in nodes.refs(view, record):
                total += ref.live
                if ref.locator is not None:
                    self._locator(ref.locator.position)
            return total

        self.report.streams += 1
        self.report.entries += record.length
        live = snapshot.read(engine, count)
        if live != record.length:
            why = f"stream {record.name!r} has {live} live entries and a length of {record.length}"
            self._damage(fmt.segment_of(record.position), fmt.offset_of(record.position), 0, why)

    def _locator(self, position: int) -> None:
        number, offset = fmt.position_parts(position)
        offsets = self._offsets.get(number, ())
        place = bisect_left(offsets, offset)
        known = place < len(offsets) and offsets[place] == offset
        if not known and not self._came_since(number, offset):
            self._damage(number, offset, offset, "a node is missing from the log")


def _of_hint(items: list[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """The frames that are items of every hint."""
    return {each for each in items if each[1] != fmt.Kind.APPEND}
