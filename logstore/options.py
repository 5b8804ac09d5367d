"""Limits and options of a store, checked before anything is touched.

``StoreOptions`` is what a process asks for at open; ``StoreLimits`` is what was fixed when the
store was created and stands in its STORE file. Imports errors only.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from logstore.clock import SYSTEM_CLOCK, Clock
from logstore.errors import OptionError, TooLargeError, shown
from logstore.tuples import NamedTuple

Sync: TypeAlias = Literal["always", "everysec", "os"]
References: TypeAlias = Literal["keep", "delete", "acked"]  # what becomes of what groups hold
# What a delivery that is given back counts as, as XNACK has it.
NackMode: TypeAlias = Literal["silent", "fail", "fatal"]
# Whose commands and replies a server has; "valkey-9" is 9.1.
Profile: TypeAlias = Literal["redis-8.2", "redis-8.10", "valkey-9", "valkey-9.2"]
SYNC_RANK: dict[str, int] = {"os": 0, "everysec": 1, "always": 2}

MIB = 1 << 20
NODE_MAX_BYTES = 4096
NODE_MAX_ENTRIES = 100
SEGMENT_BYTES = 64 * MIB
SEGMENT_BYTES_MIN = 64 * 1024
SEGMENT_BYTES_MAX = 1 << 30
IMPORTING = b"__importing__:"  # what names of streams begin with that are not there whole yet
COPYING = IMPORTING + b"copy:"  # the same, of copies inside the store
NAME_MAX_BYTES = 64 * 1024  # of a stream, a group, a consumer, wherever they come from
PRODUCER_ID_MAX_BYTES = 1024  # and of an idempotent ID
ENTRY_MAX_BYTES = 1 << 30
SYNC_INTERVAL_MS = 1000
COMPACT_RATE_BYTES_S = 16 * MIB
BATCH_MAX_ROWS = 1_000_000
LOCK_TIMEOUT_MAX_S = 1_000_000_000
LENGTH_MAX_MS = timedelta.max // timedelta(milliseconds=1)  # of a length of time
AMOUNT_MAX = (1 << 63) - 1  # of anything that is counted


class StoreLimits(NamedTuple):
    """Chosen at creation: the peers' node limits, which CONFIG SET may change, and the size of a
    segment."""

    node_max_bytes: int = NODE_MAX_BYTES
    node_max_entries: int = NODE_MAX_ENTRIES
    segment_bytes: int = SEGMENT_BYTES

    def check(self) -> None:
        """OptionError for limits that no store can have."""
        for name in ("node_max_bytes", "node_max_entries", "segment_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise OptionError(f"{name} must be an integer: {shown(value)}")
        if not 0 <= self.node_max_bytes <= ENTRY_MAX_BYTES:
            raise OptionError(
                f"node_max_bytes must be 0 (no limit) to 2^30: {shown(self.node_max_bytes)}"
            )
        if not 0 <= self.node_max_entries <= 1_000_000:
            raise OptionError(
                f"node_max_entries must be 0 (no limit) to 1,000,000: "
                f"{shown(self.node_max_entries)}"
            )
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise OptionError(f"segment_bytes must be 64 KiB to 1 GiB: {shown(self.segment_bytes)}")


class StoreOptions(NamedTuple):
    """How this process opens a store; two handles of one process must agree on all of it."""

    sync: Sync = "everysec"
    readonly: bool = False
    lock_timeout_s: float = 10.0
    background: bool = True
    clock: Clock = SYSTEM_CLOCK
    compact_rate_bytes_s: float = COMPACT_RATE_BYTES_S  # of compaction in the background; 0: none
    low_space_bytes: int | None = None  # with less a warning is logged; None: by size of the disk
    only_join: bool = False  # refuse a store that no other process has open
    copy_index: bool = False  # readonly: of a store that is closed, and what it says is believed

    def check(self) -> None:
        """OptionError for values out of range."""
        check_sync(self.sync)
        if not 0 <= self.lock_timeout_s <= LOCK_TIMEOUT_MAX_S:
            raise OptionError(
                f"lock_timeout must be 0 to {LOCK_TIMEOUT_MAX_S} seconds: {self.lock_timeout_s}"
            )
        rate = self.compact_rate_bytes_s
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < math.inf:
            raise OptionError(
                f"compact_rate must be bytes a second, 0 or None for none: {shown(rate)}"
            )
        low = self.low_space_bytes
        if low is not None and (
            isinstance(low, bool) or not isinstance(low, int) or not 0 <= low <= AMOUNT_MAX
        ):
            raise OptionError(
                f"low_space_bytes must be 0 (no warning) to 2^63-1, or None: {shown(low)}"
            )
        for name in ("readonly", "background", "only_join", "copy_index"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False: {shown(getattr(self, name))}")
        if not callable(getattr(self.clock, "now_ms", None)):
            raise OptionError(f"clock must have now_ms(), unix milliseconds: {shown(self.clock)}")


def check_sync(sync: str) -> None:
    """OptionError unless ``sync`` names a policy."""
    if sync not in get_args(Sync):
        raise OptionError(f"sync must be 'always', 'everysec' or 'os', not {shown(sync)}")


def check_name(name: bytes, what: str) -> None:
    """TooLargeError for a name that is longer than any may be; ``what`` it is the name of."""
    if len(name) > NAME_MAX_BYTES:
        raise TooLargeError(f"{what} has at most {NAME_MAX_BYTES} bytes, not {len(name)}")


def elapsed(ms: int) -> timedelta:
    """Milliseconds as a length of time; what a payload says of the past may be longer than that
    can be, or not be over yet."""
    return timedelta(milliseconds=min(max(0, ms), LENGTH_MAX_MS))


def seconds(value: float | timedelta, name: str) -> float:
    """Seconds of a number or a timedelta, as all times of the public face are given."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(f"{name} must be seconds or a timedelta, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:  # an int of hundreds of digits
        return math.inf if value > 0 else -math.inf
