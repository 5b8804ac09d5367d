"""How entries look where people, and not programs, read them: terminals, notebooks, web answers.

Invariants: what is shown is short, however large an entry is, and says what was left out; nothing
that was stored is taken for markup. It is loaded when something is shown first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from itertools import islice
from typing import Any

from logstore.loading import load

VALUE_MAX = 80  # characters or bytes of a value that are shown
FIELDS_MAX = 20  # fields that are shown


def value(given: Any) -> str:
    """A value, cut if it is long; the whole length stands behind it then."""
    if isinstance(given, str | bytes) and len(given) > VALUE_MAX:
        unit = "bytes" if isinstance(given, bytes) else "characters"
        return f"{given[:VALUE_MAX]!r}... ({len(given)} {unit})"
    shown = repr(given)
    return (
        shown
        if len(shown) <= 2 * VALUE_MAX or isinstance(given, str | bytes)
        else (f"{shown[: 2 * VALUE_MAX]}...")
    )


def mapping(fields: Mapping[Any, Any]) -> str:
    """Fields as a dict is shown, long ones and very many of them cut."""
    shown = [f"{value(name)}: {value(fields[name])}" for name in islice(fields, FIELDS_MAX)]
    if len(fields) > FIELDS_MAX:
        shown.append(f"... ({len(fields)} fields)")
    return f"{{{', '.join(shown)}}}"


def table(caption: str | None, pairs: Iterable[tuple[Any, Any]]) -> str:
    """Fields as a table of HTML."""
    every = list(pairs)
    rows = [
        f"<tr><th>{escape(_cell(name))}</th><td>{escape(_cell(given))}</td></tr>"
        for name, given in every[:FIELDS_MAX]
    ]
    if len(every) > FIELDS_MAX:
        rows.append(f"<tr><td colspan='2'>... ({len(every)} fields)</td></tr>")
    head = "" if caption is None else f"<caption>{escape(caption)}</caption>"
    return f"<table>{head}{''.join(rows)}</table>"


def _cell(given: Any) -> str:
    """Text as it is, all else as Python writes it."""
    if isinstance(given, str) and len(given) <= VALUE_MAX and given.isprintable():
        return given
    return value(given)


def pydantic_schema(made: type[Any], make: Callable[[dict[str, Any]], Any] | None) -> Any:
    """What pydantic needs to know of entries: instances are taken, and given as ``as_dict``; what
    looks so becomes an entry again by ``make``.
    """
    schemas = load("pydantic_core.core_schema")  # only pydantic calls this
    shape = schemas.typed_dict_schema(
        {
            "id": schemas.typed_dict_field(schemas.str_schema()),
            "fields": schemas.typed_dict_field(
                schemas.nullable_schema(
                    schemas.dict_schema(schemas.any_schema(), schemas.any_schema())
                )
            ),
        }
    )
    taken: Any = shape
    python: Any = schemas.is_instance_schema(made)
    if make is not None:
        taken = schemas.no_info_after_validator_function(make, shape)
        python = schemas.union_schema([python, taken])
    return schemas.json_or_python_schema(
        json_schema=taken,
        python_schema=python,
        serialization=schemas.plain_serializer_function_ser_schema(
            made.as_dict, return_schema=shape
        ),
    )
