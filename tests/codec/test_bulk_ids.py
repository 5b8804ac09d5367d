"""Prevents given IDs from being read, refused or told again differently by the two codecs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.codec import Codec, pure
from logstore.codec.given_ids import RUNS_A_BLOCK
from logstore.errors import InvalidEntryError, InvalidIDError
from logstore.ids import U64_MAX, StreamID, parse_id

numbers = st.sampled_from([0, 1, 127, 128, 2**63, U64_MAX - 1, U64_MAX]) | st.integers(0, 500)
ids = st.tuples(numbers, numbers)
FIELDS: dict[str, str] = {"a": "1"}


class Text(str):
    """A subclass of str."""

    __slots__ = ()


class Number(int):
    """A subclass of int."""


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("5-7", (5, 7)), (b"5-7", (5, 7)), ("5", (5, 0)), (b"5", (5, 0)),
        ((5, 7), (5, 7)), (StreamID(5, 7), (5, 7)), (Text("5-7"), (5, 7)),
        ((Number(5), 7), (5, 7)), ("005-07", (5, 7)),
        (f"{U64_MAX}-{U64_MAX}", (U64_MAX, U64_MAX)), ("0" * 60 + "9", (9, 0)),
        ((U64_MAX, U64_MAX), (U64_MAX, U64_MAX)), (f"{10**19 - 1}", (10**19 - 1, 0)),
        (datetime.fromtimestamp(5, UTC), (5000, 0)), ("0-0", (0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fields", [FIELDS, [("a", "1")]])
def test_all_forms(codec: Codec, id: Any, wanted: tuple[int, int], fields: Any) -> None:
    found, rest = codec.given([(id, fields), ((7, 7), fields)], 0)
    assert [found[0], found[1]] == [wanted, (7, 7)]
    assert rest == [fields, fields]
    assert len(found) == 2
    with pytest.raises(IndexError):
        found[2]


@pytest.mark.parametrize(
    "id",
    [
        "", "-", "5-", "-5", "x", "5-x", "5--1", "+5", " 5", "5\n", "٣", "5*", "*", "*-*", "5-**",
        f"{U64_MAX + 1}", f"5-{U64_MAX + 1}", "9" * 128, f"{10**19}{0}", b"\xff", -1, U64_MAX + 1,
        (-1, 0), (0, U64_MAX + 1), (True, 0), True, "-*", "x-*",
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused(codec: Codec, id: Any) -> None:
    with pytest.raises(InvalidIDError):
        codec.given([((1, 0), FIELDS), (id, FIELDS)], 0)


@pytest.mark.parametrize(
    "row",
    [
        FIELDS, [("a", "1")], ("a", "1"), (("a", "1"), ("b", "2")), (1.5, FIELDS), ((1,), "x"),
        (None, FIELDS), ((1, 0), FIELDS, 3), ((1, 0), (("a", "1"),)), ("1-1", "a"), 7, None,
        (("1", "2"), FIELDS),
    ],
)  # fmt: skip
def test_a_row_without_an_id_is_named(codec: Codec, row: Any) -> None:
    with pytest.raises(InvalidEntryError, match="row 1001: give every row of one call an ID"):
        codec.given([((1, 0), FIELDS), (row)], 1000)


def model_of_settle(
    last: tuple[int, int], rows: list[tuple[tuple[int, int], bool]]
) -> tuple[int, list[tuple[int, int]]]:
    """What adds one by one would do."""
    settled: list[tuple[int, int]] = []
    for place, ((ms, seq), is_open) in enumerate(rows):
        if is_open and ms == last[0]:
            if last[1] == U64_MAX:
                return place, settled
            seq = last[1] + 1  # noqa: PLW2901
        elif is_open:
            seq = 0  # noqa: PLW2901
        if (ms, seq) <= last:
            return place, settled
        last = (ms, seq)
        settled.append(last)
    return -1, settled


@given(
    last=ids, again=ids, rows=st.lists(st.tuples(ids, st.booleans()), max_size=20),
    ascending=st.booleans(),
)  # fmt: skip
def test_settling_is_adding_one_by_one(
    codec: Codec, last: Any, again: Any, rows: Any, ascending: bool
) -> None:
    rows = sorted(rows) if ascending else rows
    found, _ = codec.given([(f"{id[0]}-*" if is_open else id, FIELDS) for id, is_open in rows], 0)
    for before in (last, (0, 0), again):  # a commit may be decided again
        place, settled = model_of_settle(before, rows)
        assert found.settle(*before) == place
        assert [found[i] for i in range(len(settled))] == settled
    if place < 0:
        for at in range(len(settled) + 1):
            rest = found.since(at)
            assert [rest[i] for i in range(len(rest))] == settled[at:]


@given(rows=st.lists(ids, min_size=1, max_size=30, unique=True))
def test_packing_takes_them(codec: Codec, rows: list[tuple[int, int]]) -> None:
    rows.sort()
    found, fields = codec.given([(id, {"n": n}) for n, id in enumerate(rows)], 0)
    batch = codec.rows(fields)
    packed = codec.pack(batch, 0, len(rows), found, None, 0, 0, 4096, 7)
    assert packed == pure.pack(pure.rows(fields), 0, len(rows), rows, None, 0, 0, 4096, 7)
    with pytest.raises(ValueError, match="need as many IDs"):
        codec.pack(batch, 0, len(rows), found.since(1), None, 0, 0, 4096, 7)


runs = st.tuples(numbers, numbers, st.integers(1, 3) | st.sampled_from([1000, 2**40]))


def everything(found: Any) -> list[tuple[int, int, int]]:
    """All runs, and a look at the counts."""
    told: list[tuple[int, int, int]] = []
    for block in range(found.block_count):
        assert found.before(block) == sum(run[2] for run in told)
        told += found.block(block)
    return told


@settings(deadline=None)
@given(puts=st.lists(runs | ids, max_size=40), times=st.sampled_from([1, 1, 1, 30]))
def test_runs_are_told_as_they_were_put(codec: Codec, puts: list[Any], times: int) -> None:
    found = codec.RunList()
    model: list[tuple[int, int, int]] = []
    for put in puts * times:
        if len(put) == 2:
            found.put_given(codec.given([(put, FIELDS)], 0)[0])
        else:
            found.put(*put)
        ms, seq, count = (*put, 1)[:3]
        if model and model[-1][0] == ms and model[-1][1] + model[-1][2] == seq:
            model[-1] = (ms, model[-1][1], model[-1][2] + count)
        else:
            model.append((ms, seq, count))
    assert everything(found) == model
    assert len(found) == sum(run[2] for run in model)
    for outside in (-1, found.block_count):
        with pytest.raises(IndexError):
            found.block(outside)
        with pytest.raises(IndexError):
            found.before(outside)


@pytest.mark.parametrize("count", [RUNS_A_BLOCK + extra for extra in (-1, 0, 1, 2, RUNS_A_BLOCK)])
def test_the_ends_of_blocks(codec: Codec, count: int) -> None:
    found = codec.RunList()
    for n in range(count):
        found.put(n, n, 1)
    assert everything(found) == [(n, n, 1) for n in range(count)]
    assert found.block_count == -(-count // RUNS_A_BLOCK)


def test_an_id_costs_a_few_bytes(codec: Codec) -> None:
    rows = [((1_700_000_000_000 + 37 * n, n % 3), FIELDS) for n in range(10_000)]
    found = codec.RunList()
    found.put_given(codec.given(rows, 0)[0])
    assert len(everything(found)) == len(rows)
    assert found.nbytes <= 4 * len(rows)


def test_text_is_parsed_as_everywhere(codec: Codec) -> None:
    for text in ("1-2", "12", "0012-0034", "18446744073709551615-1", "9999999999999999999-3"):
        for id in (text, text.encode()):
            found, _ = codec.given([(id, FIELDS)], 0)
            assert found[0] == parse_id(id)
