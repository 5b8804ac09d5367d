"""Prevents adds that came together from being answered, or refused, other than one by one."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore
from logstore.api.opening import OpenStore
from logstore.errors import DiskFullError
from logstore.wire.catalogue import service_of
from logstore.wire.session import RUN_MAX_REQUESTS, Batches, Session
from logstore.wire.steps import JoinedAdds
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import Served, serving

MOST = (1 << 64) - 1


def adds(key: bytes, *values: bytes) -> bytes:
    """A pipeline."""
    return b"".join(request([b"XADD", key, b"*", b"n", value]) for value in values)


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    with serving(tmp_path / "store", store={"lock_timeout": 0.3}) as found:
        yield found


def test_each_add_of_a_pipeline_has_its_own_reply(served: Served) -> None:
    with Line(served.port) as line:
        line.send(
            adds(b"s", b"1", b"2") + request([b"XLEN", b"s"]) + adds(b"t", b"3")
            + request([b"XADD", b"s", b"*", b"odd"]) + adds(b"s", b"4")
            + request([b"XADD", b"s", b"1-1", b"n", b"5"]) + adds(b"s", b"6", b"7")
        )  # fmt: skip
        found = [line.reply() for _ in range(9)]
        assert found[2] == 2
        assert [isinstance(each, Refusal) for each in found[3:]] == [
            False, True, False, True, False, False,
        ]  # fmt: skip
        there = [(id, fields[1]) for id, fields in line("XRANGE", "s", "-", "+")]
        ids = [found[at] for at in (0, 1, 5, 7, 8)]
        assert there == list(zip(ids, [b"1", b"2", b"4", b"6", b"7"], strict=True))
        assert served.service.counts.commands == 10


def test_when_the_ids_run_out_the_first_are_added_and_the_rest_refused(served: Served) -> None:
    with Line(served.port) as line:
        assert line("XADD", "s", f"{MOST}-{MOST - 2}", "a", "1")
        line.send(adds(b"s", b"1", b"2", b"3", b"4") + adds(b"t", b"5"))
        found = [line.reply() for _ in range(5)]
        assert found[:2] == [b"%d-%d" % (MOST, MOST - 1), b"%d-%d" % (MOST, MOST)]
        assert all("exhausted" in str(each) for each in found[2:4])
        assert isinstance(found[4], bytes)
        assert line("XLEN", "s") == 3


def test_between_multi_and_exec_adds_are_queued(served: Served) -> None:
    with Line(served.port) as line, Line(served.port) as other:
        line.send(request([b"MULTI"]) + adds(b"s", b"1", b"2"))
        assert [line.reply() for _ in range(3)] == [b"OK", b"QUEUED", b"QUEUED"]
        assert other("XLEN", "s") == 0
        line.send(request([b"EXEC"]) + adds(b"s", b"3"))
        assert len(line.reply()) == 2
        assert isinstance(line.reply(), bytes)
        assert other("XLEN", "s") == 3


def test_pipelined_adds_before_auth_are_refused_each(tmp_path: Path) -> None:
    with serving(tmp_path / "store", password=b"secret") as served, Line(served.port) as line:
        line.send(adds(b"s", b"1", b"2") + request([b"AUTH", b"secret"]) + adds(b"s", b"3", b"4"))
        found = [line.reply() for _ in range(5)]
        assert [isinstance(each, Refusal) for each in found] == [True, True, False, False, False]
        assert line("XLEN", "s") == 2


def test_client_reply_leaves_out_one_reply_or_all(served: Served) -> None:
    with Line(served.port) as line:
        line.send(request([b"CLIENT", b"REPLY", b"SKIP"]) + adds(b"s", b"1", b"2"))
        line.send(request([b"CLIENT", b"REPLY", b"OFF"]) + adds(b"s", b"3", b"4"))
        line.send(request([b"CLIENT", b"REPLY", b"ON"]) + request([b"XLEN", b"s"]))
        assert isinstance(line.reply(), bytes)
        assert [line.reply(), line.reply()] == [b"OK", 4]


def test_adds_that_meet_a_full_disk_are_refused_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise DiskFullError("the disk is full")

    with Line(served.port) as line:
        with monkeypatch.context() as patched:
            patched.setattr(OpenStore, "commit", full)
            line.send(adds(b"s", b"1", b"2", b"3"))
            assert all(str(line.reply()).startswith("MISCONF") for _ in range(3))
        line.send(adds(b"s", b"4"))
        assert isinstance(line.reply(), bytes)
        assert line("XLEN", "s") == 1


def test_when_the_disk_gets_full_those_that_fit_are_added(small_disk: Path) -> None:
    """As if they had come alone; none that was refused is there."""
    values = [os.urandom(900) for _ in range(60)]  # one read of the server
    with (
        serving(small_disk / "store", store={"segment_bytes": 1 << 20}) as served,
        Line(served.port) as line,
    ):
        acknowledged, found = 0, []
        while not any(isinstance(each, Refusal) for each in found):
            line.send(adds(b"s", *values))
            found = [line.reply() for _ in values]
            acknowledged += sum(isinstance(each, bytes) for each in found)
        refused = [isinstance(each, Refusal) for each in found]
        assert refused == sorted(refused)
        assert all(str(each).startswith("MISCONF") for each in found[refused.index(True) :])
        assert str(line("XADD", "s", "*", "n", values[0])).startswith("MISCONF")
        assert line("XLEN", "s") == acknowledged
        last = acknowledged - 60 * (acknowledged // 60)
        [[_, fields]] = line("XREVRANGE", "s", "+", "-", "COUNT", 1)
        assert fields[1] == values[last - 1]


def test_no_commit_is_as_large_as_all_that_a_client_sent(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "store", encoding=None) as store:
        session = Session(service_of(store), trusted=True)
        sent = adds(b"s", *[b"1"] * (2 * RUN_MAX_REQUESTS + 5))
        found = [
            sum(len(step.rows) for step in steps if isinstance(step, JoinedAdds))
            for steps in Batches(session).feed(sent)
        ]
        assert found == [RUN_MAX_REQUESTS, RUN_MAX_REQUESTS, 5]


@contextmanager
def held(store: Path) -> Iterator[None]:
    """LOCK held through another open file of it, as another process has it."""
    with (store / "LOCK").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_lock_that_is_held_elsewhere_holds_up_no_other_client(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        serving(store, store={"lock_timeout": 60.0}) as served,
        Line(served.port) as line,
        Line(served.port) as other,
    ):
        assert other("XLEN", "s") == 0
        with held(store):
            line.send(adds(b"s", b"1", b"2"))
            time.sleep(0.1)
            assert other("PING") == b"PONG"
            assert other("XLEN", "s") == 0
            assert not select.select([line._socket], [], [], 0)[0]  # they still wait
        assert [isinstance(line.reply(), bytes) for _ in range(2)] == [True, True]
        assert other("XLEN", "s") == 2


def test_a_lock_timeout_refuses_each_joined_add(served: Served, tmp_path: Path) -> None:
    with Line(served.port) as line:
        with held(tmp_path / "store"):
            line.send(adds(b"s", b"1", b"2"))
            assert [str(line.reply())[:4] for _ in range(2)] == ["BUSY", "BUSY"]
        line.send(adds(b"s", b"3"))
        assert isinstance(line.reply(), bytes)
        assert line("XLEN", "s") == 1


def test_pipelined_adds_survive_a_reopen(tmp_path: Path) -> None:
    values = [b"%d" % n for n in range(3000)]
    with serving(tmp_path / "store") as served, Line(served.port) as line:
        line.send(adds(b"s", *values))
        ids = [line.reply() for _ in values]
    with logstore.open(tmp_path / "store", encoding=None) as store:
        found = [(str(each.id).encode(), each.fields[b"n"]) for each in store.stream(b"s")]
        assert found == list(zip(ids, values, strict=True))
