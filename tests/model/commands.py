"""What ``logstore info --json`` prints, held against the model.

The names and forms are written down here once more; the values are those of ``told``. What the
command writes for people is looked at in ``tests/tools``; here it only must not fail.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.model import expected_info
from tests.model.groups import ID, Pairs
from tests.tools.commands import ok

if TYPE_CHECKING:
    from tests.model.beside_model import StoreAndModel

# The command opens the store without writing, and builds an index of its own: it tells of that one.
APART = {"index_bytes": "of a private index", "index_generation": "of a private index"}
IDS = {"last_generated_id", "max_deleted_entry_id", "recorded_first_entry_id", "last_delivered_id"}


def text(raw: bytes) -> str:
    """For eyes."""
    return raw.decode("utf-8", "backslashreplace")


def name(raw: bytes | None, key: str = "name") -> dict[str, Any]:
    """A name in JSON."""
    try:
        return {key: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        assert raw is not None
        return {f"{key}_base64": b64encode(raw).decode()}


def entry(id: ID, pairs: Pairs) -> dict[str, Any]:
    """An entry in JSON."""
    shown = f"{id[0]}-{id[1]}"
    try:
        plain = [[field.decode(), value.decode()] for field, value in pairs]
    except UnicodeDecodeError:
        packed = [[b64encode(part).decode() for part in pair] for pair in pairs]
        return {"id": shown, "pairs_base64": packed}
    fields = dict(plain)
    return {"id": shown, "pairs": plain} if len(fields) < len(plain) else {
        "id": shown, "fields": fields,
    }  # fmt: skip


def settings(of: Any) -> dict[str, Any]:
    """Settings, whose bytes are names."""
    return {key: text(value) if isinstance(value, bytes) else value
            for key, value in of._asdict().items()}  # fmt: skip


def plain(wanted: dict[str, Any]) -> dict[str, Any]:
    """The fields that both forms have, by name."""
    found: dict[str, Any] = {}
    for key, value in wanted.items():
        if key == "settings":
            found[key] = settings(value)
        elif key in IDS:
            found[key] = f"{value[0]}-{value[1]}"
        elif isinstance(value, datetime):
            found[key] = value.isoformat()
        elif key not in ("name", "first_entry", "last_entry", "entries", "group_infos"):
            found[key] = value
    return found


def stream(wanted: dict[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """What is told of a stream."""
    of = wanted["settings"]
    ends = {key: None if wanted[key] is None else entry(*wanted[key])
            for key in ("first_entry", "last_entry")}  # fmt: skip
    return {
        **name(wanted["name"]), **plain(wanted), **ends,
        "idmp_duration": of.idempotent_duration_s, "idmp_maxsize": of.idempotent_max_ids,
        "consumer_groups": [{**name(each["name"]), **plain(each)} for each in groups],
    }  # fmt: skip


def full(wanted: dict[str, Any]) -> dict[str, Any]:
    """The same in full."""
    of = wanted["settings"]
    return {
        **name(wanted["name"]), **plain(wanted),
        "idmp_duration": of.idempotent_duration_s, "idmp_maxsize": of.idempotent_max_ids,
        "entries": [entry(*each) for each in wanted["entries"]],
        "groups": [_group(each) for each in wanted["group_infos"]],
    }  # fmt: skip


def _group(wanted: dict[str, Any]) -> dict[str, Any]:
    last = wanted["last_delivered_id"]
    return {
        **name(wanted["name"]), "last_delivered_id": f"{last[0]}-{last[1]}",
        "entries_read": wanted["entries_read"], "lag": wanted["lag"],
        "pel_count": wanted["pending"], "nacked_count": wanted["nacked"],
        "settings": settings(wanted["settings"]),
        "pending": [
            {**_held(each), **name(each["consumer"], "consumer")}
            for each in wanted["pending_entries"]
        ],
        "consumers": [
            {
                **name(each["name"]), "seen_time": each["seen_ms"],
                "active_time": -1 if each["active_ms"] is None else each["active_ms"],
                "pel_count": each["pending"],
                "pending": [_held(one) for one in each["pending_entries"]],
            }
            for each in wanted["consumer_infos"]
        ],
    }  # fmt: skip


def _held(wanted: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{wanted['id'][0]}-{wanted['id'][1]}", "delivery_time": wanted["delivered_ms"] or 0,
        "delivery_count": wanted["delivery_count"],
    }  # fmt: skip


def look_at_commands(both: StoreAndModel) -> None:
    """All that the command tells of the closed store, by the system's clock."""
    model, before = both.model, both.model.now
    model.now = now_ms = time.time_ns() // 1_000_000
    try:
        wanted = expected_info.store(
            model, both.log, both.path, now_ms, both.compacted, len(both.pinned)
        )
        wanted = {key: value for key, value in wanted.items() if key not in APART}
        compare(both, [], wanted)
        for each in model.names()[: 1 + both.what["reopen"] % 3]:
            of = model.streams[each]
            found = expected_info.stream(model, both.log, each)
            groups = [
                expected_info.group(one, there, of) for one, there in sorted(of.groups.items())
            ]
            compare(both, [os.fsdecode(each)], stream(found, groups))
            count = both.what["rebuild"] % 4
            found = expected_info.full(model, both.log, each, count, now_ms)
            arguments = [os.fsdecode(each), "--full", "--count", str(count)]
            compare(both, arguments, full(found))
    finally:
        model.now = before


def compare(both: StoreAndModel, arguments: list[str], wanted: Any) -> None:
    """Run the command in both forms."""
    printed = json.loads(ok("info", both.path, *arguments, "--json"))
    apart = {} if arguments else expected_info.APART["StoreInfo"] | APART
    given = {key: value for key, value in printed.items() if key not in apart}
    both.compared.same(given, wanted, f"info {arguments} --json")
    assert set(apart) <= set(printed)
    assert ok("info", both.path, *arguments)
    both.what["commands"] += 2
