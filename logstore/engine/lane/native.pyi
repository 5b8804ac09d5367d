from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from logstore.engine.commit.committer import ThreadUse
from logstore.engine.commit.group_commit import CommitQueue
from logstore.engine.groups.ack import NackDelay
from logstore.engine.groups.claim import Autoclaimed
from logstore.engine.groups.dead_letter import Limit
from logstore.engine.groups.deliver import Delivered
from logstore.engine.lane.lane import IndexPort
from logstore.engine.runtime.engine import Engine
from logstore.engine.shm.waiters import Pace
from logstore.ids import StreamID
from logstore.index.keys import OpenNode, StreamRecord

# ID, max_entries, min_id, approximate, limit, create
Options: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]

def layout() -> dict[str, int]: ...
def group_layout() -> dict[str, int | bytes]: ...
def waiter_layout() -> dict[str, int]: ...
def outcomes() -> dict[str, int]: ...
def claim_layout() -> dict[str, int]: ...
def handover_layout() -> dict[str, int]: ...
def words() -> dict[str, int]: ...
def log_words() -> tuple[int, ...]: ...
def simulate(simulator: Callable[[str, int, int, int], int] | None) -> None: ...

class Handle:
    number: int
    usable: bool
    version: int
    def learn(self, record: StreamRecord, node: OpenNode | None) -> bool: ...
    def give_back(self, record: StreamRecord, node: OpenNode) -> None: ...
    def frame(
        self,
        fields: dict[Any, Any] | tuple[bytes, ...],
        ms: int,
        seq: int,
        at: int,
        commit: int,
        durable_upto: int,
        seed: int,
        bytes_max: int,
        entries_max: int,
    ) -> bytes | None: ...
    def apply(self, frame: bytes, at: int, seed: int) -> bool: ...

class Lane:
    locked: bool
    has_lock: bool
    held_max: int
    waiting: int
    lately_ms: int
    held_bytes: int
    held_bytes_max: int
    def __init__(
        self,
        engine: Engine,
        busy: ThreadUse,
        queue: CommitQueue,
        owner: tuple[int, int],
        lag: dict[str, Any],
        follow: Callable[[], object],
        failed: Callable[[bool, int, int, int, int, int], None],
        look_ns: int,
        end_look_ns: int,
        passed_over_max: int,
        port: IndexPort,
        state_of: Callable[[int, int], int],
        states: tuple[int, int],
        pace: Pace,
    ) -> None: ...
    def add(
        self,
        name: bytes,
        fields: dict[Any, Any] | tuple[bytes, ...],
        told: list[StreamID],
        ascii: bool = False,
        options: Options | None = None,
        schema_at: int = 0,
    ) -> StreamID | Literal[False] | None: ...
    def add_rows(
        self,
        name: bytes,
        rows: list[dict[Any, Any]],
        told: list[StreamID],
        ascii: bool = False,
        schema_at: int = 0,
    ) -> int: ...
    def add_all(
        self, entries: list[tuple[bytes, Any, Options | None]], told: list[StreamID]
    ) -> bool: ...
    def add_each(
        self, entries: list[tuple[bytes, Any, Options | None]], told: list[StreamID | None]
    ) -> None: ...
    def delete(
        self, name: bytes, id: tuple[int, int], told: list[int]
    ) -> int | None: ...  # False: see `DeleteLane`
    def plain(
        self, fields: object, ascii: bool = False, options: Options | None = None
    ) -> dict[Any, Any] | None: ...
    def read(
        self,
        name: bytes,
        group: bytes,
        who: bytes,
        count: int,
        making: tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]],
        place: tuple[Callable[[int, object], bool], object] | None,
        idle_ms: int,
        told: list[Any],
    ) -> list[Any] | None: ...
    def wait(
        self,
        name: bytes,
        group: int,
        who: bytes,
        most: int,
        making: tuple[Callable[..., tuple[list[Any], bytes]], tuple[Any, ...]],
        mine: dict[int, int],
        waiter: int,
        before: int,
        consumer: int,
        most_ns: int,
    ) -> tuple[int, int, list[Any] | None, int]: ...
    def given(
        self, name: bytes, group: int, first: tuple[int, int]
    ) -> tuple[StreamID, bytes] | None: ...
    def drained(self, name: bytes, group: int, who: bytes) -> int: ...
    def ack(
        self, name: bytes, group: bytes, ids: tuple[Any, ...], told: list[Any]
    ) -> int | None: ...
    def nack(
        self,
        told: list[Any],
        missed: list[StreamID],
        stream: bytes,
        group: bytes,
        ids: Sequence[StreamID],
        *,
        mode: str,
        retry_count: int | None,
        force: bool,
        later: NackDelay | None,
        error: bytes,
    ) -> int | None: ...
    def claim(
        self,
        told: list[Any],
        missed: list[StreamID],
        stream: bytes,
        group: bytes,
        consumer: bytes,
        ids: Sequence[StreamID],
        *,
        min_idle_ms: int,
        idle_ms: int | None,
        time_ms: int | None,
        retry_count: int | None,
        force: bool,
        just_id: bool,
        last_id: StreamID | None,
    ) -> list[Delivered] | None: ...
    def autoclaim(
        self,
        told: list[Any],
        missed: list[StreamID],
        stream: bytes,
        group: bytes,
        consumer: bytes,
        *,
        min_idle_ms: int,
        start: StreamID | None,
        count: int,
        just_id: bool,
    ) -> Autoclaimed | None: ...
    def read_history(
        self,
        told: list[Any],
        missed: list[StreamID],
        stream: bytes,
        group: bytes,
        consumer: bytes,
        *,
        after: StreamID,
        count: int,
        limit: Limit | None,
        singly: bool,
    ) -> list[Delivered] | None: ...
    def give_back(self) -> None: ...
    def take_counts(self) -> dict[str, int]: ...
    def close(self) -> None: ...
