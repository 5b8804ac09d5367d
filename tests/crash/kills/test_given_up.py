"""Prevents a failed write of LMDB's meta page from ending the work of a process.

LMDB serves an environment no more after that. The store opens it anew by itself, and what was in
the log counts. Which meta pages fail is drawn from LOGSTORE_SEED; torture takes all of them.
"""

from __future__ import annotations

import random
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.engine.commit import write_back
from logstore.recovery.check import check
from tests import figures, seeds
from tests.crash.kills import script, strace
from tests.crash.kills.strace import Hit

SEED = seeds.seed()
SAMPLE = 6
META = re.compile(r"^\d+ +pwrite64\(.*, 120, (?:32|4128)(?:\)| <unfinished)")
PWRITE = re.compile(r"^\d+ +pwrite64\(")
ADDS = 12


def metas(folder: Path) -> list[int]:
    """Which of the calls that were traced write a meta page."""
    lines = (folder / "trace").read_text(errors="replace").splitlines()
    writes = [line for line in lines if PWRITE.match(line)]
    return [number for number, line in enumerate(writes, 1) if META.match(line)]


def run(
    work: Callable[[], object], folder: Path, hit: Hit, ready: Callable[[], object] = lambda: None
) -> strace.Outcome:
    """Skip where strace may not attach."""
    try:
        return strace.run(work, folder, hit, ready)
    except strace.Refused as exc:
        pytest.skip(f"strace may not attach: {exc}")


def scripted(folder: Path, hit: Hit) -> strace.Outcome:
    """The workload, as in the other tests."""
    its = script.Script(folder, "os")
    return run(its.run, folder, hit, its.ready)


@pytest.mark.slow
@pytest.mark.timeout(300 if figures.times() == 1 else 7200)
def test_operations_go_on(tmp_path: Path) -> None:
    """Each operation happened, or raised a typed error; the next ones work, in the same handle."""
    if strace.STRACE is None:
        pytest.skip("strace is not installed: system calls cannot be made to fail")
    template = tmp_path / "template"
    template.mkdir()
    script.prepare(template)
    shutil.copytree(template, tmp_path / "count")
    scripted(tmp_path / "count", Hit())
    found = metas(tmp_path / "count")
    assert len(found) > 30
    rng = random.Random(SEED)
    drawn = found if figures.times() > 1 else rng.sample(found, SAMPLE)
    for place, number in enumerate(drawn):
        folder = tmp_path / str(place)
        shutil.copytree(template, folder)
        # LMDB writes what was there back: that may fail, too.
        hit = Hit("pwrite64", number, rng.choice(("EIO", "ENOSPC")), rng.randrange(2))
        outcome = scripted(folder, hit)
        assert outcome.injected, f"LOGSTORE_SEED={SEED}"
        told = script.settled(folder, outcome.killed)
        assert len(told) <= 1, f"LOGSTORE_SEED={SEED}, {hit}: {told}"
        assert "MDB_PANIC" not in str(told), f"LOGSTORE_SEED={SEED}, {hit}: {told}"
        shutil.rmtree(folder)


def adds_and_reads(path: Path) -> None:
    """A thread reads all the time; the first one adds, and none of them is told anything."""
    store = logstore.open(path, background=False, sync="os")
    stream, over, wrong = store.stream("a"), threading.Event(), list[BaseException]()

    def read() -> None:
        seen = 0
        try:
            while not over.is_set():
                now = len(list(stream))
                assert now >= seen
                seen = now
        except BaseException as exc:  # noqa: BLE001  told below
            wrong.append(exc)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(1, ADDS + 1):
        stream.add({"v": str(n)}, id=f"{n}-1")
        assert len(stream) == n
    over.set()
    reader.join()
    assert not wrong, wrong
    store.close()


@pytest.mark.slow
def test_an_add_whose_index_commit_fails_is_made_good(tmp_path: Path) -> None:
    """An add whose index commit fails so is made good at once, beside threads that read."""
    if strace.STRACE is None:
        pytest.skip("strace is not installed: system calls cannot be made to fail")

    def work(path: Path) -> None:
        write_back.INDEX_LAG_MAX_COMMITS = 0  # each add has an index commit
        adds_and_reads(path)

    def play(folder: Path, hit: Hit) -> strace.Outcome:
        folder.mkdir()
        path = folder / "store"
        logstore.open(path, background=False).close()
        return run(lambda: work(path), folder, hit)

    play(tmp_path / "count", Hit())
    of_adds = metas(tmp_path / "count")[-ADDS:]
    for number in of_adds[2], of_adds[5]:
        folder = tmp_path / str(number)
        assert play(folder, Hit("pwrite64", number, "EIO")).injected
        with logstore.open(folder / "store", background=False) as store:
            assert store.recovery["index_trusted"]
            assert [entry.id.ms for entry in store.stream("a")] == list(range(1, ADDS + 1))
        assert check(folder / "store").as_dict()["clean"]
