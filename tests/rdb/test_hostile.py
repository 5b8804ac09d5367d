"""Prevents a payload that crashes, hangs, takes memory for what it only says, changes a store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logstore
from logstore.api.store import Store
from logstore.api.stream import Stream
from logstore.engine.dump import restore
from logstore.errors import (
    Error,
    IDOrderError,
    InvalidPayloadError,
    StreamExistsError,
    TooLargeError,
)
from logstore.ids import StreamID
from logstore.rdb import codes, dump_payload
from logstore.rdb.rdb_reader import Reader
from logstore.rdb.rdb_writer import length
from logstore.rdb.value import ConsumerValue, GroupValue, StreamInfoValue, StreamValue
from tests.rdb.bodies import body, signed


def sample(store: Store[bytes]) -> bytes:
    """A payload with all that one can have."""
    stream = store.stream("sample")
    for at in range(1, 13):
        stream.add({"f": at, "g": b"x" * at} if at % 3 else {"h": b"other"}, id=(at, 0))
    stream.delete("3-0", "9-0")
    group = stream.group("g", start="0")
    group.read("alice", count=4)
    group.read("bob", count=3)
    stream.group("123", start="5-0")
    return stream.dump()


@pytest.fixture
def payload(store: Store[bytes]) -> bytes:
    """The sample, of a store that holds it too."""
    return sample(store)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store for many examples, and the sample."""
    path: Path = tmp_path_factory.mktemp("hostile") / "store"
    with logstore.open(path, sync="os", background=False, node_max_entries=5) as store:
        yield store, sample(store)


def refused(store: Store[bytes], hostile: bytes) -> bool:
    """Whether it is refused with an error of ours; what is not must come back as it was."""
    before = store.stream("sample").dump()
    try:
        made = store.restore("new", hostile, replace=True)
    except Error:
        assert store.stream("sample").dump() == before
        return True
    again = made.dump()
    assert store.restore("new", again, replace=True).dump() == again
    use(made)
    store.drop("new")
    return False


def use(stream: Stream[bytes]) -> None:
    """What was taken in can be worked with."""
    ids = [entry.id for entry in stream.range()]
    assert len(ids) == len(stream)
    assert [entry.id for entry in stream.range(reverse=True)] == ids[::-1]
    assert all(stream.get(id) is not None for id in ids)
    with suppress(IDOrderError):  # forged to the last ID there can be
        ids.append(stream.add({"a": 1}))
    for group in stream.groups():
        stream.group(group.name).read("alice")
        stream.group(group.name).autoclaim("bob", min_idle=0)
    assert stream.delete(*ids[:2]) == 2
    stream.trim(max_entries=1, approximate=False)
    assert [entry.id for entry in stream.range()] == ids[-1:]
    stream.dump()


def test_cut_off_at_every_byte(store: Store[bytes], payload: bytes) -> None:
    value = body(payload)
    for size in range(len(value)):
        assert refused(store, payload[:size])
        assert refused(store, signed(value[:size]))
    assert store.streams() == [b"sample"]


def test_every_byte_flipped_is_refused(store: Store[bytes], payload: bytes) -> None:
    for at in range(len(payload)):
        hostile = bytearray(payload)
        hostile[at] ^= 0x10
        assert refused(store, bytes(hostile))
    assert store.streams() == [b"sample"]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_forged_bytes_with_a_right_checksum(held: Any, data: st.DataObject) -> None:
    store, payload = held
    value = bytearray(body(payload))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value) - 1))
        piece = data.draw(
            st.sampled_from([b"\x81" + b"\xff" * 8, b"\x80\xff\xff\xff\xff", b"\xc3", b"\x00"])
            | st.binary(min_size=1, max_size=9)
        )
        value[at : at + data.draw(st.integers(0, len(piece)))] = piece
    refused(store, signed(bytes(value)))


@settings(max_examples=300, deadline=None)
@given(noise=st.binary(max_size=200), kind=st.sampled_from(codes.STREAMS))
def test_noise_is_refused(held: Any, noise: bytes, kind: int) -> None:
    refused(held[0], signed(bytes((kind,)) + noise, 14))


@pytest.mark.parametrize(
    "forged",
    [
        b"\x15" + length(1 << 62),  # nodes
        b"\x15\x01\x10" + bytes(15) + b"\x01" + b"\x81" + b"\x7f" + b"\xff" * 7,  # a string
        b"\x15\x01\x10" + bytes(15) + b"\x01\xc3\x05" + length(1 << 40) + b"abcde",  # unpacked
        b"\x15\x01\x10" + bytes(15) + b"\x01\xc3" + length(1 << 40) + length(1 << 29),  # packed
        b"\x15\x00\x00" + b"\x00" * 7 + length(1 << 62),  # groups
        b"\x15\x00\x00" + b"\x00" * 7 + b"\x01\x01g\x00\x00\x00" + length(1 << 62),  # pending
        b"\x15\x00\x00" + b"\x00" * 7 + b"\x01\x01g\x00\x00\x00\x00" + length(1 << 62),
        b"\x1a\x00\x00" + b"\x00" * 8 + length(9) * 2 + length(1 << 62),  # producers
        b"\x1a\x00\x00" + b"\x00" * 8 + length(9) * 2 + b"\x01\x01p" + length(1 << 62),
    ],
)
def test_a_forged_length_takes_no_memory(forged: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidPayloadError):
            dump_payload.decode(signed(forged, 13))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


COUNTED = [
    (b"\x15", length(1000), "1000 nodes"),
    (b"\x15\x00" + bytes(8), length(1002), "1002 groups"),
    (b"\x15\x00" + bytes(8) + b"\x01\x01g\x00\x00\x00", length(300), "300 pending"),
    (b"\x15\x00" + bytes(8) + b"\x01\x01g\x00\x00\x00\x00", length(600), "600 consumers"),
    (b"\x1a\x00" + bytes(9) + b"\x09\x09", length(2600), "2600 producers"),
    (b"\x1a\x00" + bytes(9) + b"\x09\x09\x01\x01p", length(1700), "1700 idempotent IDs"),
    (b"\x1a\x00" + bytes(9) + b"\x09\x09\x01\x01p", length(10_001), "10001 idempotent IDs"),
]


@pytest.mark.parametrize(("head", "count", "why"), COUNTED, ids=[each[2] for each in COUNTED])
def test_counts_are_held_against_the_bytes_that_are_left(
    head: bytes, count: bytes, why: str
) -> None:
    """At once, before the first of them is read."""
    rest = bytes(40_000 if "10001" in why else 5000)
    with pytest.raises(InvalidPayloadError, match=rf"{why}.* \(at byte {len(head + count) - 1}\)"):
        dump_payload.decode(signed(head + count + rest, 13))


def test_an_idempotent_id_that_stands_twice_is_refused_where_it_does() -> None:
    """Not behind the other two million."""
    head = b"\x1a\x00" + bytes(9) + b"\x09\x09\x01\x01p" + length(9000)
    with pytest.raises(InvalidPayloadError, match=rf"twice \(at byte {len(head) + 4 + 2 - 1}\)"):
        dump_payload.decode(signed(head + b"\x01a\x01\x00" * 9000 + bytes(2), 13))


def test_more_with_a_consumer_than_with_its_group_is_refused() -> None:
    head = b"\x15\x00" + bytes(8) + b"\x01\x01g\x00\x00\x00" + b"\x00" + b"\x01\x01c" + bytes(16)
    with pytest.raises(InvalidPayloadError, match="more is pending with a consumer"):
        dump_payload.decode(signed(head + b"\x02" + bytes(32)))


def test_very_many_groups_take_a_small_multiple_of_their_bytes() -> None:
    """Redis takes thirteen bytes for each of these; as values they take half a kilobyte."""
    count = 20_000
    groups = [b"\x06%06d" % at + bytes(5) for at in range(count)]
    payload = signed(b"\x15\x00" + bytes(8) + length(count) + b"".join(groups))
    del groups
    tracemalloc.start()
    try:
        value = dump_payload.decode(payload)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(payload)
        assert value.info.packed is not None
        assert len(value.info.packed) == count
        assert tracemalloc.get_traced_memory()[0] < 3 * len(payload)
    finally:
        tracemalloc.stop()
    assert dump_payload.encode(value) == payload


def test_lzf_that_expands_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.rdb.rdb_reader.EXPANDED_MAX_BYTES", 1 << 20)
    packed = b"\x00a" + b"\xe0\xff\x00" * 303  # one a, then 264 more, again and again
    bomb = Reader((b"\xc3" + length(len(packed)) + length(79_993) + packed) * 20)
    for _ in range(13):
        assert bomb.string() == b"a" * 79_993
    with pytest.raises(InvalidPayloadError, match="more than"):
        bomb.string()


def test_a_version_that_cannot_be_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPayloadError, match="version or checksum"):
        dump_payload.decode(signed(body(payload), 0))


def test_types_that_are_no_streams_are_refused_by_number(payload: bytes) -> None:
    for kind in set(range(256)) - set(codes.STREAMS):
        with pytest.raises(InvalidPayloadError, match=f"type {kind} "):
            dump_payload.decode(signed(bytes((kind,)) + body(payload)[1:]))


def test_bytes_behind_the_stream_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPayloadError, match="behind"):
        dump_payload.decode(signed(body(payload) + b"\x00"))


def test_an_existing_stream_stays(store: Store[bytes], payload: bytes) -> None:
    store.stream("other").add({"a": 1}, id="1-1")
    before = store.stream("other").dump()
    with pytest.raises(StreamExistsError, match="BUSYKEY"):
        store.restore("other", payload)
    with pytest.raises(InvalidPayloadError):
        store.restore("other", payload[:-1], replace=True)
    assert store.stream("other").dump() == before
    store.restore("other", payload, replace=True)
    assert store.stream("other").dump() == payload


Change = Callable[[StreamValue], object]


def _info(**values: Any) -> Change:
    def change(value: StreamValue) -> None:
        for name, each in values.items():
            setattr(value.info, name, each)

    return change


def _pending(time_ms: int = 0, owner: int = 1) -> Change:
    def change(value: StreamValue) -> None:
        group = GroupValue(b"new", StreamID(0, 0), 0, [ConsumerValue(b"c", 0, 0)])
        group.pending.add(bytes(16), time_ms, 1, owner)
        value.info.groups.append(group)

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_info(length=11), "10 entries and says 11"),
        (_info(entries_added=9), "9 were added"),
        (_info(last=StreamID(11, 0)), "last ID"),
        (_info(max_deleted=StreamID(13, 0)), "last ID"),
        (lambda value: value.nodes.reverse(), "order"),
        (lambda value: value.nodes.append(value.nodes[-1]), "order"),
        (lambda value: value.nodes.pop(), "entries and says 10"),
        (lambda value: value.info.groups.append(value.info.groups[0]), "the same name"),
        (_pending(time_ms=-1), "delivery at -1"),
    ],
)
def test_inconsistent_payloads_are_refused(
    store: Store[bytes], payload: bytes, change: Change, match: str
) -> None:
    value = dump_payload.decode(payload)
    change(value)
    with pytest.raises(InvalidPayloadError, match=match):
        store.restore("new", dump_payload.encode(value))
    assert b"new" not in store


def test_overlapping_nodes_are_refused(store: Store[bytes], payload: bytes) -> None:
    """Servers take them, and then do not find what is in them."""
    value = dump_payload.decode(payload)
    (_, first), (second, other), *rest = value.nodes
    for nodes in (
        [(second, first), ((100 << 64).to_bytes(16, "big"), other), *rest],
        [(value.nodes[0][0], first), (value.nodes[0][0][:-1] + b"\x01", other), *rest],
    ):
        forged = StreamValue(sorted(nodes), value.info)
        with pytest.raises(InvalidPayloadError):
            store.restore("new", dump_payload.encode(forged))


def test_too_large_a_stream_is_refused_before_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, store: Store[bytes], payload: bytes
) -> None:
    monkeypatch.setattr(restore, "INSTALL_MAX_BYTES", 500)
    with pytest.raises(TooLargeError, match="add_many"):
        store.restore("new", payload)
    monkeypatch.setattr(dump_payload, "PAYLOAD_MAX_BYTES", 100)
    with pytest.raises(TooLargeError, match="RDB file"):
        store.restore("new", payload)
    with pytest.raises(TooLargeError, match="RDB file"):
        store.stream("sample").dump()
    with pytest.raises(TooLargeError, match="RDB file"):
        dump_payload.encode(StreamValue([(bytes(16), bytes(101))], StreamInfoValue()))
