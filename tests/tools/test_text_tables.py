"""Prevents tables that are wider than their terminal, cut a number, or hide how names differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.api import showing
from logstore.tools import text_tables
from logstore.tools.text_tables import ByteCount, Paper, cell_len, elided, wrapped

TEXTS = st.text(
    st.sampled_from("ab:/ 1,.é日本%"), max_size=60
)  # one column and two, words and none
NUMBERS = st.integers(0, 10**9) | st.integers(0, 1 << 50).map(ByteCount)


def lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int, **more: Any
) -> list[str]:
    """All lines of a table."""
    head, others = text_tables.text_table(columns, rows, Paper(width), **more)
    return [*([head] if head else []), *others]


@given(st.lists(st.tuples(TEXTS, TEXTS, NUMBERS, TEXTS), max_size=5), st.integers(30, 200))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[Any, ...]], width: int) -> None:
    for columns in (("stream", "group", "size", "settings"), ("", "", "", "")):
        few = rows if any(columns) else [row[:2] for row in rows]
        shown = lines(columns[: len(few[0]) if few else 4], few, width)
        assert all(cell_len(line) <= width for line in shown)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 10**9), TEXTS), min_size=1, max_size=5))
def test_a_number_is_never_cut(rows: list[tuple[str, int, str]]) -> None:
    shown = " ".join(lines(("stream", "entries", "group"), rows, 40))
    assert all(f"{number:,}" in shown for _, number, _ in rows)


@given(TEXTS, st.integers(3, 30))
def test_broken_lines_lose_no_word(text: str, width: int) -> None:
    found = wrapped(text, width)
    assert all(cell_len(line) <= width for line in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_a_long_name_loses_its_middle() -> None:
    assert elided("tenant:17:events:orders", 11) == "tenan…rders"
    assert elided("tenant", 6) == "tenant"
    assert elided("日本語のストリーム", 9) == "日本…ーム"
    assert elided("tenant:17:events:orders", 11, "~") == "tenan~rders"


def test_columns_are_left_out_before_names_are_hardly_there() -> None:
    columns, rows = ("stream", "entries", "size"), [("a" * 30, 1000, ByteCount(1 << 20))]
    assert lines(columns, rows, 80, narrow=("size",))[0].split()[:3] == [
        "stream",
        "entries",
        "size",
    ]
    assert lines(columns, rows, 33, narrow=("size",))[0].split() == ["stream", "entries"]


def test_an_id_is_whole_or_on_a_line_of_its_own() -> None:
    rows = [("f" * 32, "spark", 5)]
    for width in (60, 44, 38):
        assert any(
            "f" * 32 in line for line in lines(("ID", "for", "n"), rows, width, whole=("ID",))
        )


@pytest.mark.parametrize(
    ("sizes", "head", "cells"),
    [
        ([29, 135, 0], "size bytes", ["29", "135", "0"]),
        ([29, 5120, 0], "size KiB", ["<0.1", "5.0", "0"]),
        ([3 << 30, 1 << 20, 512 << 20], "size GiB", ["3.0", "<0.1", "0.5"]),
        ([5 << 50], "size TiB", ["5,120.0"]),
    ],
)
def test_the_sizes_of_a_column_have_one_unit(sizes: list[int], head: str, cells: list[str]) -> None:
    rows = [(f"s{n}", ByteCount(size)) for n, size in enumerate(sizes)]
    shown = lines(("stream", "size"), rows, 80)
    assert shown[0].split("  ")[-1] == head
    assert [line.split()[1] for line in shown[1:]] == cells
    assert len({len(line) for line in shown}) == 1  # all end in one column


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1.0 MiB"),
     (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")],
)  # fmt: skip
def test_a_size_alone_has_its_own_unit(count: int, text: str) -> None:
    assert showing.size(count) == text


def test_an_encoding_without_dots_gets_a_tilde() -> None:
    head, rest = text_tables.text_table(("stream", "n"), [("ü" * 40, 1)], Paper(20, "ascii"))
    shown = [head, *rest]
    assert all(line.isascii() and len(line) <= 20 for line in shown)
    assert "~" in shown[1]
