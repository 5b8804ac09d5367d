"""What is remembered of idempotent adds, as a plain value: out of a store, and into one.

Invariants: what could make an add be taken for another is refused: an ID twice, an entry that two
IDs gave, an entry above the last ID. Verified before the first frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.snapshots.snapshot import Snapshot
from logstore.features.idempotent_ids import NOTHING, Idempotent, ProducerRows
from logstore.features.setting_rows import Setting, SettingRows
from logstore.ids import StreamID
from logstore.rdb.value import Idempotence, impossible
from logstore.settings import (
    IDEMPOTENT_DURATION_MAX_S,
    IDEMPOTENT_IDS_MAX,
    StreamSettings,
    stored,
)

NAME_MAX_BYTES = (1 << 16) - 1  # of a frame
I64_MAX = (1 << 63) - 1


def check(found: Idempotence, last: StreamID) -> None:
    """InvalidPayloadError for what cannot be kept of a stream with this last ID."""
    if not 1 <= found.duration_s <= IDEMPOTENT_DURATION_MAX_S:
        raise impossible(f"idempotent IDs are remembered for {found.duration_s} seconds")
    if not 1 <= found.max_ids <= IDEMPOTENT_IDS_MAX:
        raise impossible(f"{found.max_ids} idempotent IDs of a producer are remembered")
    if max(found.added, found.duplicates) > I64_MAX:
        raise impossible(f"{found.added} idempotent adds, {found.duplicates} duplicates")
    given: set[StreamID] = set()
    producers: set[bytes] = set()
    for producer, items in found.producers:
        names = {name for name, _ in items}
        if producer in producers or len(names) != len(items):
            raise impossible("a producer, or an idempotent ID, stands twice")
        if not all(0 < len(each) <= NAME_MAX_BYTES for each in (producer, *names)):
            raise impossible("a producer's or an idempotent ID has no bytes, or more than 65535")
        producers.add(producer)
        for _, id in items:
            if id in given or id > last:
                raise impossible(
                    f"entry {id} was given by two idempotent IDs, or is above the last ID"
                )
            given.add(id)


def install(txn: WriteTxn, stream: int, found: Idempotence) -> None:
    """Let a new stream remember what was checked."""
    settings = StreamSettings(
        idempotent_duration_s=found.duration_s, idempotent_max_ids=found.max_ids
    )
    if settings != StreamSettings():
        txn.emit(Setting(stream, 0, stored(settings)))
    counts = (found.added, found.duplicates)
    if any(counts) and not found.producers:
        txn.emit(Idempotent(stream, *counts, *NOTHING))
    for producer, items in found.producers:
        given = tuple(sorted(((id.ms, id.seq), name) for name, id in items))
        txn.emit(Idempotent(stream, *counts, *NOTHING, producer=producer, items=given))


def by_producer(found: Idempotence | None) -> Iterator[Idempotence]:
    """The value in parts, one a producer, that ``install`` may take one after the other."""
    if found is None:
        return
    for each in found.producers:
        yield replace(found, producers=[each])
    if not found.producers:
        yield found


def export(view: Snapshot, stream: int) -> Idempotence | None:
    """The value of a stream; None if it never had an idempotent add, nor settings for them."""
    settings, producers = SettingRows(view.index).stream(stream), ProducerRows(view.index)
    tally = producers.tally(stream)
    found = Idempotence(
        settings.idempotent_duration_s,
        settings.idempotent_max_ids,
        [],
        tally.added,
        tally.duplicates,
    )
    plain = StreamSettings()
    limits = (plain.idempotent_duration_s, plain.idempotent_max_ids)
    if not any(tally) and (found.duration_s, found.max_ids) == limits:
        return None
    for producer, rows in groupby(producers.of_stream(stream), key=lambda row: row.producer):
        items = sorted((row.id, row.name) for row in rows)
        found.producers.append((producer, [(name, id) for id, name in items]))
    found.producers.sort()
    return found
