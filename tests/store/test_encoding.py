"""Prevents text that comes back as other text, and bytes that are no text getting lost."""

from __future__ import annotations

from typing import Any

import pytest

from logstore import InvalidEntryError, OptionError
from logstore.api.store import Store
from tests.store.conftest import OpenStore


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
def test_what_keeps_no_bytes_is_refused(
    open_store: OpenStore, encoding: Any, tmp_path: Any
) -> None:
    with pytest.raises(OptionError, match="encoding"):
        open_store(encoding=encoding)
    assert not (tmp_path / "store").exists()
