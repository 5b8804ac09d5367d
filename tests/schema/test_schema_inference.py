"""The schema of entries that are there: every one of them can be read by what is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import OptionError
from logstore.schema.schema_inference import infer
from logstore.schema.stream_schema import fault_of

TEXTS = st.sampled_from(
    [b"1", b"0", b"-5", b"007", b"1.5", b"01.5", b"0.5", b"1e5", b"true", b"FALSE", b"nan", b"inf",
     b"2026-11-26", b"2026-11-26 12:00", b"2026-11-26T12:00:00.5Z", b"12:30", b"", b"x", b"\xff",
     b"{}", b"[1", b'"a"', b"null", b"9" * 19, b"9" * 20,
     b"00000000-0000-0000-0000-000000000000"]
)  # fmt: skip


@given(
    st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c d"]), TEXTS, min_size=1), min_size=1)
)
def test_every_entry_is_read_by_what_is_found(rows: list[dict[bytes, bytes]]) -> None:
    entries = [[part for pair in row.items() for part in pair] for row in rows]
    schema = infer(entries)
    columns = {column.field: column for column in schema.columns}
    assert [fault_of(flat, columns) for flat in entries] == [None] * len(entries)
    assert {column.field for column in schema.columns} == {name for row in rows for name in row}


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([b"true", b"False"], "bool"),
        ([b"1", b"0"], "long"),
        ([b"1", b"2.5"], "double"),
        ([b"nan"], "string"),
        ([b"007", b"12"], "string"),
        ([b"9" * 20], "string"),  # no double keeps its digits
        ([b"1" + b"0" * 20], "double"),
        ([b"2026-11-26"], "date"),
        ([b"2026-11-26 12:00:00Z"], "timestamp"),
        ([b"12:30"], "time"),
        ([b"00000000-0000-0000-0000-000000000000"], "uuid"),
        ([b'{"a": 1}', b"[]"], "json"),
        ([b"1", b"x"], "string"),
        ([b"x", b"\xff"], "binary"),
        ([b""], "string"),
    ],
)
def test_the_narrowest_type_is_found(texts: list[bytes], kind: str) -> None:
    assert infer([[b"a", text] for text in texts]).text == f"a {kind}"


def test_a_field_that_not_every_entry_has_is_nullable() -> None:
    assert infer([[b"a", b"1"], [b"b", b"x", b"a", b"2"]]).text == "a long, b string?"


def test_there_must_be_entries_and_not_too_many_fields() -> None:
    with pytest.raises(OptionError, match="no entry"):
        infer([])
    with pytest.raises(OptionError, match="1000 fields"):
        infer([[b"%d" % at, b""] for at in range(1001)])
    with pytest.raises(OptionError, match="upper from lower"):
        infer([[b"a", b"", b"A", b""]])
