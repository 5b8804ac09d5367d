"""The machine: random operations on two sides, each answer compared, and all that can be seen.

One machine drives any two sides; which ones, and what is known to differ, its subclass says.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.ids import MAX_ID, ZERO_ID, StreamID
from tests.groups.answers import Answer, DifferenceError, Group, Refused, Trim, difference
from tests.groups.profile import REDIS, Profile
from tests.groups.side import Claim, Side

STREAMS = (b"s", b"t")
GROUPS = (b"g", b"h", b"i")
CONSUMERS = (b"alice", b"bob", b"carol")
LOOK_EVERY = 12  # steps
SLACK_MS = 20  # clocks are cached and rounded; how long calls took is added

streams = st.sampled_from([STREAMS[0], STREAMS[0], STREAMS[0], STREAMS[1]])
groups = st.sampled_from([GROUPS[0], GROUPS[0], GROUPS[0], GROUPS[1], GROUPS[1], GROUPS[2]])
consumers = st.sampled_from(CONSUMERS)
# -1: above all, -2: the last possible, -3: 0-0, -4: between two; else the n-th last that was given.
places = st.integers(-4, 40)
starts = st.none() | places
several = st.lists(places, min_size=1, max_size=6)
counts = st.sampled_from([0, 1, 1, 2, 3, 10])
# Idle times that nobody reaches by running, and borders that they do not come near to.
idles_ms = st.sampled_from([None, None, 0, 1_000_000, 5_000_000])
borders_ms = st.sampled_from([0, 0, 0, 500_000, 3_000_000])
references = st.sampled_from(["keep", "delete", "acked"])
entries_read = st.sampled_from([None, None, None, -1, 0, 1, 3, 100])
steps_of_death = st.integers(0, 4)


class Machine(RuleBasedStateMachine):
    """Two sides, ``ours`` and ``theirs``."""

    profile: ClassVar[Profile] = REDIS
    done: ClassVar[Counter[str]] = Counter()

    def sides(self, node_bytes: int, node_entries: int) -> tuple[Side, Side]:
        """Both, new and empty."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[bytes, list[StreamID]] = {name: [] for name in STREAMS}
        self.slack_ms = SLACK_MS
        self.steps = 0
        self.failed = False
        self.dying: tuple[int, bool] | None = None
        self.ours: Any = None
        self.theirs: Any = None

    @initialize(sizes=st.sampled_from([(4096, 100), (4096, 4), (128, 100), (0, 2)]))
    def start(self, sizes: tuple[int, int]) -> None:
        """Two streams with groups: what most operations need."""
        self.ours, self.theirs = self.sides(*sizes)
        for name in STREAMS:
            self.do("create", name, GROUPS[0], ZERO_ID, None, True)
            self.add_some(name, 5, None)
            self.do("read_new", name, GROUPS[0], CONSUMERS[0], 3, False)
        self.do("create", STREAMS[0], GROUPS[1], None, None, False)

    # -- doing and comparing ------------------------------------------------------------------
    def do(self, operation: str, *arguments: Any) -> Answer:
        """Do it on both sides; the answers must be the same."""
        self.done[operation] += 1
        began = time.monotonic()
        dying, self.dying = self.dying, None
        if dying is not None and self.ours.die(*dying, operation, arguments):
            self.done["killed"] += 1
            getattr(self.theirs, operation)(*arguments)
            self.stretch(began)
            return None
        self.failed = True  # unless it goes on below
        ours: Answer = getattr(self.ours, operation)(*arguments)
        theirs: Answer = getattr(self.theirs, operation)(*arguments)
        self.failed = False
        self.stretch(began)
        self.compare(ours, theirs, f"{operation}{arguments}")
        return ours

    def stretch(self, began: float) -> None:
        """Times may differ by as long as the slowest pair of calls took."""
        took_ms = int((time.monotonic() - began) * 1000)
        self.slack_ms = max(self.slack_ms, took_ms + SLACK_MS)

    def compare(self, ours: Answer, theirs: Answer, where: str) -> None:
        """Fail where two answers differ."""
        found = difference(ours, theirs, self.slack_ms, where)
        if found is not None:
            self.failed = True
            raise DifferenceError(found)

    def id_at(self, stream: bytes, place: int) -> StreamID:
        """The ID that a drawn place means."""
        given = self.given[stream]
        last = given[-1] if given else ZERO_ID
        match place:
            case -1:
                return StreamID(last.ms + 1000, 0)
            case -2:
                return MAX_ID
            case -3:
                return ZERO_ID
            case -4:
                return StreamID(last.ms - 1 if last.ms else 0, 7)
        return given[-1 - place % len(given)] if given else StreamID(7, 7)

    def ids_at(self, stream: bytes, drawn: list[int]) -> list[StreamID]:
        return [self.id_at(stream, place) for place in drawn]

    def start_at(self, stream: bytes, place: int | None) -> StreamID | None:
        return None if place is None else self.id_at(stream, place)

    def trim_of(self, stream: bytes, drawn: tuple[str, int, bool, str]) -> Trim:
        kind, number, approximate, references = drawn
        if not self.profile.references:
            references = "keep"
        approximate = approximate and references == "keep"
        if kind == "maxlen":
            return Trim(abs(number), None, approximate, references)
        return Trim(None, self.id_at(stream, number), approximate, references)

    def added(self, stream: bytes) -> int:
        """How many entries the stream counts."""
        info = self.ours.info(stream)
        return 0 if isinstance(info, Refused) else int(info["entries-added"])

    def add_some(self, stream: bytes, count: int, trim: Trim | None) -> None:
        info = self.ours.info(stream)
        last = ZERO_ID if isinstance(info, Refused) else info["last-generated-id"]
        for _ in range(count):
            if last.ms >= MAX_ID.ms - 1:
                return
            last = StreamID(last.ms + self.steps % 3 % 2, last.seq + 1)
            self.given[stream].append(last)
            self.do("add", stream, last, [b"f", b"%d" % self.steps, b"v", b"w" * 9], trim)

    # -- streams ------------------------------------------------------------------------------
    trims = st.tuples(
        st.sampled_from(["maxlen", "maxlen", "minid"]),
        st.integers(0, 12),
        st.booleans(),
        references,
    )

    @rule(stream=streams, count=st.integers(1, 6))
    def add(self, stream: bytes, count: int) -> None:
        self.add_some(stream, count, None)

    @rule(stream=streams, count=st.integers(1, 2), drawn=trims)
    def add_and_trim(self, stream: bytes, count: int, drawn: tuple[str, int, bool, str]) -> None:
        self.add_some(stream, count, self.trim_of(stream, drawn))

    @rule(stream=streams, drawn=several, mode=references)
    def delete(self, stream: bytes, drawn: list[int], mode: str) -> None:
        ids = self.ids_at(stream, drawn)
        if mode == "keep" or not self.profile.references:
            self.do("delete", stream, ids)
        else:
            self.do("delete_ids", stream, ids, mode)

    @rule(stream=streams, drawn=trims)
    def trim(self, stream: bytes, drawn: tuple[str, int, bool, str]) -> None:
        self.do("trim", stream, self.trim_of(stream, drawn))

    @rule(stream=streams, step=st.integers(0, 3), more=starts, deleted=st.none() | places)
    def set_stream_id(
        self, stream: bytes, step: int, more: int | None, deleted: int | None
    ) -> None:
        info = self.ours.info(stream)
        if isinstance(info, Refused):
            last, added = StreamID(step, step), more
        else:
            last = info["last-generated-id"]
            last = StreamID(last.ms, last.seq + step)
            added = None if more is None else info["length"] + more // 4
        most = self.start_at(stream, deleted)
        self.do("set_stream_id", stream, last, added, most)

    @rule(stream=streams, sure=st.integers(0, 5))
    def drop(self, stream: bytes, sure: int) -> None:
        if sure == 0:
            self.do("drop", stream)

    # -- groups -------------------------------------------------------------------------------
    @rule(stream=streams, group=groups, place=starts, read=entries_read, make=st.booleans())
    def create(
        self, stream: bytes, group: bytes, place: int | None, read: int | None, make: bool
    ) -> None:
        read = self.profile.entries_read(read, place, self.added(stream))
        self.do("create", stream, group, self.start_at(stream, place), read, make)

    @rule(stream=streams, group=groups, place=starts, read=entries_read)
    def set_id(self, stream: bytes, group: bytes, place: int | None, read: int | None) -> None:
        read = self.profile.entries_read(read, place, self.added(stream))
        self.do("set_id", stream, group, self.start_at(stream, place), read)

    @rule(stream=streams, group=groups, sure=st.integers(0, 3))
    def destroy(self, stream: bytes, group: bytes, sure: int) -> None:
        if sure == 0:
            self.do("destroy", stream, group)

    @rule(stream=streams, group=groups, consumer=consumers, make=st.booleans())
    def consumer(self, stream: bytes, group: bytes, consumer: bytes, make: bool) -> None:
        self.do("create_consumer" if make else "delete_consumer", stream, group, consumer)

    # -- deliveries ---------------------------------------------------------------------------
    @rule(
        stream=streams, group=groups, consumer=consumers, count=counts,
        noack=st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    def read_new(
        self, stream: bytes, group: bytes, consumer: bytes, count: int, noack: bool
    ) -> None:
        self.do("read_new", stream, group, consumer, count, noack)

    @rule(stream=streams, group=groups, consumer=consumers, count=counts)
    def add_and_read(self, stream: bytes, group: bytes, consumer: bytes, count: int) -> None:
        self.add_some(stream, 1 + count % 3, None)
        self.do("read_new", stream, group, consumer, count, False)

    @rule(stream=streams, consumer=consumers, count=st.integers(1, 5))
    def read_all(self, stream: bytes, consumer: bytes, count: int) -> None:
        """By every group."""
        for group in GROUPS:
            self.do("read_new", stream, group, consumer, count, False)

    @rule(stream=streams, group=groups, consumer=consumers, place=places, count=counts)
    def read_history(
        self, stream: bytes, group: bytes, consumer: bytes, place: int, count: int
    ) -> None:
        after = self.id_at(stream, place)
        if after == MAX_ID and self.profile.history_begins_anew:
            after = after.previous()
        self.do("read_history", stream, group, consumer, after, count)

    @rule(stream=streams, group=groups, drawn=several, mode=references, only=st.booleans())
    def ack(self, stream: bytes, group: bytes, drawn: list[int], mode: str, only: bool) -> None:
        ids = self.ids_at(stream, drawn)
        if only or not self.profile.references:
            self.do("ack", stream, group, ids)
        else:
            self.do("ack_delete", stream, group, ids, mode)

    claims = st.builds(
        Claim, borders_ms, idles_ms, st.none(), st.sampled_from([None, None, 0, 5, 2**40]),
        st.booleans(), st.booleans(), st.none(),
    )  # fmt: skip

    @rule(
        stream=streams, group=groups, consumer=consumers, drawn=several, how=claims,
        last=st.none() | places, ago_ms=st.sampled_from([None, None, None, 2_000_000, -9_000_000]),
    )  # fmt: skip
    def claim(
        self, stream: bytes, group: bytes, consumer: bytes, drawn: list[int], how: Claim,
        last: int | None, ago_ms: int | None,
    ) -> None:  # fmt: skip
        moment_ms = None if ago_ms is None else time.time_ns() // 1_000_000 - ago_ms
        how = Claim(
            how.min_idle_ms, None if ago_ms is not None else how.idle_ms, moment_ms,
            how.retry_count, how.force, how.just_id, self.start_at(stream, last),
        )  # fmt: skip
        self.do("claim", stream, group, consumer, self.ids_at(stream, drawn), how)

    @rule(
        stream=streams, group=groups, consumer=consumers, border_ms=borders_ms,
        place=places | st.just(-3), count=st.sampled_from([1, 2, 3, 100]), just_id=st.booleans(),
    )  # fmt: skip
    def autoclaim(
        self, stream: bytes, group: bytes, consumer: bytes, border_ms: int, place: int,
        count: int, just_id: bool,
    ) -> None:  # fmt: skip
        start = self.id_at(stream, place)
        self.do("autoclaim", stream, group, consumer, border_ms, start, count, just_id)

    @rule(
        stream=streams, group=groups, start=places, end=places, count=counts,
        consumer=st.none() | consumers | st.just(b"nobody"), border_ms=borders_ms,
    )  # fmt: skip
    def pending(
        self, stream: bytes, group: bytes, start: int, end: int, count: int,
        consumer: bytes | None, border_ms: int,
    ) -> None:  # fmt: skip
        low, high = self.id_at(stream, start), self.id_at(stream, end)
        self.do("detail", stream, group, low, high, count, consumer, border_ms)

    # -- what a store goes through ------------------------------------------------------------
    @rule(
        how=st.sampled_from(["reopen", "rebuild", "checkpoint", "checkpoint, rebuild"]),
        sure=st.integers(0, 2),
    )
    def restart(self, how: str, sure: int) -> None:
        if sure == 0:
            self.done[how] += 1
            self.ours.restart(how)

    @rule(step=steps_of_death, living=st.booleans(), sure=st.integers(0, 2))
    def death(self, step: int, living: bool, sure: int) -> None:
        """The next operation is done by a process that is killed, at a step of its commit."""
        if sure == 0:
            self.dying = (step, living)

    @rule(sure=st.integers(0, 3))
    def wait(self, sure: int) -> None:
        """Long enough that a time which only one side sets is seen."""
        if sure == 0:
            time.sleep((self.slack_ms + 5) / 1000)
            self.look()

    # -- looking ------------------------------------------------------------------------------
    @invariant()
    def look_now_and_then(self) -> None:
        self.steps += 1
        self.done["step"] += 1
        if self.steps % LOOK_EVERY == 0 and self.ours is not None:
            self.look()

    def look(self) -> None:
        """All that can be seen of both sides."""
        self.dying = None
        for name in STREAMS:
            info = self.do("info", name)
            self.do("nodes", name)
            self.look_at_groups(name, info)
            self.look_full(name, info, self.steps % 4)
            for group in GROUPS:
                self.do("summary", name, group)
                self.do("detail", name, group, ZERO_ID, MAX_ID, 10_000, None, 0)
                self.do("consumers", name, group)

    def look_at_groups(self, stream: bytes, info: Answer) -> None:
        """XINFO GROUPS; where a known difference is allowed, both are set to the same after it."""
        ours, theirs = self.ours.groups(stream), self.theirs.groups(stream)
        if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
            theirs = tuple(
                self.allowed(stream, info, one, other)
                for one, other in zip(ours, theirs, strict=True)
            )
        self.compare(ours, theirs, f"groups({stream!r})")

    def look_full(self, stream: bytes, info: Answer, count: int) -> None:
        """XINFO STREAM FULL; of groups that may differ without what was compared before."""
        ours, theirs = self.ours.full(stream, count), self.theirs.full(stream, count)
        if isinstance(ours, dict) and isinstance(theirs, dict) and self.profile.may_differ(
            info["length"], info["entries-added"], info["max-deleted-entry-id"]
        ):  # fmt: skip
            for group in (*ours["groups"], *theirs["groups"]):
                group["entries-read"] = group["lag"] = None
        self.compare(ours, theirs, f"full({stream!r}, {count})")

    def allowed(self, stream: bytes, info: Answer, ours: Group, theirs: Group) -> Group:
        """What the peer tells of a group; where it may differ, it is told what we have."""
        if ours == theirs or not self.profile.may_differ(
            info["length"], info["entries-added"], info["max-deleted-entry-id"]
        ):
            return theirs
        self.done["known difference"] += 1
        for side in (self.ours, self.theirs):
            side.set_id(stream, ours.name, ours.last, ours.entries_read)
        return theirs._replace(entries_read=ours.entries_read, lag=ours.lag)

    def teardown(self) -> None:
        """Once more all, from an index that was built anew."""
        try:
            if self.ours is not None and not self.failed:
                self.look()
                self.ours.restart("rebuild")
                self.look()
        finally:
            for side in (self.ours, self.theirs):
                close = getattr(side, "close", None)
                if close is not None:
                    close()
