"""Prevents entries that are awkward to hold: looked up, taken apart, shown, and given to others."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import logstore
from logstore.api.store import Store
from tests.store.conftest import OpenStore

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def text(open_store: OpenStore) -> Store[str]:
    return open_store(encoding="utf-8")  # type: ignore[return-value]


def added(store: Store[str], fields: object) -> logstore.Entry[str]:
    stream = store.stream("s")
    return stream[stream.add(fields, id=(int(NOON.timestamp() * 1000), 7))]  # type: ignore[arg-type]


def test_an_entry_is_looked_up_as_a_mapping(text: Store[str]) -> None:
    entry = added(text, [("a", "1"), ("b", "2"), ("a", "3")])
    assert (entry["a"], entry[b"b"], entry.get("b")) == ("3", "2", "2")
    assert (entry.get("c"), entry.get("c", 5)) == (None, 5)
    assert "a" in entry
    assert "c" not in entry
    assert list(entry.keys()) == ["a", "b"]
    assert dict(entry) == {"a": "3", "b": "2"}
    assert {**entry} == dict(entry.fields)
    with pytest.raises(KeyError, match="c"):
        entry["c"]


def test_bytes_are_looked_up_by_text(store: Store[bytes]) -> None:
    entry = store.stream("s")[store.stream("s").add({"é": "1", b"\xff": b"2"})]
    assert (entry["é"], entry[b"\xff"], entry["\udcff"]) == (b"1", b"2", b"2")
    assert [entry[name] for name in entry._ipython_key_completions_()] == [b"1", b"2"]
    assert "\ud800" not in entry


def test_an_entry_comes_apart(text: Store[str]) -> None:
    entry = added(text, {"a": "1"})
    id, fields = entry
    assert (id, fields) == (entry.id, {"a": "1"})
    assert entry.time == NOON
    assert entry.as_dict() == {"id": f"{int(NOON.timestamp() * 1000)}-7", "fields": {"a": "1"}}
    assert json.loads(json.dumps(entry.as_dict())) == entry.as_dict()
    assert bool(entry)


def test_what_was_deleted_has_an_id_only(text: Store[str]) -> None:
    stream = text.stream("s")
    id = stream.add({"a": "1"})
    group = stream.group("g", start="0")
    group.read("me")
    stream.delete(id)
    (gone,) = group.backlog("me")
    assert tuple(gone) == (id, None)
    assert (dict(gone), gone.get("a", 4), "a" in gone) == ({}, 4, False)
    assert gone.as_dict() == {"id": str(id), "fields": None}
    assert gone._ipython_key_completions_() == []
    assert "<caption>" in gone._repr_html_()
    with pytest.raises(KeyError):
        gone["a"]


def test_a_delivery_is_a_value_too(text: Store[str]) -> None:
    stream = text.stream("s")
    id = stream.add({"a": "1"})
    (delivery,) = stream.group("g", start="0").read("me")
    assert (delivery["a"], dict(delivery), tuple(delivery)) == ("1", {"a": "1"}, (id, {"a": "1"}))


def test_what_is_large_is_shown_short(text: Store[str]) -> None:
    entry = added(text, {"long": "x" * 100_000})
    assert "100000 characters" in repr(entry)
    wide = text.stream("s")[text.stream("s").add({f"f{n}": "v" * 500 for n in range(1000)})]
    for shown in (repr(entry), repr(wide), repr(wide.fields), wide._repr_html_()):
        assert len(shown) < 5000
    assert "1000 fields" in repr(wide)
    assert repr(wide["f1"]) == repr("v" * 500)
    raw = logstore.Fields([b"a", b"y" * 90], None)
    assert "90 bytes" in repr(raw)


def test_small_ones_are_shown_whole(text: Store[str]) -> None:
    entry = added(text, {"a": "1"})
    assert repr(entry) == f"Entry({entry.id}, {{'a': '1'}})"
    assert repr(entry.fields) == "{'a': '1'}"


def test_what_was_stored_is_no_markup(text: Store[str]) -> None:
    entry = added(text, {"<b>": "<script>alert(1)</script>", "n\n": "\udcff"})
    for shown in (entry._repr_html_(), entry.fields._repr_html_()):
        assert "<b>" not in shown
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
        shown.encode()
    assert str(entry.id) in entry._repr_html_()


def test_pydantic_takes_and_gives_entries_and_ids(open_store: OpenStore) -> None:
    """By their types, and what it gave becomes them again, read from JSON or from dictionaries."""
    pydantic = pytest.importorskip("pydantic", reason="pydantic, which taskiq brings, is not there")
    stream = open_store(encoding="utf-8").stream("s")
    stream.add({"x": "1", "y": "é"})
    entry = stream.last

    model = pydantic.create_model(
        "Model", at=(logstore.StreamID, ...), entry=(logstore.Entry[str], ...)
    )
    made = model(at=str(stream.last_id), entry=entry)
    told = {"at": str(stream.last_id), "entry": {"id": str(stream.last_id),
                                                 "fields": {"x": "1", "y": "é"}}}  # fmt: skip
    assert json.loads(made.model_dump_json()) == made.model_dump(mode="json") == told
    for again in (model.model_validate_json(made.model_dump_json()), model.model_validate(told)):
        assert again == made
        assert (type(again.at), type(again.entry), again.entry["y"]) == (
            logstore.StreamID,
            logstore.Entry,
            "é",
        )
    assert model.model_json_schema()["properties"]["entry"]["required"] == ["id", "fields"]
    for wrong in ({"id": "no", "fields": {}}, {"id": "5-1"}, 5, ("5-1", {})):
        with pytest.raises(pydantic.ValidationError):
            model(at="5-1", entry=wrong)
