"""Shipping: a store's log, published at a URI as of one moment, and only what is new of it sent.

Crash order: every object is sent whole, and of a local file system synced, then the manifest is put
(there: written beside, synced and renamed), then what it does not name is removed. So
whoever reads sees the store before or the store after; a ship that is killed leaves objects that
the next one finds and does not send again.

Lock order: one ship of a store at a time, by the lock on pins/, which is taken before any other;
the maintenance lock only while the files are listed. From then on a pin keeps segments from being
removed, so that commits, compaction and retention go on while bytes are sent.

Invariants: only bytes below the position that was published and durable at the start are sent; they
never change, so a segment that the last manifest has in the same length is not read again; what is
sent of a segment was read and found sound, so that no damaged log takes the place of a good one; a
URI has one history: a store that is behind what is there, or went another way, is refused; and one
line: a copy of the store is refused, unless it is asked to go on in the place of the other.

Files that only older states have are kept for a time, for their readers, and the manifest says
since when. A segment that grew is none of them: it begins with the bytes that it had. No file is
kept that may hold what was erased: none of a state from before an erasure, nor of another line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from logstore import format as fmt
from logstore.engine.commit.committer import Committer
from logstore.engine.maintenance import whole_log
from logstore.engine.runtime import maintenance_locks, pins
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import CorruptionError, OptionError, ReadOnlyError, SnapshotExpiredError
from logstore.fs import File
from logstore.log import chain, file_names, pinfile, shipfile, shipped
from logstore.log.shipfile import ShipRecord
from logstore.log.shipped import (
    CHUNK_BYTES,
    MANIFEST,
    NOT_PUBLISHED,
    OBJECTS,
    KeptPart,
    Manifest,
    Progress,
    ShippedPart,
    ShipTarget,
)
from logstore.tuples import NamedTuple

LEASE_MS = pins.LEASE_MS_MAX
KEEP_MS = 2 * 3_600_000  # longer than most jobs that read


class Shipped(NamedTuple):
    """What a ship did: sizes in bytes, of all that is published and of what was sent for it.

    ``removed`` and ``left``: objects that belong to older states only; -1: it could not be seen.
    ``kept``: those that stay for their readers. ``repaired``: objects that were not what had been
    sent, and were sent again.
    """

    position: int
    files: int
    size_bytes: int
    sent_files: int
    sent_bytes: int
    removed: int
    left: int
    kept: int = 0
    repaired: int = 0


def ship(
    engine: Engine,
    committer: Committer,
    uri: str,
    *,
    take_over: bool = False,
    keep_ms: int = KEEP_MS,
    verify: bool = False,
    progress: Progress | None = None,
) -> Shipped:
    """Publish a store at a URI; with ``take_over`` also where another copy of it was shipped, whose
    state leads to the present one of this. That copy is refused from then on. What older states
    need stays for ``keep_ms``. With ``verify`` the objects there are read, and those that are not
    what was sent are sent again.

    OptionError if the URI is not valid, lies in the store, or has another store, line or history;
    DamagedStoreError for a log that is not sound; CorruptionError for a damaged manifest;
    FileSystemError if it cannot be reached; SnapshotExpiredError if an erasure came in between.
    After each of them the URI shows what it showed before.
    """
    if engine.options.readonly:  # it pins the log, and notes what was shipped
        raise ReadOnlyError("the store was opened with readonly=True: open it for writing")
    place = ShipTarget(uri)
    if place.is_local and Path(place.root).is_relative_to(engine.path):
        raise OptionError(f"{place.shown} is in the store itself: give a URI outside it")
    with maintenance_locks.alone(engine, what=file_names.PINS):
        before = place.manifest()
        if before is not None and before.uuid != engine.uuid.hex():
            raise OptionError(f"{place.shown} has another store: give each store a URI of its own")
        record = shipfile.read(engine.fs, engine.path)
        if before is not None and not take_over:
            _refuse_other_line(place, before, record)
        pin = pins.create(engine.fs, engine.path, engine.clock.now_ms(), LEASE_MS, purpose="ship")
        try:
            target = _Published(place, before, record, keep_ms, verify)
            return _Ship(engine, committer, pin.id, target).run(progress)
        finally:
            pins.release(engine.fs, engine.path, pin.id)


def _refuse_other_line(place: ShipTarget, before: Manifest, record: ShipRecord) -> None:
    """OptionError if another copy of the store was shipped there."""
    if before.line:
        ours = before.line == record.line
    else:  # by a logstore without lines
        last = (before.position, before.shipped_ms)
        ours = record.uri == place.shown or (record.position, record.shipped_ms) == last
    if not ours:
        raise OptionError(
            f"{place.shown} is where another copy of this store is shipped to (a backup that was "
            "written to, or a restored store, is one): give this one a URI of its own; or, if the "
            "other copy is gone and this one goes on in its place, ship once with take_over=True"
        )


class _Published(NamedTuple):
    """Where a ship goes, what stands there, what the store knows of its ships, and what is asked
    of this one."""

    place: ShipTarget
    before: Manifest | None
    record: ShipRecord
    keep_ms: int
    verify: bool


class _Ship:
    """One ship, under its pin."""

    def __init__(
        self, engine: Engine, committer: Committer, pin_id: str, target: _Published
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._pin_id = pin_id
        self._place, before, self._ships, self._keep_ms, self._verifying = target
        self._before = before
        # As it was before the state is read: an erasure that ends meanwhile is the next ship's.
        self._erasures = self._ships.erasures
        self._may_hold_erased = before is not None and (
            before.line != self._ships.line or before.erasures != self._ships.erasures
        )
        self._links: dict[str, chain.Link] = {}  # of segments, by path
        self._sound: dict[str, int] = {}  # up to where a segment is what was shipped
        self._whole: set[str] = set()  # objects that were read there, and are what was sent
        self._held: dict[str, File] = {}  # which another checkpoint, or a setting, replaces
        now_ms = engine.clock.now_ms()
        self._lease = pinfile.Lease(engine.fs, engine.path, pin_id, now_ms)
        self._known = {part.path: part for part in before.parts} if before else {}
        self._sent_files = self._sent_bytes = self._repaired = 0

    def run(self, progress: Progress | None) -> Shipped:
        """Send new objects, publish the manifest, remove old objects."""
        try:
            return self._run(progress)
        finally:
            for file in self._held.values():
                file.close()

    def _run(self, progress: Progress | None) -> Shipped:
        position, files = self._moment()
        self._check_history(position, files)
        there = self._place.sizes()
        total = sum(files.values())
        done = 0
        parts: list[ShippedPart] = []
        for path, size_bytes in files.items():
            if progress is not None:
                progress(done, total)
            part = self._part(path, size_bytes, there)
            if part is not None:
                self._send(part, there)
                parts.append(part)
            done += size_bytes
        line = self._line_of_its_own()
        now_ms = self._check_pin()
        kept = self._kept(parts, now_ms)
        uuid, erasures = self._engine.uuid.hex(), self._erasures
        made = Manifest(uuid, position, now_ms, tuple(parts), line, kept, erasures)
        self._publish(made)
        self._record(made)
        named = {part.sha256 for part in (*parts, *(old.part for old in kept))}
        removed, left = self._sweep(named)
        return Shipped(
            position,
            len(parts),
            sum(part.size_bytes for part in parts),
            self._sent_files,
            self._sent_bytes,
            removed,
            left,
            len(kept),
            self._repaired,
        )

    def _kept(self, parts: list[ShippedPart], now_ms: int) -> tuple[KeptPart, ...]:
        """What the new state lacks of older ones, as long as it is to stay."""
        if self._before is None or self._may_hold_erased:
            return ()
        now = {part.path for part in parts}
        known = [KeptPart(part, now_ms) for part in self._before.parts] + [*self._before.kept]
        found: dict[str, KeptPart] = {}
        for part, since_ms in known:
            lacked_ms = min(since_ms, now_ms)
            if part.path not in now and now_ms - lacked_ms < self._keep_ms:
                found.setdefault(part.path, KeptPart(part, lacked_ms))
        return tuple(found.values())

    def _check_pin(self) -> int:
        """What time it is; SnapshotExpiredError if an erasure came."""
        now_ms = self._engine.clock.now_ms()
        pinfile.check(self._engine.fs, self._engine.path, self._pin_id, now_ms)
        return now_ms

    def _line_of_its_own(self) -> str:
        """The line of this store. A new one is noted before anything is published under it: who
        dies behind the manifest must find that it is its own."""
        if not self._ships.line:
            self._note(self._ships._replace(line=shipfile.new_line()))
        return self._ships.line

    def _note(self, record: ShipRecord) -> None:
        """Replace what the store knows of its ships, but for erasures that ended meanwhile."""
        fs, store = self._engine.fs, self._engine.path
        with self._committer.locked():
            erasures = max(record.erasures, shipfile.read(fs, store).erasures)
            self._ships = record._replace(erasures=erasures)
            shipfile.write(fs, store, self._ships)

    def _moment(self) -> tuple[int, dict[str, int]]:
        """A durable position, and of each file that it needs how many bytes belong to it."""
        engine = self._engine
        store, hints = engine.path, engine.path / file_names.LOG
        found: list[tuple[Path, int]] = []
        with maintenance_locks.alone(engine):
            moment = whole_log.now(engine, self._committer)
            for piece in moment.pieces:
                path = file_names.segment(store, piece.link.number)
                self._links[path.relative_to(store).as_posix()] = piece.link
                found.append((path, piece.size_bytes))
            for path in (*moment.others, store / file_names.STORE):
                if path.parent == hints:
                    found.append((path, engine.fs.stat(path).size_bytes))
                else:
                    found.append(self._hold(path))
        return moment.position, {path.relative_to(store).as_posix(): size for path, size in found}

    def _hold(self, path: Path) -> tuple[Path, int]:
        """Keep a file open until all is sent; the file and its size."""
        file = self._engine.fs.open(path)
        self._held[path.relative_to(self._engine.path).as_posix()] = file
        return path, file.size_bytes()

    def _check_history(self, position: int, files: dict[str, int]) -> None:
        """OptionError unless the log goes on from what was shipped: the segment that was written to
        then, as far as it was, is the beginning of ours."""
        if self._before is None:
            return
        store = self._engine.path
        last = file_names.segment(store, fmt.segment_of(self._before.position))
        path = last.relative_to(store).as_posix()
        part, ours = self._known.get(path), files.get(path)
        if self._before.position <= position and (part is None or ours is None):
            return  # nothing had been committed, or compaction removed the segment since
        if (
            part is not None
            and ours is not None
            and ours >= part.size_bytes
            and self._read(path, part.size_bytes).sha256 == part.sha256
        ):
            self._sound[path] = part.size_bytes
        else:
            raise OptionError(
                f"{self._place.shown} has a state of this store that does not lead to the present "
                "one: one of the two was restored from an older copy; give a new URI"
            )

    def _chunks(self, path: str, size_bytes: int) -> Iterator[bytes]:
        """So many bytes of a file of the store, while the pin holds."""
        held = self._held.get(path)
        file = held or self._engine.fs.open(self._engine.path / path)
        offset = 0
        try:
            while offset < size_bytes:
                self._lease.keep(self._engine.clock.now_ms())
                data = file.pread(min(CHUNK_BYTES, size_bytes - offset), offset)
                if not data:
                    raise SnapshotExpiredError(
                        f"{path} became shorter while it was sent: ship again"
                    )
                offset += len(data)
                yield data
        finally:
            if held is None:
                file.close()

    def _read(self, path: str, size_bytes: int) -> ShippedPart:
        """A file with its digest, and how a segment begins."""
        found, head = hashlib.sha256(), b""
        for data in self._chunks(path, size_bytes):
            found.update(data)
            head = head or data[: fmt.SEGMENT_HEAD_BYTES]
        begins = head.hex() if path.endswith(file_names.SEGMENT_SUFFIX) else ""
        return ShippedPart(path, size_bytes, found.hexdigest(), begins)

    def _part(self, path: str, size_bytes: int, there: dict[str, int]) -> ShippedPart | None:
        """A file with its digest; None: a hint that went meanwhile, which a store can lack."""
        known, is_segment = self._known.get(path), path.endswith(file_names.SEGMENT_SUFFIX)
        if known is not None and known.size_bytes == size_bytes and is_segment:
            self._look_at(known, there)
            if there.get(known.sha256) == size_bytes:
                return known
        try:
            self._verify(path)
            return self._read(path, size_bytes)
        except FileNotFoundError:
            if is_segment:
                self._check_pin()
                raise CorruptionError(
                    f"{path} is gone, and logstore did not remove it: restore it from a backup, or "
                    "see docs/recovery.md"
                ) from None
            return None

    def _verify(self, path: str) -> None:
        """DamagedStoreError for a segment that is not sound; what was shipped of it is."""
        link = self._links.get(path)
        if link is None:
            return
        file = self._engine.fs.open(self._engine.path / path)
        try:
            whole_log.verify(self._engine, file, link, self._sound.get(path, 0))
        finally:
            file.close()

    def _look_at(self, part: ShippedPart, there: dict[str, int]) -> None:
        """Forget an object that is not what was sent, so that it is sent again."""
        if not self._verifying or part.sha256 not in there or part.sha256 in self._whole:
            return
        try:
            for _ in self._place.chunks(part):
                self._lease.keep(self._engine.clock.now_ms())
            self._whole.add(part.sha256)
        except (CorruptionError, SnapshotExpiredError) as exc:
            log.warning("an object is sent again: %s", exc)
            del there[part.sha256]
            self._repaired += 1

    def _send(self, part: ShippedPart, there: dict[str, int]) -> None:
        """Put an object, unless it is there as a whole; FileSystemError if it is not there then."""
        self._look_at(part, there)
        if there.get(part.sha256) == part.size_bytes:
            return
        place = self._place
        target = place.path(OBJECTS, part.sha256)
        with place.errors(f"sending {part.path}", NOT_PUBLISHED):
            if place.is_local:
                self._engine.fs.make_directory(Path(place.path(OBJECTS)))
            elif not place.has_objects:
                place.fs.create_dir(place.path(OBJECTS), recursive=True)
            written = target + file_names.TEMPORARY if place.is_local else target
            with place.fs.open_output_stream(written) as file:
                for data in self._chunks(part.path, part.size_bytes):
                    file.write(data)
            found = place.fs.get_file_info(written)
            if found.size != part.size_bytes:
                raise OSError(f"{found.size} bytes arrived, not {part.size_bytes}")
            if place.is_local:
                self._sync(Path(written))
                self._engine.fs.rename(Path(written), Path(target))
        there[part.sha256] = part.size_bytes
        self._sent_files += 1
        self._sent_bytes += part.size_bytes

    def _publish(self, made: Manifest) -> None:
        """The commit point."""
        place = self._place
        data = made.pack()
        with place.errors("publishing the manifest", NOT_PUBLISHED):
            if not place.is_local:
                with place.fs.open_output_stream(place.path(MANIFEST)) as file:
                    file.write(data)
                return
            self._engine.fs.sync_directory(Path(place.path(OBJECTS)))
            self._engine.fs.write_atomic(Path(place.path(MANIFEST)), data)

    def _record(self, made: Manifest) -> None:
        """What the store knows of it; if that fails, it knows less than is there."""
        active = fmt.segment_of(made.position)
        numbers = (file_names.segment_number(part.path) for part in made.parts)
        later = tuple(number for number in numbers if number > active)
        ships = self._ships._replace(position=made.position, shipped_ms=made.shipped_ms)
        self._note(ships._replace(compacted=later, uri=self._place.shown, line=made.line))

    def _sync(self, path: Path) -> None:
        """Make an object of a local file system durable; the others say when they have it."""
        file = self._engine.fs.open(path, write=True)
        try:
            file.sync()
        finally:
            file.close()

    def _sweep(self, named: set[str]) -> tuple[int, int]:
        """Remove the objects that the manifest does not name; how many went, and are left.

        The store is published: what cannot be removed is named in the log, and is the next ship's.
        Only a list shows what went: where directories are objects, pyarrow's deletion of a file
        ends with putting one, and fails with a server that has no such things.
        """
        place = self._place
        trouble: OSError | None = None
        try:
            gone = self._unnamed(named)
            for name in gone:
                try:
                    place.fs.delete_file(place.path(OBJECTS, name))
                except OSError as exc:
                    trouble = exc
            left = len(self._unnamed(named)) if gone else 0
        except OSError as exc:
            log.warning("old objects at %s could not be listed: %s", place.shown, exc)
            return 0, -1
        if left:
            log.warning("%d old objects at %s are left: %s", left, place.shown, trouble)
        return len(gone) - left, left

    def _unnamed(self, named: set[str]) -> list[str]:
        return [name for name in self._place.sizes() if shipped.is_ours(name) and name not in named]
