"""What a stream's codec costs: processor time, over that of its bare encoding and decoding.

Of each side the same rows are added and read twice: through a stream with the codec, and through a
plain stream of a store without an encoding, which is given and gives the ready-made bytes. What the
codec costs is the difference. It is divided by the time of a loop that does nothing but to call the
library's own encoder, made once, for each value of the rows (or its decoder for each stored value):

    (time with the codec - time of the plain stream with the bytes) / time of the bare loop

Time is that of the processor in the thread that calls, and of each side the least of some rounds:
what else runs on the machine disturbs a difference of two times more than each of them.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgpack

import logstore
from benchmarks.harness import Bench, Result, Sample

NAME = "values"
LIMIT = 1.5
PAIRS = attrgetter("pairs")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Pickled:
    """A codec of one's own, of functions in C."""

    name = "pickle"
    encode = staticmethod(pickle.dumps)
    decode = staticmethod(pickle.loads)


class Bare(NamedTuple):
    """The library of a codec, called as directly as it can be, with the options that it needs: a
    loop that encodes values, and one that decodes them."""

    codec: Any
    encode: Callable[[Any], bytes]
    encode_all: Callable[[Iterable[Any]], None]
    decode_all: Callable[[Iterable[bytes]], None]


def _each(call: Callable[[Any], object], values: Iterable[Any]) -> None:
    for value in values:
        call(value)


def _json(values: Iterable[Any]) -> None:
    for value in values:
        TEXT(value).encode()


def _json_values(stored: Iterable[bytes]) -> None:
    for data in stored:
        VALUE(data.decode())


def _msgpack(values: Iterable[Any]) -> None:
    pack = msgpack.Packer(datetime=True).pack
    for value in values:
        pack(value)


def _msgpack_values(stored: Iterable[bytes]) -> None:
    unpackb = msgpack.unpackb
    for data in stored:
        unpackb(data, timestamp=3, strict_map_key=False)


def _tagged(value: Any) -> dict[str, str]:
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    raise TypeError(type(value))


def _untagged(found: dict[str, Any]) -> Any:
    if len(found) == 1 and "$datetime" in found:
        return datetime.fromisoformat(found["$datetime"])
    return found


TEXT = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_tagged
).encode
VALUE = json.JSONDecoder(object_hook=_untagged).decode
CODECS = {
    "json": Bare("json", lambda value: TEXT(value).encode(), _json, _json_values),
    "msgpack": Bare("msgpack", msgpack.Packer(datetime=True).pack, _msgpack, _msgpack_values),
    "one's own (pickle)": Bare(
        Pickled, pickle.dumps, partial(_each, pickle.dumps), partial(_each, pickle.loads)
    ),
}


def job(n: int) -> dict[str, Any]:
    """What is added to a queue."""
    return {"to": ["anna", "bob"], "at": MOMENT, "attempt": n, "note": None,
            "options": {"retry": True, "delay": 1.5}}  # fmt: skip


def reading(n: int) -> dict[str, Any]:
    """What a sensor measures: values as quickly encoded as they can be."""
    return {"sensor": "north-7", "speed": 30.5, "count": n, "valid": True}


ROWS = {"jobs": job, "readings": reading}


def run(bench: Bench) -> list[Result]:
    """Times the bare encoding or decoding that a codec costs."""
    found: list[Result] = []
    for label, bare in CODECS.items():
        for kind, make in ROWS.items():
            found += _measured(bench, label, bare, kind, make)
    return found


def _measured(
    bench: Bench, label: str, bare: Bare, kind: str, make: Callable[[int], dict[str, Any]]
) -> list[Result]:
    count = bench.size(5_000, 2_000)
    rows = [make(n) for n in range(count)]
    ready = [{name: bare.encode(value) for name, value in row.items()} for row in rows]
    values = [value for row in rows for value in row.values()]
    stored = [data for row in ready for data in row.values()]
    name = f"{label}, {kind}"
    place = bench.folder / f"values-{label[:4]}-{kind}"
    codec = bare.codec() if isinstance(bare.codec, type) else bare.codec
    with logstore.open(place, background=False) as store:
        plain, coded = store.stream("plain"), store.stream("coded", codec=codec)
        plain.add_many(ready)
        coded.add_many(rows)
        first = next(iter(ready[0]))
        ends = plain.last_id, coded.last_id  # what is read stays the same, whatever is added
        work: dict[str, tuple[Callable[[], object], ...]] = {
            "add_many": (
                partial(coded.add_many, rows), partial(plain.add_many, ready),
                partial(bare.encode_all, values),
            ),
            "add": (
                partial(_each, coded.add, rows), partial(_each, plain.add, ready),
                partial(bare.encode_all, values),
            ),
            "range, dict(entry)": (
                lambda: _each(dict, coded.range("-", ends[1])),
                lambda: _each(dict, plain.range("-", ends[0])),
                partial(bare.decode_all, stored),
            ),
            "range, entry.pairs": (
                lambda: _each(PAIRS, coded.range("-", ends[1])),
                lambda: _each(PAIRS, plain.range("-", ends[0])),
                partial(bare.decode_all, stored),
            ),
            "range, one field": (
                lambda: _each(itemgetter(first), coded.range("-", ends[1])),
                lambda: _each(itemgetter(first), plain.range("-", ends[0])),
                partial(bare.decode_all, [row[first] for row in ready]),
            ),
        }  # fmt: skip
        return [
            _cost(f"{what} with a codec: {name}", count, 2 * bench.rounds, sides)
            for what, sides in work.items()
        ]


def _cost(name: str, count: int, rounds: int, sides: tuple[Callable[[], object], ...]) -> Result:
    """Of the sides with the codec, plain, bare: what the first costs more than the second."""
    found: list[list[float]] = [[] for _ in sides]
    for number in range(-1, rounds):
        for side, values in zip(sides, found, strict=True):
            started_ns = time.thread_time_ns()
            side()
            took_us = (time.thread_time_ns() - started_ns) / count / 1e3
            if number >= 0:
                values.append(took_us)
    coded, plain, bare = map(min, found)
    cost = (coded - plain) / bare
    return Result(
        name,
        "us an entry, of processor time",
        Sample("with the codec", [coded]),
        Sample("bare", [bare]),
        cost,
        f"<= {LIMIT:g} x bare beyond plain",
        cost <= LIMIT,
        f"the plain stream {plain:.3g}",
    )
