"""A transfer as its caller sees it: which streams are asked for, and what was done.

``Wanted`` says which streams are carried, their names on the other side, and what happens to
another stream of such a name. ``Report`` counts. Invariants: a report decides nothing, and counts
also what its lists have no room for. Knows no server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from logstore.api.store import Store
from logstore.errors import Error, OptionError
from logstore.ids import StreamID
from logstore.tuples import NamedTuple
from logstore.wire.resp.globs import Glob

# -- what is asked for ----------------------------------------------------------------------------
Policy: TypeAlias = Literal["refuse", "skip", "replace"]


class Wanted:
    """Which streams a transfer carries.

    ``patterns``: globs as for KEYS; a name must match one of them; none: all streams. ``prefix`` is
    put before every name on the other side. ``policy``: what happens to another stream that has the
    name there already.
    """

    def __init__(
        self, patterns: Sequence[bytes] = (), prefix: bytes = b"", policy: Policy = "refuse"
    ) -> None:
        if policy not in get_args(Policy):
            raise OptionError(f"policy is 'refuse', 'skip' or 'replace': {policy!r}")
        self.patterns = tuple(patterns)
        self.prefix = prefix
        self.policy: Policy = policy

    @cached_property
    def _globs(self) -> list[Glob]:
        return [Glob(each) for each in self.patterns]

    @property
    def replace(self) -> bool:
        """Whether another stream of the name is replaced."""
        return self.policy == "replace"

    def wants(self, name: bytes) -> bool:
        """Whether a stream of this name is carried."""
        return not self._globs or any(each.fits(name) for each in self._globs)

    def target(self, name: bytes) -> bytes:
        """The name of a stream on the other side."""
        return self.prefix + name


# -- what was done --------------------------------------------------------------------------------
Progress: TypeAlias = Callable[[int, int], None]  # done, in all; 0 in all: not known
NOTES_MAX = 100
GAPS_MAX = 1000
LEFT_OUT_MAX = 1000
NAME_SHOWN = 200  # bytes of a name: an overlong one may be what is wrong


def unwatched(_done: int, _total: int) -> None:
    """Progress that nobody wants."""


def readable_name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


@dataclass(slots=True)
class Gap:
    """Entries that a server removed before they were read: between two IDs, both excluded."""

    stream: bytes  # its name there
    above: StreamID
    below: StreamID
    entries: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "stream": readable_name(self.stream),
            "above": str(self.above),
            "below": str(self.below),
            "entries": self.entries,
        }


@dataclass(slots=True)
class Report:
    """Counts of streams but for ``entries``, ``missed``, ``trimmed`` and ``deleted``."""

    streams: int = 0  # carried
    entries: int = 0  # in these
    same: int = 0  # were there already: same last ID, length, entries added
    kept: int = 0  # another one had the name, and was kept
    expired: int = 0  # had expired
    other_databases: int = 0  # of a file, in databases that were not asked for
    trimmed: int = 0  # entries that were trimmed on the server, as they are durable here
    deleted: int = 0  # entries that were deleted here, as they were deleted there
    reconnects: int = 0
    missed: int = 0  # entries that were trimmed or deleted there before they were read
    gaps: list[Gap] = field(default_factory=list)  # where these were; if there are many, joined
    # By the name there: the names under which streams here are kept that were made anew there.
    set_aside: dict[bytes, list[bytes]] = field(default_factory=dict)
    left_out: int = 0  # streams that cannot be imported
    reasons: dict[bytes, str] = field(default_factory=dict)  # why, for the first of them
    other_keys: Counter[str] = field(default_factory=Counter)  # keys that are no streams, by type
    notes: list[str] = field(default_factory=list)
    _unwritten: set[int] = field(default_factory=set)  # hashes of notes that had no room

    def note(self, text: str) -> bool:
        """Add a note for the user, each once; False if it is there already."""
        if text in self.notes or hash(text) in self._unwritten:
            return False
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text)
        else:
            self._unwritten.add(hash(text))
        return True

    def leave_out(self, name: bytes, error: Error) -> None:
        """Count a stream that cannot be imported; the others go on."""
        self.left_out += 1
        if len(self.reasons) < LEFT_OUT_MAX:
            self.reasons[name[:NAME_SHOWN]] = error.message

    def miss(self, stream: bytes, above: StreamID, below: StreamID, entries: int) -> None:
        """Count entries between two IDs that were never read."""
        self.missed += entries
        last = self.gaps[-1] if len(self.gaps) >= GAPS_MAX else None
        if last is not None and last.stream != stream:
            # The list is full: the range joins the last one of its stream.
            last = next((gap for gap in reversed(self.gaps) if gap.stream == stream), None)
        if last is None:
            self.gaps.append(Gap(stream, above, below, entries))
            return
        last.above, last.below = min(last.above, above), max(last.below, below)
        last.entries += entries

    def as_dict(self) -> dict[str, Any]:
        """Plain values: streams and entries, and all else that is not zero or empty."""
        found: dict[str, Any] = {"streams": self.streams, "entries": self.entries}
        counts = "same kept expired other_databases trimmed deleted reconnects missed"
        found |= {name: getattr(self, name) for name in counts.split() if getattr(self, name)}
        if self.gaps:
            found["gaps"] = [gap.as_dict() for gap in self.gaps]
        if self.left_out:
            found["left_out"] = self.left_out
            found["reasons"] = {readable_name(name): why for name, why in self.reasons.items()}
        if self.set_aside:
            found["set_aside"] = {
                readable_name(name): [*map(readable_name, kept)]
                for name, kept in self.set_aside.items()
            }
        if self.other_keys:
            found["other_keys"] = dict(self.other_keys)
        if self.notes:
            found["notes"] = list(self.notes)
        if self._unwritten:
            found["notes_left_out"] = len(self._unwritten)
        return found


class StreamIdentity(NamedTuple):
    """What a stream is recognised by on the other side."""

    length: int
    last: StreamID
    entries_added: int | None  # None: not known

    @classmethod
    def of(cls, known: Any) -> StreamIdentity:
        """The identity of a stream's record, facts or value."""
        return cls(known.length, known.last, known.entries_added)

    def same(self, other: StreamIdentity) -> bool:
        """Whether both are the same stream, as far as is known."""
        both_known = None not in (self.entries_added, other.entries_added)
        return self[:2] == other[:2] and (self == other or not both_known)


class Job(NamedTuple):
    """One transfer: the store, what is asked for, the counts, and the progress."""

    store: Store[Any]
    wanted: Wanted
    report: Report
    progress: Progress

    @classmethod
    def of(
        cls,
        store: Store[Any],
        wanted: Wanted | None,
        report: Report | None,
        progress: Progress = unwatched,
    ) -> Job:
        """A job of what a caller gave: without ``wanted`` all streams."""
        return cls(store, wanted or Wanted(), Report() if report is None else report, progress)

    def progress_behind(self, before: int, total: int) -> Callable[[int], None]:
        """The progress of one stream, whose entries count on from ``before``."""
        return lambda entries: self.progress(min(before + entries, total), total)

    def keeps(self, found: StreamIdentity | None, identity: StreamIdentity) -> bool:
        """Whether a stream of that name stays; then it is counted, as the same or as kept."""
        if found is not None and found.same(identity):
            self.report.same += 1
            return True
        if self.wanted.policy == "skip":
            self.report.kept += 1
            return True
        return False
