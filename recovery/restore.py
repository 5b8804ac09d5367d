"""Loading a checkpoint into an empty index: streams, vectors, and the nodes that lived.

Invariants: only the newest checkpoint that is whole and fits the log is used; a live bit counts
node frames of its segment in order; a vector is taken only for the version it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logstore import format as fmt
from logstore.engine import checkpoints, groupcopy, producercopy, schedulecopy, settingcopy
from logstore.engine.core import Engine, log
from logstore.engine.state import State
from logstore.errors import CorruptionError, DamagedStoreError
from logstore.ids import StreamID
from logstore.index.keys import FIRST_RECORD_BYTES, Locator, SegmentRow, StreamRecord
from logstore.log import chain, checkpoint, names, reader
from logstore.log import frame as frames
from logstore.recovery.report import RecoveryReport

_LOADERS: dict[str, Callable[[State, dict[str, Any]], None]] = {
    "groups": groupcopy.load,
    "pending": groupcopy.load,
    "settings": settingcopy.load,
    "scheduled": schedulecopy.load,
}


def newest(engine: Engine, state: State, report: RecoveryReport) -> int:
    """Load the newest valid checkpoint; the position to replay from (0: there is none)."""
    for position in reversed(names.checkpoints(engine.fs, engine.path)):
        if not position:
            continue  # of a store that held nothing: it follows no commit
        try:
            head, chunks = checkpoint.read(engine.fs, engine.path, engine.uuid, position)
        except CorruptionError as exc:
            log.error("checkpoint %d is passed over: %s", position, exc)
            continue
        if not checkpoint.fits_log(engine.fs, engine.path, engine.seed, head):
            log.error("checkpoint %d is passed over: the log does not hold its commit", position)
            continue
        report.checkpoint_position = position
        _load(engine, state, chunks, position)
        number = position >> fmt.POSITION_SEGMENT_BITS
        state.meta = state.meta._replace(
            applied=position, commit=head.commit, last_crc=head.last_crc,
            last_frame=fmt.position(number, head.last_frame_offset),
        )  # fmt: skip
        return position
    return 0


def _load(engine: Engine, state: State, chunks: list[Any], position: int) -> None:
    vectors: dict[tuple[int, int, int], tuple[int, bytes]] = {}
    for chunk in chunks:
        kind, rows = chunk["kind"], chunk["rows"]
        if kind == "meta":
            state.meta = state.meta._replace(
                next_stream=chunk["next_stream"], next_segment=chunk["next_segment"]
            )
        elif kind == "streams":
            head_bytes = chunk.get("head_bytes", FIRST_RECORD_BYTES)
            for number, packed in rows:
                record = StreamRecord.unpack(number, packed, head_bytes)
                if state.record(number) is None:
                    state.create(record)
        elif kind in _LOADERS:
            _LOADERS[kind](state, chunk)
        elif kind in producercopy.KINDS:
            producercopy.load(state, chunk)
        elif kind == "vectors":
            for stream, ms, seq, version, vector in rows:
                vectors[stream, ms, seq] = (version, vector)
        elif kind == "live":
            for number, role, end_offset, bitmap in rows:
                _load_segment(engine, state, (number, role, end_offset), bitmap, vectors, position)


def _load_segment(
    engine: Engine, state: State, segment: tuple[int, int, int], bitmap: bytes,
    vectors: dict[tuple[int, int, int], tuple[int, bytes]], position: int,
) -> None:  # fmt: skip
    number, role, end_offset = segment
    link = chain.Link(number, fmt.SEGMENT_HEAD_BYTES, end_offset, end_offset, 0)
    bits = int.from_bytes(bitmap, "little")
    state.put_segment(number, SegmentRow(role, 0, 0, end_offset, 0))
    if not bits:
        return
    for place, found in enumerate(_node_frames(engine, link)):
        if found.position >= position and role == fmt.Role.MAIN:
            break
        if bits >> place & 1:
            body = found.body()
            assert isinstance(body, frames.Node)
            master = StreamID(body.master_ms, body.master_seq)
            version, vector = vectors.get((body.stream, body.master_ms, body.master_seq), (0, b""))
            locator = Locator(
                found.position, found.payload_bytes, body.entries,
                StreamID(body.last_ms, body.last_seq), vector if version == found.position else b"",
            )  # fmt: skip
            state.index.put_node(body.stream, master, locator)


def _node_frames(engine: Engine, link: chain.Link) -> list[reader.LogFrame]:
    try:
        return checkpoints.node_frames(engine, link)
    except FileNotFoundError:
        path = names.segment(engine.path, link.number)
        raise DamagedStoreError(
            f"{path} is missing and was not dropped: restore it from a backup",
            segment=link.number,
        ) from None
