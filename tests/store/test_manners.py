"""Prevents a store that does not answer as Python's containers do, or tells bytes where text is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import Error, OptionError
from tests.support.inside import FixedClock


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


def test_what_is_told_under_an_encoding_is_text(tmp_path: Path) -> None:
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
