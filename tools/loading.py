"""Rows into a stream, a commit for each batch of them; told from where to go on.

Invariants: a batch is committed whole or not at all; a bad line stops the import before its batch
is committed, unless bad lines are skipped, and then counted. IDs ascend in the input. Memory holds
one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from logstore.api.stream import Stream
from logstore.codec import codec
from logstore.errors import InputLineError, UsageError
from logstore.ids import StreamID
from logstore.tools.lines import Row


@dataclass(slots=True)
class Counts:
    """What became of the rows so far."""

    imported: int = 0
    bad: int = 0
    resumed_over: int = 0
    last_id: StreamID | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; for --json."""
        last_id = None if self.last_id is None else str(self.last_id)
        return {
            "imported": self.imported, "bad": self.bad, "resumed_over": self.resumed_over,
            "last_id": last_id,
        }  # fmt: skip


@dataclass(slots=True)
class Load:
    """One import into one stream."""

    stream: Stream[bytes]
    batch: int = 1000
    skip_bad: bool = False
    resume: bool = False
    on_bad: Callable[[InputLineError], None] = lambda _error: None
    on_batch: Callable[[Counts], None] = lambda _counts: None
    create: bool = True
    counts: Counts = field(default_factory=Counts)
    _resume_after: StreamID | None = None
    _last: StreamID | None = None
    _with_ids: bool | None = None

    def run(self, rows: Iterable[Row | InputLineError]) -> Counts:
        """Add all rows; InputLineError at the first bad one, unless they are skipped."""
        self._last = self._resume_after = self.stream.last_id
        waiting: list[Row] = []
        for found in rows:
            row = self._checked(found)
            if isinstance(row, InputLineError):
                self._bad(row)
            elif row is not None:
                waiting.append(row)
            if len(waiting) >= self.batch:
                self._commit(waiting)
                waiting = []
        if waiting:
            self._commit(waiting)
        return self.counts

    def _checked(self, found: Row | InputLineError) -> Row | InputLineError | None:
        """The row if it is to be added, why it cannot be, or None to pass over it."""
        if isinstance(found, InputLineError):
            return found
        if self._with_ids is None:
            self._with_ids = found.id is not None
        if self._with_ids is not (found.id is not None):
            has = (
                "has no ID, and rows before it have" if self._with_ids else "has an ID, none before"
            )
            return InputLineError(f"the row {has}", line_number=found.line)
        if found.id is None:
            if self.resume:
                raise InputLineError("rows without IDs cannot be resumed", line_number=found.line)
            return found
        assert self._last is not None
        assert self._resume_after is not None
        if self.resume and found.id <= self._resume_after:
            self.counts.resumed_over += 1
            return None
        if found.id <= self._last:
            return InputLineError(self._out_of_order(found.id), line_number=found.line)
        self._last = found.id
        return found

    def _out_of_order(self, id: StreamID) -> str:
        if self._last == self._resume_after:
            return f"{id} is not above the stream's last ID {self._last}; --resume goes on after it"
        return f"{id} is not above {self._last} before it: sort the input by ID"

    def _bad(self, error: InputLineError) -> None:
        if not self.skip_bad:
            raise error
        self.counts.bad += 1
        self.on_bad(error)

    def _commit(self, rows: list[Row]) -> None:
        try:
            self._add(rows)
        except UsageError as error:
            good = self._without_refused(rows, error)
            if good:
                self._add(good)
        self.on_batch(self.counts)

    def _add(self, rows: list[Row]) -> None:
        values: list[Any] = [row.pairs if row.id is None else (row.id, row.pairs) for row in rows]
        added = self.stream.add_many(values, batch=len(values), create=self.create)
        if len(added) == 0:  # create=False, and no stream
            raise UsageError("there is no such stream: leave out --no-create to make it")
        self.counts.imported += len(added)
        self.counts.last_id = added.last

    def _without_refused(self, rows: list[Row], error: UsageError) -> list[Row]:
        """The rows of a refused batch that can be added; the error again if none is at fault."""
        good: list[Row] = []
        for row in rows:
            try:
                codec().rows([row.pairs])
            except UsageError as refused:
                self._bad(InputLineError(str(refused), line_number=row.line))
            else:
                good.append(row)
        if len(good) == len(rows):
            raise error
        return good
