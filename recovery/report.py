"""What recovery found and did, in words and numbers. Decides nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from logstore import format as fmt
from logstore.ids import StreamID
from logstore.tuples import NamedTuple


class Damage(NamedTuple):
    """Bytes of the log that are not what was written."""

    segment: int
    from_offset: int
    to_offset: int
    why: str


class LostEntries(NamedTuple):
    """Entries of a stream that cannot be read any more; the interval is closed, and no other entry
    of it is meant than those that are missing."""

    stream: bytes
    first: StreamID
    last: StreamID
    entries: int | None  # None: not known
    segment: int
    offset: int
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Everything by name; no stream: it is not known which."""
        return {
            "stream": self.stream.decode("utf-8", "backslashreplace") or None,
            "first": str(self.first),
            "last": str(self.last),
            "entries": self.entries,
            "segment": self.segment,
            "offset": self.offset,
            "why": self.why,
        }


class Endangered(NamedTuple):
    """Entries of one stream that may not be on the disk: all that were added from first to last."""

    stream: bytes
    first: StreamID
    last: StreamID
    entries: int


class AtRisk:
    """Commits that nobody knows to be durable: positions, kinds of frames, entries by stream."""

    __slots__ = ("commits", "frames", "from_position", "streams", "to_position")

    def __init__(self, from_position: int) -> None:
        self.from_position = self.to_position = from_position
        self.commits = 0
        self.frames: Counter[str] = Counter()
        self.streams: list[Endangered] = []

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
                    "first": str(each.first),
                    "last": str(each.last),
                    "entries": each.entries,
                }
                for each in self.streams
            ],
        }


def _place(position: int) -> dict[str, int]:
    segment, offset = fmt.position_parts(position)
    return {"segment": segment, "offset": offset}


class RecoveryReport:
    """The passes of one open."""

    __slots__ = (
        "at_risk",
        "checkpoint_position",
        "commits_finished",
        "created",
        "damage",
        "first_opener",
        "gone",
        "hints_used",
        "index_trusted",
        "lengths",
        "orphans",
        "rebuild_ms",
        "rebuilt",
        "restated_segments",
        "saved_to",
        "segments_scanned",
        "torn_bytes",
        "torn_position",
        "unsure",
        "why_not_trusted",
    )

    def __init__(self, why_not_trusted: str = "") -> None:
        self.created = False
        self.first_opener = False
        self.index_trusted = False
        self.why_not_trusted = why_not_trusted
        self.rebuilt = False
        self.rebuild_ms = 0
        self.hints_used = 0
        self.segments_scanned = 0
        self.checkpoint_position = 0
        self.commits_finished = 0
        self.torn_bytes = 0
        self.torn_position = 0
        self.saved_to = ""
        self.restated_segments = 0  # written anew after a failed sync
        self.at_risk: AtRisk | None = None  # what that sync should have made durable
        self.damage: list[Damage] = []
        self.gone: list[LostEntries] = []  # what a rebuild could not put together
        self.unsure: list[str] = []  # what it could not decide for certain
        # Of streams by their last frames: the length, and an ID below which there was no entry.
        self.lengths: dict[int, tuple[int, StreamID]] = {}
        self.orphans: dict[tuple[int, StreamID], tuple[int, int]] = {}  # see replay_guard.Orphan

    @property
    def has_news(self) -> bool:
        """Whether anything was found, or done, but looking."""
        made = self.created or self.rebuilt or self.commits_finished or self.restated_segments
        lost = self.torn_bytes or self.damage or self.gone or self.unsure
        return bool(made or lost or self.at_risk is not None)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, positions as segment and offset."""
        segment, offset = fmt.position_parts(self.torn_position)
        return {
            "created": self.created,
            "first_opener": self.first_opener,
            "index_trusted": self.index_trusted,
            "why_not_trusted": self.why_not_trusted,
            "rebuilt": self.rebuilt,
            "rebuild_ms": self.rebuild_ms,
            "hints_used": self.hints_used,
            "segments_scanned": self.segments_scanned,
            "commits_finished": self.commits_finished,
            "torn_bytes": self.torn_bytes,
            "torn_at": {"segment": segment, "offset": offset} if self.torn_bytes else None,
            "saved_to": self.saved_to or None,
            "restated_segments": self.restated_segments,
            "at_risk": self.at_risk.as_dict() if self.at_risk is not None else None,
            "damage": [damage._asdict() for damage in self.damage],
            "gone": [gone.as_dict() for gone in self.gone],
            "unsure": list(self.unsure),
        }
