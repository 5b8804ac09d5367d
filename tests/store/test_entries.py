"""Prevents entries and stores that do not answer as Python's containers do."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import Error, OptionError
from logstore.api.store import Store
from tests.store.conftest import OpenStore
from tests.support.inside import FixedClock

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


def test_a_deleted_delivery_has_only_an_id(text: Store[str]) -> None:
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


def test_the_repr_of_a_large_entry_is_short(text: Store[str]) -> None:
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


def test_stored_values_are_no_markup_in_a_notebook(text: Store[str]) -> None:
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


def opened(path: Path, **options: Any) -> Any:
    """A store of text."""
    given = {"sync": "os", "background": False, "encoding": "utf-8", **options}
    return logstore.open(path / "store", **given)


def test_a_stream_backwards(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        stream = store.stream("s")
        assert list(reversed(stream)) == []
        stream.add_many([(f"{ms}-0", {"n": str(ms)}) for ms in range(1, 301)])
        assert [each.id.ms for each in reversed(stream)] == [*range(300, 0, -1)]
        assert next(iter(reversed(stream))) == stream.last


@pytest.mark.parametrize(
    "index",
    [-1, -300, 0, 1, slice(None), slice(-3, None), slice(1, 3), slice("1-0", "2-0")],
    ids=str,
)
def test_a_stream_is_indexed_by_id(tmp_path: Path, index: Any) -> None:
    with opened(tmp_path) as store:
        stream = store.stream("s")
        stream.add({"n": "1"}, "1-0")
        with pytest.raises(TypeError, match=r"by ID, not by place: stream\.last.*stream\.range"):
            stream[index]
        with pytest.raises(Error):
            stream[index]
        assert stream["1"] == stream["1-0"]


def test_a_store_is_a_collection_of_names(tmp_path: Path) -> None:
    with opened(tmp_path, clock=(clock := FixedClock(10**12))) as store:
        assert (list(store), len(store), bool(store)) == ([], 0, True)
        for name in ("b", "a", "é"):
            store.create(name)
        assert list(store) == store.streams() == ["a", "b", "é"]
        assert len(store) == 3
        assert "a" in store
        assert "c" not in store
        assert [store[name].name for name in store] == ["a", "b", "é"]
        store["a"].expire(after=10)
        clock.ms += 10_000
        assert (list(store), len(store)) == (["b", "é"], 2)
        with pytest.raises(TypeError):
            store[0]


def test_info_is_text_under_an_encoding(tmp_path: Path) -> None:
    for encoding, name in (("utf-8", "é"), ("latin-1", "é"), (None, b"\xe9")):
        path = tmp_path / str(encoding)
        with opened(path, encoding=encoding) as store:
            dead = name + name
            stream = store.stream(name)
            stream.add({"a": "b"})
            group = stream.group(name, "0")
            assert group.configure(max_deliveries=1, dead_letter=dead).dead_letter == dead
            assert group.settings.dead_letter == dead
            assert stream.groups()[0].settings.dead_letter == dead
            assert stream.info().name == name
            full = stream.info_full()
            assert full.name == name
            assert full.group_infos[0].settings.dead_letter == dead
            first = stream.info().first_entry
            assert first is not None
            assert first.fields["a"] == ("b" if encoding else b"b")
            assert stream.info().as_dict()["name"] == ("é" if encoding else "\\xe9")
        with opened(path, encoding=encoding) as store:  # what is kept are bytes
            assert store.stream(name).group(name).settings.dead_letter == dead


def test_messages_show_names_as_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="logstore")
    with opened(tmp_path) as store:
        stream = store.stream("été")
        told: list[str] = []
        for call in (
            stream.info, stream.group("g").info, lambda: stream.group("g").read("c"),
            lambda: stream.group("g").set_id("0"), lambda: store.rename("été", "b"),
            lambda: stream.set_id("9"), stream.dump, lambda: stream.group("é", "0").create(),
            lambda: store.restore("été", stream.dump()), lambda: stream["7-7"],
            lambda: stream.group("é").configure(max_deliveries=1, dead_letter="été"),
            lambda: stream.configure(max_entries=1, create=False) and stream.group("h").info(),
            lambda: store.copy("none", "b"),
        ):  # fmt: skip
            with pytest.raises((Error, KeyError)) as caught:
                call()
            told.append(str(caught.value))
        stream.add({"a": "b"})
        group = stream.group("é")
        group.configure(max_deliveries=1, dead_letter="après")
        group.read("c")[0].nack()
        told += [repr(each) for each in (store, stream, group)] + caplog.messages
    assert [each for each in told if "b'" in each or "\\x" in each] == []
    assert any("été" in each for each in told)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"sync": "always"}, "sync is 'os', not 'always'"),
        ({"lock_timeout": 3}, r"lock_timeout is 10\.0, not 3\.0"),
        ({"background": True}, "background is False, not True"),
        ({"compact_rate": None}, r"compact_rate is 16777216, not 0"),
        ({"clock": FixedClock(1)}, "clock is <.*SystemClock.*>, not FixedClock"),
        ({"sync": "always", "background": True}, "sync is .*, background is .*"),
    ],
    ids=str,
)
def test_opening_with_other_options_names_those(tmp_path: Path, option: Any, words: str) -> None:
    with opened(tmp_path), pytest.raises(OptionError, match=words) as caught:
        opened(tmp_path, **option)
    others = {"sync", "lock_timeout", "background", "compact_rate", "clock"} - set(option)
    assert [each for each in others if f"{each} is" in str(caught.value)] == []
