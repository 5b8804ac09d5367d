"""The processes that a power cut meets: writers, and one that plays the kernel's writeback.

A writer journals each operation before it (the intent) and after it (the acknowledgement, with IDs
and the time), and keeps words about its own stalls and syncs, all outside of the mount. It runs
until it is killed, or until the disk is gone, which must show as a typed error.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import random
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.fs import File
from logstore.options import Sync
from tests.power.disks import die_with_parent
from tests.power.intents import (
    CONSUMER,
    GROUP,
    ID,
    KINDS,
    ORDER,
    Op,
    Owned,
    fields,
    intend,
    own,
    parse,
)

PAUSE_S = 0.004
# A disk that others use as well may stand still for a minute, and with it who holds LOCK.
PATIENCE_S = 120
_WORDS = struct.Struct("<3d")  # longest stall, longest sync, begin of the sync under way or 0
_WRITE_PAGES = 2  # SYNC_FILE_RANGE_WRITE


class Plan(NamedTuple):
    """How a writer works."""

    store: Path
    outside: Path
    slot: int
    tag: str  # how the tags of its operations begin
    policy: Sync
    segment_bytes: int
    sync_rate: float  # how often it asks for more than its policy gives
    seed: int
    kinds: tuple[str, ...] = KINDS  # of operations

    @property
    def journal(self) -> Path:
        """What it meant to do and what was acknowledged."""
        return self.outside / f"journal-{self.slot}"

    @property
    def words(self) -> Path:
        """Its stalls and syncs."""
        return self.outside / f"words-{self.slot}"


def spawn(outside: Path, name: str, work: Callable[[], None]) -> int:
    """A process that does this; what it raises is left in a file."""
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        with _stack(outside, name).open("wb") as stack:
            faulthandler.register(signal.SIGUSR1, stack)
            work()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child must not return into pytest
        (outside / f"error-{name}").write_text(traceback.format_exc())
    finally:
        os._exit(3)


def stacks(outside: Path, pids: dict[str, int]) -> str:
    """Where each process stands, in itself and in the system; and who holds which lock."""
    for pid in pids.values():
        os.kill(pid, signal.SIGUSR1)
    time.sleep(1)
    lines: list[str] = []
    for name, pid in pids.items():
        lines.append(f"{name}, {pid}:")
        files = [_stack(outside, name), *(Path(f"/proc/{pid}/{at}") for at in ("wchan", "stack"))]
        for path in files:
            with suppress(OSError):
                lines.append(path.read_text())
    return "\n".join([*lines, Path("/proc/locks").read_text()])


def _stack(outside: Path, name: str) -> Path:
    """Where a process writes down what it is at when it gets SIGUSR1."""
    return outside / f"stack-{name}"


def write(plan: Plan) -> None:
    """Write until killed, or until the disk is gone."""
    words = Words(plan.words)
    words.watch()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        writer = Writer(plan)
        journal = os.open(plan.journal, flags, 0o600)
        while True:
            op = writer.next()
            op["at"] = time.monotonic()
            os.write(journal, json.dumps(op).encode() + b"\n")
            done = writer.do(op)
            done |= {"at": time.monotonic(), "lane": writer.of_lane()}
            os.write(journal, json.dumps(done).encode() + b"\n")
            if plan.policy != "always":
                time.sleep(writer.rng.random() * PAUSE_S)
    except logstore.Error as exc:
        said = {"failed": type(exc).__name__, "at": time.monotonic(), "message": str(exc)}
        with plan.journal.open("ab") as file:
            file.write(json.dumps(said).encode() + b"\n")


class Writer:
    """One writer and what it knows of its stream."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.number = 0
        self.store = logstore.open(
            plan.store, sync=plan.policy, lock_timeout=PATIENCE_S,
            segment_bytes=plan.segment_bytes,
        )  # fmt: skip
        self.order = self.store.stream(ORDER)
        self.mine = self.store.stream(own(plan.slot))
        self.group = self.mine.group(GROUP, start="0")
        self.now = read_own_stream(self.store, plan.slot)
        self.held = {_id(each.id): each for each in self.group.backlog(CONSUMER)}

    def next(self) -> Op:
        """What to do next."""
        self.number += 1
        tag = f"{self.plan.tag}.{self.number}"
        return intend(self.rng, tag, self.now, self.plan.sync_rate, self.plan.kinds)

    def of_lane(self) -> list[int]:
        """Entries that were added, delivered and acked in the lane since the last call."""
        lane = self.store._live().lane
        told = {} if lane is None else lane.take_counts()
        return [told.get(name, 0) for name in ("added_entries", "deliveries", "acks")]

    def do(self, op: Op) -> dict[str, Any]:
        """Do it; the IDs given."""
        kind = op["op"]
        sync: Sync | None = "always" if op.get("firm") else None
        marks = [fields(tag) for tag in op.get("marks", ())]
        order: list[Any] = []
        mine: list[Any] = []
        if kind == "add":
            order = [self.order.add(marks[0], sync=sync)]
        elif kind == "many":
            order = list(self.order.add_many(marks, batch=len(marks), sync=sync))
        elif kind in {"tx", "ack"}:
            with self.store.transaction(sync=sync) as tx:
                order = [tx.stream(ORDER).add(marks[0])]
                stream = tx.stream(own(self.plan.slot))
                mine = [stream.add(fields(tag)) for tag in op.get("own", ())]
                if op.get("delete"):
                    stream.delete(*op["delete"])
                if "acks" in op:
                    tx.ack(*(self.held.pop(parse(each)) for each in op["acks"]))
            order, mine = [each.id for each in order], [each.id for each in mine]
        elif kind == "put":
            mine = [self.mine.add(fields(op["own"][0]))]
        elif kind == "done":
            done = [self.held.pop(parse(each)).id for each in op["acks"]]
            assert self.group.ack(*done) == len(done)
        elif kind == "deliver":
            found = self.group.read(CONSUMER, count=op["count"])
            assert [_id(each.id) for each in found] == self.now.next_deliveries(op["count"])
            self.held.update((_id(each.id), each) for each in found)
        elif kind == "trim":
            self.mine.trim(max_entries=op["keep"], approximate=False)
        else:
            self.store.sync()
        self.now = self.now.after(op, [_id(each) for each in mine])
        if self.rng.random() < self.plan.sync_rate / 4:
            self.rng.choice((self.store.checkpoint, self.store.compact))()
        return {"order": [str(each) for each in order], "mine": [str(each) for each in mine]}


def _id(found: Any) -> ID:
    return found.ms, found.seq


def read_own_stream(store: logstore.Store[bytes], slot: int) -> Owned:
    """What the store says of a writer's own stream; every entry's bytes are compared."""
    stream = store.stream(own(slot))
    entries = read_tagged(store, own(slot))
    try:
        info = next(each for each in stream.groups() if each.name == GROUP.encode())
    except (StopIteration, logstore.StreamNotFoundError):
        return Owned(entries)
    last = info.last_delivered_id
    pending = {_id(each.id) for each in stream.group(GROUP).pending_entries()}
    assert len(pending) == info.pending
    return Owned(entries, _id(last), pending)


def read_tagged(store: logstore.Store[bytes], name: bytes) -> list[tuple[ID, str]]:
    """IDs and tags of a stream; every entry's bytes are compared with what was added."""
    found: list[tuple[ID, str]] = []
    for entry in store.stream(name).range():
        tag = entry.fields[b"t"].decode()
        assert entry.fields[b"p"] == fields(tag)["p"], f"entry {entry.id} is not what was added"
        found.append((_id(entry.id), tag))
    assert found == sorted(found)
    assert len(store.stream(name)) == len(found)
    return found


class Words:
    """How long this process stalled, and how long its syncs took; read after it was killed."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, _WORDS.size)
        self._map = mmap.mmap(fd, _WORDS.size)
        os.close(fd)
        self._stall = self._sync = 0.0

    def watch(self) -> None:
        """From now on every sync of this process is timed, and how long a short sleep takes."""
        before, words = File.sync, self

        def timed(file: File) -> None:
            began = time.monotonic()
            words._put(began)
            before(file)
            words._sync = max(words._sync, time.monotonic() - began)
            words._put(0.0)

        File.sync = timed  # type: ignore[method-assign]
        threading.Thread(target=self._measure, daemon=True).start()

    def _measure(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(0.02)
            self._stall = max(self._stall, time.monotonic() - began - 0.02)
            self._map[: _WORDS.size - 8] = _WORDS.pack(self._stall, self._sync, 0.0)[:-8]

    def _put(self, began: float) -> None:
        self._map[:] = _WORDS.pack(self._stall, self._sync, began)

    @staticmethod
    def read(path: Path, cut_at: float) -> tuple[float, float]:
        """The longest stall and the longest sync up to the cut, the one under way included."""
        data = path.read_bytes() if path.exists() else b""
        if len(data) < _WORDS.size:
            return 0.0, 0.0
        stall, sync, began = _WORDS.unpack(data)
        return stall, max(sync, cut_at - began if began else 0.0)


def write_back(folder: Path, seed: int) -> None:
    """Begin to write pages here and there, in any order, as the kernel does when it likes."""
    rng = random.Random(seed)
    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    while True:
        time.sleep(rng.random() * 0.01)
        files = [Path(at) / name for at, _, names in os.walk(folder) for name in names]
        # Never lock.mdb, nor what is locked: this process is a stranger to the store.
        files = sorted(path for path in files if path.suffix == ".log")[-2:]
        for path in rng.sample(files, min(len(files), 1)):
            try:
                fd = os.open(path, os.O_RDWR)
            except OSError:
                continue
            pages = (os.fstat(fd).st_size + 4095) // 4096
            first = rng.randrange(max(1, pages))
            call(fd, first * 4096, rng.randint(1, 4) * 4096, _WRITE_PAGES)
            os.close(fd)
