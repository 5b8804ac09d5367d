"""A node by its locator: the listpack in a frame, proven to be the one that was asked for.

Invariants: bytes are returned only if the frame's CRC fits store and place, its length is the
locator's, and it names the stream and the master ID. Never imports the index.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.log import log_reader

_BODY_BYTES = fmt.NODE_BODY.size


def listpack(
    source: log_reader.Bytes,
    seed: int,
    position: int,
    payload_bytes: int,
    stream: int,
    master: tuple[int, int],
) -> bytes:
    """The listpack of the node frame at a position."""
    segment, offset = fmt.position_parts(position)
    data = log_reader.read(source, fmt.FRAME_HEAD_BYTES + payload_bytes, segment, offset)
    frame = log_reader.parse(data, 0, seed, segment, offset)
    if frame.payload_bytes != payload_bytes:
        why = "a frame has not the length that its locator says"
    elif frame.kind not in (Kind.NODE, Kind.OPEN) or payload_bytes < _BODY_BYTES:
        why = "a locator points at a frame that is no node"
    else:
        head = fmt.NODE_BODY.unpack_from(frame.payload)
        if head[:3] == (stream, *master):
            return frame.payload[_BODY_BYTES:]
        why = f"a locator of node {master[0]}-{master[1]} points at node {head[1]}-{head[2]}"
    raise CorruptFrameError(f"{why}: run 'logstore check'", segment=segment, offset=offset)
