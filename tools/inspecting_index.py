"""``logstore inspect stream`` and ``inspect node``: rows of the index, and what they lead to.

Invariants: the store is opened to be read, and all that is shown is of one moment; the nodes of a
stream are shown from their rows alone, so a damaged one hides no other; of a node whose layout is
broken all is shown up to the break.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from logstore import format as fmt
from logstore.api.entry import Entry
from logstore.api.opening import opened_of
from logstore.codec import listpack, node
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from logstore.errors import CorruptNodeError, StreamNotFoundError, UsageError
from logstore.ids import StreamID, parse_end, parse_id
from logstore.index.group_keys import GroupRecord
from logstore.index.group_txn import GroupTxn
from logstore.index.keys import StreamRecord
from logstore.tools import options
from logstore.tools.inspecting import line_of
from logstore.tools.output import EXIT_ERROR, Output, entry_line, entry_object, name_object

_ID_OF_PAIR = StreamID._make
ENTRY_INDENT = 35  # of what an entry of a node has, in a line about it


def show_stream(output: Output, path: Path, name: str, count: int) -> None:
    """Write what the index has of a stream, its newest nodes first."""
    with options.reading(path) as store:
        raw = options.existing(store, name).name
        rows = opened_of(store).view(partial(_stream_rows, name=raw, count=count))
    if output.json:
        for row in rows:
            output.json_object(row)
        return
    record, *others = rows
    output.report({key: typed(record, key) for key in record if key != "what"}, raw=True)
    for what, head in HEADS.items():
        of_it = [row for row in others if row["what"] == what]
        if of_it:
            output.line("")
            said = [column.replace("payload_", "").replace("_", " ") for column in head]
            cells = [[typed(row, column) for column in head] for row in of_it]
            output.table(said, cells, narrow=NARROW[what])


def typed(row: dict[str, Any], name: str) -> Any:
    """What is typed again, such as an offset, stands as one types it: without commas."""
    value = row.get(name, "")
    return str(value) if name in TYPED else value


TYPED = {"segment", "offset", "position", "number", "last_frame_offset", "last_crc", "expires_ms"}
HEADS = {
    "node": ("master", "last", "segment", "offset", "payload_bytes", "entries", "live"),
    "group": ("group", "number", "last", "entries_read", "pending", "runs", "consumers"),
}


# What is shown of a ``StreamRecord`` beside its name.
OF_RECORD = (
    "entries_added", "expires_ms", "first", "last", "length", "max_deleted", "node_bytes", "nodes",
    "number", "open_master", "open_version", "position",
)  # fmt: skip
NARROW = {"node": ("last", "entries", "segment"), "group": ("runs", "number", "entries read")}


def _stream_rows(view: Snapshot, name: bytes, count: int) -> list[dict[str, Any]]:
    record = _record(view, name)
    found = {name: getattr(record, name) for name in OF_RECORD}
    row: dict[str, Any] = {"what": "record", **name_object(name), **found}
    for key, value in found.items():
        if isinstance(value, StreamID):
            row[key] = str(value)
    for key in ("position", "open_version"):
        row[key] = _place(found[key])
    refs = nodes.refs_reverse(view, record)
    some = list(islice(refs, count or None))
    rows = [_node_row(view, record, ref) for ref in reversed(some)]
    groups = view.index.groups
    return [row, *rows, *(_group_row(groups, group) for group in groups.of_stream(record.number))]


def _group_row(groups: GroupTxn, group: GroupRecord) -> dict[str, Any]:
    return {
        "what": "group",
        "group": entry_text(group.name),
        "number": group.number,
        "last": str(group.last),
        "entries_read": group.entries_read,
        "pending": group.pending,
        "runs": sum(1 for _ in groups.runs(group.number)),
        "consumers": group.consumers,
        "position": _place(group.position),
    }


def _record(view: Snapshot, name: bytes) -> StreamRecord:
    record = view.record(name)
    if record is None:
        raise StreamNotFoundError("no such stream: it went meanwhile", stream=name)
    return record


def _place(position: int) -> str:
    """A position as it is typed: segment and offset; empty: there is none."""
    return "{} {}".format(*fmt.position_parts(position)) if position else ""


def _node_row(view: Snapshot, record: StreamRecord, ref: nodes.NodeRef) -> dict[str, Any]:
    """A node as the index has it; the open one is where its last whole frame stands."""
    row: dict[str, Any] = {"what": "node", "master": str(ref.master), "last": str(ref.last)}
    row["open"] = ref.locator is None
    row["segment"], row["offset"] = fmt.position_parts(ref.version or record.open_version)
    if ref.locator is not None:
        row["payload_bytes"], row["entries"] = ref.locator.payload_bytes, ref.locator.entries
    else:
        opened = view.open_node(record.number)
        row["payload_bytes"] = 0 if opened is None else nodes.open_bytes(opened)
        row["entries"] = ref.live + ref.deleted
        row["frames"] = [] if opened is None else [_place(run.position) for run in opened.runs]
    row["live"] = ref.live
    return row


# -- a node ---------------------------------------------------------------------------------------
def show_node(output: Output, path: Path, name: str, id: str) -> None:
    """Write the node that has an ID, or would, and each entry with its offset."""
    wanted = parse_end(id)
    with options.reading(path) as store:
        raw = options.existing(store, name).name
        row, lp, vector = opened_of(store).view(partial(_node_of, name=raw, wanted=wanted))
    shown = list(_entries(lp, vector, parse_id(row["master"])))
    if "wrong" in shown[-1]:
        output.exit_code = EXIT_ERROR
    if output.json:
        entries = [
            {**each, "entry": entry_object(each["entry"])} if "entry" in each else each
            for each in shown
        ]
        output.json_object({**row, "listpack_bytes": len(lp), "elements": entries})
        return
    output.report({key: typed(row, key) for key in row if key != "what"}, raw=True)
    output.line("")
    for each in shown:
        output.words(_told(each), ENTRY_INDENT)


def _node_of(view: Snapshot, name: bytes, wanted: StreamID) -> tuple[dict[str, Any], bytes, bytes]:
    record = _record(view, name)
    ref = next(nodes.refs_reverse(view, record, end=wanted), None)
    if ref is None:
        raise UsageError(f"the stream's first node begins behind {wanted}: give a higher ID")
    lp, vector = nodes.listpack(view, record, ref)
    return _node_row(view, record, ref), bytes(lp), bytes(vector)


def _entries(lp: bytes, vector: bytes, master: StreamID) -> Iterator[dict[str, Any]]:
    """The head and the entries of a node, each from where to where; what is wrong comes last."""
    at = 0
    try:
        head = node.read_master(lp)
        yield {
            "what": "master",
            "offset": listpack.HEADER_BYTES,
            "end": head.first,
            "live": head.live,
            "deleted": head.deleted,
            "fields": [entry_text(field) for field in head.fields],
        }
        at = head.first
        for entry in node.forward(lp, head):
            flat = node.read_flat(lp, entry, head)
            found = Entry(_ID_OF_PAIR(entry.id(*master)), flat, None)
            yield {
                "what": "entry",
                "offset": entry.at,
                "end": entry.after,
                "ordinal": entry.ordinal,
                "deleted": not node.is_live(entry, vector),
                "same_fields": bool(entry.flags & node.SAME_FIELDS),
                "entry": found,
            }
            at = entry.after
        yield {"what": "end", "offset": at, "end": len(lp)}
    except CorruptNodeError as exc:
        yield {"what": "invalid", "offset": at, "end": len(lp), "wrong": exc.message}


def entry_text(field: bytes) -> str:
    """A field's name for people."""
    return field.decode("utf-8", "backslashreplace")


def _told(row: dict[str, Any]) -> str:
    if "entry" not in row:
        return line_of(row)
    marks = "".join(
        mark if row[name] else "-" for name, mark in (("deleted", "D"), ("same_fields", "S"))
    )
    size = row["end"] - row["offset"]
    return f"{row['offset']:>10} {size:>9}  entry {marks}     {entry_line(row['entry'])}"
