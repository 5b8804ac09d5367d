"""Prevents what a killed RESTORE left from being seen, or from staying when it is done again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import logstore
from logstore.api.opening import opened_of
from logstore.engine.dump import payloads
from logstore.engine.snapshots import snapshot
from logstore.errors import TooLargeError
from logstore.ids import ZERO_ID, StreamID
from logstore.options import IMPORTING
from logstore.rdb import dump_payload
from logstore.rdb.value import GroupValue, StreamInfoValue, StreamValue
from logstore.wire.catalogue import service_of
from logstore.wire.session import Session

GROUPS = 30_000
SOON_S = 120
RESTORE = """
import sys, logstore
with logstore.open(sys.argv[1]) as store:
    store.restore("s", open(sys.argv[2], "rb").read())
"""


def payload(groups: int) -> bytes:
    """A stream without entries, of so many groups."""
    made = [GroupValue(b"%d" % at, ZERO_ID, 0) for at in range(groups)]
    return dump_payload.encode(
        StreamValue([], StreamInfoValue(0, StreamID(5, 0), ZERO_ID, ZERO_ID, 0, made))
    )


def names(store: logstore.Store[bytes]) -> list[bytes]:
    """All records of the index."""
    return snapshot.read(
        opened_of(store).engine(),
        lambda view: [record.name for record in view.index.records()],
    )


def test_leftovers_of_a_killed_restore_are_hidden_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(payload(GROUPS))
    with logstore.open(tmp_path / "store") as store:
        store.stream(b"other").add({b"f": b"v"})
        child = subprocess.Popen(
            [sys.executable, "-c", RESTORE, str(tmp_path / "store"), str(file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        deadline = time.monotonic() + SOON_S
        while IMPORTING + b"s" not in names(store):
            assert child.poll() is None
            assert time.monotonic() < deadline
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert sorted(names(store)) == [IMPORTING + b"s", b"other"]
    with logstore.open(tmp_path / "store") as store:
        assert sorted(names(store)) == [IMPORTING + b"s", b"other"]
        assert store.streams() == [b"other"]
        assert len(store) == 1
        service = service_of(store)
        session = Session(service)
        lines = (b"KEYS *", b"DBSIZE", b"SCAN 0", b"EXISTS s", b"RANDOMKEY")
        steps = [session.step(line.split()) for line in lines]
        replies = [[b"other"], 1, [b"0", [b"other"]], 0, b"other"]
        assert [session.database.runner.run([step])[0] for step in steps] == replies
        store.restore(b"s", file.read_bytes())
        assert sorted(names(store)) == [b"other", b"s"]
        assert store.stream(b"s").info().groups == GROUPS


def test_leftovers_of_a_failed_restore_are_removed(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise TooLargeError("the last of its commits is refused")

    with logstore.open(tmp_path / "store") as store:
        prepared = payloads.prepared(payload(3000))
        with pytest.raises(TooLargeError):
            payloads.restore_prepared(
                opened_of(store).commit, b"s", prepared, replace=False, last=fail
            )
        assert names(store) == []
