"""Prevents damaged or malicious bytes from doing more than a CorruptNodeError, in both codecs.

Both must also agree: the same result, or a refusal by both.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, listpack, pure
from logstore.errors import CorruptNodeError
from tests.codec.framed import FLAT, MASTER, _arrow, _check, _framed
from tests.codec.node_stream import ID, NodeStream
from tests.codec.strategies import entries, next_id, steps


@st.composite
def nodes(draw: st.DrawFn) -> bytes:
    """A node with up to 8 entries, some of them tombstones; its master ID is MASTER."""
    model = NodeStream(pure, 0, 0)
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
