"""Prevents bytes that are shown as other bytes, and JSON that is not faithful."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.api.entry import Entry
from logstore.ids import StreamID
from logstore.tools import command_output as forms
from logstore.tools.interchange.text_lines import read_json
from logstore.tools.interchange.text_rows import Row, RowIDs, one_by_one

PAIRS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), min_size=1, max_size=5)


def entry(pairs: list[tuple[bytes, bytes]]) -> Entry[bytes]:
    """An entry of some pairs."""
    return Entry(StreamID(1, 2), [part for pair in pairs for part in pair], None)


@given(PAIRS)
def test_json_gives_every_byte_back(pairs: list[tuple[bytes, bytes]]) -> None:
    line = json.dumps(forms.entry_object(entry(pairs)), ensure_ascii=False).encode()
    assert list(one_by_one(read_json(io.BytesIO(line), RowIDs()))) == [
        Row(1, StreamID(1, 2), pairs)
    ]


@given(st.lists(st.binary(max_size=6), min_size=2, max_size=2, unique=True))
def test_readable_text_is_unambiguous_and_of_one_line(two: list[bytes]) -> None:
    texts = [forms.readable(raw) for raw in two]
    assert texts[0] != texts[1]
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("Zürich".encode(), "Zürich"),
        (b"a\xffb", "a\\xffb"),
        (b"\x1b[31m", "\\x1b[31m"),
        (b"two\nlines", "two\\nlines"),
        (b"C:\\xff", "C:\\\\xff"),
    ],
)
def test_readable(raw: bytes, text: str) -> None:
    assert forms.readable(raw) == text


@pytest.mark.parametrize(
    ("pairs", "form"),
    [
        ([(b"a", b"b")], {"id": "1-2", "fields": {"a": "b"}}),
        ([(b"a", b"b"), (b"a", b"c")], {"id": "1-2", "pairs": [["a", "b"], ["a", "c"]]}),
        ([(b"a", b"\xff")], {"id": "1-2", "pairs_base64": [["YQ==", "/w=="]]}),
    ],
)
def test_the_three_forms(pairs: list[tuple[bytes, bytes]], form: dict[str, object]) -> None:
    assert forms.entry_object(entry(pairs)) == form


def test_a_line_is_quoted_for_a_shell() -> None:
    assert forms.entry_line(entry([(b"a", b"b c"), (b"d", b"'")])) == "1-2 'a=b c' 'd='\"'\"''"
