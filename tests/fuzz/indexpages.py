"""Damaged pages of a closed store's index: right answers, typed errors, or an index built anew.

An input is a list of changes: the page, a place in it, how many bytes, these bytes. LMDB trusts its
pages, so the store is opened in a process of its own, which a page may end; whoever comes next must
find everything. What seems not to be there must be found by ``check``.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import signal
import struct
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

import logstore
from logstore.recovery.check import check
from tests.corruption import shop
from tests.corruption.pages import Reader

PAGE = 4096
PATIENCE_S = 60
_CHANGE = struct.Struct("<BHB")  # page, place, bytes that follow
ENDS = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE)
seen = {"read": 0, "ended": 0, "missed": 0}


def _seeds() -> list[bytes]:
    """A byte of each kind of page's head and rows, a page number, a page of noise."""
    found = [_CHANGE.pack(page, at, 2) + b"\xff\x7f" for page in (2, 5) for at in (0, 10, 12)]
    found += [_CHANGE.pack(page, at, 8) + b"\x07" * 8 for page in (4, 9) for at in (16, 900)]
    found.append(_CHANGE.pack(7, 0, 255) + bytes(range(255)))
    return [*found, found[0] + found[-1], _CHANGE.pack(1, 40, 4) + b"\x01\x02\x03\x04"]


SEEDS = _seeds()


@cache
def _made() -> tuple[Path, shop.Shop]:
    folder = Path(tempfile.mkdtemp(prefix="logstore-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = pickle.loads(_run_in_child(lambda: pickle.dumps(shop.make(folder / "made", 20)))[1])
    return folder, made


def damage(data: bytearray, changes: bytes) -> None:
    """Change the bytes of a data file as the input says."""
    at = 0
    while at + _CHANGE.size <= len(changes):
        page, place, size = _CHANGE.unpack_from(changes, at)
        at += _CHANGE.size
        start = page % (len(data) // PAGE) * PAGE + place % PAGE
        some = changes[at : at + size][: len(data) - start]
        data[start : start + len(some)] = some
        at += size


def _run_in_child(work: Callable[[], bytes]) -> tuple[int, bytes]:
    """Run something in a child: how it ended (a signal below 0), and what it told."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        code = 0
        try:
            signal.alarm(PATIENCE_S)
            os.close(read)
            told = work()
        except BaseException:  # noqa: BLE001  a child must not return into the fuzzer
            code, told = 1, traceback.format_exc().encode()
        with os.fdopen(write, "wb") as out:
            out.write(told)
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as into:
        told = into.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told


def _use(path: Path, made: shop.Shop) -> bytes:
    """Read everything; what seems not to be there is found by ``check``."""
    missed = 0
    try:
        with logstore.open(path, background=False) as store:
            reader = Reader(store, made)
            reader.everything()
            assert not reader.wrong, reader.wrong
            missed = sum(reader.seen[each] for each in ("absent", "twice", "deleted"))
    except logstore.Error:
        missed = 0  # whoever opens it next builds the index anew, or is told again
    if missed:
        assert check(path, careful=True).damage, reader.absences
    return b"missed" if missed else b"read"


def _all_there(path: Path, made: shop.Shop) -> bytes:
    with logstore.open(path, background=False) as store:
        for name, live in made.live.items():
            assert shop.entries(store, name) == live, name
    return b""


def one(data: bytes) -> None:
    """The store answers as it was, or says that it cannot; and can be opened again."""
    folder, made = _made()
    path = folder / "store"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made.path, path)
    file = next((path / "index").glob("*/data.mdb"))
    content = bytearray(file.read_bytes())
    damage(content, data)
    file.write_bytes(content)
    code, told = _run_in_child(lambda: _use(path, made))
    if code >= 0:
        assert code == 0, told.decode()
        seen[told.decode()] += 1
        return
    assert -code in ENDS, f"ended by signal {-code}"
    seen["ended"] += 1
    code, told = _run_in_child(lambda: _all_there(path, made))
    assert code == 0, f"ended by {code} once more: {told.decode()}"
