"""Values of each type of column, and texts of them and near them, as hypothesis draws them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import times as times_of_day

from logstore.schema import column_types
from logstore.schema.column_types import ColumnType, Enum, Fixed

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  a moment without a zone
MOMENTS = st.datetimes(timezones=st.just(UTC)) | st.datetimes(
    NAIVE.replace(year=2), NAIVE.replace(year=9998), timezones=st.timezones()
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip
VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    column_types.BOOL: st.booleans(),
    column_types.INT: st.integers(-(2**31), 2**31 - 1),
    column_types.LONG: st.integers(-(2**63), 2**63 - 1),
    column_types.DOUBLE: st.floats() | st.integers(-(2**53), 2**53).map(float),
    column_types.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    column_types.BINARY: st.binary(),
    column_types.DATE: st.dates(),
    column_types.TIMESTAMP: MOMENTS,
    column_types.TIME: times_of_day(),
    column_types.UUID_TYPE: st.uuids(),
    column_types.JSON: JSON_VALUES,
    Enum(["a", "b'", ""]): st.sampled_from(["a", "b'", ""]),
    **{
        fixed: st.decimals(
            -(10 ** (fixed.digits - fixed.scale)) + 1,
            10 ** (fixed.digits - fixed.scale) - 1,
            places=fixed.scale,
        )
        for fixed in (Fixed(10, 2), Fixed(38, 0), Fixed(3, 1))
    },
    Fixed(38, 38): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda digits: Decimal(f"{digits}e-38")
    ),
}
TEXTS = st.one_of(
    st.from_regex(r"\A[-+ ]?[0-9_]{0,25}[ .eE]?[-+]?[0-9]{0,4} ?\Z"),
    st.sampled_from(["nan", "-nan", "inf", "Infinity", "-INF", "TRUE", "False", "1", "0", "t", ""]),
    st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z"),
    st.from_regex(
        r"\A[0-9]{4}-[01][0-9]-[0-3][0-9][ T][012][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
        r"(Z|[-+][01][0-9](:?[0-5][0-9])?)?\Z"
    ),
    st.from_regex(r"\A[012][0-9]:[0-9]{2}(:[0-5][0-9](\.[0-9]{1,7})?)?\Z"),
    st.text(max_size=10),
)
