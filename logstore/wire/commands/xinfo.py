"""XINFO and its subcommands."""

from __future__ import annotations

from functools import partial
from typing import Any

from logstore.api.entry import Entry
from logstore.api.info import FullConsumerInfo, FullGroupInfo, Gathering, StreamInfo, stream_info
from logstore.api.opening import opened_of
from logstore.engine.groups import group_rows as describing
from logstore.engine.txn.group_view import signed
from logstore.wire.resp.outgoing import ReplyRows
from logstore.wire.resp.reply import SYNTAX, Failed, Reply, Simple
from logstore.wire.resp.words import Words
from logstore.wire.service import Client, Parse
from logstore.wire.steps import CommandStep, Reader, ReadStep, ReplyStep
from logstore.wire.table import Command

_HELP = (
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Tell of the consumers of a group.",
    "GROUPS <key>",
    "    Tell of the groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Tell of a stream.",
    "HELP",
    "    Print this help.",
)


def flat(entry: Entry[Any] | None) -> Reply:
    """An entry as replies have it."""
    if entry is None:
        return None
    return [bytes(entry.id), [part for pair in entry.pairs for part in pair]]


def head(info: StreamInfo[bytes], profile: str) -> dict[bytes, Reply]:
    """The fields that the plain and the full form have in common, in the peers' order."""
    fields: dict[bytes, Reply] = {
        b"length": info.length,
        b"radix-tree-keys": info.radix_tree_keys,
        b"radix-tree-nodes": info.radix_tree_nodes,
        b"last-generated-id": bytes(info.last_generated_id),
        b"max-deleted-entry-id": bytes(info.max_deleted_entry_id),
        b"entries-added": signed(info.entries_added),
        b"recorded-first-entry-id": bytes(info.recorded_first_entry_id),
    }
    if profile == "redis-8.10":
        fields |= {
            b"idmp-duration": info.settings.idempotent_duration_s,
            b"idmp-maxsize": info.settings.idempotent_max_ids,
            b"pids-tracked": info.pids_tracked,
            b"iids-tracked": info.iids_tracked,
            b"iids-added": info.iids_added,
            b"iids-duplicates": info.iids_duplicates,
        }
    return fields


def stream(client: Client, words: Words) -> CommandStep:
    """As XINFO STREAM."""
    key = words.next()
    profile = client.service.profile
    if len(words):
        try:
            return _full(client, key, words)
        except Failed as failed:  # the peers look for the key before they read on
            return ReadStep(partial(_refused, key, failed))

    def find(reader: Reader) -> Reply:
        info = reader.once(lambda view: stream_info(view, key, None))
        return head(info, profile) | {
            b"groups": info.groups,
            b"first-entry": flat(info.first_entry),
            b"last-entry": flat(info.last_entry),
        }

    return ReadStep(find)


FULL_COUNT = 10
ROW_HELD_BYTES = 600  # of memory that a group or a consumer takes as a value, beside its name


def _refused(key: bytes, failed: Failed, reader: Reader) -> Reply:
    reader.once(lambda view: stream_info(view, key, None))
    raise failed


def _full(client: Client, key: bytes, words: Words) -> CommandStep:
    """As XINFO STREAM FULL."""
    if not words.take(b"FULL"):
        raise Failed(SYNTAX)
    count = FULL_COUNT
    if len(words):
        if not words.take(b"COUNT"):
            raise Failed(SYNTAX)
        count = words.integer()
        count = FULL_COUNT if count < 0 else count
    words.end()
    profile, store = client.service.profile, client.database.store

    def find(reader: Reader) -> Reply:
        entries, rows = reader.rows(), reader.rows()
        gather = Gathering(
            opened_of(store),
            key,
            count,
            rows.weigh,
            lambda some: entries.add([flat(entry) for entry in some]),
        )
        gather.all_of(reader.once)
        info = gather.head()
        groups = rows.all_of(gather.groups, lambda group: _group(group.result(), profile))
        return head(info, profile) | {b"entries": entries.done(), b"groups": groups}

    return ReadStep(find)


def _group(info: FullGroupInfo[bytes], profile: str) -> Reply:
    fields: dict[bytes, Reply] = {
        b"name": info.name,
        b"last-delivered-id": bytes(info.last_delivered_id),
        b"entries-read": info.entries_read,
        b"lag": info.lag,
        b"pel-count": info.pending,
    }
    if profile == "redis-8.10":
        fields[b"nacked-count"] = info.nacked
    return fields | {
        b"pending": [
            [bytes(entry.id), entry.consumer or b"", entry.delivered_ms or 0, entry.delivery_count]
            for entry in info.pending_entries
        ],
        b"consumers": [_consumer(consumer) for consumer in info.consumer_infos],
    }


def _consumer(info: FullConsumerInfo[bytes]) -> Reply:
    return {
        b"name": info.name,
        b"seen-time": info.seen_ms,
        b"active-time": -1 if info.active_ms is None else info.active_ms,
        b"pel-count": info.pending,
        b"pending": [
            [bytes(entry.id), entry.delivered_ms or 0, entry.delivery_count]
            for entry in info.pending_entries
        ],
    }


def every_consumer(
    reader: Reader, rows: ReplyRows, key: bytes, group: bytes
) -> list[describing.ConsumerRow]:
    """A group's consumers by name, read in pages and weighed: they are to become ``rows``."""
    now_ms = reader.now_ms
    every: list[describing.ConsumerRow] = []
    following: int | None = 0
    while following is not None:
        page, following = reader.once(
            partial(
                describing.consumer_page, stream=key, group=group, after=following, now_ms=now_ms
            )
        )
        rows.weigh(sum(ROW_HELD_BYTES + len(row.name) for row in page))
        every += page
    every.sort(key=lambda row: row.name)
    return every


def _group_row(row: describing.GroupRow) -> Reply:
    return {
        b"name": row.name,
        b"consumers": row.consumers,
        b"pending": row.pending,
        b"last-delivered-id": bytes(row.last_delivered_id),
        b"entries-read": row.entries_read,
        b"lag": row.lag,
    }


def _consumer_row(row: describing.ConsumerRow) -> Reply:
    return {
        b"name": row.name,
        b"pending": row.pending,
        b"idle": row.idle_ms,
        b"inactive": row.inactive_ms,
    }


def groups(_client: Client, words: Words) -> CommandStep:
    """As XINFO GROUPS."""
    key = words.next()

    def find(reader: Reader) -> Reply:
        rows = reader.rows()
        every: list[describing.GroupRow] = []
        following: bytes | None = b""
        while following is not None:
            page, following = reader.once(
                partial(describing.group_page, stream=key, after=following)
            )
            rows.weigh(sum(ROW_HELD_BYTES + len(row.name) for row, _ in page))
            every += [row for row, _ in page]
        every.sort(key=lambda row: row.name)
        return rows.all_of(every, _group_row)

    return ReadStep(find)


def consumers(_client: Client, words: Words) -> CommandStep:
    """As XINFO CONSUMERS."""
    key, group = words.next(), words.next()

    def find(reader: Reader) -> Reply:
        rows = reader.rows()
        return rows.all_of(every_consumer(reader, rows, key, group), _consumer_row)

    return ReadStep(find)


def helped(_client: Client, _words: Words) -> CommandStep:
    """As XINFO HELP."""
    return ReplyStep(lambda: [Simple(line.encode()) for line in _HELP])


def _sub(name: str, arity: int, parse: Parse, complexity: str, summary: str) -> Command:
    of_key = name != "help"
    return Command(
        f"xinfo|{name}",
        arity,
        parse,
        ("readonly",) if of_key else ("loading", "stale"),
        (2, 2, 1) if of_key else (0, 0, 0),
        "5.0.0",
        complexity,
        summary=summary,
        categories=("read", "stream", "slow") if of_key else ("stream", "slow"),
    )


_SUBCOMMANDS = [
    _sub("stream", -3, stream, "O(1)", "Tells of a stream."),
    _sub("groups", 3, groups, "O(N), N groups", "Tells of the groups of a stream."),
    _sub("consumers", 4, consumers, "O(N), N consumers", "Tells of the consumers of a group."),
    _sub("help", 2, helped, "O(1)", "Tells the subcommands."),
]
COMMANDS = [
    Command("xinfo", -2, None, since="5.0.0", summary="Tells of streams and groups.",
            categories=("slow",), subcommands={command.name: command for command in _SUBCOMMANDS}),
]  # fmt: skip
