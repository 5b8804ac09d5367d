"""The one list of features, and what the floors above take from it.

The order is that of the chunks in a checkpoint; a chunk is loaded behind those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from logstore.features import (
    idempotent_ids,
    latest,
    schedule_rows,
    schema_rows,
    setting_rows,
    ttl_rows,
)
from logstore.features.feature import Copied, FrameKind, Index

FEATURES = (
    setting_rows.FEATURE,
    idempotent_ids.FEATURE,
    schedule_rows.FEATURE,
    ttl_rows.STREAM_EXPIRY,
    latest.FEATURE,
    ttl_rows.ENTRY_EXPIRY,
    schema_rows.FEATURE,
)


class FeatureBody(Protocol):
    """The body of a feature's frame: each names the stream that it belongs to."""

    @property
    def stream(self) -> int:
        """The number of the stream."""
        ...


FRAMES: dict[int, FrameKind] = {
    frame.kind: frame for feature in FEATURES for frame in feature.frames
}
COPIES: dict[str, Copied] = {
    copied.kind: copied for feature in FEATURES for copied in feature.copies
}
LOADED: list[Callable[[Any, Any], None]] = [
    feature.loaded for feature in FEATURES if feature.loaded is not None
]
DROPPED: list[Callable[[Any, int], None]] = [
    feature.dropped for feature in FEATURES if feature.dropped is not None
]
_DUE = [feature.first_due for feature in FEATURES if feature.first_due is not None]


def first_due(index: Index) -> int:
    """When something is next to be done, of whichever feature (unix ms); 0: nothing is."""
    times = [first(index) for first in _DUE]
    return min([time_ms for time_ms in times if time_ms], default=0)
