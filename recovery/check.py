"""``check``: verify a store without changing anything.

Steps: (1) STORE; (2) every frame of every segment, CRC, order of commits, and the nodes in them as
deeply as the servers do it; (3) hints and checkpoints against the log; (4) a replay into a private
index, every locator and every length against what was found; (5) the store's own index against that
replay, where it was closed cleanly and can be read without touching it.

Invariants: nothing below the store's directory is written; what others do meanwhile is not taken
for damage: what seems to be missing is looked for where the log has grown, and if segments or
checkpoints came or went, all of it is looked at once more. ``checklog`` reads segments and hints.
"""

from __future__ import annotations

from pathlib import Path

from logstore import format as fmt
from logstore.engine.runtime import snapshot
from logstore.engine.runtime.engine import Engine
from logstore.engine.runtime.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptionError, Error
from logstore.fs import LOCAL, FileSystem
from logstore.index.keys import StreamRecord
from logstore.log import chain, checkpoint, hint, names, storefile
from logstore.options import StoreOptions
from logstore.recovery import compare, readonly, shutdown_marker
from logstore.recovery.check_log import LogCheck, Progress
from logstore.recovery.check_report import CheckReport
from logstore.recovery.salvage import repaired_view

TRIES = 3


def check(
    path: Path, *, progress: Progress | None = None, careful: bool = False,
    fs: FileSystem = LOCAL,
) -> CheckReport:  # fmt: skip
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
    kept = (*fs.names(path / names.LOG), *fs.names(path / names.CHECKPOINTS))
    return shutdown_marker.read(fs, path), *sorted(
        each for each in kept if names.TEMPORARY not in each
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


class _Check(LogCheck):
    """One check: what follows from the log that it has seen."""

    def __init__(
        self, fs: FileSystem, path: Path, uuid: bytes, progress: Progress | None, *,
        careful: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(fs, path, uuid, progress)
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
        if shutdown_marker.damaged(self._fs, self._path):
            self._damage(0, 0, 0, "BOOT is damaged: the index is rebuilt when the store is opened")
        self._pass_over_garbage({link.number for link, role in links if role != fmt.Role.MAIN})
        if not self.report.damage:
            self._replay()
        return self.report

    def _newest(self, last: int) -> None:
        """Whether the log lacks its newest segments, as the hint of the last one there shows."""
        lost = hint.lost_successor(self._fs, self._path, self._uuid, last)
        if lost:
            why = f"segment {lost} is missing, which stood behind segment {last}"
            self._damage(lost, 0, 0, why)

    def _checkpoints(self) -> None:
        newest: set[int] = set()
        positions = names.checkpoints(self._fs, self._path)
        for position in positions:
            self.report.checkpoints += 1
            number, offset = fmt.position_parts(position)
            try:
                head, chunks = checkpoint.read(self._fs, self._path, self._uuid, position)
            except FileNotFoundError:
                continue  # a newer one came
            except Error as exc:
                self._damage(number, offset, offset, exc.message)
                continue
            if not checkpoint.fits_log(self._fs, self._path, self._uuid, head):
                # An older one was removed before segments behind it were dropped; a power cut may
                # have kept its name, since nothing relies on that removal.
                older = position in positions[: -checkpoint.KEPT]
                if older and not self._fs.exists(names.segment(self._path, number)):
                    continue
                self._damage(number, offset, offset, "the log lacks the commit of a checkpoint")
                continue
            newest = {
                row[0] for chunk in chunks if chunk["kind"] == "live" for row in chunk["rows"]
            }
            self._adopted |= newest
        for number in sorted(newest - {*self._ends} - self._dropped):
            if not self._fs.exists(names.segment(self._path, number)):
                why = f"segment {number} is missing, and no frame says that it was dropped"
                self._damage(number, 0, 0, why)

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
        known = offset in self._offsets.get(number, ())
        if not known and not self._came_since(number, offset):
            self._damage(number, offset, offset, "a node is missing from the log")
