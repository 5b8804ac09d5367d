"""Listpacks with a header of any text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore.api.entry import Entry
from logstore.api.group import Delivery
from logstore.codec import Codec, pure
from logstore.errors import CorruptNodeError
from logstore.ids import StreamID

REFUSED = "refused"
MASTER = (5, 5)
FLAT = [b"x", b"1", b"y", b"text"]
ROW = {"x": 1, "y": 2}


def _calls(lp: bytes) -> dict[str, Callable[[Codec], Any]]:
    """Every operation that reads a node."""
    return {
        "head": lambda c: c.head(lp),
        "counts": lambda c: c.counts(lp),
        "last_id": lambda c: c.last_id(lp, *MASTER),
        "last_live_id": lambda c: c.last_live_id(lp, *MASTER, b"\x05"),
        "first_live_id": lambda c: c.first_live_id(lp, *MASTER, b"\x05"),
        "entries": lambda c: c.entries(lp, *MASTER, b"\x02"),
        "entries, some": lambda c: c.entries(lp, *MASTER, b"", (5, 9), (6, 2**64 - 1), 2),
        "entries, reversed": lambda c: c.entries(lp, *MASTER, b"", (5, 6), (9, 9), 3, True),
        "told": lambda c: c.resp_entries(lp, *MASTER, b"\x02"),
        "told, some": lambda c: c.resp_entries(lp, *MASTER, b"", (5, 9), (6, 2**64 - 1), 2),
        "told, reversed": lambda c: c.resp_entries(lp, *MASTER, b"", (5, 6), (9, 9), 3, True),
        "made": lambda c: _made(c, lp, None, b"\x02"),
        "made, some": lambda c: _made(c, lp, "utf-8", b"", (5, 9), (6, 2**64 - 1), 2),
        "made, reversed": lambda c: _made(c, lp, "cp1252", b"", (5, 6), (9, 9), 3, True),
        "made, all reversed": lambda c: _made(c, lp, "latin-1", reverse=True),
        "found": lambda c: _found(c, lp),
        "delivered": lambda c: _delivered(c, lp, None, b"\x02", (0, 0), -1),
        "delivered, some": lambda c: _delivered(c, lp, "latin-1", b"", (5, 9), 2),
        "entries, all reversed": lambda c: c.entries(lp, *MASTER, reverse=True),
        "ids": lambda c: c.ids(lp, *MASTER, b"\x01"),
        "find": lambda c: c.find(lp, *MASTER, 5, 11),
        "mark_deleted": lambda c: c.mark_deleted(lp, [0, 2]),
        "fold": lambda c: c.fold(lp, b"\x06"),
        "rewrite": lambda c: c.rewrite([(lp, *MASTER, b"\x01"), (lp, 9, 9, b"")], *MASTER),
        "validate": lambda c: c.validate(lp, *MASTER),
        "survey": lambda c: c.survey(lp, *MASTER),
        "append": lambda c: c.append(lp, *MASTER, 99, 0, FLAT),
        "extend": lambda c: c.extend(lp, b"\x01\x01", 1, 1),
        "fits": lambda c: c.fits(lp, 10, 4096, 100),
        "entry_element_count": lambda c: c.entry_element_count(lp[6:-1]),
        "pack": lambda c: c.pack(c.rows([ROW] * 3), 0, 3, (99, 0), lp, *MASTER, 0, 100),
        "arrow": lambda c: _arrow(c, lp),
    }


def _made(codec: Codec, lp: bytes, encoding: str | None, *interval: Any, **options: Any) -> Any:
    found = codec.EntryMaker(Entry, StreamID, encoding).entries(lp, *MASTER, *interval, **options)
    return [(entry.id, entry._flat, entry._encoding) for entry in found]


def _delivered(codec: Codec, lp: bytes, encoding: str | None, *asked: Any) -> Any:
    maker = codec.DeliveryMaker(Delivery, encoding)
    rest = (None, encoding, None)
    made, ids = maker.first(lp, *MASTER, *asked, StreamID, 7, b"c", rest)
    return [(each.id, each._flat) for each in made], ids


def _found(codec: Codec, lp: bytes) -> Any:
    finder, maker = codec.NodeFinder(lp, *MASTER), codec.EntryMaker(Entry, StreamID, None)
    asked = [(ms, seq) for _, ms, seq, _ in codec.entries(lp, *MASTER)]
    return [(id, finder.find(*id, maker)._flat) for id in asked]


def _arrow(codec: Codec, lp: bytes) -> Any:
    builder = codec.ArrowBuilder(("stream", "id", "ms", "seq", "ts", "fields"), ("x", "7"), True)
    try:
        builder.add(b"s", lp, *MASTER, b"\x02")
    except CorruptNodeError:
        assert builder.rows == 0
        builder.add(b"s", pure.new_node(1, 1, FLAT), 1, 1)
        assert builder.finish().num_rows == 1
        raise
    batch = builder.finish()
    batch.validate(full=True)
    return batch


def _outcome(call: Callable[[Codec], Any], codec: Codec) -> Any:
    try:
        return call(codec)
    except CorruptNodeError:
        return REFUSED
    except ValueError as error:
        return str(error)  # rewrite, of nodes without a live entry


def _check(lp: bytes, codecs: list[Codec]) -> None:
    for name, call in _calls(lp).items():
        outcomes = [_outcome(call, codec) for codec in codecs]
        assert outcomes[0] == outcomes[-1], (name, lp.hex())


def _framed(lp: bytes) -> bytes:
    """The bytes with a header that tells their number and an end byte, so that they are read."""
    return (len(lp) + 1).to_bytes(4, "little") + lp[4:] + b"\xff"
