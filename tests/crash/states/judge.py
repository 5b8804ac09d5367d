"""Opening what a crash left, and holding it against what was acknowledged.

Nothing here is cut: syncs are left out, so that thousands of states can be opened. What a state
became is looked at a second time (open again, check) only if no other state became the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from logstore import format as fmt
from logstore import fsinfo
from logstore.engine.shm import process_identity
from logstore.fs import LOCAL
from logstore.index.env import Generation
from logstore.log import file_names, segment, storefile
from logstore.recovery import compare
from logstore.recovery.check import check
from tests.crash.states.explore import REMOUNTED, RESTARTED, State
from tests.crash.states.recording import BOOT_ID, BORN_NS, MOUNT, STORE
from tests.crash.states.store_content import Content
from tests.crash.states.workload import RecordedWorkload, Session
from tests.support.watched_files import SYNCS, FileOperation, WatchedFileSystem, in_place

FOLDERS = (file_names.LOG, file_names.CHECKPOINTS)


class Verdict(NamedTuple):
    """What became of a state."""

    steps: int  # of the workload, that are there
    happened: bool | None  # the step that was cut is; None: it changes nothing that can be read
    created: bool
    trusted: bool  # the index was
    finished: int  # commits of a dead writer
    torn_bytes: int
    voided: bool  # complete commits behind a hole: a new segment makes them void
    restated: int


class Opened(NamedTuple):
    """What was found in a state."""

    content: Content
    trusted: bool
    verdict: Verdict  # but for what is expected


class FileSystemWithoutSyncs(WatchedFileSystem):
    """The real one, but for syncs: nothing is cut here."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def before(self, operation: FileOperation) -> None:
        assert operation.kind != "sync_directory" or operation.path.is_dir()

    def leaves_out(self, operation: FileOperation) -> bool:
        """Syncs."""
        return operation.kind in SYNCS

    def temporary_directory(self) -> Path:
        """Where the states are."""
        return Path(tempfile.mkdtemp(dir=self._scratch))


def _is_end(store: Path, at: dict[str, int]) -> bool:
    """Whether a new segment says that the one before ends there, whatever stands behind."""
    end = fmt.position(at["segment"], at["offset"])
    uuid = storefile.read(LOCAL, store).uuid
    for number in file_names.segments(LOCAL, store):
        file = LOCAL.open(file_names.segment(store, number))
        try:
            if segment.read_head(file, number, uuid).previous_end == end:
                return True
        finally:
            file.close()
    return False


class Judge:
    """Opens states, one after the other."""

    def __init__(self, scratch: Path, known: dict[bytes, Opened] | None = None) -> None:
        self._scratch = scratch
        self._known: dict[bytes, Opened] = {} if known is None else known
        self._fs = FileSystemWithoutSyncs(scratch)
        self._boot = RESTARTED
        self._shown: dict[int, tuple[int, int]] = {}  # inode: that of the recording
        self._settled: set[bytes] = set()
        self.settled = 0

    @contextmanager
    def sitting(self) -> Iterator[Judge]:
        """In place of the real file system, clock of boots and identity of files."""
        identity, boot_id, sync = fsinfo.file_identity, process_identity.boot_id, Generation.sync
        uuid = storefile.new_uuid
        fsinfo.file_identity = self._identity
        process_identity.boot_id = lambda: RESTARTED if self._boot == RESTARTED else BOOT_ID
        Generation.sync = lambda generation: None  # type: ignore[method-assign]
        storefile.new_uuid = lambda: bytes(range(16))
        try:
            with in_place(self._fs):
                yield self
        finally:
            fsinfo.file_identity, process_identity.boot_id = identity, boot_id
            Generation.sync = sync  # type: ignore[method-assign]
            storefile.new_uuid = uuid

    def _identity(self, path: Path) -> tuple[int, int, int, int]:
        found = os.stat(path)
        device, inode = self._shown.get(found.st_ino, (found.st_dev, found.st_ino))
        return MOUNT + (self._boot == REMOUNTED), device, inode, BORN_NS

    def judge(self, run: RecordedWorkload, state: State, digest: bytes) -> Verdict:
        """Open it, and open it again; AssertionError if anything is not as promised.

        What was opened before is held against what is expected of it now: the same bytes may be
        fine before an operation was acknowledged, and a loss after.
        """
        opened = self._known.get(digest)
        if opened is None:
            opened = self._known[digest] = self._open(run, state)
        place = _place(run, state, opened.content)
        if opened.trusted:
            for name, file in state.index.items():
                fine = state.trustworthy.get(name)
                assert fine is not None, "an index was trusted that was never durable"
                assert file.content == fine.content, "a torn index was trusted"
        changes = run.contents[state.least] != run.contents[min(state.most, len(run.contents) - 1)]
        return opened.verdict._replace(
            steps=place, happened=place > state.least if changes else None
        )

    def _open(self, run: RecordedWorkload, state: State) -> Opened:
        root = Path(tempfile.mkdtemp(dir=self._scratch))
        self._boot = state.boot
        self._shown = lay_out(root, state)
        session = run.workload.session(root / STORE, run.workload.sync)
        session.open()
        try:
            found = session.content()
            report = dict(session.store.recovery)
        finally:
            session.store.close()
        found = next((each for each in run.contents if each == found), found)  # one in memory
        assert not report["damage"], report["damage"]
        assert "opened" not in str(report["why_not_trusted"]), report["why_not_trusted"]
        voided = report["torn_at"] is not None and _is_end(root / STORE, report["torn_at"])
        trusted, torn = bool(report["index_trusted"]), int(report["torn_bytes"])
        self._settle(session, found, trusted=trusted)
        shutil.rmtree(root)
        verdict = Verdict(
            0, None, bool(report["created"]), trusted, report["commits_finished"], torn,
            voided, report["restated_segments"],
        )  # fmt: skip
        return Opened(found, trusted, verdict)

    def _settle(self, session: Session, found: Content, *, trusted: bool) -> None:
        """Opened again nothing changes, and ``check`` finds nothing; then it goes on working."""
        path = session.path
        before = log_files(path)
        key = blake2b(repr(found).encode(), digest_size=16)
        for name, content in sorted(before.items()):
            key.update(name.encode() + b"\x00" + content)
        if trusted:
            for data in sorted((path / file_names.INDEX).glob("*/data.mdb")):
                key.update(data.read_bytes())
        if key.digest() in self._settled:
            return
        self._settled.add(key.digest())
        self.settled += 1
        session.open()
        try:
            report = session.store.recovery
            assert report["index_trusted"], report["why_not_trusted"]
            assert not report["torn_bytes"], report
            assert not report["commits_finished"], report
            assert session.content() == found, "the second open found something else"
        finally:
            session.store.close()
        after = log_files(path)
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        assert not changed, f"the second open changed {changed}"
        checked = check(path, fs=self._fs)
        assert checked.as_dict()["clean"], checked.damage
        # An index in which nothing was committed has no position that could be held against it.
        assert checked.index == compare.AGREES or not checked.commits, checked.index
        if self.settled % 16 == 0:
            self._go_on(session, found)

    def _go_on(self, session: Session, found: Content) -> None:
        for _ in range(2):
            session.open()
            session.store.stream("after").add({"v": b"x"})
            left = session.content()
            left.pop("after")
            assert left == found, "an add changed something else"
            session.store.close()


def _place(run: RecordedWorkload, state: State, found: Content) -> int:
    """After how many steps it is; the last of those that fit."""
    allowed = run.contents[state.least : state.most + 1]
    for place in range(len(allowed) - 1, -1, -1):
        if allowed[place] == found:
            return state.least + place
    if not state.least and found == run.before:
        return 0
    elsewhere = [place for place, each in enumerate(run.contents) if each == found]
    steps = ["the beginning", *(step.name for step in run.workload.steps)]
    wanted = [f"{at} ({steps[at]})" for at in range(state.least, len(allowed) + state.least)]
    what = f"what was there after {elsewhere}" if elsewhere else difference(found, allowed[0])
    raise AssertionError(f"found {what}; expected what was there after {wanted}")


def lay_out(root: Path, state: State) -> dict[int, tuple[int, int]]:
    """Make the directory; which device and inode the files of the index had, by those they have."""
    shown: dict[int, tuple[int, int]] = {}
    for path, content in state.image.items():
        where = root / path
        if content is None:
            where.mkdir()
        else:
            with where.open("wb") as file:
                file.write(content)
    home = root / STORE / file_names.INDEX
    if home.exists():
        for name, kept in state.index.items():
            data = home / name / "data.mdb"
            data.parent.mkdir()
            data.write_bytes(kept.content)
            os.utime(data, ns=(kept.modified_ns, kept.modified_ns))
            shown[data.stat().st_ino] = kept.device, kept.inode
    return shown


def log_files(path: Path) -> dict[str, bytes]:
    """What recovery is about, byte for byte."""
    found = {file_names.STORE: (path / file_names.STORE).read_bytes()}
    for folder in FOLDERS:
        for each in (path / folder).iterdir():
            found[f"{folder}/{each.name}"] = each.read_bytes()
    return found


def difference(found: Content, expected: Content) -> str:
    """Where the two part."""
    if sorted(found) != sorted(expected):
        return f"streams {sorted(found)} and not {sorted(expected)}"
    parts: list[Any] = [
        (name, key, found[name][key], expected[name][key])
        for name in found for key in found[name] if found[name][key] != expected[name][key]
    ]  # fmt: skip
    name, key, left, right = parts[0]
    return f"{key} of {name}: {left} and not {right}"
