"""Prevents a condition that is understood in another way than SQL means it, or a text that breaks
what reads it instead of being refused with its place."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import OptionError
from logstore.where.condition_text import TEXT_MAX_LETTERS, parse
from logstore.where.condition_tree import (
    All,
    Always,
    Compared,
    Either,
    IsNull,
    Like,
    OneOf,
)


def plain(node: Any) -> Any:
    """A tree without places and depths."""
    if isinstance(node, All | Either):
        return ("and" if isinstance(node, All) else "or", *map(plain, node.parts))
    if isinstance(node, Always):
        return node.holds
    name = ".".join(map(str, (node.name.column, *node.name.path)))
    if isinstance(node, Compared):
        return (name, node.sign, node.value.value)
    sign = {OneOf: "in", IsNull: "is null", Like: "like"}[type(node)]
    if node.negated:
        sign = "is not null" if sign == "is null" else f"not {sign}"
    if isinstance(node, OneOf):
        return (name, sign, *[each.value for each in node.values])
    return (name, sign, node.pattern.value, node.escape) if isinstance(node, Like) else (name, sign)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("temp > 20", ("temp", ">", Decimal(20))),
        ("20 < temp", ("temp", ">", Decimal(20))),
        ("a == 1 AND b <> 'x'", ("and", ("a", "=", Decimal(1)), ("b", "!=", "x"))),
        ("a=1 or b=2 and c=3", ("or", ("a", "=", 1), ("and", ("b", "=", 2), ("c", "=", 3)))),
        ("(a=1 or b=2) and c=3", ("and", ("or", ("a", "=", 1), ("b", "=", 2)), ("c", "=", 3))),
        ("not a=1 and b=2", ("and", ("a", "!=", 1), ("b", "=", 2))),
        ("not (a<1 or b>=2)", ("and", ("a", ">=", 1), ("b", "<", 2))),
        ("not not a > 1", ("a", ">", 1)),
        ("a between 1 and 2", ("and", ("a", ">=", 1), ("a", "<=", 2))),
        ("a not between 1 and 2", ("or", ("a", "<", 1), ("a", ">", 2))),
        ("a between 1 and 2 and b", ("and", ("and", ("a", ">=", 1), ("a", "<=", 2)),
                                     ("b", "=", True))),
        ("a in (1, 2)", ("a", "in", 1, 2)),
        ("not a in (1)", ("a", "not in", 1)),
        ("not a not in (1)", ("a", "in", 1)),
        ("a is null", ("a", "is null")),
        ("NOT a IS NOT NULL", ("a", "is null")),
        ("a like 'x%'", ("a", "like", "x%", "")),
        ("a not like '!%' escape '!'", ("a", "not like", "!%", "!")),
        ("flag and not other", ("and", ("flag", "=", True), ("other", "!=", True))),
        ("a = null", False), ("not a = null", False), ("a in (null)", False),
        ("a in (1, null)", ("a", "in", 1)), ("a not in (1, null)", False),
        ("not a not in (1, null)", ("a", "in", 1)),
        ("null or a > 1", ("a", ">", 1)), ("not null", False), ("true and a > 1", ("a", ">", 1)),
        ("false", False), ("not false", True),
        ("a = 'it''s \\n'", ("a", "=", "it's \\n")), ("a = ''", ("a", "=", "")),
        ("android = 1 or nota = 1", ("or", ("android", "=", 1), ("nota", "=", 1))),
        ("date = 1 and time = 2 and timestamp = 3",
         ("and", ("date", "=", 1), ("time", "=", 2), ("timestamp", "=", 3))),
        ("d = date '2026-11-26'", ("d", "=", date(2026, 11, 26))),
        ("t = Time '12:30'", ("t", "=", time(12, 30))),
        ("t < TIMESTAMP '2026-11-26T12:00+01:00'",
         ("t", "<", datetime(2026, 11, 26, 11, tzinfo=UTC))),
        ("t < timestamp '2026-11-26'", ("t", "<", datetime(2026, 11, 26, tzinfo=UTC))),
        ("tags.room[2].\"a b\" = 'a'", ("tags.room.2.a b", "=", "a")),
        ('"tags.room" = 1', ("tags.room", "=", 1)), ("`a``b` = 1", ("a`b", "=", 1)),
        ('"a""b" = 1', ('a"b', "=", 1)), ("größe = 1", ("größe", "=", 1)),
        ("a = -1.5e3", ("a", "=", Decimal(-1500))), ("a=.5", ("a", "=", Decimal("0.5"))),
        (" a\n=\t1 ", ("a", "=", 1)),
    ],
)  # fmt: skip
def test_a_text_is_understood_as_sql_means_it(text: str, tree: Any) -> None:
    assert plain(parse(text)) == tree


@pytest.mark.parametrize(
    ("text", "why", "place"),
    [
        ("a = b", "'quotes'", "b"),
        ("(a = 1", "')' is missing", ""),
        ("a = 1)", "cannot stand", ")"),
        ("a =", "a column or a value is missing", ""),
        ("a like", "'quotes' is missing", ""),
        ("a = 'x", "has no end", "'x"),
        ('"a = 1', "has no end", '"a = 1'),
        ("a = nan", "'quotes'", "nan"),
        ("a ~ 3", "cannot stand", "~ 3"),
        ("1 = 2", "name a column", "1 = 2"),
        ("a in ()", "cannot stand", ")"),
        ("a in (b)", "cannot stand", "b)"),
        ("a = 1 b = 2", "cannot stand", "b = 2"),
        ("a = 1; drop table x", "cannot stand", "; drop table x"),
        ("a like 'x!a' escape '!'", "behind the escape", "'x!a' escape '!'"),
        ("a like '!' escape '!'", "behind the escape", "'!' escape '!'"),
        ("a like 'x' escape 'ab'", "one character", "'ab'"),
        ("at > timestamp 'soon'", "is no moment", "'soon'"),
        ("d = date '2026-02-30'", "day", "'2026-02-30'"),
        ("a = 5x", "cannot stand", "5x"),
        ("a and", "is missing", ""),
        ("5", "is missing", ""),
        ("a =\n 1 2", "cannot stand", "2"),
        ("a = '\ud800'", "surrogate", "\ud800'"),
        ("a = " + "1" * 500, "at most", "1" * 500),
        ("a like '" + "%" * 2000 + "'", "at most", "'" + "%" * 2000 + "'"),
    ],
)
def test_what_is_not_understood_is_shown_where_it_stands(text: str, why: str, place: str) -> None:
    with pytest.raises(OptionError, match=r"^where: ") as caught:
        parse(text)
    said, line, caret = caught.value.message.split("\n")
    assert why in said
    at = len(caret) - 1
    assert caret[at] == "^"
    assert place[:1] == line[at : at + 1]
    assert place.startswith(line[at:])


@pytest.mark.parametrize("text", ["", " \n", "x" * (TEXT_MAX_LETTERS + 1), "x" * 1_000_000])
def test_no_text_and_too_much_of_it_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"where: (there is no|a) condition"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a = 1",
        "not(" * 10_000 + "a = 1" + ")" * 10_000,
        "not " * 10_000 + "a",
        "(a or " * 5000 + "(b and " * 3000,
        "(a or (b and " * 2000 + "c" + "))" * 2000,
        " or ".join(["a = 1"] * 1001),
        "'" * 60_000,
        "a." * 30_000,
        "[" * 60_000,
    ],
)
def test_deep_and_long_texts_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^where: "):
        parse(text)


def test_parentheses_alone_make_nothing_deep() -> None:
    assert plain(parse("(" * 10_000 + "a = 1" + ")" * 10_000)) == ("a", "=", 1)
    assert len(plain(parse(" or ".join(["a = 1"] * 1000)))) == 1001


WORDS = [
    "a", "b.c", "'x'", "1", "=", "<", "and", "or", "not", "in", "(", ")", ",", "is", "null", "like",
    "between", "true", '"', "'", "escape", "date", "timestamp", "\n", "\0", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=60))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    with suppress(OptionError):
        plain(parse(text))
