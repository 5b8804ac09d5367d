"""Prevents an opening behind a torn tail from taking time or memory by what the tail's bytes are.

Whoever may add an entry chooses them; a power cut may tear it. The bytes that are read are counted
below the store, memory is measured in a process of its own.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore import format as fmt
from logstore.codec import Codec, native_or_none, pure
from logstore.log import file_names, log_reader
from logstore.log import frame as frames
from logstore.log.segment_writer import CommitBuffer, crc_seed
from logstore.options import StoreLimits, StoreOptions
from logstore.recovery import store_opening
from logstore.recovery.check import check
from tests.log.heldbytes import Held
from tests.support.inside import add_frame
from tests.support.watched_files import FileOperation, WatchedFileSystem

MIB = 1 << 20
_HEAD = struct.Struct("<IIQQIBBH")


def torn(folder: Path, tail: bytes) -> Path:
    """A store that nobody closed, with these bytes behind its last commit."""
    live, path = folder / "live", folder / "store"
    with logstore.open(live, sync="os", background=False) as store:
        for number in range(1, 4):
            store.stream("a").add({"v": "x" * number}, id=f"{number}-1")
        path.mkdir()
        shutil.copytree(live / "log", path / "log")
        shutil.copy(live / "STORE", path / "STORE")
    with file_names.segment(path, 1).open("ab") as file:
        file.write(tail)
    return path


def heads(size: int, *, spacing: int = fmt.FRAME_HEAD_BYTES, most: int = 1 << 32) -> bytes:
    """Heads of frames as a client may plant them: all that can be known of them is plausible, and
    each promises a body up to somewhere in what follows."""
    rng = random.Random(size)
    parts: list[bytes] = []
    filler = bytes(spacing - fmt.FRAME_HEAD_BYTES)
    for at in range(0, size - spacing + 1, spacing):
        room = min(most, size - at - fmt.FRAME_HEAD_BYTES)
        fields = (rng.getrandbits(32), rng.randint(0, room), 4, 0, 0, fmt.Kind.APPEND, 1)
        parts += [_HEAD.pack(*fields, fmt.FRAME_MARK), filler]
    return b"".join(parts)


class SegmentReads(WatchedFileSystem):
    """Counts what is read of segments."""

    def __init__(self) -> None:
        self.read_bytes = self.largest_bytes = 0

    def after(self, operation: FileOperation) -> None:
        """Count it."""
        if operation.kind == "read" and operation.path.suffix == ".log":
            self.read_bytes += len(operation.data)
            self.largest_bytes = max(self.largest_bytes, operation.size_bytes)


TAILS = {
    "random bytes": lambda: random.Random(5).randbytes(4 * MIB),
    "marks only": lambda: fmt.FRAME_MARK.to_bytes(2, "little") * (2 * MIB),
    "heads": lambda: heads(2 * MIB),
    "heads of all that follows": lambda: heads(2 * MIB)[::-1][: 2 * MIB] + heads(2 * MIB),
    "a large body": lambda: (
        _HEAD.pack(1, 12 * MIB, 4, 0, 0, 5, 1, fmt.FRAME_MARK) + bytes(12 * MIB)
    ),
}


@pytest.mark.parametrize("kind", TAILS)
def test_an_opening_reads_a_tail_a_few_times(tmp_path: Path, kind: str) -> None:
    """Two scans, one search, one copy; whatever stands there."""
    tail = TAILS[kind]()
    path, fs = torn(tmp_path, tail), SegmentReads()
    engine, report = store_opening.open_engine(
        fs, path, StoreOptions(background=False), create=False, limits=StoreLimits()
    )
    store_opening.close_engine(engine)
    assert report.torn_bytes == len(tail)
    assert Path(report.saved_to).read_bytes() == tail
    assert fs.read_bytes <= 8 * len(tail) + 8 * MIB
    assert fs.largest_bytes <= 8 * MIB


@pytest.mark.parametrize("kind", ["heads", "random bytes"])
def test_tools_read_a_tail_a_few_times(tmp_path: Path, kind: str) -> None:
    tail = TAILS[kind]()
    path, fs = torn(tmp_path, tail), SegmentReads()
    assert check(path, fs=fs).tail_bytes == len(tail)
    assert fs.read_bytes <= 8 * len(tail) + 8 * MIB


MEASURE = """
import sys, time
from pathlib import Path
import logstore
from logstore.log import file_names as names
from tests.support.inside import add_frame
path = Path(sys.argv[1])
def mb():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
segment = names.segment(path, 1)
began = time.monotonic()
with segment.open("rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
read_s, before, began = time.monotonic() - began, mb(), time.monotonic()
used = time.process_time()
with logstore.open(path, background=False) as store:
    assert len(store.stream("a")) == 3
print(read_s, time.monotonic() - began, time.process_time() - used, mb() - before)
"""


def test_an_opening_takes_little_memory(tmp_path: Path) -> None:
    """A torn tail of 96 MiB, with a mark here and there, and 16 MiB of heads."""
    tail = random.Random(6).randbytes(96 * MIB) + heads(16 * MIB)
    path = torn(tmp_path, tail)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], check=True, capture_output=True, text=True
    )
    read_s, open_s, used_s, more_mb = map(float, done.stdout.split())
    print(
        f"read {read_s:.2f} s, opened {open_s:.2f} s, processor {used_s:.2f} s, {more_mb:.0f} MiB"
    )
    assert more_mb < 64


def _log(*commits: list[frames.Body]) -> bytes:
    data = b""
    for number, bodies in enumerate(commits, 1):
        buffer = CommitBuffer(fmt.position(1, 64 + len(data)), number)
        for body in bodies:
            add_frame(buffer, body)
        data += buffer.encode(SEED, 0)
    return data


SEED = crc_seed(bytes(range(16)))
CODECS = [pure] if native_or_none is None else [pure, native_or_none]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: str(codec.__name__))
@pytest.mark.parametrize("room", [1, 7, 1 << 20])
def test_a_frame_among_heads(codec: Codec, room: int) -> None:
    """Found whatever stands around it, however little may wait, and however it is fed."""
    rng = random.Random(room)
    for size in (0, 1, 31, 32, 33, 1000, 70_000):
        front = heads(4096, spacing=rng.choice([32, 33, 40]))
        note = frames.Note(rng.randbytes(size))
        buffer = CommitBuffer(fmt.position(1, 64 + len(front)), 4)
        add_frame(buffer, note)
        data = front + buffer.encode(SEED, 0) + heads(2048)
        wanted = 64 + len(front), 64 + len(front) + fmt.FRAME_HEAD_BYTES + size
        assert _found(codec, data, room, rng) == wanted
        broken = bytearray(data)
        broken[len(front) + 40 if size > 8 else len(front) + 6] ^= 1
        assert _found(codec, bytes(broken), room, rng) is None


def _found(codec: Codec, data: bytes, room: int, rng: random.Random) -> tuple[int, int] | None:
    """As the reader does it: rounds, until one was not full."""
    begin, end = 64, 64 + len(data)
    while True:
        search = codec.FrameSearch(SEED, 1, begin, end, 0, 1 << 62, room)
        at = begin
        while at < end:
            part = data[at - 64 : at - 64 + rng.choice([1, 5, 40, 5000])]
            found: tuple[int, int] | None = search.feed(part)
            if found is not None:
                return found
            assert search.awaited <= room
            at += len(part)
        if not search.full:
            return None
        assert search.resume > begin
        begin = search.resume


def test_a_head_with_wrong_fields_is_refused_without_its_payload() -> None:
    """Kind, flags, length, commit, ordinal, and what its writer knew to be durable."""
    good = {"size": 8, "commit": 4, "durable": 0, "ordinal": 0, "kind": 5, "flags": 1}
    wrong = [
        {}, {"size": 200}, {"commit": 2}, {"commit": 7}, {"durable": 2 << 32}, {"ordinal": 4},
        {"kind": 0}, {"flags": 2},
    ]  # fmt: skip
    for change in wrong:
        fields = {**good, **change}
        data = _HEAD.pack(9, *fields.values(), fmt.FRAME_MARK) + bytes(8)
        for codec in CODECS:
            search = codec.FrameSearch(SEED, 1, 64, 64 + len(data), 3, 3, 9)
            assert search.feed(data[:32]) is None
            assert search.awaited == (not change), change


def test_frames_behind_each_of_many_damaged_places() -> None:
    """Where frames and damage alternate, none is left out, and none is found twice."""
    data = bytearray(_log(*[[frames.Note(bytes([n]) * (n * 37 % 300))] for n in range(200)]))
    held = Held(bytes(data), 64)
    whole = list(log_reader.scan(held, SEED, 1, 64, 64 + len(data)))
    for each in whole[::3]:
        data[each.offset - 64 + 9] ^= 1
    left = [each for place, each in enumerate(whole) if place % 3]
    held = Held(bytes(data), 64)
    assert list(log_reader.next_valid(held, SEED, 1, 64, 64 + len(data))) == left
    some = log_reader.next_valid(held, SEED, 1, 64, 64 + len(data), after_commit=0, bodies=False)
    assert [each.offset for each in some] == [each.offset for each in left]
