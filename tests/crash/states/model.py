"""What a store must hold, by the model of ``tests/model``, as plain values.

The semantics are those of ``StoreModel`` and ``Group``. Here is only how their state is written as
the values that ``store_content.plain`` gives, and how it begins with what a directory held already.
"""

from __future__ import annotations

from typing import Any

from tests.crash.states.store_content import Content, short
from tests.model.groups import ID, Consumer, Group, Held, Pairs
from tests.model.store import StoreModel
from tests.model.streams import SETTINGS, Stream, Waits
from tests.support.inside import START_MS

GROUP_SETTINGS = ("max_deliveries", "dead_letter", "min_idle_ms")


def number(id: str) -> ID:
    """An ID as it is ordered."""
    ms, _, seq = id.partition("-")
    return int(ms), int(seq)


def text(id: ID) -> str:
    """An ID as it is printed."""
    return f"{id[0]}-{id[1]}"


def value(n: int, size: int = 30) -> bytes:
    """A value that names its entry."""
    return (b"%06d" % n) * (size // 6 + 1)


def pairs(n: int, size: int = 30) -> Pairs:
    """The fields of an entry, as they are compared."""
    return tuple(short([(b"v", value(n, size))]))


def begun(content: Content) -> StoreModel:
    """A model of a store that holds this already."""
    model = StoreModel(START_MS)
    for name, told in content.items():
        stream = model.existing(name.encode())
        stream.entries = {number(id): tuple(fields) for id, fields in told["rows"]}
        stream.last, stream.max_deleted = number(told["last"]), number(told["deleted"])
        stream.added = told["added"]
        stream.settings |= told["settings"]
        stream.scheduled = [
            Waits(due, place, tuple(fields), name, every_ms, due)
            for place, (due, fields, name, every_ms) in enumerate(told["scheduled"])
        ]
        # Only their numbers can be told from outside.
        producers, ids, stream.iids_added, stream.iids_duplicates = told["producers"]
        stream.remembered = [
            (b"%d" % (place % producers), b"%d" % place, stream.last) for place in range(ids)
        ]
        stream.expires_ms = told["expires"] or 0
        stream.groups = {group.encode(): _begun_group(of) for group, of in told["groups"].items()}
    return model


def _begun_group(told: Content) -> Group:
    held = {
        number(id): Held(None if who is None else who.encode(), at_ms or 0, count)
        for id, who, count, at_ms in told["pending"]
    }
    consumers = {name.encode(): Consumer(START_MS) for name in told["consumers"]}
    return Group(number(told["last"]), consumers=consumers, pending=held, **told["settings"])


def model_content(model: StoreModel) -> Content:
    """What the model holds now, as ``store_content.plain`` tells of a store."""
    return {name.decode(): _stream(model.streams[name]) for name in model.names()}


def _stream(of: Stream) -> Content:
    producers = {producer for producer, _, _ in of.remembered}
    return {
        "rows": [(text(id), list(fields)) for id, fields in of.entries.items()],
        "last": text(of.last),
        "deleted": text(of.max_deleted),
        "added": of.added,
        "settings": _changed(of.settings, SETTINGS),
        "scheduled": [
            (each.due, list(each.pairs), each.name, each.every_ms) for each in sorted(of.scheduled)
        ],
        "producers": (len(producers), len(of.remembered), of.iids_added, of.iids_duplicates),
        "groups": {name.decode(): _group(group) for name, group in sorted(of.groups.items())},
        "expires": of.expires_ms or None,
        "schema": of.schema,
    }


def _group(of: Group) -> Content:
    return {
        "last": text(of.last),
        "settings": _changed({name: getattr(of, name) for name in GROUP_SETTINGS}, {}),
        "pending": [
            # What waits for its time is nobody's (b""), and told as what waits for nothing.
            (text(id), held.owner.decode() if held.owner else None, held.count,
             held.time if held.owner else None)
            for id, held in sorted(of.pending.items())
        ],
        "consumers": sorted(name.decode() for name in of.consumers),
    }  # fmt: skip


def _changed(settings: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value != plain.get(name)}
