"""Prevents damaged or malicious bytes from doing more than a CorruptNodeError, in both codecs.

Both must also agree: the same result, or a refusal by both.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.api.entry import Entry
from logstore.api.group import Delivery
from logstore.codec import Codec, listpack, pure
from logstore.errors import CorruptNodeError
from logstore.ids import StreamID
from tests.codec.model import ID, StreamModel
from tests.codec.strategies import entries, next_id, steps

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


@st.composite
def nodes(draw: st.DrawFn) -> bytes:
    """A node with up to 8 entries, some of them tombstones; its master ID is MASTER."""
    model = StreamModel(pure, 0, 0)
    id: ID = MASTER
    ids: list[ID] = []
    for flat in draw(st.lists(entries, min_size=1, max_size=8)):
        model.add(id, flat)
        ids.append(id)
        id = next_id(id, draw(steps))
    for gone in draw(st.lists(st.sampled_from(ids), max_size=3, unique=True)):
        model.delete(gone)
    return model.nodes[0].lp if model.nodes else pure.new_node(*MASTER, FLAT)


telling = [0, 1, 2, 3, 4, 127, 128, 191, 192, 223, 224, 239, *range(240, 256)]
changes = st.lists(
    st.tuples(st.integers(0, 5000), st.sampled_from(telling) | st.integers(0, 255)),
    min_size=1,
    max_size=3,
)


@settings(max_examples=200)
@given(lp=nodes(), drawn=changes, how=st.sampled_from(["set", "insert", "remove", "cut"]))
def test_changed_nodes(native: Codec, lp: bytes, drawn: list[tuple[int, int]], how: str) -> None:
    changed = bytearray(lp[:-1])
    for index, byte in drawn:
        at = 6 + index % max(1, len(changed) - 6)
        if how == "set" and at < len(changed):
            changed[at] = byte
        elif how == "insert":
            changed.insert(at, byte)
        elif how == "remove":
            del changed[at : at + 1]
        else:
            del changed[at:]
    _check(_framed(bytes(changed)), [pure, native])


@settings(max_examples=100)
@given(data=st.binary(max_size=60), framed=st.booleans())
def test_random_bytes(native: Codec, data: bytes, framed: bool) -> None:
    _check(_framed(b"\0" * 6 + data) if framed else data, [pure, native])


@settings(max_examples=50)
@given(lp=nodes())
def test_sound_nodes(native: Codec, lp: bytes) -> None:
    pure.validate(lp, *MASTER)
    _check(lp, [pure, native])


def _sample() -> bytes:
    lp = pure.new_node(*MASTER, [b"a", b"x" * 130, b"7", b"-5"])
    lp, _ = pure.append(lp, *MASTER, 5, 6, [b"a", b"12345678901", b"7", b"y" * 4100])
    lp, _ = pure.append(lp, *MASTER, 9, 0, [b"other", b"1"])
    return pure.mark_deleted(lp, [1])


@pytest.mark.parametrize("fix_header", [False, True])
def test_every_truncation_is_refused(codec: Codec, fix_header: bool) -> None:
    lp = _sample()
    codec.validate(lp, *MASTER)
    for size in [*range(300), *range(4100, len(lp) - 1)]:
        cut = _framed(lp[:size]) if fix_header and size > 6 else lp[:size]
        with pytest.raises(CorruptNodeError):
            codec.validate(cut, *MASTER)


def test_every_changed_byte_of_a_header_or_counter_is_refused(codec: Codec) -> None:
    lp = pure.append(pure.new_node(*MASTER, FLAT), *MASTER, 6, 6, FLAT)[0]
    terminator = pure.head(lp).first_entry_offset - 2
    for at in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, terminator):
        for byte in set(range(256)) - {lp[at]}:
            changed = lp[:at] + bytes((byte,)) + lp[at + 1 :]
            if changed[4:6] == b"\xff\xff":
                continue
            with pytest.raises(CorruptNodeError):
                codec.validate(changed, *MASTER)


def _huge() -> Iterator[tuple[str, bytes]]:
    """Nodes that promise far more than they hold."""
    one, zero = listpack.encode_int(1), listpack.encode_int(0)
    field = listpack.encode(b"f")
    for number in (2**24, 2**40, 2**62, 2**63 - 1, -1, -(2**63)):
        huge = listpack.encode_int(number)
        start = (one, zero, one, field, zero)
        yield f"count {number}", listpack.finish(5, huge, zero, one, field, zero)
        yield f"deleted {number}", listpack.finish(5, one, huge, one, field, zero)
        yield f"fields {number}", listpack.finish(5, one, zero, huge, field, zero)
        yield f"pairs {number}", listpack.finish(9, *start, zero, zero, zero, huge, field, field)
        yield f"lp-count {number}", listpack.finish(9, *start, *[zero] * 3, huge)
    for size in (2**20, 2**31, 2**32 - 1):
        text = b"\xf0" + size.to_bytes(4, "little") + b"x" * 20 + b"\x19"
        yield f"text {size}", listpack.finish(5, one, zero, one, text, zero)
    yield "back length", listpack.finish(5, one, zero, one, field, b"\x00" + b"\xff" * 9)


@pytest.mark.parametrize(
    ("name", "lp"), list(_huge()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_huge_promises_cost_no_memory(codec: Codec, name: str, lp: bytes) -> None:
    _arrow(codec, pure.new_node(*MASTER, FLAT))  # loads what has 30 MiB
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the tests before is forgotten
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptNodeError):
        codec.validate(lp, *MASTER)
    _check(lp, [codec])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10  # KiB


@pytest.mark.parametrize("ordinals", [[9], [-1], [2**70], [0, 4]])
def test_ordinals_that_do_not_exist_are_refused(codec: Codec, ordinals: list[int]) -> None:
    lp = _sample()
    with pytest.raises(CorruptNodeError, match="entry"):
        codec.mark_deleted(lp, ordinals)
    with pytest.raises(CorruptNodeError, match="entry"):
        codec.fold(lp, b"\x08")
