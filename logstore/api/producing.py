"""Arguments of idempotent adds: who adds, and the idempotent ID of each row, given or computed.

Invariants: all is refused here, before a lock is taken; IDs are computed here, too, outside of it.
With a producer, what stands before the fields of a row is its idempotent ID and not an entry's: the
IDs of such entries are always given by the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias, cast

from logstore.api import arguments
from logstore.codec import Row, RowBatch
from logstore.engine.streams.idempotency import Asked
from logstore.errors import EntryTypeError, InvalidEntryError, OptionError, TooLargeError
from logstore.ids import IDLike
from logstore.options import PRODUCER_ID_MAX_BYTES

Name: TypeAlias = str | bytes


def asked(
    batch: RowBatch,
    id: IDLike,
    producer: Name | None,
    idempotent_id: Name | None,
    encoding: str | None,
) -> Asked:
    """The producer of the one row of ``batch``, and its ID; computed if None is given."""
    if producer is None:
        raise OptionError("an idempotent ID is known of one producer: give producer=, too")
    if id not in ("*", b"*"):
        raise OptionError(
            "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs: "
            "leave id out, or producer"
        )
    who = _producer(producer, encoding)
    if idempotent_id is None:
        return Asked(who, _computed(batch))
    return Asked(who, [_given(idempotent_id, encoding)])


def batches(
    items: Iterable[Row | tuple[Any, Row]],
    size: int,
    producer: Name,
    encoding: str | None,
    made: Callable[[list[Any]], RowBatch],
) -> Iterator[tuple[Asked, RowBatch]]:
    """Rows in batches, each with its idempotent IDs: all rows of one call have one, or none."""
    who = _producer(producer, encoding)
    source = arguments.iterated(items)
    done = 0
    with_id: bool | None = None
    while chunk := list(islice(source, size)):
        if with_id is None:
            with_id = _with_id(chunk[0])
        if not with_id:
            batch = made(chunk)
            yield Asked(who, _computed(batch)), batch
            continue
        names: list[bytes] = []
        fields: list[Row] = []
        for place, row in enumerate(chunk, done):
            if not _with_id(row):
                raise InvalidEntryError(
                    f"row {place}: give every row of one call an idempotent ID, (id, fields), "
                    "or none of them"
                )
            name, given = cast("tuple[Name, Row]", row)
            names.append(_given(name, encoding))
            fields.append(given)
        done += len(chunk)
        yield Asked(who, names), made(fields)


def _with_id(row: Any) -> bool:
    """Whether a row is (ID, fields); of two pairs in a tuple the first is no ID."""
    is_pair = isinstance(row, tuple) and len(row) == 2
    return is_pair and not isinstance(row[0], tuple) and isinstance(row[1], (Mapping, list))


def _computed(batch: RowBatch) -> list[bytes]:
    from logstore.codec.fingerprint import fingerprint  # needs xxhash, which nothing else does

    return [fingerprint(batch.flat(place)) for place in range(len(batch))]


def _producer(name: Name, encoding: str | None) -> bytes:
    producer = _named(name, encoding, "a producer ID")
    if not producer:
        raise OptionError(
            "syntax error, IDMP requires a non-empty producer ID: give each producer one of its "
            "own, which it keeps when it starts again"
        )
    return producer


def _given(name: Name, encoding: str | None) -> bytes:
    idempotent_id = _named(name, encoding, "an idempotent ID")
    if not idempotent_id:
        raise OptionError(
            "syntax error, IDMP requires a non-empty idempotent ID: leave it out and it is "
            "computed from the fields"
        )
    return idempotent_id


def _named(name: Name, encoding: str | None, what: str) -> bytes:
    if isinstance(name, str):
        name = arguments.text_bytes(name, encoding)
    if not isinstance(name, bytes):
        raise EntryTypeError(f"{what} is str or bytes, not {type(name).__name__}")
    if len(name) > PRODUCER_ID_MAX_BYTES:
        raise TooLargeError(
            f"{what} has at most {PRODUCER_ID_MAX_BYTES} bytes, not {len(name)}: give its hash"
        )
    return name
