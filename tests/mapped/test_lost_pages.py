"""Prevents a cut file, or a sector that cannot be read, from ending the process by SIGBUS where
memory is mapped; and a handler for that from hiding the faults of others.

Each is a process of its own: before, it ended by the signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.codec import codec_name
from tests.corruption.bad_sectors import PAGE_BYTES, SpoiledDisk, why_none

pytestmark = pytest.mark.skipif(
    codec_name() != "native", reason="the handler is in a compiled module, which is not in use"
)
ENTRIES = 2000


def run(code: str, *arguments: object, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """What a process of its own ends with, and says."""
    command = [sys.executable, *options, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "store")


def filled(path: Path) -> Path:
    with logstore.open(path, background=False) as store:
        for name in ("s", *(f"other-{n}" for n in range(400))):
            store.stream(name).add({"n": "0"})
        store.stream("s").add_many([{"n": str(n), "pad": "x" * 50} for n in range(1, ENTRIES)])
    return path


WAKE = """
import itertools, os, sys, logstore
from logstore.errors import StoreGoneError
path, size = sys.argv[1], int(sys.argv[2])
groups = map(str, itertools.count())
store = logstore.open(path, background=False)
stream = store.stream("s")
first = stream.add({"n": "a"})
names = sorted(os.listdir(path + "/index"))
os.truncate(path + "/WAKE", size)
for way in (
    lambda: stream.get(first), lambda: list(stream.range()), lambda: stream.add({"n": "b"}),
    lambda: stream.add_many([{"n": "c"}] * 3), lambda: stream.group(next(groups)).create("0"),
) * 2:
    try:
        way()
    except StoreGoneError as error:
        assert "WAKE" in str(error), error
        print("gone")
    else:
        print("done")
assert sorted(os.listdir(path + "/index")) == names  # nothing was built by words that are lost
try:
    store.close()
except StoreGoneError:
    pass
print(len(list(logstore.open(path).stream("s").range())))
"""


@pytest.mark.parametrize("size", [0, 40, 4096, 100_000])
@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")], ids=["plain", "faulthandler"])
def test_a_wake_file_that_is_cut_fails_the_store(
    path: Path, size: int, options: tuple[str, ...]
) -> None:
    """With a page or more of it left, what does not need the rest may go on for a moment."""
    code, out, err = run(WAKE, path, size, options=options)
    assert code == 0, (code, err)
    *told, there = out.split()
    assert "Fatal" not in err
    assert len(told) == 10
    assert size >= 4096 or told == ["gone"] * 10
    added = told.count("done") and int(there) - ENTRIES - 1
    assert ENTRIES + 1 <= int(there) <= ENTRIES + 1 + 8, added


READ = """
import os, sys, logstore
path = sys.argv[1]
store = logstore.open(path, background=False)
stream = store.stream("s")
assert len(list(stream.range())) == 2000
(data,) = [f"{path}/index/{each}/data.mdb" for each in os.listdir(path + "/index")]
os.truncate(data, int(sys.argv[2]))
assert [int(e["n"]) for e in stream.range()] == list(range(2000))
assert all(len(list(store.stream(f"other-{n}").range())) == 1 for n in range(400))
stream.add({"n": "2000"})
assert [int(e["n"]) for e in stream.range()] == list(range(2001))
store.close()
with logstore.open(path) as store:
    assert len(list(store.stream("s").range())) == 2001
print("whole")
"""


WRITE = """
import os, sys, logstore
from logstore.errors import CorruptionError
path = sys.argv[1]
store = logstore.open(path, background=False)
(data,) = [f"{path}/index/{each}/data.mdb" for each in os.listdir(path + "/index")]
os.truncate(data, int(sys.argv[2]))
added = 0
for n in range(300):
    try:
        store.stream(f"other-{n}").add({"n": "1"})
        added += 1
    except CorruptionError as error:
        print("error", error, file=sys.stderr)
assert added >= 299
lengths = [len(list(store.stream(f"other-{n}").range())) for n in range(300)]
assert sum(lengths) == 300 + added and set(lengths) <= {1, 2}
store.close()
print("whole")
"""


@pytest.mark.parametrize("size", [0, 8192, 40_960])
@pytest.mark.parametrize("program", [READ, WRITE], ids=["reads", "writes"])
def test_an_index_that_is_cut_is_built_anew_and_decides_no_commit(
    path: Path, program: str, size: int
) -> None:
    code, out, err = run(program, path, size)
    assert (code, out) == (0, "whole\n"), (code, err)


ELSEWHERE = """
import mmap, os, sys, logstore
store = logstore.open(sys.argv[1], background=False)
store.stream("s").add({"n": "a"})
with open(sys.argv[2], "w+b") as file:
    file.truncate(8192)
    mine = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    print("before", flush=True)
    mine[5000]
print("behind", flush=True)
"""


@pytest.mark.parametrize("options", [(), ("-X", "faulthandler")], ids=["plain", "faulthandler"])
def test_a_fault_elsewhere_ends_the_process_as_ever(
    path: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Prevents another's lost memory from reading as zeros; a handler from before is asked."""
    code, out, err = run(ELSEWHERE, path, tmp_path / "mine", options=options)
    assert (code, out) == (-signal.SIGBUS, "before\n")
    assert ("Fatal Python error: Bus error" in err) == bool(options)


SENT = """
import os, signal, sys, time, logstore
if sys.argv[2] == "handled":
    signal.signal(signal.SIGBUS, lambda *_: print("mine", flush=True))
caught = lambda: int(next(
    line.split()[1] for line in open("/proc/self/status") if line.startswith("SigCgt")
), 16) >> (signal.SIGBUS - 1) & 1
before = caught()
store = logstore.open(sys.argv[1], background=False)
assert caught()
if sys.argv[2] != "closed":
    os.kill(os.getpid(), signal.SIGBUS)
    time.sleep(0)
store.close()
import gc; del store; gc.collect()
assert caught() == before
print("end", flush=True)
"""


@pytest.mark.parametrize(
    ("how", "code", "out"),
    [("handled", 0, "mine\nend\n"), ("plain", -signal.SIGBUS, ""), ("closed", 0, "end\n")],
)
def test_a_signal_that_is_sent_goes_to_who_was_there_before(
    path: Path, how: str, code: int, out: str
) -> None:
    assert run(SENT, path, how)[:2] == (code, out)


SECTOR = """
import sys, logstore
with logstore.open(sys.argv[1], background=False) as store:
    assert [int(e["n"]) for e in store.stream("s").range()] == list(range(2000))
    assert all(len(list(store.stream(f"other-{n}").range())) == 1 for n in range(400))
    store.stream("s").add({"n": "2000"})
print("whole")
"""


@pytest.mark.alone  # it mounts
@pytest.mark.parametrize("part", [0.3, 0.5, 0.7, 0.9])
def test_an_unreadable_page_of_the_index_costs_a_rebuild(tmp_path: Path, part: float) -> None:
    if why := why_none():
        print(why)
        pytest.skip(why)
    disk = SpoiledDisk(tmp_path / "disk")
    try:
        store = filled(disk.at / "store")
        (data,) = (store / "index").glob("*/data.mdb")
        pages = os.stat(data).st_size // PAGE_BYTES
        disk.spoil(*((data, page * PAGE_BYTES) for page in range(int(part * pages), pages)))
        code, out, err = run(SECTOR, store)
        assert (code, out) == (0, "whole\n"), (code, err)
    finally:
        disk.close()
