"""After a failed sync: write anew what may never have reached the disk, and say what that is.

A sync that failed must not be repeated and believed: the kernel marks the pages clean, and the next
sync succeeds although nothing was written. But the bytes can still be read, and their checksums
tell whether they are right. So the first opener after it copies every segment that is not durable
into a new file, syncs that, and puts it in the old one's place: same number, same positions.

What is at risk is named by stream and ID, read from the frames themselves: their bytes stand in the
log, but the disk may not have them.

Invariants: ``rewrite`` runs before it is decided whether the index is valid, with no other process
in the store; the mark in WAKE is cleared only when all of it is durable, so that a crash in between
starts over; the tail check that follows judges the bytes as always. ``at_risk`` changes nothing. An
entry counts for the stream it was added to, also if it was deleted since; what frames of groups,
schedules and settings say is counted by kind alone.
"""

from __future__ import annotations

from logstore import format as fmt
from logstore.codec import codec, listpack
from logstore.engine.runtime.engine import Engine, log
from logstore.errors import CorruptFrameError
from logstore.format import Kind
from logstore.ids import ZERO_ID, StreamID
from logstore.index.txn import IndexTxn
from logstore.log import chain, file_names, log_reader
from logstore.log import frame as frames
from logstore.recovery.report import AtRisk, Endangered

_CHUNK_BYTES = 1 << 20
_Data = frames.Append | frames.Open | frames.Node


def rewrite(engine: Engine, failed_at: int) -> int:
    """Copy the segments from ``failed_at`` (a position) on into new files; how many."""
    count = 0
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(failed_at)):
        _copy(engine, link)
        count += 1
    engine.leave_sealed_locked(0)  # what is held open are the files of before
    engine.segments.forget()
    engine.wake.failed_at = 0
    log.warning("%s: an earlier sync failed: %d segments were written anew", engine.path, count)
    return count


def _copy(engine: Engine, link: chain.Link) -> None:
    """Crash order: bytes, sync, rename, directory sync; before the rename nothing has changed."""
    fs = engine.fs
    path = file_names.segment(engine.path, link.number)
    temporary = path.with_name(path.name + file_names.TEMPORARY)
    source = fs.open(path)
    try:
        target = fs.open_new(temporary)
        try:
            for offset in range(0, link.file_bytes, _CHUNK_BYTES):
                target.pwrite(source.pread(_CHUNK_BYTES, offset), offset)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.parent)


# -- what is at risk ------------------------------------------------------------------------------
def at_risk(engine: Engine, failed_at: int) -> AtRisk:
    """What stands in the log from ``failed_at`` on, the position of a failed sync.

    The index is open.
    """
    risk = AtRisk(failed_at)
    added: dict[int, list[StreamID]] = {}
    created: dict[int, bytes] = {}
    for frame in _frames(engine, failed_at):
        risk.to_position = fmt.position(fmt.segment_of(frame.position), frame.end_offset)
        risk.commits += frame.last
        risk.frames[Kind(frame.kind).name.lower()] += 1
        body = frame.body()
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
                risk.streams.append(Endangered(name, ids[0], ids[-1], len(ids)))
    risk.streams.sort()
    log.warning("%s: a sync failed; at risk: %s", engine.path, risk.as_dict())
    return risk


def _frames(engine: Engine, failed_at: int) -> list[log_reader.LogFrame]:
    """Frames of complete commits from a position on, up to what cannot be read."""
    found: list[log_reader.LogFrame] = []
    for link in chain.main_links(engine.fs, engine.path, engine.uuid, fmt.segment_of(failed_at)):
        start = link.start_offset
        if fmt.segment_of(failed_at) == link.number:
            start = max(start, fmt.offset_of(failed_at))
        file = engine.fs.open(file_names.segment(engine.path, link.number))
        try:
            scanned = log_reader.scan(file, engine.seed, link.number, start, link.end_offset)
            for commit in log_reader.commits(scanned, None):
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
    """Entries say how far they are from the node's master, and the frame where the last one is."""
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
    file = engine.fs.open(file_names.segment(engine.path, link.number))
    last: StreamID | None = None
    try:
        for each in log_reader.scan(file, engine.seed, link.number, link.start_offset, end):
            body = each.body()
            if isinstance(body, _Data | frames.Record) and body.stream == stream:
                last = StreamID(body.last_ms, body.last_seq)
    except CorruptFrameError:
        return last
    finally:
        file.close()
    return last
