"""What recovery found and did, in words and numbers. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logstore import format as fmt
from logstore.ids import StreamID
from logstore.recovery.atrisk import AtRisk


class Damage(NamedTuple):
    """Bytes of the log that are not what was written."""

    segment: int
    from_offset: int
    to_offset: int
    why: str


class Gone(NamedTuple):
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
            "first": str(self.first), "last": str(self.last), "entries": self.entries,
            "segment": self.segment, "offset": self.offset, "why": self.why,
        }  # fmt: skip


@dataclass(slots=True)
class RecoveryReport:
    """The passes of one open."""

    created: bool = False
    first_opener: bool = False
    index_trusted: bool = False
    why_not_trusted: str = ""
    rebuilt: bool = False
    rebuild_ms: int = 0
    hints_used: int = 0
    segments_scanned: int = 0
    checkpoint_position: int = 0
    commits_finished: int = 0
    torn_bytes: int = 0
    torn_position: int = 0
    saved_to: str = ""
    restated_segments: int = 0  # written anew after a failed sync
    at_risk: AtRisk | None = None  # what that sync should have made durable
    damage: list[Damage] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)  # what a rebuild could not put together
    unsure: list[str] = field(default_factory=list)  # what it could not decide for certain
    # Of streams by their last frames: the length, and an ID below which there was no entry.
    lengths: dict[int, tuple[int, StreamID]] = field(default_factory=dict)
    orphans: dict[tuple[int, StreamID], tuple[int, int]] = field(default_factory=dict)  # see `gaps`

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
