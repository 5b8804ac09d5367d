"""``recover --salvage``: take out of a damaged store what is left, into a new one.

Entries keep their bytes and IDs, streams their last IDs, counts, settings, time of expiry and
scheduled entries, groups their consumers and pending entries; all as far as it can be read.

Invariants: the damaged store is only read. A stream appears in the new store whole, in one commit;
a salvage that was cut off is done again into an empty directory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.commit.committer import Committer
from logstore.engine.dump import dumped_ids, export, restore
from logstore.engine.dump.restore import VerifiedNodes, VerifiedPart
from logstore.engine.groups import admin as groups
from logstore.engine.runtime.engine import log
from logstore.engine.shm.commit_words import LogWords
from logstore.engine.shm.users_file import users_alone
from logstore.errors import CorruptionError, InvalidPayloadError, OptionError
from logstore.features.schedule_rows import Scheduled, ScheduleRows
from logstore.features.schema_rows import SchemaRows, StoredSchema
from logstore.features.setting_rows import Setting, SettingRows
from logstore.features.ttl_rows import Expire
from logstore.format import SEGMENT_HEAD_BYTES
from logstore.fs import LOCAL, File, FileSystem
from logstore.ids import StreamID
from logstore.index.env import open_untouched
from logstore.index.keys import StreamRecord
from logstore.index.txn import IndexTxn
from logstore.log import file_names
from logstore.options import StoreOptions, stored
from logstore.rdb.value import Node, StreamInfoValue
from logstore.recovery import index_validity, readonly, replay, store_opening
from logstore.recovery.check import Progress, check
from logstore.recovery.compare import cannot_be_read
from logstore.recovery.repaired_view import Repaired
from logstore.recovery.report import Damage, LostEntries, RecoveryReport
from logstore.recovery.salvage import lost
from logstore.recovery.salvage.salvaged_nodes import SalvageableNodes


class Damaged:
    """What is left of a store; ``close`` it."""

    def __init__(self, fs: FileSystem, path: Path, progress: Progress | None = None) -> None:
        self._fs = fs
        self.home = fs.temporary_directory()
        self._users: File | None = None
        self.report = RecoveryReport()
        try:
            self._users = users_alone(fs, path)
            self.repaired = Repaired(fs, path, self.home)
            # Before the index is opened: one process opens it once.
            self.seen = check(path, progress=progress, careful=True, fs=self.repaired.fs)
            self.engine = readonly.private_engine(
                self.repaired.fs,
                path,
                self.home,
                self.repaired.content,
                StoreOptions(readonly=True, background=False),
                lambda engine: replay.build(engine, self.report),
            )
            self.engine.accept_loss = True
            self.own_index = self._trusted()
            if not self.own_index:
                self.engine.rebuild_locked()
        except BaseException:
            self.close()
            raise

    def _trusted(self) -> bool:
        """Use the store's own index, if it is to be trusted whole."""
        engine = self.engine
        if self.repaired.damage:
            return False
        known = index_validity.read_marker(engine.fs, engine.path)
        if known is None or not known.clean_applied or index_validity.why_not(engine, known):
            return False
        path = file_names.generation(engine.path, known.generation)
        if why := cannot_be_read(path, known.generation):
            log.error("the index is damaged (%s): what is left is read from the log", why)
            return False
        try:
            own = open_untouched(path, known.generation)
        except FileNotFoundError:
            return False  # of an older format
        try:
            index_validity.check_applied(engine, own, known)
        except CorruptionError:
            own.close()
            return False
        engine.generation = own
        engine.wake.set_log(LogWords(0, 0, 0, 0, 0, own.number, 0))
        return True

    def close(self) -> None:
        """Let go of everything; the private index is removed."""
        engine = getattr(self, "engine", None)
        if engine is not None:
            engine.release_files()
        if self._users is not None:
            self._users.close()
        self._fs.remove_tree(self.home)


PIECE_BYTES = 1 << 20
SCHEDULED_A_COMMIT = 1000
UNSEEN = (
    "what stood in damaged bytes of the log beside entries (deletes, trims, acks and deliveries "
    "of groups, settings) was not carried out"
)


@dataclass(slots=True)
class SalvageReport:
    """What was taken out, and what is gone."""

    destination: str = ""
    index: str = ""
    streams: int = 0
    entries: int = 0
    groups: int = 0
    pending: int = 0
    scheduled: int = 0
    gone: list[LostEntries] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is gone, and nothing unsure."""
        return not (self.gone or self.unsure)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        found["gone"] = [each.as_dict() for each in self.gone]
        found["damage"] = [each._asdict() for each in self.damage]
        found["whole"] = self.whole
        return found


def salvage(
    source: Path, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> SalvageReport:
    """Take what is left of the store at ``source`` into a new one at ``target``.

    ``progress`` gets bytes. OptionError for a target that is not empty or lies in the source;
    StoreInUseError while somebody has the source open; DamagedStoreError if there is nothing left.
    """
    if fs.names(target):
        raise OptionError(f"{target} is not empty: give a new or an empty directory")
    if target.absolute().is_relative_to(source.absolute()):
        raise OptionError(f"{target} is in the damaged store itself: give a directory outside it")
    halves = _HalvedProgress(progress)
    damaged = Damaged(fs, source, halves.checked)
    try:
        return _Salvage(damaged, target, halves).run(fs)
    finally:
        damaged.close()


class _HalvedProgress:
    """Progress: the first half is looking at every byte of the log, the second copying nodes."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = self._total = 0

    def checked(self, done: int, total: int) -> None:
        """So many bytes of the log were looked at."""
        self._done, self._total = done, 2 * total
        self._tell()

    def copied(self, size: int) -> None:
        """So many bytes more were copied."""
        self._done = min(self._total, self._done + size)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)


class _Salvage:
    """One salvage: where it reads and writes."""

    def __init__(self, damaged: Damaged, target: Path, halves: _HalvedProgress) -> None:
        self._damaged, self._target, self._halves = damaged, target, halves
        self.report = SalvageReport(str(target))

    def run(self, fs: FileSystem) -> SalvageReport:
        """Look at all of it, then copy."""
        repaired, report = self._damaged.repaired, self.report
        own = self._damaged.own_index
        report.index = "its own" if own else "built from what the log still says"
        report.damage = [*repaired.damage, *self._damaged.seen.damage]
        known = {each[:3] for each in report.damage}
        report.damage += [each for each in self._damaged.report.damage if each[:3] not in known]
        options = StoreOptions(background=False, sync="os")
        engine, _ = store_opening.open_engine(
            fs, self._target, options, create=True, limits=repaired.content.limits
        )
        try:
            self._committer = Committer(engine)
            generation = self._damaged.engine.generation
            assert generation is not None
            with generation.env.begin() as txn:
                self._copy(IndexTxn(generation, txn))
            if not own:
                report.gone += lost.gone(self._damaged.engine, engine, report.damage, report.gone)
                report.gone += lost.by_length(
                    self._damaged.engine, self._damaged.report, engine, report.gone
                )
            report.gone = lost.merged(report.gone, partial(lost.has_between, engine))
        finally:
            store_opening.close_engine(engine)
        return report

    def _copy(self, index: IndexTxn) -> None:
        left = SalvageableNodes(
            self._damaged.engine, index, self._damaged.report, self.report.damage
        )
        for record in left.view.records():
            self._stream(left, record)
        self.report.gone += [*self._damaged.report.gone, *left.gone]
        self.report.unsure += [*self._damaged.report.unsure, *left.unsure]
        if self._damaged.report.damage or (not self._damaged.own_index and self._torn()):
            self.report.unsure.append(UNSEEN)

    def _torn(self) -> bool:
        """Whether bytes at the end of the log, where a rebuild stops, held frames."""
        seen = self._damaged.seen.damage
        return any(each.to_offset > max(each.from_offset, SEGMENT_HEAD_BYTES) for each in seen)

    # -- one stream -----------------------------------------------------------------------------
    def _stream(self, left: SalvageableNodes, record: StreamRecord) -> None:
        """A small one in one commit; of a large one some nodes a commit, under a temporary name,
        and with the last all else."""
        name = record.name
        temporary: restore.UnfinishedStream | None = None
        waiting: list[Node] = []
        size, edge = 0, VerifiedNodes()
        for node in left.nodes(record):
            waiting.append(node)
            size += len(node[1])
            if size >= PIECE_BYTES:
                temporary = temporary or self._begin(name)
                edge = self._extend(temporary, edge, waiting)
                waiting, size = [], 0
        nodes, after = restore.verify(waiting, edge)
        info = self._info(left, record, after)
        of_stream = partial(_settings, left=left, record=record)
        if temporary is None and not info.many:

            def whole(txn: WriteTxn) -> None:
                restore.install(txn, name, restore.VerifiedStream([nodes], after, info))
                of_stream(txn)

            self._run(whole)
        else:
            temporary = temporary or self._begin(name)
            edge = self._extend(temporary, edge, waiting)
            restore.complete(self._run, temporary, edge, name, info, replace=False, last=of_stream)
        report = self.report
        report.streams += 1
        report.entries += after.length
        report.groups += len(info.groups)
        report.pending += info.pending_count()
        self._halves.copied(record.node_bytes)
        self._scheduled(left, record)

    def _begin(self, name: bytes) -> restore.UnfinishedStream:
        begun: restore.UnfinishedStream = self._run(partial(restore.begin, name=name))
        return begun

    def _extend(
        self, temporary: restore.UnfinishedStream, edge: VerifiedNodes, waiting: list[Node]
    ) -> VerifiedNodes:
        parts, after = restore.verify(waiting, edge)
        found: list[VerifiedPart] = [parts]
        self._run(
            partial(restore.extend, temporary=temporary, before=edge, parts=found, after=after)
        )
        return after

    def _info(
        self, left: SalvageableNodes, record: StreamRecord, edge: VerifiedNodes
    ) -> StreamInfoValue:
        """All but the nodes, as it fits those that are left."""
        view, number = left.view, record.number
        info = StreamInfoValue(
            edge.length,
            max(record.last, StreamID(*edge.top), record.max_deleted),
            record.first,
            record.max_deleted,
            max(record.entries_added, edge.length),
            [export.group_value(view, each) for each in view.index.groups.of_stream(number)],
            dumped_ids.export(view, number),
        )
        try:
            restore.check_info(info, edge)
        except InvalidPayloadError as exc:
            self.report.unsure.append(f"idempotent adds of {record.name!r}: {exc.message}")
            info = replace(info, idempotence=None)
            restore.check_info(info, edge)
        return info

    def _scheduled(self, left: SalvageableNodes, record: StreamRecord) -> None:
        """Scheduled entries, under new keys."""
        rows = list(ScheduleRows(left.view.index).of_stream(record.number))

        def step(txn: WriteTxn, start: int) -> None:
            found = txn.record_by_name(record.name)
            assert found is not None
            for row in rows[start : start + SCHEDULED_A_COMMIT]:
                txn.emit(Scheduled(found.number, row.due_ms, row.fields))

        for start in range(0, len(rows), SCHEDULED_A_COMMIT):
            self._run(partial(step, start=start))
        self.report.scheduled += len(rows)

    def _run(self, step: Callable[[WriteTxn], Any]) -> Any:
        return self._committer.run(step, None)


def _settings(txn: WriteTxn, left: SalvageableNodes, record: StreamRecord) -> None:
    """Give the new stream the settings of the old one and of its groups, and when it expires."""
    made, rows = txn.record_by_name(record.name), SettingRows(left.view.index)
    assert made is not None
    if kept := stored(rows.stream(record.number)):
        txn.emit(Setting(made.number, 0, kept))
    for group in left.view.index.groups.of_stream(record.number):
        if kept := stored(rows.group(group.number)):
            number = groups.existing(txn, record.name, group.name)[1].number
            txn.emit(Setting(made.number, number, kept))
    if record.expires_ms:
        txn.emit(Expire(made.number, record.expires_ms))
    if record.schema_at:
        text = SchemaRows(left.view.index).text(record.number)
        txn.emit(StoredSchema(made.number, text or ""))
