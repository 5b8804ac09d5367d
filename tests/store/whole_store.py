"""Looking at a store from outside and inside: all that it holds, its nodes as servers keep them."""

from __future__ import annotations

from typing import Any

from logstore.api.store import Store
from logstore.codec import codec
from logstore.engine.snapshots import snapshot
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.engine.txn import nodes
from tests.peers.dump import build_dump, node_key
from tests.support.inside import engine_of

Node = tuple[bytes, bytes]  # 16-byte key, listpack


def stream_nodes(store: Store[Any], name: bytes) -> list[Node]:
    """A stream's nodes as a server would hold them: vectors folded, the open one included."""

    def collect(view: Snapshot) -> list[Node]:
        record = view.record(name)
        if record is None:
            return []
        found: list[Node] = []
        for ref in nodes.refs(view, record):
            lp, vector = nodes.listpack(view, record, ref)
            folded = codec().fold(lp, vector)
            codec().validate(folded, *ref.master)
            assert codec().counts(folded)[0] == ref.live
            found.append((node_key(*ref.master), folded))
        return found

    return snapshot.read(engine_of(store), collect)


def dump_payload(store: Store[Any], name: bytes) -> bytes:
    """A stream as RESTORE takes it."""
    info = store.stream(name).info()
    return build_dump(
        stream_nodes(store, name), info.length, info.last_generated_id,
        info.recorded_first_entry_id, info.max_deleted_entry_id, info.entries_added,
    )  # fmt: skip


def everything(store: Store[Any]) -> dict[Any, Any]:
    """All that a store holds: every stream with its info, entries and nodes."""
    found: dict[Any, Any] = {}
    for name in store.streams():
        stream = store.stream(name)
        raw = stream._name
        entries = [(entry.id, entry.pairs) for entry in stream.range()]
        backwards = [(entry.id, entry.pairs) for entry in stream.range(reverse=True)]
        assert entries == backwards[::-1]
        assert len(stream) == len(entries)
        found[name] = (stream.info(), entries, stream_nodes(store, raw))
    return found
