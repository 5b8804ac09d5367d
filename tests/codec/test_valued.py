"""Prevents values of a codec that are encoded, found or decoded otherwise than one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import pytest

from logstore.api.entry import Fields, entry_maker
from logstore.codec import Codec, pure
from logstore.errors import InvalidEntryError

MISSING = object()


def text(value: Any) -> bytes:
    """An encoder."""
    return repr(value).encode()


def test_rows_are_encoded_on_the_way(codec: Codec) -> None:
    rows: list[Any] = [{"a": None, "b": [1]}, {"a": 2, "b": ()}, [("a", 1), ("a", 2)], {b"c": {}}]
    batch = codec.Encoders(lambda: text).rows(rows)
    expected = [[b"a", b"None", b"b", b"[1]"], [b"a", b"2", b"b", b"()"],
                [b"a", b"1", b"a", b"2"], [b"c", b"{}"]]  # fmt: skip
    assert [batch.flat(place) for place in range(len(batch))] == expected
    fields = {"a": None, "b": [1]}
    assert codec.Encoders(lambda: text).fields(fields) == {"a": b"None", "b": b"[1]"}
    assert fields == {"a": None, "b": [1]}


@pytest.mark.parametrize("wrong", ["text", None, 5, bytearray(b"x")])
def test_an_encoder_that_gives_no_bytes(codec: Codec, wrong: Any) -> None:
    encoders = codec.Encoders(lambda: lambda _value: wrong)
    for call in (lambda: encoders.fields({"a": 1}), lambda: encoders.rows([{"a": 1}])):
        with pytest.raises(TypeError, match="not bytes"):
            call()
    for no_dict in ([("a", 1)], None, "a"):
        with pytest.raises(TypeError):
            encoders.fields(no_dict)
    with pytest.raises(InvalidEntryError):
        encoders.rows([{}])


def test_an_error_of_an_encoder_is_raised(codec: Codec) -> None:
    made: list[int] = []

    def make() -> Callable[[Any], bytes]:
        made.append(len(made))
        return lambda value: text(1 // value)

    encoders = codec.Encoders(make)
    for call in (lambda: encoders.fields({"a": 0}), lambda: encoders.rows([{"a": 1}, {"a": 0}])):
        with pytest.raises(ZeroDivisionError):
            call()
    assert encoders.fields({"a": 1}) == encoders.fields({"a": 1}) == {"a": b"1"}
    assert made == [0, 1, 2]  # one that raised is used no more, one that did not is


def test_an_encoder_that_changes_the_row_it_is_called_for(codec: Codec) -> None:
    """It runs while the row is gone through: nothing that was freed is touched."""
    for change in (dict.clear, lambda row: row.update({f"n{n}": [n] for n in range(100)})):
        rows: list[dict[str, Any]] = [{"a": ["x"], "b": ["y"]} for _ in range(3)]

        def encode(value: Any, change: Any = change, rows: Any = rows) -> bytes:
            change(rows[1])
            return text(value)

        # RuntimeError, InvalidEntryError: a row was seen to change, or has no field any more.
        with suppress(RuntimeError, InvalidEntryError):
            codec.rows(rows, encode)
        for row in rows:
            with suppress(RuntimeError):
                codec.Encoders(lambda encode=encode: encode).fields(row)


def test_each_call_has_an_encoder_to_itself(codec: Codec) -> None:
    """Also one that is made while another one encodes: in its thread, or in another one."""
    inside: list[int] = []
    encoders: Any = None

    def make() -> Callable[[Any], bytes]:
        busy = [False]

        def encode(value: Any) -> bytes:
            assert not busy[0]
            busy[0] = True
            if value and len(inside) < 20:
                inside.append(value)
                assert encoders.fields({"x": value - 1}) == {"x": text(value - 1)}
                other = threading.Thread(target=encoders.rows, args=([{"x": 0}],))
                other.start()
                other.join()
            busy[0] = False
            return text(value)

        return encode

    encoders = codec.Encoders(make)
    assert encoders.fields({"a": 3, "b": 2}) == {"a": b"3", "b": b"2"}


FLATS: list[Any] = [
    (), (b"a", b"1"), [b"a", b"1", b"b", b"a"], ("a", "1", "ä", "2", "a", "3"),
    (b"a", b"1", "ä".encode(), b"2", b"a", b"3", b"\xff", b"4"),
]  # fmt: skip


@pytest.mark.parametrize("flat", FLATS)
def test_a_value_is_found_as_in_the_mapping(codec: Codec, flat: Any) -> None:
    encoding = "utf-8" if flat and isinstance(flat[0], str) else None
    fields: Any = Fields(flat, encoding)
    for name in ("a", b"a", "b", "ä", "ä".encode(), b"\xff", "\udcff", "1", 5, None, "a" * 99):
        found = codec.field_value(flat, name, encoding, MISSING)
        assert found is MISSING or found == fields[name]
        assert found is pure.field_value(flat, name, encoding, MISSING)
        if type(name) is str and name.isascii():
            assert (found is MISSING) == (name not in fields)


def test_a_value_is_decoded_when_it_is_found(codec: Codec) -> None:
    class Reading:
        decode = staticmethod(int)

    flat = (b"a", b"1", b"b", b"no number")
    assert codec.field_value(flat, "a", Reading, MISSING) == 1
    with pytest.raises(ValueError, match="no number"):
        codec.field_value(flat, "b", Reading, MISSING)
    assert codec.decoded_pairs(flat[:2], int) == [("a", 1)]
    assert codec.decoded_pairs((b"\xff", b"1", "ä", b"2"), int) == [("\udcff", 1), ("ä", 2)]
    with pytest.raises(ValueError, match="no value"):
        codec.decoded_pairs((b"a",), int)


def test_names_are_text_also_of_very_many(codec: Codec) -> None:
    flat = [part for n in range(10_000) for part in (b"name %d \xff" % n, b"1")]
    made = codec.FieldsMaker(Fields, True).make(flat, None)
    assert list(made._items) == [f"name {n} \udcff" for n in range(10_000)]


def test_entries_know_how_they_are_read(codec: Codec) -> None:
    lp = pure.new_node(5, 1, [b"a", b"1"])
    for encoding in (None, "utf-8"):
        plain: Any = entry_maker(encoding).entries(lp, 5, 1)
        maker = codec.EntryMaker(type(plain[0]), type(plain[0].id), encoding, MISSING)
        (made,) = maker.entries(lp, 5, 1)
        assert made == plain[0]
        assert made._encoding is MISSING


def test_unpacking_has_our_options(codec: Codec) -> None:
    unpack = codec.Unpacking(msgpack.unpackb).unpack
    assert unpack(msgpack.packb({1: "x"})) == {1: "x"}
    moment = msgpack.Timestamp(5, 0)
    assert unpack(msgpack.packb(moment)) == moment.to_datetime()
    with pytest.raises(ValueError, match="extra"):
        unpack(b"\x01\x02")
