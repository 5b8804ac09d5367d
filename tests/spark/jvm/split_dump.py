"""Splits read by the JVM, as tests compare them with what Python reads."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from logstore.scan.snapshot_file import Split
from logstore.tuples import NamedTuple
from tests.spark.jvm.compiled import JavaProgram

PROGRAM = Path(__file__).with_name("SplitDump.java")


class Entry(NamedTuple):
    """An entry: names and values in turn, and the values of the fields that were asked for."""

    stream: bytes
    id: str
    segment: int
    offset: int
    flat: tuple[bytes, ...]
    values: tuple[bytes | None, ...]


class Answer(NamedTuple):
    """What was read of a split, and how it ended: ``kind`` and ``error`` of a LogstoreException."""

    entries: list[Entry]
    kind: str
    error: str
    count: int
    batches: int
    most: int
    nodes: int
    bytes: int
    lost: int
    logged: str


def _text(data: bytes) -> str:
    return b64encode(data).decode()


class SplitDump:
    """Reads splits in one JVM."""

    def __init__(self) -> None:
        self._program = JavaProgram(PROGRAM)
        self.close = self._program.close

    def read(
        self,
        split: Split,
        *,
        fields: Sequence[bytes] = (),
        pairs: bool = True,
        counts: bool = False,
        batch_rows: int = 50,
        lossy: bool = False,
    ) -> Answer:
        """All entries of a split."""
        found: Any = self._program.ask(
            {
                "split": {
                    "store": split.store,
                    "home": split.home,
                    "uuid": _text(split.uuid),
                    "pinId": split.pin_id,
                    "offset": split.offset,
                    "sizeBytes": split.size_bytes,
                    "blocks": _text(split.blocks),
                    "objects": [list(each) for each in split.objects],
                },
                "failOnDataLoss": not lossy,
                "fields": [_text(each) for each in fields],
                "pairs": pairs,
                "counts": counts,
                "batchRows": batch_rows,
            }
        )
        return Answer(
            [_entry(each) for each in found["rows"]],
            found.get("kind", ""),
            found.get("error", ""),
            found["count"],
            found["batches"],
            found["most"],
            found.get("nodes", 0),
            found.get("bytes", 0),
            found.get("lost", 0),
            found["logged"],
        )


def _entry(row: list[Any]) -> Entry:
    stream, id, segment, offset, flat, values = row
    return Entry(
        b64decode(stream),
        id,
        segment,
        offset,
        tuple(b64decode(each) for each in flat),
        tuple(None if each is None else b64decode(each) for each in values),
    )
