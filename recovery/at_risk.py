"""What a failed sync puts at risk: commits that nobody knows to be durable, by stream and ID.

Read from the frames themselves, as long as they can be read: their bytes stand in the log, but the
disk may not have them. Invariants: nothing is changed; an entry counts for the stream it was added
to, also if it was deleted since; what frames of groups, schedules and settings say is counted by
kind alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from logstore import format as fmt
from logstore.codec import codec, listpack
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.ids import ZERO_ID, StreamID
from logstore.index.txn import IndexTxn
from logstore.log import chain, names, reader
from logstore.log import frame as frames
from logstore.tuples import NamedTuple

_Data = frames.Append | frames.Open | frames.Node


class Endangered(NamedTuple):
    """Entries of one stream that may not be on the disk: all that were added from first to last."""

    stream: bytes
    first: StreamID
    last: StreamID
    entries: int


@dataclass(slots=True)
class AtRisk:
    """Positions, commits, and what is in them."""

    from_position: int
    to_position: int = 0
    commits: int = 0
    frames: Counter[str] = field(default_factory=Counter)
    streams: list[Endangered] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, positions as segment and offset."""
        return {
            "from": _place(self.from_position),
            "to": _place(self.to_position),
            "commits": self.commits,
            "frames": dict(sorted(self.frames.items())),
            "streams": [
                {
                    "stream": each.stream.decode("utf-8", "backslashreplace"),
                    "first": str(each.first), "last": str(each.last), "entries": each.entries,
                }
                for each in self.streams
            ],
        }  # fmt: skip


def _place(position: int) -> dict[str, int]:
    segment, offset = fmt.position_parts(position)
    return {"segment": segment, "offset": offset}


def find(engine: Engine, failed_at: int) -> AtRisk | None:
    """What stands in the log from ``failed_at`` (a position) on; None if it is 0: no sync failed.

    The index is open.
    """
    if not failed_at:
        return None
    found = AtRisk(failed_at, failed_at)
    added: dict[int, list[StreamID]] = {}
    created: dict[int, bytes] = {}
    for each in _frames(engine, failed_at):
        found.to_position = fmt.position(fmt.segment_of(each.position), each.end_offset)
        found.commits += each.last
        found.frames[Kind(each.kind).name.lower()] += 1
        body = each.body()
        if isinstance(body, frames.Create):
            created[body.stream] = body.name
        elif isinstance(body, _Data):
            ids = added.setdefault(body.stream, [])
            ids += _new(engine, body, ids[-1] if ids else None, failed_at)
    if added:
        known = _known(engine)
        for stream, ids in sorted(added.items()):
            if ids:
                name = created.get(stream) or known.get(stream) or b"#%d" % stream
                found.streams.append(Endangered(name, ids[0], ids[-1], len(ids)))
    found.streams.sort()
    log.warning("a sync failed; at risk: %s", found.as_dict())
    return found


def _frames(engine: Engine, failed_at: int) -> list[reader.LogFrame]:
    """Frames of complete commits from a position on, up to what cannot be read."""
    found: list[reader.LogFrame] = []
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(failed_at)):
        start = link.start_offset
        if fmt.segment_of(failed_at) == link.number:
            start = max(start, fmt.offset_of(failed_at))
        file = engine.fs.open(names.segment(engine.path, link.number))
        try:
            scanned = reader.scan(file, engine.seed, link.number, start, link.end_offset)
            for commit in reader.commits(scanned, None):
                found += commit.frames
        except CorruptFrameError:
            continue  # its end: what is behind never was a complete commit, or is damage
        finally:
            file.close()
    return found


def _known(engine: Engine) -> dict[int, bytes]:
    generation = engine.index()
    with generation.env.begin() as txn:
        return {record.number: record.name for record in IndexTxn(generation, txn).records()}


def _new(engine: Engine, body: _Data, last: StreamID | None, failed_at: int) -> list[StreamID]:
    """IDs of the entries that a frame added to its stream; ``last``: the one before, if known."""
    if body.data is None:
        return []
    if isinstance(body, frames.Append):
        return _appended(body, body.data)
    ids = [
        StreamID(ms, seq) for _, ms, seq in codec().ids(body.data, body.master_ms, body.master_seq)
    ]
    if isinstance(body, frames.Open):
        return ids[len(ids) - body.entries :]
    if last is None:  # the node may have been open before, and repeat what is durable
        last = _last_before(engine, body.stream, failed_at)
    return [id for id in ids if id > last]


def _appended(body: frames.Append, data: bytes) -> list[StreamID]:
    """Entries tell how far they are from the node's master, and the frame where the last one is."""
    lp = listpack.finish(body.elements, data)
    at = end = len(lp) - 1
    away: list[tuple[int, int]] = []
    for _ in range(body.entries):  # last to first: each ends with how many elements it has
        at = listpack.before(lp, at, end)
        count, _ = listpack.read_int(lp, at, end)
        for _ in range(count):
            at = listpack.before(lp, at, end)
        ms, pos = listpack.read_int(lp, listpack.skip(lp, at, end), end)
        away.append((ms, listpack.read_int(lp, pos, end)[0]))
    ms, seq = body.last_ms - away[0][0], body.last_seq - away[0][1]
    return [StreamID(ms + ms_diff, seq + seq_diff) for ms_diff, seq_diff in reversed(away)]


def _last_before(engine: Engine, stream: int, position: int) -> StreamID:
    """The stream's last ID in the log before a position; 0-0 if there is none."""
    links = chain.main_links(engine.fs, engine.path, engine.uuid)
    for link in reversed([link for link in links if link.number <= fmt.segment_of(position)]):
        end = link.end_offset
        if link.number == fmt.segment_of(position):
            end = min(end, fmt.offset_of(position))
        last = _last_in(engine, link, end, stream)
        if last is not None:
            return last
    return ZERO_ID


def _last_in(engine: Engine, link: chain.Link, end: int, stream: int) -> StreamID | None:
    file = engine.fs.open(names.segment(engine.path, link.number))
    last: StreamID | None = None
    try:
        for each in reader.scan(file, engine.seed, link.number, link.start_offset, end):
            body = each.body()
            if isinstance(body, _Data | frames.Record) and body.stream == stream:
                last = StreamID(body.last_ms, body.last_seq)
    except CorruptFrameError:
        return last
    finally:
        file.close()
    return last
