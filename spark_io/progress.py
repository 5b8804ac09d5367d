"""How far a streaming query is, as a consumer group of the streams that it reads.

Whoever watches groups (XINFO GROUPS, ``logstore groups``, metrics) then sees the query's lag. The
group delivers nothing, and the query never reads it: what it has read stands in its checkpoint.

Invariants: the group is told of an offset when Spark has noted that the batch up to it is done, so
it is behind at worst. A group that has consumers is somebody else's, and is not touched.
"""

from __future__ import annotations

from contextlib import suppress

from logstore.api.store import Store
from logstore.errors import (
    GroupExistsError,
    GroupNotFoundError,
    OptionError,
    StreamNotFoundError,
)
from logstore.spark_io import stores
from logstore.spark_io.stream_options import StreamOptions
from logstore.spark_io.tailing import UNKNOWN, Offset, Offsets


def publish(options: StreamOptions, offsets: Offsets) -> None:
    """Tell the group of these offsets; OptionError if it has consumers."""
    with stores.local(options.source, options.source.path) as store:
        for name, offset in offsets.items():
            # A stream that was dropped, or a group that somebody else made or destroyed at this
            # moment, is met again at the next batch.
            with suppress(StreamNotFoundError, GroupExistsError, GroupNotFoundError):
                _publish(store, name, options.progress_group, offset)


def _publish(store: Store[bytes], name: str, group_name: str, offset: Offset) -> None:
    group = store.stream(name).group(group_name)
    read = None if offset.added == UNKNOWN else offset.added
    try:
        info = group.info()
    except GroupNotFoundError:
        group.create(offset.last, entries_read=read, make_stream=False)
        return
    if info.consumers:
        raise OptionError(
            f"option 'progressGroup': the group {group_name!r} of stream {name!r} has consumers, "
            "who would miss entries: give the query a group of its own"
        )
    if (info.last_delivered_id, info.entries_read) != (offset.last, read):
        group.set_id(offset.last, entries_read=read)
