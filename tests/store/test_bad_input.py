"""Prevents bad input that changes something, or that is refused without a word on what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import (
    EntryTypeError,
    Error,
    IDOrderError,
    InvalidEntryError,
    InvalidIDError,
    OptionError,
    StreamNotFoundError,
    TooLargeError,
    UsageError,
)  # fmt: skip
from logstore.api.store import Store
from logstore.codec import native_or_none
from tests.store.conftest import OpenStore
from tests.store.look import everything
from tests.support.inside import log_bytes

Call = Callable[[Any], Any]
U64 = 2**64
PAST_LAST = f"({U64 - 1}-{U64 - 1}"
KIB64 = b"x" * 65536
MIB64 = b"x" * (64 << 20)


def add(fields: Any, **options: Any) -> Call:
    """An add to the stream that is there."""
    return lambda store: store.stream("s").add(fields, **options)


def add_many(rows: Any, **options: Any) -> Call:
    """A bulk add to the stream that is there."""
    return lambda store: store.stream("s").add_many(rows, **options)


def delete_range(start: str, end: str) -> Call:
    """Delete an interval."""
    return lambda store: store.stream("s").delete_range(start, end)


FINE = {"a": "b"}
TABLE: list[tuple[str, type[Error], str, Call]] = [
    ("an ID not above the last", IDOrderError, r"above last_id, or '\*'", add(FINE, id="5-0")),
    ("below it", IDOrderError, "above last_id", add(FINE, id=(4, 9))),
    ("automatic below it", IDOrderError, "above last_id", add(FINE, id="4-*")),
    ("in a batch", IDOrderError, "row 1: 6-0 after 6-0", add_many([("6-0", FINE), ("6-0", FINE)])),
    ("0-0", InvalidIDError, "greater than 0-0", add(FINE, id="0-0")),
    ("0-0 in a batch", InvalidIDError, "greater than 0-0", add_many([("0-0", FINE)])),
    ("malformed", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id="x")),
    ("malformed in a batch", InvalidIDError, "give '<ms>", add_many([("9", FINE), ("y", FINE)])),
    ("past 2^64-1", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=f"{U64}-0")),
    ("past it in the sequence", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=(6, U64))),
    ("None as an ID", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=None)),
    ("True as an ID", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=True)),
    ("no fields", InvalidEntryError, "at least one field", add({})),
    ("no pairs", InvalidEntryError, "at least one field", add([])),
    ("no fields in a batch", InvalidEntryError, "row 1", add_many([FINE, {}])),
    ("bool as a value", EntryTypeError, "bytes, int or float, not bool", add({"a": True})),
    ("None as a value", EntryTypeError, "not NoneType", add({"a": None})),
    ("None as a name", EntryTypeError, "not NoneType", add({None: "a"})),
    ("a list as a value", EntryTypeError, "not list", add({"a": [1]})),
    ("text as an entry", EntryTypeError, "mapping or pairs", add("ab")),
    ("None as an entry", EntryTypeError, "mapping or pairs", add(None)),
    ("None in a batch", EntryTypeError, "row 1", add_many([FINE, None])),
    ("a pair of three", EntryTypeError, "no .* pair", add([("a", "b", "c")])),
    ("a lone surrogate", InvalidEntryError, "surrogate", add({"a": "\ud800"})),
    ("maxlen of text", OptionError, "maxlen must be an integer", add(FINE, maxlen="5")),
    ("a negative maxlen", OptionError, "must be >= 0", add(FINE, maxlen=-1)),
    ("two rules", OptionError, "not compatible", add(FINE, maxlen=1, minid="1")),
    ("a wrong minid", InvalidIDError, "give '<ms>-<seq>'", add(FINE, minid="(1-1")),
    (
        "a limit of an exact trim", OptionError, "approximate=True",
        add(FINE, maxlen=1, limit=1, approximate=False),
    ),
    ("a limit of text", OptionError, "limit must be an integer", add(FINE, maxlen=1, limit="1")),
    ("a limit alone", OptionError, "without specifying", add(FINE, limit=1)),
    ("an unknown policy", OptionError, "'always', 'everysec' or 'os'", add(FINE, sync="never")),
    ("no batch", OptionError, "batch must be 1 to", add_many([FINE], batch=0)),
    ("a batch of text", OptionError, "batch must be an integer", add_many([FINE], batch="9")),
    ("a trim without a rule", OptionError, "must be called with", lambda s: s.stream("s").trim()),
    ("a range of text", InvalidIDError, "give '<ms>", delete_range("a", "b")),
    ("a range past the end", InvalidIDError, "interval", delete_range(PAST_LAST, "+")),
    ("one wrong ID of two", InvalidIDError, "'<ms>", lambda s: s.stream("s").delete("5-0", "")),
    ("a last ID below an entry", UsageError, "top item", lambda s: s.stream("s").set_id("1")),
    (
        "a count of text", OptionError, "must be an integer",
        lambda s: s.stream("s").set_id("9", entries_added="1"),
    ),
    ("an unknown stream", StreamNotFoundError, "does not exist", lambda s: s.stream("none").info()),
    ("its ID", StreamNotFoundError, "does not exist", lambda s: s.stream("none").set_id("9")),
    ("a name over the limit", TooLargeError, "at most 65536", lambda s: s.stream(KIB64 + b"x")),
    ("None as a name of a stream", EntryTypeError, "str or bytes", lambda s: s.drop(None)),
    ("an entry over the limit", TooLargeError, "split it", add([("a", MIB64)] * 17)),
    ("one in a batch", TooLargeError, "row 1", add_many([FINE, [("a", MIB64)] * 17])),
    ("a field over the limit", TooLargeError, "split it", add([(MIB64, b"")] * 17)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "words", "call"), [line[1:] for line in TABLE], ids=[line[0] for line in TABLE]
)
def test_it_is_refused_and_changes_nothing(
    store: Store[bytes], kind: type[Error], words: str, call: Call
) -> None:
    store.stream("s").add_many(((ms, 0), {"n": ms}) for ms in range(1, 6))
    before, size, commits = everything(store), log_bytes(store.path), store.metrics()["commits"]
    with pytest.raises(kind, match=words):
        call(store)
    assert issubclass(kind, Error)
    assert everything(store) == before
    assert (log_bytes(store.path), store.metrics()["commits"]) == (size, commits)
    assert store.stream("s").add(FINE, id="6-0") == (6, 0)


LARGE = """
import resource, sys
import logstore
from logstore.codec import native_or_none, pure
from logstore.errors import TooLargeError
large, codec = b"x" * (64 << 20), {"pure": pure, "native": native_or_none}[sys.argv[1]]
names = [f"f{at}" for at in range(17)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    match sys.argv[2]:
        case "pairs":
            codec.rows([[(b"a", large)] * 1000])
        case "a mapping":
            codec.rows([dict.fromkeys(names, large)])
        case "of the names before":
            codec.rows([dict.fromkeys(names, "x"), dict.fromkeys(names, large)])
        case "columns":
            codec.columns(names, [["x", large] for _ in names])
        case "an add":
            with logstore.open(sys.argv[3]) as store:
                store.stream("s").add(dict.fromkeys(names, large))
except TooLargeError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""
WAYS = ["pairs", "a mapping", "of the names before", "columns", "an add"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", ["pure", "native"])
def test_what_is_too_large_is_refused_before_memory_is_taken(
    tmp_path: Path, codec: str, way: str
) -> None:
    """In a process of its own: what others took before hid that a gigabyte was copied first."""
    if codec == "native" and native_or_none is None:
        pytest.skip("the compiled codec is not there")
    command = [sys.executable, "-c", LARGE, codec, way, str(tmp_path / "store")]
    environment = {**os.environ, "LOGSTORE_CODEC": codec}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    grown_kib, told = done.stdout.split(" ", 1)
    assert "split it" in told
    assert int(grown_kib) < 100 << 10, f"{int(grown_kib) >> 10} MiB"


OPTIONS: list[dict[str, Any]] = [
    {"sync": "never"}, {"sync": None}, {"sync": []}, {"encoding": "nonsense"}, {"lock_timeout": -1},
    {"lock_timeout": "3"}, {"lock_timeout": float("nan")}, {"lock_timeout": float("inf")},
    {"lock_timeout": True}, {"node_max_bytes": -1}, {"node_max_bytes": (1 << 30) + 1},
    {"node_max_bytes": "5"}, {"node_max_entries": -1}, {"node_max_entries": 2.5},
    {"node_max_entries": True}, {"segment_bytes": 100}, {"segment_bytes": 1 << 40},
    {"segment_bytes": None, "clock": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_wrong_options_create_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        logstore.open(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_stream_and_are_one_tree(open_store: OpenStore) -> None:
    with pytest.raises(StreamNotFoundError, match=r"stream 'n\\\\xff'") as caught:
        open_store().stream(b"n\xff").info()
    assert caught.value.stream == b"n\xff"
    assert isinstance(caught.value, KeyError)
    assert issubclass(UsageError, ValueError)
    assert issubclass(EntryTypeError, TypeError)
