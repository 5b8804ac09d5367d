"""Options of the streaming source, checked before the query begins.

Invariants: as of ``options``, which checks all that both sources know.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.errors import InvalidIDError, OptionError
from logstore.ids import ZERO_ID, StreamID, parse_id
from logstore.log.shipped import is_shipped
from logstore.spark_io import places, source_options
from logstore.spark_io.source_options import SourceOptions
from logstore.tuples import NamedTuple
from logstore.uri_path import path_of

EARLIEST, LATEST = "earliest", "latest"
KNOWN = ("startingOffsets", *source_options.OF_STREAMING)
_LOWER = {name.lower(): name for name in KNOWN}
_BATCH_ONLY = {
    "startid",
    "endid",
    "starttime",
    "endtime",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "startinggroup",
    "snapshotdir",
    "asof",
}
_OF_BOTH = {"startingoffsets"}  # alike in a batch read, which also takes JSON
_LIMIT_MAX = 2**62


class StreamOptions(NamedTuple):
    """What a streaming query reads, and how much of it in a batch (0: no limit)."""

    source: SourceOptions
    latest: bool
    after: StreamID  # unless ``latest``: entries above this ID
    max_rows: int
    max_bytes: int
    progress_group: str  # empty: none

    @property
    def fail_on_loss(self) -> bool:
        """Whether what went unread is an error."""
        return self.source.fail_on_loss


def is_streaming(given: Mapping[str, str]) -> bool:
    """Whether an option of the streaming source alone is among these."""
    return any(key in _LOWER and key not in _OF_BOTH for key in given)


def parse(options: Mapping[str, str]) -> StreamOptions:
    """The options of a streaming read, checked."""
    given = source_options.given_by_user(options)
    own = {key: given.pop(key) for key in _LOWER if key in given}
    for key in _BATCH_ONLY & given.keys():
        raise OptionError(
            f"option {source_options.shown(key)!r} is for batch reads: give 'startingOffsets', and "
            "filter what you read"
        )
    if places.several(given):
        raise OptionError("a streaming query reads one store: give its directory as option 'path'")
    start = own.get("startingoffsets", EARLIEST)
    after = ZERO_ID
    if start not in (EARLIEST, LATEST):
        try:
            after = parse_id(start)
        except InvalidIDError as error:
            raise OptionError(
                f"option 'startingOffsets' is {EARLIEST}, {LATEST}, or the ID behind which to "
                f"begin: {error}"
            ) from None
    if "progressgroup" in own and not own["progressgroup"]:
        raise OptionError("option 'progressGroup' must name a consumer group")
    source = source_options.parse(given)
    if is_shipped(path_of(source.path)):
        raise OptionError(
            "a streaming query reads the store itself: what was shipped stays as it was published"
        )
    return StreamOptions(
        source,
        start == LATEST,
        after,
        _limit(own, "maxrowspertrigger"),
        _limit(own, "maxbytespertrigger"),
        own.get("progressgroup", ""),
    )


def _limit(own: Mapping[str, str], key: str) -> int:
    text = own.get(key, "0")
    if not text.isascii() or not text.isdigit() or (key in own and not 0 < int(text) < _LIMIT_MAX):
        raise OptionError(f"option '{_LOWER[key]}' must be a number from 1 on: {text!r}")
    return int(text)
