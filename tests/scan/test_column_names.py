"""Prevents two fields that answer as one column, and a field that no column has."""

from __future__ import annotations

import pytest

from logstore.codec import ARROW_COLUMNS
from logstore.scan import column_names


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ([b"Name", b"name"], ["Name", "name_2"]),
        ([b"name", b"Name", b"NAME"], ["name", "Name_2", "NAME_3"]),
        ([b"Name", b"name", b"name_2"], ["Name", "name_3", "name_2"]),
        ([b"id", b"ID", b"ts", b"stream"], ["id_2", "ID_3", "ts_2", "stream_2"]),
        ([b"id_2", b"id"], ["id_2", "id_3"]),
        ([b"\xff", b"\\xff", b"a\0b"], ["\\xff", "\\xff_2", "a\\x00b"]),
        ([b"", b"_"], ["_", "__2"]),
        ([b"a.b", b"a b", b"a`b"], ["a.b", "a b", "a`b"]),
        (["\u0131d".encode()], ["\u0131d_2"]),  # a dotless i, which Java takes for an i
        ([b"K", b"k", "\u212a".encode()], ["K", "k_2", "\u212a_3"]),  # the sign of Kelvin
    ],
)
def test_each_field_has_a_column_of_its_own(fields: list[bytes], columns: list[str]) -> None:
    """The right names are written out: a query says them."""
    found = column_names.columns(fields, ARROW_COLUMNS)
    assert list(found.values()) == columns
    assert list(found) == list(dict.fromkeys(fields))
    every = [column_names.folded(each) for each in (*ARROW_COLUMNS, *found.values())]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("streams", "tables"),
    [
        ([b"Orders", b"orders", b"race:a"], ["Orders_2", "orders_3", "race:a"]),
        ([b"orders", b"orders_2", b"ORDERS"], ["orders_3", "orders_2", "ORDERS_4"]),
        ([b"Entries", b"x"], ["Entries_2", "x"]),
        ([b"\xff", b"\\xff", b""], ["\\xff_2", "\\xff_3", "_"]),
    ],
)
def test_a_table_has_a_name_that_is_no_other_stream(
    streams: list[bytes], tables: list[str]
) -> None:
    """A query of one stream gave the rows of another one."""
    assert list(column_names.tables(streams, ["entries"]).values()) == tables


def test_names_are_folded_as_java_does() -> None:
    """Python's own lower() keeps names apart that Spark takes for one."""
    for one, other in (("\u0130", "i"), ("\u0131", "I"), ("\u017f", "s"), ("\u00c4", "\u00e4")):
        assert column_names.folded(one) == column_names.folded(other)
    assert column_names.folded("stra\u00dfe") != column_names.folded("strasse")
