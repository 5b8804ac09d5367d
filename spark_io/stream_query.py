"""A streaming query as its driver has it: offsets, plans between two of them, and pins until done.

Offsets go to the query's checkpoint as JSON: for each stream the last ID that was read, how many
entries had been added up to it, and the stream's number. A batch is what lies between two offsets.
So a batch that is repeated has the same entries, and a query that is started again goes on where it
stopped, under either reader.

Invariants: the end of a query's first batch also holds the offsets at which that batch begins.
Spark asks for the beginning again when it repeats the first batch, and "latest" would be another
offset by then. The end of a batch in which a stream is first read holds that stream's beginning,
too: entries from there on may not be lost. Nothing here holds an open store, so it may be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.ids import StreamID, parse_id
from logstore.scan.snapshot_file import Split
from logstore.spark_io.spark_options import StreamOptions

if TYPE_CHECKING:
    from logstore.spark_io.tailing import Offsets

_STREAMS, _FROM, _INITIAL = "streams", "from", "initial"


def _packed(offsets: Offsets) -> dict[str, list[Any]]:
    return {
        name: [str(each.last), each.added, each.number] for name, each in sorted(offsets.items())
    }


def _unpacked(found: dict[str, list[Any]]) -> Offsets:
    from logstore.spark_io.tailing import Offset

    return {
        name: Offset(StreamID(*parse_id(each[0])), *each[1:]) for name, each in found.items()
    }  # an older checkpoint has no numbers


class StreamQuery:
    """What a query has read, and what it reads next."""

    def __init__(self, options: StreamOptions, cores: int) -> None:
        self.options = options
        self.cores = cores
        self._target: Offsets | None = None
        self._ends: Offsets | None = None  # of the streams, as the last batch found them
        self._held: list[tuple[str, list[str]]] = []  # for each batch its end, and its pins
        self._published: Offsets = {}  # what the group of the query's progress was set to

    def initial(self) -> dict[str, Any]:
        """Where a new query begins."""
        if self.options.start is not None and not self.options.starts:
            return {_INITIAL: True, _STREAMS: {}}
        from logstore.spark_io import tailing

        return {_INITIAL: True, _STREAMS: _packed(tailing.begin(self.options))}

    def prepare_for_available_now(self) -> None:
        """Read up to the entries that there are now."""
        from logstore.spark_io import tailing

        # What is not there is told by the next batch, which knows whether it was.
        self._target = tailing.ends(self.options, gone=self.options.source.streams)

    def latest(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next batch, which has no more than the options say if it is ``limited``;
        ``start`` if there is nothing new."""
        from logstore.spark_io import tailing

        rows = size = 0
        if limited:
            rows, size = self.options.max_rows, self.options.max_bytes
        before = _unpacked(start[_STREAMS])
        self._publish(before)  # Spark asks only after the batch up to there is done
        found, begun, self._ends = tailing.latest(
            self.options,
            before,
            self._target,
            rows,
            size,
            new=_INITIAL in start,
            warn=self._ends is None,
        )
        if found == before:
            return start
        end: dict[str, Any] = {_STREAMS: _packed(found)}
        if start.get(_INITIAL):
            begun = before | begun
        if begun:
            end[_FROM] = _packed(begun)
        return end

    def reported(self) -> dict[str, Any] | None:
        """Where the streams ended when the last batch was looked for, for the progress of the
        query. They are not looked at again, as Spark asks in each trigger."""
        return None if self._ends is None else {_STREAMS: _packed(self._ends)}

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        """The splits of a batch, pinned until it is committed."""
        from logstore.spark_io import tailing

        known = {} if start.get(_INITIAL) and _FROM in end else start[_STREAMS]
        began = _unpacked(known | end.get(_FROM, {}))
        splits, held = tailing.splits(self.options, began, _unpacked(end[_STREAMS]), self.cores)
        self._held.append((repr(end[_STREAMS]), held))
        return splits

    def commit(self, end: dict[str, Any]) -> None:
        """Release the pins of the batch that ends there, and of all before it."""
        from logstore.spark_io import tailing

        ends = [each for each, _ in self._held]
        if repr(end[_STREAMS]) in ends:
            done = len(ends) - ends[::-1].index(repr(end[_STREAMS]))
            for _, held in self._held[:done]:
                tailing.release(self.options.source.path, held)
            del self._held[:done]
        self._publish(_unpacked(end[_STREAMS]))

    def _publish(self, done: Offsets) -> None:
        """Publish the progress of the query, if the options ask for it and there is some."""
        news = {name: each for name, each in done.items() if self._published.get(name) != each}
        if self.options.progress_group and news:
            from logstore.spark_io import tailing

            tailing.publish_progress(self.options, news)
            self._published |= news

    def stop(self) -> None:
        """Release all pins at the end of the query."""
        from logstore.spark_io import tailing

        for _, held in self._held:
            tailing.release(self.options.source.path, held)
        self._held = []
