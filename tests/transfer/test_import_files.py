"""Prevents files that come in other than they are, by halves, or twice; hostile ones above all."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.api.store import Store
from logstore.errors import (
    Error,
    FileSystemError,
    InvalidPayloadError,
    OptionError,
    StreamExistsError,
)
from logstore.rdb import codes, dump_payload
from logstore.rdb.codes import crc64
from logstore.rdb.rdb_writer import FileWriter
from logstore.transfer import Wanted, export_file, import_file, stream_intake
from tests.peers import servers
from tests.peers.servers import Peer
from tests.rdb.bodies import body
from tests.rdb.workload import fill
from tests.store.conftest import OpenStore
from tests.support.inside import FixedClock, delete_index
from tests.tools.commands import COMMAND, environment, invoke, objects, ok
from tests.transfer.dumps import dumps, ours

pytestmark = pytest.mark.peers


def saved(peer: Peer) -> Path:
    """The RDB file of all that a server has."""
    peer.command("SAVE")
    return Path(peer.command("CONFIG", "GET", "dir")[1].decode()) / "dump.rdb"


def small_pieces(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    """Let pieces be small, and what is read at once smaller than some nodes."""
    monkeypatch.setattr("logstore.transfer.rdb_files.PIECE_BYTES", piece_bytes)
    monkeypatch.setattr("logstore.transfer.stream_intake.PIECE_BYTES", piece_bytes)
    if piece_bytes < 1000:
        monkeypatch.setattr("logstore.transfer.rdb_files.READ_BYTES", 300)


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1])
def test_a_file_comes_in_as_it_is_in_one_commit_or_many(
    peer: Peer, store: Store[bytes], monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    small_pieces(monkeypatch, piece_bytes)
    for seed in range(12):
        fill(peer, f"s{seed}", seed)
    wanted = dumps(peer)
    report = import_file(store, saved(peer))
    assert ours(store) == wanted
    assert report.streams == 12
    again = import_file(store, saved(peer))
    assert (again.streams, again.same) == (0, 12)
    assert ours(store) == wanted


def test_an_import_survives_a_lost_index_and_a_checkpoint(
    peer: Peer, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, 1)
    for seed in range(3):
        fill(peer, f"s{seed}", seed)
    store = open_store()
    extend = stream_intake.Intake.extend

    calls = 0

    def with_checkpoints(self: Any, temporary: Any, edge: Any, piece: Any) -> Any:
        nonlocal calls
        calls += 1
        found = extend(self, temporary, edge, piece)
        if calls % 3 == 1:
            store.checkpoint()
        return found

    monkeypatch.setattr(stream_intake.Intake, "extend", with_checkpoints)
    import_file(store, saved(peer))
    assert calls > 6
    for _ in range(2):
        assert ours(store) == dumps(peer)
        store.close()
        delete_index(store.path)
        store = open_store()


def test_import_of_chosen_skipped_and_replaced_streams(peer: Peer, store: Store[bytes]) -> None:
    for name in ("race:a", "race:b", "other"):
        fill(peer, name, len(name))
    peer.command("SET", "text", "x")
    file = saved(peer)
    report = import_file(store, file, Wanted([b"race:[a]", b"oth?r"], b"old:"))
    assert store.streams() == [b"old:other", b"old:race:a"]
    assert report.other_keys == {"string": 1}
    store.stream("race:a").add({"mine": 1})
    with pytest.raises(StreamExistsError, match="another stream"):
        import_file(store, file, Wanted([b"race:*"]))
    assert import_file(store, file, Wanted([b"race:*"], policy="skip")).kept == 1
    assert store.stream("race:a").last is not None
    assert b"race:b" in store.streams()
    import_file(store, file, Wanted([b"race:*"], policy="replace"))
    assert body(store.stream("race:a").dump()) == dumps(peer)[b"race:a"]


def test_streams_expire_when_they_would_there(
    peer: Peer, store: Store[bytes], clock: FixedClock
) -> None:
    now_ms = 1000 * int(peer.command("TIME")[0])
    for name in "abc":
        peer.command("XADD", name, "1-1", "f", "v")
    peer.command("PEXPIREAT", "a", now_ms + 100_000)
    peer.command("PEXPIREAT", "b", now_ms + 900_000)
    clock.ms = now_ms + 500_000
    report = import_file(store, saved(peer))
    assert (report.streams, report.expired) == (2, 1)
    assert store.streams() == [b"b", b"c"]
    clock.ms = now_ms + 900_000
    assert store.streams() == [b"c"]


def test_another_database_is_asked_for(peer: Peer, store: Store[bytes]) -> None:
    pipe = peer.client.pipeline(transaction=True)
    pipe.execute_command("SELECT", 3)
    pipe.execute_command("XADD", "three", "1-1", "f", "v")
    pipe.execute_command("SELECT", 0)
    pipe.execute_command("XADD", "zero", "1-1", "f", "v")
    pipe.execute()
    assert import_file(store, saved(peer)).other_databases == 1
    assert store.streams() == [b"zero"]
    import_file(store, saved(peer), database=3)
    assert store.streams() == [b"three", b"zero"]


def test_a_payload_in_a_file(peer: Peer, store: Store[bytes], tmp_path: Path) -> None:
    fill(peer, "s", 3)
    file = tmp_path / "payload"
    file.write_bytes(peer.command("DUMP", "s"))
    with pytest.raises(OptionError, match="--name"):
        import_file(store, file)
    import_file(store, file, Wanted(prefix=b"p:"), name=b"s")
    assert ours(store) == {b"p:s": dumps(peer)[b"s"]}
    with pytest.raises(OptionError, match="names of its streams"):
        import_file(store, saved(peer), name=b"s")
    with pytest.raises(FileSystemError, match="no file"):
        import_file(store, tmp_path / "nowhere")


# -- hostile --------------------------------------------------------------------------------------
def test_a_file_that_is_cut_off_changes_nothing(
    redis_peer: Peer, store: Store[bytes], tmp_path: Path
) -> None:
    fill(redis_peer, "s", 2, steps=9)
    data = saved(redis_peer).read_bytes()
    file = tmp_path / "cut.rdb"
    for size in range(0, len(data), 5):
        file.write_bytes(data[:size])
        with pytest.raises((InvalidPayloadError, OptionError)):
            import_file(store, file)
    rng = random.Random(1)
    for _ in range(100):
        at = rng.randrange(9, len(data))
        file.write_bytes(data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :])
        with pytest.raises(InvalidPayloadError):
            import_file(store, file)
    file.write_bytes(data + b"*1\r\n")
    with pytest.raises(InvalidPayloadError, match="append-only"):
        import_file(store, file)
    assert store.streams() == []


@pytest.mark.parametrize("signed", [True, False])
def test_an_import_of_a_damaged_file_takes_whole_streams(
    redis_peer: Peer, store: Store[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    signed: bool,
) -> None:  # fmt: skip
    """With a checksum that fits, or none, as a server that was told not to reckon it writes."""
    small_pieces(monkeypatch, 200)
    for seed in range(3):
        fill(redis_peer, f"s{seed}", seed, steps=25)
    wanted = dumps(redis_peer)
    data = saved(redis_peer).read_bytes()[:-8]
    file = tmp_path / "forged.rdb"
    rng = random.Random(2)
    refused = 0
    for _ in range(150):
        at = rng.randrange(9, len(data))
        forged = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        forged = forged[: rng.choice((len(forged), at))]
        file.write_bytes(forged + (crc64(forged) if signed else 0).to_bytes(8, "little"))
        try:
            import_file(store, file, Wanted(policy="replace"))
        except Error:
            refused += 1
        for name in store.streams():
            assert not name.startswith(b"__importing__")
            store.stream(name).dump()
            assert len(store.stream(name)) == sum(1 for _ in store.stream(name))
            store.drop(name)
    assert refused > 50
    import_file(store, saved(redis_peer))
    assert ours(store) == wanted


@pytest.mark.parametrize("piece_bytes", [1 << 20, 1])
@pytest.mark.parametrize("most", [codes.LISTPACKS, codes.LISTPACKS_3])
def test_a_length_that_is_not_that_of_its_nodes_is_told(
    store: Store[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    piece_bytes: int,
    most: int,
) -> None:
    """Servers load such a stream, as old ones wrote it, and show the entries that are there."""
    small_pieces(monkeypatch, piece_bytes)
    stream = store.stream("x")
    stream.add_many([{"n": n} for n in range(300)])
    want = [*stream.range()]
    for said in (302, 299, 1):
        value = dump_payload.decode(stream.dump())
        value.info.length, file = said, tmp_path / f"{said}.rdb"
        with file.open("wb") as written:
            writer = FileWriter(written.write, most=most)
            writer.stream(b"x", len(value.nodes), value.nodes, value.info)
            writer.finish()
        store.drop("x")
        report = import_file(store, file)
        assert (report.streams, report.entries, report.left_out) == (1, 300, 0)
        assert report.notes == [f"x: the file says {said} entries and has 300; those were imported"]
        assert [*stream.range()] == want
        assert len(stream) == 300
        assert import_file(store, file).same == 1


# -- kills and commands ---------------------------------------------------------------------------
def test_an_import_that_is_killed_is_begun_again_and_goes_on(
    redis_peer: Peer, tmp_path: Path
) -> None:
    for place in range(40):
        rows = [("XADD", f"s{place:02}", f"{at}-1", "f", "x" * 200) for at in range(1, 60)]
        redis_peer.pipeline([*rows, ("XGROUP", "CREATE", f"s{place:02}", "g", "30-1")])
    redis_peer.pipeline([
        ("XADD", "large", f"{at}-1", "f", "x" * 40_000) for at in range(1, 1000)
    ])  # fmt: skip
    wanted, file = dumps(redis_peer), saved(redis_peer)
    path = tmp_path / "store"
    seen = set()
    for moment in range(12):
        process = subprocess.Popen(
            [*COMMAND, "redis", "import", str(path), str(file), "--json"], env=environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while not (path / "LOCK").exists():
            time.sleep(0.005)
        time.sleep(0.02 + 0.025 * moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with logstore.open(path) as store:
            here = {n: d for n, d in ours(store).items() if not n.startswith(b"__importing__")}
        assert all(wanted[name] == found for name, found in here.items())
        seen.add(len(here))
        if len(here) == len(wanted):
            break
        if moment % 4 == 3:
            shutil.rmtree(path)
    print(f"killed with {sorted(seen)} of {len(wanted)} streams")
    report = objects(ok("redis", "import", path, file, "--json"))[0]
    assert report["streams"] + report.get("same", 0) == len(wanted)
    with logstore.open(path) as store:
        assert ours(store) == wanted
    ok("check", path)


def test_the_command(redis_peer: Peer, tmp_path: Path) -> None:
    fill(redis_peer, "s", 1)
    file, path = saved(redis_peer), tmp_path / "store"
    assert objects(ok("redis", "import", path, file, "--json"))[0]["streams"] == 1
    assert "same" in ok("redis", "import", path, file)
    with logstore.open(path) as store:
        store.stream("s").add({"mine": 1})
    refused = invoke("redis", "import", path, file, "--json")
    assert refused.exit_code == 1
    assert objects(refused.stderr)[0]["error"] == "StreamExistsError"
    for wrong in (["--replace", "--skip"], ["--follow"], ["--trim", "all"]):
        assert invoke("redis", "import", path, file, *wrong).exit_code == 2
    assert invoke("redis", "import", path, tmp_path / "x").exit_code == 1
    out = tmp_path / "out.rdb"
    ok("redis", "import", path, file, "--replace", "--yes")
    ok("redis", "export", path, out)
    assert invoke("redis", "export", path, out).exit_code == 2 - 1
    ok("redis", "export", path, out, "--replace", "--yes", "--prefix", "x:")
    ok("redis", "import", path, out)
    with logstore.open(path) as store:
        assert ours(store) == {b"s": dumps(redis_peer)[b"s"], b"x:s": dumps(redis_peer)[b"s"]}


def test_a_server_loads_a_file_that_has_schemas(
    peer: Peer, store: Store[bytes], tmp_path: Path
) -> None:
    """A note that it does not know it passes over, also between two keys."""
    for name in ("s", "t"):
        store.stream(name).configure(schema="a int, note string?" + " " * 20_000)
        store.stream(name).add({"a": 5}, "1-1")
    store.stream("wide").configure(schema=", ".join(f"column{at} double?" for at in range(900)))
    store.stream("plain").add({"a": 5}, "1-1")
    export_file(store, tmp_path / "dump.rdb")
    (tmp_path / "server").mkdir()
    data = (tmp_path / "dump.rdb").read_bytes()
    with servers.loaded(peer.name, tmp_path / "server", data) as server:
        assert sorted(server.command("KEYS", "*")) == [b"plain", b"s", b"t", b"wide"]
        for name in ("plain", "s", "t"):
            assert server.command("XRANGE", name, "-", "+") == [[b"1-1", [b"a", b"5"]]]
        data = saved(server).read_bytes()
    again = logstore.open(tmp_path / "again")
    (tmp_path / "saved.rdb").write_bytes(data)
    import_file(again, tmp_path / "saved.rdb")
    assert again.stream("s").schema is None  # a server writes no note of others
    again.close()
