"""What ``logstore info`` prints, as JSON and for eyes, held against the model.

The names and forms are written down here once more; the values are those of ``told``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.groups.model import ID, Pairs
from tests.model import expected_info
from tests.tools.commands import ok

if TYPE_CHECKING:
    from tests.model.both import Both

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


def line(id: ID, pairs: Pairs) -> str:
    """An entry for eyes."""
    parts = [shlex.quote(f"{text(field)}={text(value)}") for field, value in pairs]
    return " ".join([f"{id[0]}-{id[1]}", *parts])


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


def stream(wanted: dict[str, Any], groups: list[dict[str, Any]], *, eyes: bool) -> dict[str, Any]:
    """What is told of a stream."""
    of, shown = wanted["settings"], line if eyes else entry
    ends = {key: None if wanted[key] is None else shown(*wanted[key])
            for key in ("first_entry", "last_entry")}  # fmt: skip
    return {
        **named(wanted["name"], eyes=eyes), **plain(wanted), **ends,
        "idmp_duration": of.idempotent_duration_s, "idmp_maxsize": of.idempotent_max_ids,
        "consumer_groups": [{**named(each["name"], eyes=eyes), **plain(each)} for each in groups],
    }  # fmt: skip


def named(raw: bytes | None, key: str = "name", *, eyes: bool) -> dict[str, Any]:
    """A name in one of the forms."""
    return {key: None if raw is None else text(raw)} if eyes else name(raw, key)


def full(wanted: dict[str, Any], *, eyes: bool) -> dict[str, Any]:
    """The same in full."""
    of, shown = wanted["settings"], line if eyes else entry
    return {
        **named(wanted["name"], eyes=eyes), **plain(wanted),
        "idmp_duration": of.idempotent_duration_s, "idmp_maxsize": of.idempotent_max_ids,
        "entries": [shown(*each) for each in wanted["entries"]],
        "groups": [_group(each, eyes=eyes) for each in wanted["group_infos"]],
    }  # fmt: skip


def _group(wanted: dict[str, Any], *, eyes: bool) -> dict[str, Any]:
    last = wanted["last_delivered_id"]
    return {
        **named(wanted["name"], eyes=eyes), "last_delivered_id": f"{last[0]}-{last[1]}",
        "entries_read": wanted["entries_read"], "lag": wanted["lag"],
        "pel_count": wanted["pending"], "nacked_count": wanted["nacked"],
        "settings": settings(wanted["settings"]),
        "pending": [
            {**_held(each), **named(each["consumer"], "consumer", eyes=eyes)}
            for each in wanted["pending_entries"]
        ],
        "consumers": [
            {
                **named(each["name"], eyes=eyes), "seen_time": each["seen_ms"],
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


def lines(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """The lines for eyes, of names and values."""
    for key, value in values.items():
        label = f"{above}{key}".replace("_", " ")
        if isinstance(value, dict):
            yield from lines(value, f"{label} ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield label, str(len(value))
            for place, each in enumerate(value, 1):
                yield from lines(each, f"{label} {place} ")
        elif isinstance(value, list):
            yield label, ", ".join(value) or "none"
        elif value is None:
            yield label, "-"
        else:
            yield label, f"{value:,}" if isinstance(value, int) else str(value)


def look_at_commands(both: Both) -> None:
    """All that the command tells of the closed store, by the system's clock."""
    shelf, before = both.shelf, both.shelf.now
    shelf.now = now_ms = time.time_ns() // 1_000_000
    try:
        wanted = expected_info.store(shelf, both.log, both.path, now_ms, both.compacted)
        wanted = {key: value for key, value in wanted.items() if key not in APART}
        compare(both, [], wanted, wanted)
        for each in shelf.names()[: 1 + both.what["reopen"] % 3]:
            of = shelf.streams[each]
            found = expected_info.stream(shelf, both.log, each)
            groups = [
                expected_info.group(one, there, of) for one, there in sorted(of.groups.items())
            ]
            forms = [stream(found, groups, eyes=eyes) for eyes in (False, True)]
            compare(both, [os.fsdecode(each)], *forms)
            count = both.what["rebuild"] % 4
            found = expected_info.full(shelf, both.log, each, count, now_ms)
            forms = [full(found, eyes=eyes) for eyes in (False, True)]
            compare(both, [os.fsdecode(each), "--full", "--count", str(count)], *forms)
    finally:
        shelf.now = before


def compare(both: Both, arguments: list[str], wanted: Any, eyes: Any) -> None:
    """Run the command in both forms."""
    printed = json.loads(ok("info", both.path, *arguments, "--json"))
    apart = {} if arguments else expected_info.APART["StoreInfo"] | APART
    given = {key: value for key, value in printed.items() if key not in apart}
    both.compared.same(given, wanted, f"info {arguments} --json")
    assert set(apart) <= set(printed)
    shown: dict[str, str] = {}
    label = ""
    for each in ok("info", both.path, *arguments).splitlines():
        if each.startswith(" "):  # what is longer than a line goes on in the next
            shown[label] += "".join(each.split())
            continue
        label, value = re.split(r"  +", each, maxsplit=1)
        assert label not in shown
        shown[label] = "".join(value.split())
    apart = {each.replace("_", " "): "" for each in apart}
    given = {label: value for label, value in shown.items() if label not in apart}
    both.compared.same(given, {
        label: "".join(value.split()) for label, value in lines(eyes)
    }, f"info {arguments}")  # fmt: skip
    both.compared.numbers += sum(value.replace(",", "").isdigit() for value in given.values())
    both.what["commands"] += 2
