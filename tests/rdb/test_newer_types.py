"""Prevents the types of servers that could not be run from being read other than documented.

What stands here is built by hand, after the documentation: type 26 of Redis 8.6 (idempotent adds)
and type 27 of Redis 8.8 (entries that were given back).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import redis

import logstore
from logstore.api.dump import Peer
from logstore.api.store import Store
from logstore.engine.dump import export
from logstore.errors import InvalidPayloadError, OptionError
from logstore.ids import StreamID
from logstore.rdb import codes, dump
from logstore.rdb.value import Idempotence
from logstore.rdb.writer import length, string
from logstore.transfer import Server, export_file, export_server, import_file
from logstore.wire.table import Profile
from tests.rdb.bodies import body, signed
from tests.store.conftest import OpenStore
from tests.support.inside import FixedClock, delete_index
from tests.wire.served import serving

PLAIN = Idempotence(60, 10, [(b"p", [(b"one", StreamID(5, 0)), (b"two", StreamID(6, 0))])], 7, 2)


def stream(store: Store[bytes]) -> bytes:
    """A stream's value of type 21 with a group, four entries pending with alice and bob."""
    made = store.stream("from")
    for at in range(1, 9):
        made.add({"f": at}, id=(at, 0))
    group = made.group("g", start="0")
    group.read("alice", count=2)
    group.read("bob", count=2)
    return body(made.dump())


def tail(found: Idempotence) -> bytes:
    """What stands behind the groups from type 26 on."""
    parts = [length(found.duration_s), length(found.max_ids), length(len(found.producers))]
    for name, items in found.producers:
        parts += [string(name), length(len(items))]
        for own, id in items:
            parts += [string(own), length(id.ms), length(id.seq)]
    return b"".join([*parts, length(found.added), length(found.duplicates)])


def with_nacked(value: bytes, *given_back: bytes, line: tuple[bytes, ...] | None = None) -> bytes:
    """Type 27 of a value of type 21 with one group: entries of alice's are given back."""
    alice = value.rindex(b"\x05alice") + 6 + 16
    count, of_alice = value[alice], alice + 1
    assert count == 2
    rest = value[of_alice + 32 :]
    kept = [value[at : at + 16] for at in (of_alice, of_alice + 16)]
    kept = [id for id in kept if id not in given_back]
    nacked = given_back if line is None else line
    return b"".join([
        b"\x1b", value[1:alice], length(len(kept)), *kept, rest, length(len(nacked)), *nacked,
        tail(Idempotence(100, 100, [], 0, 0)),
    ])  # fmt: skip


def id_of(at: int) -> bytes:
    """An ID, packed."""
    return StreamID(at, 0).packed()


def test_what_is_idempotent_stays_so(open_store: OpenStore, clock: FixedClock) -> None:
    clock.ms = 10_000
    store = open_store()
    made = store.restore("s", signed(b"\x1a" + stream(store)[1:] + tail(PLAIN), 13))
    for _ in range(2):
        made = store.stream("s")
        assert made.settings.idempotent_duration_s == 60
        assert made.settings.idempotent_max_ids == 10
        assert made.add({"f": 1}, producer="p", idempotent_id="two") == (6, 0)
        assert len(made) == 8
        found = export.read(store._engine(), b"s").info.idempotence
        assert found is not None
        assert found.producers == PLAIN.producers
        assert found.added == 7
        store.checkpoint()
        store.close()
        delete_index(store.path)
        store = open_store()
    assert store.stream("s").add({"f": 1}, producer="q", idempotent_id="two") == (10_000, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"duration_s": 0}, {"duration_s": 86_401}, {"max_ids": 0}, {"max_ids": 10_001},
        {"added": 1 << 63}, {"duplicates": 1 << 64 - 1}, {"producers": PLAIN.producers * 2},
        {"producers": [(b"", [])]}, {"producers": [(b"p", [(b"", StreamID(1, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(1, 0)), (b"b", StreamID(1, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(1, 0)), (b"a", StreamID(2, 0))])]},
        {"producers": [(b"p", [(b"a", StreamID(9, 0))])]},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(store: Store[bytes], change: dict[str, Any]) -> None:
    forged = Idempotence(*(
        change.get(name, getattr(PLAIN, name)) for name in PLAIN.__slots__
    ))  # fmt: skip
    value = stream(store)
    with pytest.raises(InvalidPayloadError):
        store.restore("s", signed(b"\x1a" + value[1:] + tail(forged), 13))
    assert store.streams() == [b"from"]


def test_what_was_given_back_stands_in_its_order(store: Store[bytes]) -> None:
    value = stream(store)
    made = store.restore("s", signed(with_nacked(value, id_of(2), id_of(1)), 14))
    group = made.group("g")
    assert group.pending().consumers == {b"bob": 2}
    assert [each.id.ms for each in group.autoclaim("eve", min_idle=0, count=2).entries] == [2, 1]
    assert store.restore("t", signed(b"\x15" + value[1:])).group("g").pending().count == 4


@pytest.mark.parametrize("line", [(1,), (1, 2, 2), (2, 2), (1, 3), (1, 9), ()])
def test_a_line_that_does_not_fit_is_refused(store: Store[bytes], line: tuple[int, ...]) -> None:
    ids = tuple(map(id_of, line))
    with pytest.raises(InvalidPayloadError):
        dump.decode(signed(with_nacked(stream(store), id_of(1), id_of(2), line=ids), 14))


def test_cut_off_at_every_byte(store: Store[bytes]) -> None:
    value = stream(store)
    for whole in (with_nacked(value, id_of(1)), b"\x1a" + value[1:] + tail(PLAIN)):
        dump.decode(signed(whole, 14))
        for size in range(1, len(whole)):
            with pytest.raises(InvalidPayloadError):
                dump.decode(signed(whole[:size], 14))


def test_valkey_has_no_such_types(store: Store[bytes]) -> None:
    value = with_nacked(stream(store), id_of(1))
    with pytest.raises(InvalidPayloadError, match="type 27"):
        dump.decode(signed(value, codes.VALKEY_VERSION))


def test_very_many_idempotent_ids_take_many_commits(store: Store[bytes]) -> None:
    """And are remembered as if they had come in one."""
    value = stream(store)
    plain = export.read(store._engine(), b"from")
    many = Idempotence(
        60, 10_000,
        [(b"p%d" % each, [(b"%d" % at, StreamID(0, 6000 * each + at + 1)) for at in range(6000)])
         for each in range(2)], 12_000, 3,
    )  # fmt: skip
    payload = signed(b"\x1a" + value[1:] + tail(many), 13)
    assert dump.decode(payload).info.many
    store.restore("new", payload)
    found = export.read(store._engine(), b"new")
    assert found.info.idempotence == many
    assert found.nodes == plain.nodes
    assert b"new" in store.streams()
    assert len(store.streams()) == 2


# -- written --------------------------------------------------------------------------------------
NOTHING = Idempotence(100, 100, [], 0, 0)


def shop(store: Store[bytes]) -> bytes:
    """``s`` with what only the newer types hold: entries that were given back, idempotent IDs. Its
    value of type 27, built by hand after the documentation."""
    nodes, name, rest = stream(store).partition(b"\x01\x01g")  # one group
    for id in (id_of(1), id_of(2)):  # delivered at time 0, once, as XNACK leaves it
        rest = re.sub(re.escape(id) + b".{8}\x01", id + bytes(8) + b"\x01", rest, flags=re.DOTALL)
    value = with_nacked(nodes + name + rest, id_of(2), id_of(1))
    value = value[: -len(tail(NOTHING))] + tail(PLAIN)
    store.restore("s", signed(value, 14))
    return value


def lost(store: Store[bytes], name: str) -> tuple[Any, list[int], bool]:
    """What types before them lose: idempotent IDs, in which order what was given back stands, and
    that nobody has it."""
    found = store.stream(name)
    idempotent = export.read(store._engine(), name.encode()).info.idempotence
    group = found.group("g")
    line = [entry.id.ms for entry in group.autoclaim("eve", min_idle=0, count=2).entries]
    return idempotent, line, b"" in {each.name for each in group.consumers()}


def test_what_is_written_is_as_documented(store: Store[bytes]) -> None:
    """Types 26 and 27 were read and never written, so that an export lost what they hold."""
    wanted = shop(store)
    made = store.stream("s")
    assert made.dump(peer="redis-8.8") == signed(wanted, 14)
    for peer, kind, version in (("redis-8.6", 26, 13), ("redis", 21, 11), ("valkey", 21, 11),
                                (None, 21, 11)):  # fmt: skip
        given: Any = peer
        payload = made.dump(peer=given)
        assert (payload[0], payload[-10:-8]) == (kind, version.to_bytes(2, "little"))
        assert payload.endswith(signed(payload[:-10], version)[-8:])
    store.restore("back", made.dump(peer="redis-8.8"))
    assert lost(store, "back") == (PLAIN, [2, 1], False)
    store.restore("six", made.dump(peer="redis-8.6"))
    assert lost(store, "six") == (PLAIN, [1, 2], True)


def test_a_type_is_no_newer_than_it_has_to_be(store: Store[bytes]) -> None:
    """So that as many servers as can take a payload."""
    value = stream(store)
    assert store.stream("from").dump(peer="redis-8.8") == signed(value, 11)
    store.restore("p", signed(b"\x1a" + value[1:] + tail(PLAIN), 13))
    assert store.stream("p").dump(peer="redis-8.8") == signed(b"\x1a" + value[1:] + tail(PLAIN), 13)
    store.restore("n", signed(with_nacked(value, id_of(1)), 14))
    assert store.stream("n").dump(peer="redis-8.6")[0] == 21
    with pytest.raises(OptionError, match=r"'redis-8\.6', 'redis-8\.8', 'valkey' or None"):
        store.stream("n").dump(peer="redis-9")  # type: ignore[arg-type]


def test_a_file_brings_back_what_a_newer_server_knows(store: Store[bytes], tmp_path: Path) -> None:
    wanted = shop(store)
    store.drop("from")
    for peer, head, found in (
        ("redis-8.8", b"REDIS0014", (PLAIN, [2, 1], False)),
        ("redis-8.6", b"REDIS0013", (PLAIN, [1, 2], True)),
        ("redis", b"REDIS0011", (None, [1, 2], True)),
    ):
        path, given = tmp_path / f"{peer}.rdb", cast("Peer", peer)
        export_file(store, path, peer=given)
        assert path.read_bytes().startswith(head)
        assert (b"\x1b\x01s" + wanted[1:] in path.read_bytes()) == (peer == "redis-8.8")
        with logstore.open(tmp_path / peer) as to:
            import_file(to, path)
            assert lost(to, "s") == found


@pytest.mark.parametrize(("profile", "kept"), [
    ("redis-8.10", (PLAIN, [2, 1], False)), ("redis-8.2", (None, [1, 2], True)),
    ("valkey-9.2", (None, [1, 2], True)),
])  # fmt: skip
def test_a_server_gets_what_it_knows(
    store: Store[bytes], clock: FixedClock, tmp_path: Path, profile: Profile, kept: Any
) -> None:
    """By what its INFO tells; its DUMP has it, too."""
    shop(store)
    store.drop("from")
    with serving(tmp_path / "served", profile=profile, store={"clock": clock}) as served:
        with Server(f"redis://127.0.0.1:{served.port}/0") as server:
            export_server(store, server)
        with redis.Redis(port=served.port) as client:
            payload = client.dump("s")
            assert isinstance(payload, bytes)
            store.restore("there", payload)
            assert payload[0] == (27 if profile == "redis-8.10" else 21)
        assert lost(store, "there") == kept
        assert lost(served.service.store, "s") == kept


@pytest.mark.parametrize("knows", [True, False])
def test_a_large_stream_brings_it_by_commands(tmp_path: Path, knows: bool) -> None:
    """Where the server takes them; else the report says so."""
    profile: Profile = "redis-8.10" if knows else "redis-8.2"
    with (
        logstore.open(tmp_path / "here", encoding=None, background=False) as store,
        serving(tmp_path / "served", profile=profile) as served,
    ):
        stream = store.stream("t")
        ids = [stream.add({"n": 1}, producer=b"p", idempotent_id=own) for own in (b"1", b"2")]
        group = stream.group("g", start="0")
        assert len(group.read("c", count=2)) == 2
        assert group.nack(ids[0]) == 1
        with Server(f"redis://127.0.0.1:{served.port}/0") as server:
            report = export_server(store, server, dump_max_bytes=-1)
        there = served.service.store
        kept = export.read(there._engine(), b"t").info.idempotence
        group = there.stream("t").group("g")
        consumers = {each.name: each.pending for each in group.consumers()}
        assert len(list(group.pending_entries())) == 2
    assert consumers == ({b"c": 1} if knows else {b"c": 1, b"": 1})
    assert [kept.producers if kept else []] == (
        [[(b"p", [(b"1", ids[0]), (b"2", ids[1])])]] if knows else [[]]
    )
    assert any("idempotent IDs of b't' were not all carried" in note for note in report.notes) is (
        not knows
    )
