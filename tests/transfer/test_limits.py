"""Prevents an export that cannot be imported, and one stream that keeps all others out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logstore
from logstore.api.store import Store
from logstore.errors import InvalidPayloadError, TooLargeError
from logstore.ids import StreamID
from logstore.options import NAME_MAX_BYTES
from logstore.rdb import dump_payload
from logstore.rdb.rdb_writer import FileWriter
from logstore.rdb.value import ConsumerValue, GroupValue, StreamInfoValue, StreamValue
from logstore.transfer import export_file, import_file, import_server
from logstore.transfer.peer_server import Server
from tests.tools.commands import invoke
from tests.transfer.hostile import array, bulk, hostile, number
from tests.wire.lines import Line
from tests.wire.served import serving

LONGEST, TOO_LONG = b"n" * NAME_MAX_BYTES, b"n" * (NAME_MAX_BYTES + 1)
TOO_LARGE = "ERR Elements are too large to be stored"


def value(group: bytes, consumer: bytes) -> StreamValue:
    """A stream without entries, with a group that has a consumer."""
    made = GroupValue(group, StreamID(0, 0), 0, [ConsumerValue(consumer, 1, 1)])
    info = StreamInfoValue(0, StreamID(5, 0), StreamID(0, 0), StreamID(0, 0), 0, [made])
    return StreamValue([], info)


def file_of(path: Path, streams: dict[bytes, StreamValue]) -> Path:
    """An RDB file with these streams."""
    pieces: list[bytes] = []
    writer = FileWriter(pieces.append)
    for name, each in streams.items():
        writer.stream(name, len(each.nodes), each.nodes, each.info)
    writer.finish()
    path.write_bytes(b"".join(pieces))
    return path


FACES: dict[str, Callable[[Store[Any], bytes], object]] = {
    "add": lambda store, name: store.stream(name).add({"a": 1}),
    "rename": lambda store, name: (store.stream("s").add({"a": 1}), store.rename("s", name)),
    "group": lambda store, name: store.stream("s").group(name, start="0"),
    "consumer": lambda store, name: store.stream("s").group("g", start="0").read(name),
    "restore": lambda store, name: store.restore(name, dump_payload.encode(value(b"g", b"c"))),
    "group restored": lambda store, name: store.restore(
        "t", dump_payload.encode(value(name, b"c"))
    ),
    "consumer restored": lambda store, name: store.restore(
        "t", dump_payload.encode(value(b"g", name))
    ),
}


@pytest.mark.parametrize("face", FACES)
def test_the_api_has_the_limit(store: Store[Any], face: str) -> None:
    store.stream("s").add({"a": 1})
    with pytest.raises((TooLargeError, InvalidPayloadError), match=f"{NAME_MAX_BYTES}"):
        FACES[face](store, TOO_LONG)
    assert not any(len(name) > 1 for name in store.streams())
    FACES[face](store, LONGEST)


def test_the_wire_has_the_limit(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as served, Line(served.port) as line:
        line("XADD", "s", "1-1", "a", "1")
        line("XGROUP", "CREATE", "s", "g", "0")
        for words in (
            ("XADD", "@", "*", "a", "1"),
            ("XADD", "@", "2-0", "a", "1"),
            ("XGROUP", "CREATE", "@", "g", "0", "MKSTREAM"),
            ("XGROUP", "CREATE", "s", "@", "0"),
            ("XGROUP", "CREATECONSUMER", "s", "g", "@"),
            ("XREADGROUP", "GROUP", "g", "@", "STREAMS", "s", ">"),
            ("XCLAIM", "s", "g", "@", "0", "1-1"),
            ("XAUTOCLAIM", "s", "g", "@", "0", "0"),
            ("COPY", "s", "@"),
            ("RENAME", "s", "@"),
        ):
            too_long = [TOO_LONG if word == "@" else word for word in words]
            assert line(*too_long) == TOO_LARGE, words
            assert line("EXISTS", TOO_LONG) == 0
            line("DEL", LONGEST)
            longest = [LONGEST if word == "@" else word for word in words]
            assert line(*longest) != TOO_LARGE, words
        payload = line("DUMP", LONGEST)
        assert line("RESTORE", "t", 0, payload) == b"OK"
        assert line("DUMP", "t") == payload


def test_an_import_goes_on_past_what_it_cannot_take(store: Store[Any], tmp_path: Path) -> None:
    """And names it, with the reason, and ends with a code of its own."""
    empty = value(b"g", b"c")
    damaged = StreamValue([(bytes(16), b"\x07\x00\x00\x00\x00\x00\xff")], empty.info)
    path = file_of(tmp_path / "file.rdb", {
        b"first": empty, b"group": value(TOO_LONG, b"c"), b"consumer": value(b"g", TOO_LONG),
        TOO_LONG: empty, b"node": damaged, b"longest": value(LONGEST, LONGEST), b"last": empty,
    })  # fmt: skip
    report = import_file(store, path)
    assert store.streams() == [b"first", b"last", b"longest"]
    assert report.left_out == 4
    assert {name[:9] for name in report.reasons} == {b"group", b"consumer", b"node", b"n" * 9}
    assert all("65536" in why for name, why in report.reasons.items() if name != b"node")

    done = invoke("redis", "import", tmp_path / "other", path, "--json")
    assert done.exit_code == 3, done.output
    told = json.loads(done.stdout)
    assert (told["streams"], told["left_out"], len(told["reasons"])) == (3, 4, 4)
    assert invoke("check", tmp_path / "other").exit_code == 0


def compressed(data: bytes) -> bytes:
    """A file in which names that are too long stand compressed, as servers write them."""
    packed = b"\x00n" + b"\xe0\xff\x00" * 248 + b"\xe0\x37\x00"  # one letter, again and again
    size = b"\x80" + len(TOO_LONG).to_bytes(4, "big")
    assert size + TOO_LONG in data
    short = b"\xc3" + (0x4000 | len(packed)).to_bytes(2, "big") + size + packed
    return data.replace(size + TOO_LONG, short)[:-8] + bytes(8)  # without a checksum


def test_an_import_goes_on_past_compressed_names(store: Store[Any], tmp_path: Path) -> None:
    """Servers compress names of more than 20 bytes: they count as what they become."""
    empty = value(b"g", b"c")
    path = file_of(tmp_path / "file.rdb", {
        b"first": empty, b"group": value(TOO_LONG, b"c"), b"consumer": value(b"g", TOO_LONG),
        TOO_LONG: empty, b"last": empty,
    })  # fmt: skip
    path.write_bytes(compressed(path.read_bytes()))
    assert path.stat().st_size < len(TOO_LONG)
    report = import_file(store, path)
    assert store.streams() == [b"first", b"last"]
    assert {name[:9] for name in report.reasons} == {b"group", b"consumer", b"n" * 9}
    assert all("65536" in why for why in report.reasons.values())


def test_a_server_has_streams_that_cannot_be_taken(store: Store[Any]) -> None:
    """What is wrong with one payload, or one name, says nothing of the others."""
    good, names = dump_payload.encode(value(b"g", b"c")), [b"a", b"b", TOO_LONG, b"z"]
    with hostile(good) as server:
        server.script = {
            "SCAN": array(bulk(b"0"), array(*map(bulk, names))),
            "XINFO STREAM": array(
                bulk(b"length"), number(0), bulk(b"last-generated-id"), bulk(b"5-0")
            ),
            "PEXPIRETIME": lambda words: number(-1 if words[1] else -2),
            "DUMP": lambda words: bulk(good[:-1] if words[1] == b"b" else good),
        }
        with Server(server.url) as connection:
            report = import_server(store, connection)
    assert store.streams() == [b"a", b"z"]
    assert (report.streams, report.left_out) == (2, 2)
    assert b"b" in report.reasons


names = st.binary(min_size=1, max_size=20) | st.sampled_from(
    [b"", b"0", b"-7", b"\xff\x00", LONGEST]
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_export_can_be_imported(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """What a store can hold, another one takes from the first one's file, the same bytes."""
    path = tmp_path_factory.mktemp("export")
    how: Any = {"sync": "os", "background": False, "node_max_entries": 4}
    with logstore.open(path / "from", **how) as store:
        for name in data.draw(st.sets(names, min_size=1, max_size=4)):
            stream = store.stream(name)
            for _ in range(data.draw(st.integers(0, 9))):
                field, text = data.draw(names), data.draw(st.binary(max_size=40))
                stream.add([(field, text)])
            for group in data.draw(st.sets(names, max_size=3)):
                made = stream.group(group, start="0")
                for consumer in data.draw(st.sets(names.filter(bool), max_size=2)):
                    made.read(consumer, count=2)
        export_file(store, path / "file.rdb")
        with logstore.open(path / "to", **how) as other:
            report = import_file(other, path / "file.rdb")
            assert (report.left_out, report.reasons) == (0, {})
            assert other.streams() == store.streams()
            for name in store.streams():
                assert other.stream(name).dump() == store.stream(name).dump()
