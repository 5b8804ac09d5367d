"""Prevents a segment that goes while a pin names it, and pins that outlive what they are for."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgpack
import pytest
from crc32c import crc32c

from logstore import format as fmt
from logstore.api.store import Store
from logstore.engine.maintenance import background_work
from logstore.engine.runtime import pins
from logstore.engine.shm import process_identity
from logstore.engine.shm.process_identity import Identity
from logstore.errors import FileSystemError, OptionError, SnapshotExpiredError
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import pinfile
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather
from tests.scan.scanned_stores import flip, make_plan, make_store, rows_of, split_rows
from tests.support.threads import run_all

NOW, TTL = 1_700_000_000_000, 1000


class NoWriting(FileSystem):
    """A store that may be read only."""

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        if write:
            raise FileSystemError(f"no permission while opening {path}")
        return super().open(path)


def test_a_new_pin_holds_all_there_is_and_then_what_it_names(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add_many(({"n": "x" * 300} for _ in range(1000)), batch=50)
    store_path = tmp_path / "s"
    there = {int(path.stem) for path in (store_path / "log").glob("*.log")}
    assert len(there) > 2
    assert pins.pinned_segments(LOCAL, store_path, NOW) == set()
    pin = pins.create(LOCAL, store_path, NOW, TTL)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == there
    pins.narrow(LOCAL, store_path, pin, {2, 3}, NOW, TTL)
    other = pins.create(LOCAL, store_path, NOW, TTL)
    pins.narrow(LOCAL, store_path, other, {3, 4}, NOW, TTL)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == {2, 3, 4}
    pins.release(LOCAL, store_path, pin.id)
    assert pins.pinned_segments(LOCAL, store_path, NOW) == {3, 4}


def test_a_pin_ends_by_time_and_takes_its_snapshot_along(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    pins.narrow(LOCAL, tmp_path, pin, {7}, NOW, TTL)
    snapshot = pinfile.snapshot_path(tmp_path, pin.id)
    snapshot.write_bytes(b"")
    (tmp_path / "pins" / f"{pin.id}.{'0' * 32}.tmp").write_bytes(b"left by a kill")
    assert pins.pinned_segments(LOCAL, tmp_path, NOW + TTL - 1) == {7}
    assert snapshot.exists()
    assert pins.pinned_segments(LOCAL, tmp_path, NOW + TTL) == set()
    assert list((tmp_path / "pins").iterdir()) == []
    with pytest.raises(SnapshotExpiredError, match="given back"):
        pins.renew(LOCAL, tmp_path, pin.id, NOW)


def test_a_pin_that_is_late_is_not_narrowed(tmp_path: Path) -> None:
    """Its segments may be gone already: it must not come back to life."""
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    with pytest.raises(SnapshotExpiredError):
        pins.narrow(LOCAL, tmp_path, pin, {7}, NOW + TTL, TTL)
    pins.release(LOCAL, tmp_path, pin.id)
    with pytest.raises(SnapshotExpiredError):
        pins.narrow(LOCAL, tmp_path, pin, {7}, NOW, TTL)
    assert list((tmp_path / "pins").iterdir()) == []


def test_pins_that_may_name_a_segment_are_revoked_before_it_is_removed(tmp_path: Path) -> None:
    """A pin that is being planned may name any; one of other segments stays."""
    held = [pins.create(LOCAL, tmp_path, NOW, TTL) for _ in range(3)]
    pins.narrow(LOCAL, tmp_path, held[0], {3, 4}, NOW, TTL)
    pins.narrow(LOCAL, tmp_path, held[1], {5}, NOW, TTL)
    for pin in held[:2]:
        pinfile.snapshot_path(tmp_path, pin.id).write_bytes(b"")
    assert pins.revoke(LOCAL, tmp_path, [4, 6]) == 2
    assert {path.name for path in (tmp_path / "pins").iterdir()} == {
        held[1].id, f"{held[1].id}.snap",
    }  # fmt: skip
    assert pinfile.check_planned(LOCAL, tmp_path, held[1].id, NOW).segments == {5}
    pinfile.snapshot_path(tmp_path, held[1].id).unlink()
    with pytest.raises(SnapshotExpiredError, match="load again"):
        pinfile.check_planned(LOCAL, tmp_path, held[1].id, NOW)


def test_a_pin_is_renewed_once_half_of_its_time_is_over(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    assert pins.renew(LOCAL, tmp_path, pin.id, NOW + 100) == pin
    longer = pins.renew(LOCAL, tmp_path, pin.id, NOW + 600)
    assert longer.expires_ms == NOW + 600 + TTL
    assert pinfile.read(LOCAL, tmp_path, pin.id) == longer
    # who may not write reads on, under the time that is left
    assert pins.renew(NoWriting(), tmp_path, pin.id, NOW + 1500) == longer
    with pytest.raises(SnapshotExpiredError):
        pins.renew(NoWriting(), tmp_path, pin.id, NOW + 600 + TTL)


def test_renewing_at_once_leaves_one_whole_pin(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    failed: list[BaseException] = []

    def renew(number: int) -> None:
        try:
            for step in range(20):
                pins.renew(LOCAL, tmp_path, pin.id, NOW + 600 * (step + 1))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=renew, args=(number,)) for number in range(4)]
    run_all(threads)
    expired = [error for error in failed if not isinstance(error, SnapshotExpiredError)]
    assert expired == []
    assert [path.name for path in (tmp_path / "pins").iterdir()] == [pin.id]
    assert pinfile.read(LOCAL, tmp_path, pin.id) is not None


def test_a_damaged_pin_holds_nothing(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    path = pinfile.path(tmp_path, pin.id)
    whole = path.read_bytes()
    for offset in range(len(whole)):
        flip(path, offset)
        assert pinfile.read(LOCAL, tmp_path, pin.id) is None
        path.write_bytes(whole)
    flip(path, 20)
    assert pins.pinned_segments(LOCAL, tmp_path, NOW) == set()
    assert not path.exists()


def test_orphans_go_and_strangers_stay(tmp_path: Path) -> None:
    pin = pins.create(LOCAL, tmp_path, NOW, TTL)
    folder = tmp_path / "pins"
    (folder / f"{'0' * 32}.snap").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    pinfile.snapshot_path(tmp_path, pin.id).write_bytes(b"")
    pins.pinned_segments(LOCAL, tmp_path, NOW)
    left = {path.name for path in folder.iterdir()}
    assert left == {pin.id, f"{pin.id}.snap", "notes.txt"}


def test_erasure_takes_every_pin(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store["x"].add({"secret": "a value in the open node"})
        made = make_plan(store, b"x")
        snapshot = pinfile.snapshot_path(tmp_path / "s", made.pin_id)
        assert b"a value in the open node" in snapshot.read_bytes()
        assert pins.revoke_all(LOCAL, tmp_path / "s") == 1
        assert list((tmp_path / "s" / "pins").iterdir()) == []


def test_an_erasure_removes_snapshot_files(tmp_path: Path) -> None:
    """The open node of a plan lies in its snapshot file, which no compaction rewrites."""
    with make_store(tmp_path / "s") as store:
        secret = store["x"].add({"secret": "a value in the open node"})
        made = make_plan(store, b"x")
        store["x"].add({"n": "1"})
        assert store["x"].delete(secret, purge=True) == 1
        for path in (tmp_path / "s").rglob("*"):
            assert not path.is_file() or b"a value in the open node" not in path.read_bytes(), path
        with pytest.raises(SnapshotExpiredError):
            pins.renew(LOCAL, tmp_path / "s", made.pin_id, NOW)


HOUR_MS = 3_600_000


def fill(store: Store[bytes], count: int = 2000) -> None:
    """Several segments of one stream."""
    store["x"].add_many(
        (((n, 0), {"n": n, "text": "t" * 200}) for n in range(1, count + 1)), batch=100
    )


def files(store: Path, ending: str = "") -> list[str]:
    """What lies in pins/."""
    return [path.name for path in (store / "pins").iterdir() if path.name.endswith(ending)]


def someone() -> subprocess.Popen[bytes]:
    """A process that waits."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_a_pin_goes_with_the_process_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with someone() as owner, make_store(path, background=False) as store:
        fill(store)
        made = make_plan(store, b"x", owner=process_identity.identity(owner.pid))
        (pin,) = pins.living(LOCAL, path, store._engine().clock.now_ms())
        assert (pin.id, pin.pid, pin.purpose) == (made.pin_id, owner.pid, "")
        assert pins.owner(pin) == process_identity.identity(owner.pid)
        owner.kill()
        owner.wait()
        assert pins.pinned_segments(LOCAL, path, store._engine().clock.now_ms()) == set()
        assert files(path) == []
        with pytest.raises(SnapshotExpiredError):
            split_rows(made)


def test_the_background_gives_back_what_the_dead_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_work, "PINS_LOOK_S", 0.1)
    with someone() as owner, make_store(tmp_path / "s") as store:
        fill(store)
        make_plan(store, b"x", owner=process_identity.identity(owner.pid))
        time.sleep(1)
        assert len(files(tmp_path / "s")) == 2
        owner.kill()
        owner.wait()
        until = time.monotonic() + 60
        while files(tmp_path / "s") and time.monotonic() < until:
            time.sleep(0.05)
        assert files(tmp_path / "s") == []


def test_an_owner_of_a_pin_is_gone_only_if_seen_to_be() -> None:
    with someone() as owner:
        there = process_identity.identity(owner.pid)
        owner.kill()
        owner.wait()
    assert there.is_gone()
    assert there._replace(pid=1, start=there.start + 1).is_gone()  # another one has the pid
    assert not process_identity.identity().is_gone()
    assert not there._replace(system="another boot:1").is_gone()
    assert not there._replace(system="").is_gone()
    assert not there._replace(start=0).is_gone()


def test_the_nearest_ancestor_of_a_name() -> None:
    code = (
        "import os; from logstore.engine.shm import process_identity as process; "
        "print(process.ancestor('sh'), process.ancestor('nobody'), os.getppid())"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -c "{code}"; true', sys.executable], check=True,
        capture_output=True, text=True, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip
    found, none, parent = map(int, done.stdout.split())
    assert (found, none) == (parent, 0)


@pytest.fixture
def store(tmp_path: Path) -> Store[bytes]:
    return make_store(tmp_path / "s", background=False)


def ticking(step_ms: int) -> Callable[[], int]:
    """A clock that goes on with each look."""
    now = [time.time_ns() // 1_000_000]

    def look() -> int:
        now[0] += step_ms
        return now[0]

    return look


def test_a_pin_lives_as_long_as_somebody_reads(store: Store[bytes], tmp_path: Path) -> None:
    with store:
        fill(store)
        split = make_plan(store, b"x", min_partitions=1).splits[0]
        clock = ticking(10 * 60 * 1000)
        batches = split_reads.batches(split, Gather(batch_rows=4), now_ms=clock)
        found = sum(batch.num_rows for batch in batches)
        assert found == 2000
        assert clock() - time.time_ns() // 1_000_000 > 24 * HOUR_MS
        pin = pinfile.read(LOCAL, tmp_path / "s", split.pin_id)
        assert pin is not None
        assert pin.expires_ms - clock() <= HOUR_MS
        with pytest.raises(SnapshotExpiredError, match="ran out"):
            list(split_reads.batches(split, Gather(batch_rows=4), now_ms=ticking(40 * HOUR_MS)))


def test_a_reader_of_an_expired_pin_gets_an_error(store: Store[bytes]) -> None:
    """And does not read on in segments that may have gone."""
    with store:
        fill(store)
        split = make_plan(store, b"x", min_partitions=1).splits[0]
        now = [time.time_ns() // 1_000_000]
        batches = split_reads.batches(split, Gather(batch_rows=4), now_ms=lambda: now[0])
        next(batches)
        now[0] += HOUR_MS + 1
        with pytest.raises(SnapshotExpiredError):
            list(batches)


def test_a_lease_is_an_hour_at_most(store: Store[bytes]) -> None:
    with store:
        fill(store, 10)
        for wrong in (0, HOUR_MS + 1):
            with pytest.raises(OptionError):
                make_plan(store, b"x", ttl_ms=wrong)


def test_plans_of_one_position_share_a_pin_and_a_file(store: Store[bytes], tmp_path: Path) -> None:
    path = tmp_path / "s"
    with store:
        fill(store)
        made = [make_plan(store, b"x", min_partitions=3) for _ in range(13)]
        assert made.count(made[0]) == 13
        assert len(files(path)) == 2
        assert len(files(path, ".snap")) == 1
        wanted = rows_of(store["x"])
        assert split_rows(made[12]) == wanted
        others = [
            make_plan(store, b"x", min_partitions=2),
            make_plan(store, b"x", min_partitions=3, end=store["x"].first.id),
            make_plan(store, b"x", min_partitions=3, owner=process_identity.identity(1)),
        ]
        assert len({each.pin_id for each in (made[0], *others)}) == 4
        store["x"].add({"n": "more"})
        after = make_plan(store, b"x", min_partitions=3)
        assert after.pin_id != made[0].pin_id
        assert split_rows(after) == rows_of(store["x"])
        assert split_rows(made[0]) == wanted


def test_a_shared_file_that_is_damaged_is_left_alone(store: Store[bytes], tmp_path: Path) -> None:
    with store:
        fill(store)
        first = make_plan(store, b"x")
        snapshot = pinfile.snapshot_path(tmp_path / "s", first.pin_id)
        flip(snapshot, snapshot.stat().st_size - 1)
        second = make_plan(store, b"x")
        assert second.pin_id != first.pin_id
        assert split_rows(second) == rows_of(store["x"])
        snapshot.unlink()
        pinfile.snapshot_path(tmp_path / "s", second.pin_id).unlink()
        assert split_rows(make_plan(store, b"x")) == rows_of(store["x"])


def test_a_pin_of_an_older_version_holds_until_its_end(store: Store[bytes], tmp_path: Path) -> None:
    with store:
        fill(store)
        now_ms = store._engine().clock.now_ms()
        (tmp_path / "s" / "pins").mkdir(exist_ok=True)
        for expires_ms in (now_ms + HOUR_MS, now_ms - 1):
            id = pinfile.new_id()
            body = msgpack.packb(
                {"id": id, "segments": [1], "expires_ms": expires_ms, "ttl_ms": 1, "pid": 1}
            )
            head = fmt.PIN_HEAD.pack(fmt.PIN_MAGIC, fmt.FORMAT_VERSION, crc32c(body))
            pinfile.path(tmp_path / "s", id).write_bytes(head + body)
        (info,) = store.pins()
        assert (info.pid, info.host, info.since, info.segments) == (1, "", None, 1)
        assert pins.pinned_segments(LOCAL, tmp_path / "s", now_ms) == {1}


def test_pins_tell_owner_purpose_and_time(store: Store[bytes], tmp_path: Path) -> None:
    path = tmp_path / "s"
    with store:
        fill(store)
        before = datetime.now(UTC)
        assert store.pins() == []
        assert (store.info().pins, store.metrics()["pins"]) == (0, 0)
        made = make_plan(store, b"x", purpose="spark")
        (info,) = store.pins()
        assert (info.id, info.purpose) == (made.pin_id, "spark")
        me = process_identity.identity()
        assert (info.host, info.pid) == (me.host, me.pid)
        assert info.since is not None
        assert abs((info.since - before).total_seconds()) < 60
        assert 0 < (info.until - info.since).total_seconds() <= 3600 + 60
        assert info.snapshot_bytes == pinfile.snapshot_path(path, made.pin_id).stat().st_size
        assert info.segment_bytes > 300_000
        told = store.info()
        assert (told.pins, told.pinned_bytes) == (1, info.segment_bytes + info.snapshot_bytes)
        assert store.metrics()["pinned_bytes"] == told.pinned_bytes
        assert told.oldest_pin_ms == int(info.since.timestamp() * 1000)
        store["x"].trim(max_entries=0, approximate=False)
        log = path / "log"
        report = store.compact()
        held = sum(each.stat().st_size for each in log.glob("*.log"))
        assert report.segments_pinned > 2
        assert report.pinned_bytes > 300_000
        (by,) = report.pinned_by
        assert f"spark of process {me.pid} on {me.host}, since 2" in by
        assert made.pin_id in by
        with pytest.raises(OptionError, match="no pin"):
            store.release_pins("0" * 32)
        assert store.release_pins(made.pin_id) == 1
        assert store.release_pins() == 0
        assert files(path) == []
        again = store.compact()
        assert (again.segments_pinned, again.pinned_by) == (0, [])
        assert sum(each.stat().st_size for each in log.glob("*.log")) < held - 300_000


def test_an_export_that_is_read_slowly_keeps_its_pin(store: Store[bytes], tmp_path: Path) -> None:
    from logstore.engine.dump import export

    with store:
        fill(store)
        engine = store._engine()
        with export.pinned(engine, b"x") as found:
            (pin,) = store.pins()
            assert (pin.purpose, pin.pid) == ("dump", process_identity.identity().pid)
            assert len(list(found.nodes(engine))) == found.node_count
        assert store.pins() == []


def test_identities_are_plain_values() -> None:
    me = process_identity.identity()
    assert Identity(*me) == me
    assert me.pid > 0
    assert me.start > 0
