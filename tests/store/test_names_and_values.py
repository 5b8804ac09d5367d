"""Prevents names and values that are cut, mixed up, or come back as other text."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore import EntryTypeError, InvalidEntryError, OptionError, TooLargeError
from logstore.api.store import Store
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import delete_index

NAMES = [
    b"", b"\0", b"a\0b", b"a", b"/", b"..", b"../../etc/passwd", b"\xff\xfe", b" ", "é".encode(),
    b"n" * 399, b"n" * 400, b"n" * 401, b"n" * 402, b"x" * 65536, b"y" + b"x" * 65535, b"h" * 33,
]  # fmt: skip


def test_any_bytes_are_a_stream_s_name(store: Store[bytes], open_store: OpenStore) -> None:
    for place, name in enumerate(NAMES):
        store.stream(name).add({"place": place}, id="1-1")
    assert store.streams() == sorted(NAMES)
    store.drop(NAMES[-2])
    store.close()
    delete_index(store.path)
    store = open_store()
    for place, name in enumerate(NAMES):
        entry = store.stream(name).get("1-1")
        assert (entry is None) == (name == NAMES[-2])
        assert entry is None or entry.fields["place"] == b"%d" % place
        assert store.stream(name).name == name
    inside = {file for _, _, files in os.walk(store.path) for file in files}
    assert not [file for file in inside if "passwd" in file or "xxx" in file]


def test_a_name_of_a_class_of_its_own(store: Store[bytes]) -> None:
    class Name(bytes):
        """Bytes, and more."""

    id = store.stream(Name(b"a")).add({"n": "1"})
    for _ in range(2):
        for name in (Name(b"a"), b"a"):
            assert store.stream(name)[id]["n"] == b"1"
            assert [entry.id for entry in store.stream(name).range(count=1)] == [id]


@pytest.mark.parametrize("name", [None, 5, True, bytearray(b"a"), ("a",)])
def test_an_invalid_name_is_refused(store: Store[bytes], name: object) -> None:
    with pytest.raises(EntryTypeError, match="str or bytes"):
        store.stream(name)  # type: ignore[arg-type]


def test_a_name_over_the_limit(store: Store[bytes]) -> None:
    with pytest.raises(TooLargeError, match="65536"):
        store.stream(b"x" * 65537)


def test_repeated_field_names_survive(store: Store[bytes]) -> None:
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1")]
    stream = store.stream("s")
    for ms in (1, 2):
        stream.add(pairs, id=(ms, 0))
    for entry in stream:
        assert entry.pairs == [(name.encode(), value.encode()) for name, value in pairs]
        assert dict(entry.fields) == {b"a": b"1", b"b": b"2"}  # the last one wins
        assert (entry.fields["a"], entry.fields[b"a"], len(entry.fields)) == (b"1", b"1", 2)
        assert "a" in entry.fields
        assert "\udc80\ud800" not in entry.fields


def test_all_types_of_values(store: Store[bytes]) -> None:
    values = {
        "s": "é\0",
        "b": b"\xff\0",
        "i": -(10**30),
        "f": 0.1,
        "inf": float("-inf"),
        7: 1e100,
        b"": "",
    }
    store.stream("s").add(values, id="1-1")
    assert store.stream("s")["1-1"].pairs == [
        (b"s", "é\0".encode()), (b"b", b"\xff\0"), (b"i", b"-1" + b"0" * 30), (b"f", b"0.1"),
        (b"inf", b"-inf"), (b"7", b"1e+100"), (b"", b""),
    ]  # fmt: skip


flats = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=90)), min_size=1, max_size=6)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(flats, min_size=1, max_size=20), single=st.booleans())
def test_names_and_values_round_trip(
    store: Store[bytes], rows: list[list[tuple[bytes, bytes]]], single: bool
) -> None:
    stream = store.stream(b"t\0")
    store.drop(b"t\0")
    if single:
        for row in rows:
            stream.add(row)
    else:
        stream.add_many(rows, batch=3)
    assert [entry.pairs for entry in stream] == rows
    assert [stream[entry.id] for entry in stream] == list(stream)
    everything(store)


def test_large_names_and_values(store: Store[bytes], open_store: OpenStore) -> None:
    stream = store.stream("s")
    sizes = [0, 63, 64, 4095, 4096, 65535, 65536, 1 << 20]
    for place, size in enumerate(sizes, 1):
        stream.add({b"n" * size: b"v" * size, b"other": b"1"}, id=(place, 0))
    before = everything(store)
    store.close()
    delete_index(store.path)
    store = open_store()
    assert everything(store) == before
    for place, size in enumerate(sizes, 1):
        assert store.stream("s")[place, 0].pairs[0] == (b"n" * size, b"v" * size)


@pytest.fixture(params=["utf-8", "UTF8", "latin-1", "cp1252", "ascii"])
def text(request: pytest.FixtureRequest, open_store: OpenStore) -> Store[str]:
    """A store opened for text."""
    return open_store(encoding=request.param, node_max_entries=5)


def test_text_comes_back(text: Store[str]) -> None:
    word = "wort" if text.encoding == "ascii" else "ä§"
    stream = text.stream(word)
    stream.add({word: word, "n": 5}, id="1-1")
    stream.add([(word, word)], id="1-2")
    stream.add_many([((2, 0), {word: word})])
    with text.transaction() as tx:
        tx.stream(word).add({word: word}, id="3-0")
    for entry in stream:
        assert entry.pairs[0] == (word, word)
        assert entry.fields[word] == entry.fields[word.encode(text.encoding or "")] == word
    assert (stream.name, text.streams(), word in text) == (word, [word], True)
    assert stream[1, 1].fields["n"] == "5"


def test_any_bytes_survive_being_read_and_added_again(
    text: Store[str], open_store: OpenStore
) -> None:
    raw = bytes(range(256))
    plain = open_store()
    plain.stream(raw).add({raw: raw, b"x": b"\xff"}, id="1-1")
    entry = text.stream(raw).get("1-1")
    assert entry is not None
    name, value = entry.pairs[0]
    assert isinstance(name, str)
    again = text.stream(next(iter(text.streams())))
    again.add(entry.fields, id="2-1")
    again.add(iter(entry.pairs), id="3-1")  # type: ignore[arg-type]
    again.add_many([((4, 1), entry.pairs), ((5, 1), {"plain": "text", name: value})])
    assert [each.pairs[:1] for each in plain.stream(raw)][:4] == [[(raw, raw)]] * 4
    assert plain.stream(raw)[5, 1].pairs == [(b"plain", b"text"), (raw, raw)]
    assert len(plain.streams()) == 1


def test_text_outside_of_the_encoding_is_refused(open_store: OpenStore) -> None:
    latin, utf8 = open_store(encoding="latin-1"), open_store(encoding="utf-8")
    for store, word in ((latin, "€"), (utf8, "\ud800")):
        refusals: list[Any] = [
            lambda s=store, w=word: s.stream("s").add({"a": w}),
            lambda s=store, w=word: s.stream("s").add({w: "a"}),
            lambda s=store, w=word: s.stream("s").add_many([{"a": w}]),
            lambda s=store, w=word: s.stream(w),
        ]
        for refused in refusals:
            with pytest.raises(InvalidEntryError):
                refused()
    assert latin.streams() == []


@pytest.mark.parametrize(
    "encoding", ["nonsense", "utf-16", "utf-32", "base64", "rot13", "", 5, b"utf-8"]
)
def test_values_that_are_no_bytes_are_refused(
    open_store: OpenStore, encoding: Any, tmp_path: Any
) -> None:
    with pytest.raises(OptionError, match="encoding"):
        open_store(encoding=encoding)
    assert not (tmp_path / "store").exists()
