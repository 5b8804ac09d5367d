"""Prevents values that are left out though a filter can hold for them, and searches with no end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.scan.filter_points import POINTS_MAX, points
from logstore.scan.filter_range import FilterRange

SCHEMA = pa.schema(
    [("stream", pa.string()), ("ms", pa.int64()), ("d", pa.string()), ("n", pa.int32()),
     ("u", pa.uint64()), ("x", pa.float64())]
)  # fmt: skip
D, N, U, X = (pc.field(name) for name in "dnux")


def found(expression: Any, name: str) -> list[Any] | None:
    """The values of a column that an expression can hold for."""
    return points(FilterRange(expression, SCHEMA).can_hold, name, SCHEMA.field(name).type)


@pytest.mark.parametrize(
    ("expression", "name", "values"),
    [
        (D == "393acf66", "d", ["393acf66"]),
        (D.isin(["bcd", "a", "\xfcn\U0001f600"]), "d", ["a", "bcd", "\xfcn\U0001f600"]),
        ((D == "b") | (D == "a"), "d", ["a", "b"]),
        ((D == "abc") & (X > 5) & D.is_valid(), "d", ["abc"]),
        ((D >= "a") & (D <= "a"), "d", ["a"]),
        (D == "", "d", [""]),
        (D == "\ue000\U0010ffff", "d", ["\ue000\U0010ffff"]),
        (N == 5, "n", [5]),
        (N.isin([5, 6, -7]), "n", [-7, 5, 6]),
        (N == -(1 << 31), "n", [-(1 << 31)]),
        (N == (1 << 31) - 1, "n", [(1 << 31) - 1]),
        (pa.scalar((1 << 64) - 1, pa.uint64()) == U, "u", [(1 << 64) - 1]),
        ((N == 3) & (D == "zz"), "n", [3]),
        ((N == 3) & (D == "zz"), "d", ["zz"]),
        (N > 5, "n", None),
        ((N > 5) & (N < 12), "n", None),
        (N.isin([*range(0, 4 * POINTS_MAX + 4, 4)]), "n", None),
        (D > "a", "d", None),
        (D != "a", "d", None),
        (~(D == "a"), "d", None),
        ((D == "abc") | (X > 5), "d", None),
        (D.is_null() | (D == "a"), "d", None),
        (pc.ascii_lower(D) == "ab", "d", None),
        (pc.starts_with(D, "a"), "d", None),
        (D == "x" * 500, "d", None),
        (N == 5, "d", None),
        (X == 5, "x", None),
        (pc.scalar(True), "d", None),
    ],
)
def test_values_for_which_alone_a_filter_can_hold(
    expression: Any, name: str, values: list[Any] | None
) -> None:
    assert found(expression, name) == values


def test_values_that_are_not_proved_are_not_told() -> None:
    whole = FilterRange(N == 5, SCHEMA).can_hold

    def doubtful(known: Any) -> bool:
        return "n < 5" in str(known[0]) or whole(known)

    assert points(whole, "n", pa.int32()) == [5]
    assert points(doubtful, "n", pa.int32()) is None


TEXTS = st.text(st.sampled_from("ab\0\x7f\x80\xe4\ud7ff\ue000\U0010ffff"), max_size=3)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> Any:
    """An expression about d, n and x."""
    if depth and draw(st.booleans()):
        one, other = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        return draw(st.sampled_from([one & other, one | other, ~one]))
    texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
    numbers = draw(st.lists(st.integers(-4, 4), min_size=1, max_size=3))
    return draw(
        st.sampled_from(
            [texts[0] == D, D.isin(texts), texts[0] < D, texts[0] >= D, D.is_null(), D.is_valid(),
             numbers[0] == N, N.isin(numbers), numbers[0] > N, numbers[0] <= N, N.is_null(), X > 1]
        )
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    expressions(),
    st.lists(
        st.fixed_dictionaries(
            {"d": st.none() | TEXTS, "n": st.none() | st.integers(-5, 5),
             "x": st.none() | st.floats(allow_nan=True)}
        ),
        max_size=20,
    ),
)  # fmt: skip
def test_no_row_that_matches_has_another_value(expression: Any, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    matching = table.filter(expression)
    for name in "dn":
        values = found(expression, name)
        if values is not None:
            assert set(matching[name].to_pylist()) <= set(values)
