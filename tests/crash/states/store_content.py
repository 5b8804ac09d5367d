"""All that a store tells of itself through its public face, as plain values to compare."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import logstore
from logstore.options import stored
from tests.support.inside import START_MS, FixedClock

LOOK_MS = START_MS + 50_000  # when it is looked at: idle times are told from then on

ONCE, ONE_MS = timedelta(0), timedelta(milliseconds=1)

Content = dict[str, Any]


def content(store: logstore.Store[bytes], clock: FixedClock, look_ms: int = LOOK_MS) -> Content:
    """Every stream with its entries, groups, settings, schedules and producers, looked at then."""
    before, clock.ms = clock.ms, look_ms
    try:
        return {name.decode(): _stream(store, name, look_ms) for name in store.streams()}
    finally:
        clock.ms = before


def raw(entry: Any) -> list[tuple[bytes, bytes]]:
    """What is stored of an entry, beneath a schema or a codec."""
    flat = entry._flat
    return list(zip(flat[::2], flat[1::2], strict=True))


def short(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Fields with the digest of what is long."""
    return [
        (name, value if len(value) < 100 else blake2b(value, digest_size=8).hexdigest().encode())
        for name, value in pairs
    ]


def unix_ms(moment: datetime) -> int:
    """Unix milliseconds of a moment."""
    return round(moment.timestamp() * 1000)


def _stream(store: logstore.Store[bytes], name: bytes, look_ms: int) -> Content:
    stream = store.stream(name)
    info = stream.info()
    rows = [(str(entry.id), short(raw(entry))) for entry in stream.range()]
    back = [(str(entry.id), short(raw(entry))) for entry in stream.range(reverse=True)]
    assert rows == back[::-1]
    assert info.length == len(stream) == len(rows)
    for entry in stream.range(count=1, reverse=True):
        wanted = dict(raw(entry)[:1])
        alike = [str(entry.id) for entry in stream if wanted.items() <= dict(raw(entry)).items()]
        assert [str(entry.id) for entry in stream.range(where=wanted)] == alike
    scheduled = [
        (each.key.due_ms, short(raw(each)), each.name, (each.every or ONCE) // ONE_MS)
        for each in stream.scheduled()
    ]
    assert info.scheduled == len(scheduled)
    groups = stream.groups()
    assert info.groups == len(groups)
    return {
        "rows": rows,
        "last": str(info.last_generated_id),
        "deleted": str(info.max_deleted_entry_id),
        "added": info.entries_added,
        "settings": stored(info.settings),
        "scheduled": scheduled,
        "producers": (info.pids_tracked, info.iids_tracked, info.iids_added, info.iids_duplicates),
        "groups": {
            each.name.decode(): _group(stream.group(each.name), each, look_ms) for each in groups
        },
        "expires": None if stream.expires_at is None else unix_ms(stream.expires_at),
        "schema": None if info.schema is None else info.schema.text,
    }


def _group(group: logstore.Group[bytes], info: logstore.GroupInfo[bytes], look_ms: int) -> Content:
    pending = [
        (str(each.id), each.consumer and each.consumer.decode(), each.delivery_count,
         None if each.idle is None else look_ms - round(each.idle.total_seconds() * 1000))
        for each in group.pending_entries()
    ]  # fmt: skip
    summary = group.pending()
    assert info.pending == summary.count == len(pending)
    consumers = {}
    for each in group.consumers():
        if not each.name:  # what waits for its time is told as nobody's
            consumers[""] = (str(each.idle), None)
            continue
        mine = [row for row in pending if row[1] == each.name.decode()]
        assert each.pending == len(mine) == summary.consumers.get(each.name, 0)
        own = group.pending_entries(consumer=each.name)
        assert [str(row.id) for row in own] == [row[0] for row in mine]
        consumers[each.name.decode()] = (
            str(each.idle), None if each.inactive is None else str(each.inactive)
        )  # fmt: skip
    return {
        "last": str(info.last_delivered_id),
        "read": info.entries_read,
        "lag": info.lag,
        "settings": stored(info.settings),
        "pending": pending,
        "consumers": consumers,
    }


def plain(found: Content) -> Content:
    """The part that the model reckons with: not what XINFO derives, nor when somebody looked."""
    return {
        name: {
            **{key: value for key, value in each.items() if key != "groups"},
            "groups": {
                group: {
                    "last": of["last"], "settings": of["settings"], "pending": of["pending"],
                    "consumers": sorted(of["consumers"]),
                }
                for group, of in each["groups"].items()
            },
        }
        for name, each in found.items()
    }  # fmt: skip
