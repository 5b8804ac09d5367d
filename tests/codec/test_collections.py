"""Prevents a codec that goes on with what a collection in the midst of a call took from it.

The lists and buffers of a call are changed by code that the collector runs at each object which the
call makes. What comes out is of the input as it was or as it became, or an error; never of memory
that is somebody else's by then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from logstore.codec import Codec
from tests.collections.collector import Collector
from tests.wire.lines import request

ROWS = [{"temp": str(number), "hum": "7"} for number in range(40)]
Made = tuple[Callable[[], Any], Callable[[], object]]


def nodes(codec: Codec, ids: Any) -> Any:
    return codec.pack(codec.rows(ROWS), 0, len(ROWS), ids, None, 0, 0, 1 << 20, 2)


def conditions(codec: Codec) -> Made:
    lp = nodes(codec, (1, 1)).nodes[0].lp
    where = [b"hum", b"7"] * 40
    return lambda: codec.entries(lp, 1, 1, where=where), where.clear


def ids_of_rows(codec: Codec) -> Made:
    ids = [(number, 1) for number in range(1, len(ROWS) + 1)]
    return lambda: [node[:5] for node in nodes(codec, ids).nodes], ids.clear


def nodes_of_a_batch(codec: Codec) -> Made:
    given = list(nodes(codec, (1, 1)).nodes)
    of: Any = codec.NodeBatch.of
    return lambda: of(given).live, lambda: given.extend(given * 60)


def runs(codec: Codec) -> Made:
    held = codec.RunList()
    for number in range(1, 200):
        held.put(number * 7, 1, 3)

    def more() -> None:
        for number in range(5000):
            held.put(5000 + number * 7, 9, 3)

    return lambda: held.block(0)[:198], more


def requests(codec: Codec) -> Made:
    data = bytearray(request([b"PING", b"x" * 50]) * 40)
    return lambda: codec.resp_requests(data, 0, 1000)[0], lambda: grow(data)


def adds(codec: Codec) -> Made:
    words = [b"XADD", b"s", b"*", b"temp", b"12.5", b"hum", b"51"]
    data = bytearray(request(words) * 40)

    def call() -> Any:
        made = codec.resp_adds(data, 0, 1000, 100)
        assert made is not None
        return made[0], [made[1].flat(number) for number in range(len(made[1]))]

    return call, lambda: grow(data)


def grow(data: bytearray) -> None:
    """Move the bytes elsewhere; refused while a call reads them."""
    with suppress(BufferError):
        data[:0] = b"+" * 100_000
        del data[:100_000]


@pytest.mark.parametrize("case", [conditions, ids_of_rows, nodes_of_a_batch, runs, requests, adds])
def test_arguments_changed_by_a_collection_inside_a_call_do_no_harm(
    codec: Codec, case: Callable[[Codec], Made]
) -> None:
    call, change = case(codec)
    as_it_was = call()
    change()
    as_it_became: Any = None
    with suppress(ValueError):
        as_it_became = call()
    fired = moment = 0
    while fired == moment and moment < 60:
        moment += 1
        call, change = case(codec)
        with Collector(change) as collector:
            collector.after(moment)
            with suppress(ValueError):
                assert call() in (as_it_was, as_it_became)
            fired += collector.done
            collector.after(0)
    # From 3.12 on the collector waits for interpreted code.
    assert fired or sys.version_info >= (3, 12)
