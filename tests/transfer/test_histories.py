"""Prevents missed entries that nobody is told of, and archives that join two streams into one."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.api.store import Store
from logstore.ids import parse_id
from logstore.transfer import Report
from tests.support.waits import eventually
from tests.transfer.durable import DurableServer
from tests.transfer.followers import add, followed, ids

pytestmark = pytest.mark.peers
BURST = 60_000
KEPT = 500


def numbers(store: Store[Any], name: str) -> list[int]:
    """The milliseconds of the IDs of a stream here."""
    return [entry.id.ms for entry in store.stream(name)]


def burst(client: Any, name: str, low: int, high: int, max_entries: int = KEPT) -> None:
    """Add entries with IDs of these numbers, of which the server keeps the last ones."""
    for at in range(low, high, 10_000):
        pipe = client.pipeline(transaction=False)
        for number in range(at, min(at + 10_000, high)):
            pipe.execute_command("XADD", name, "MAXLEN", max_entries, f"{number}-1", "n", number)
        pipe.execute()


def accounted(report: Report, here: list[int], first: int, last: int) -> None:
    """Every number is here or in a range that was told, with the right count of each range."""
    missing = set(range(first, last + 1)) - set(here)
    assert report.missed == len(missing)
    for gap in report.gaps:
        above, below = gap.above.ms, gap.below.ms
        inside = {n for n in missing if (above, 1) < (n, 1) and gap.above < parse_id(f"{n}-1")}
        inside = {n for n in inside if parse_id(f"{n}-1") < gap.below}
        assert gap.entries == len(inside), (above, below)
        missing -= inside
    assert not missing


def test_entries_trimmed_in_a_burst_are_counted_as_missed(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    burst(client, "s", 1, KEPT + 1)
    with followed(store, durable) as report:
        eventually(lambda: len(store.stream("s")) == KEPT)
        burst(client, "s", KEPT + 1, KEPT + BURST + 1)
        eventually(lambda: ids(store, "s")[-1] == f"{KEPT + BURST}-1")
    assert store.streams() == [b"s"]
    accounted(report, numbers(store, "s"), 1, KEPT + BURST)
    assert store.stream("s").info().entries_added == KEPT + BURST
    assert report.as_dict().get("missed", 0) == report.missed
    assert sum(each["entries"] for each in report.as_dict().get("gaps", ())) == report.missed
    with followed(store, durable) as again:
        add(client, "s", KEPT + BURST + 1)
        eventually(lambda: ids(store, "s")[-1] == f"{KEPT + BURST + 1}-1")
    assert again.missed == 0  # it was told before


def test_a_burst_in_one_transaction_is_missed_for_certain(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """Also on a server that removes other keys all the time."""
    add(client, "s", *range(1, 6))
    with followed(store, durable, b"s") as report:
        eventually(lambda: len(store.stream("s")) == 5)
        for turn in range(1, 4):
            pipe = client.pipeline(transaction=True)
            for number in range(turn * 100, turn * 100 + 50):
                pipe.execute_command("XADD", "s", "MAXLEN", 10, f"{number}-1", "n", number)
            pipe.execute()
            eventually(lambda last=f"{turn * 100 + 49}-1": ids(store, "s")[-1] == last)
            client.execute_command("SET", "other", turn)
            client.execute_command("DEL", "other")
    assert store.streams() == [b"s"]
    assert report.missed == 3 * 40
    found = [(gap.stream, str(gap.above), str(gap.below), gap.entries) for gap in report.gaps]
    assert found == [
        (b"s", "5-1", "140-1", 40), (b"s", "149-1", "240-1", 40), (b"s", "249-1", "340-1", 40),
    ]  # fmt: skip


def test_entries_deleted_unread_are_counted_as_missed(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """Inside of what is there, and where nothing of it is left."""
    add(client, "s", 1, 2, 3)
    add(client, "t", 1)
    with followed(store, durable):
        eventually(lambda: store.streams() == [b"s", b"t"])
    add(client, "s", 4, 5, 6)
    add(client, "t", 2)
    client.execute_command("XDEL", "s", "5-1")
    client.execute_command("XDEL", "t", "2-1")
    with followed(store, durable) as report:
        eventually(lambda: report.missed == 2)
        eventually(lambda: ids(store, "s")[-1] == "6-1")
    assert ids(store, "s") == ["1-1", "2-1", "3-1", "4-1", "6-1"]
    assert {gap.stream: gap.entries for gap in report.gaps} == {b"s": 1, b"t": 1}
    in_order = sorted(report.gaps, key=lambda each: each.stream)
    for gap, at in zip(in_order, ("5-1", "2-1"), strict=True):
        assert gap.above < parse_id(at) < gap.below


# By the stream's name: what it has, what it has when it was made anew, and what MAXLEN left of it.
ANOTHER = {
    "higher": ([1, 2, 3], [10], 0),
    "lower": ([11, 12, 13], [1, 2], 0),
    "overlapping": ([1, 2, 3, 4, 5], [2, 4, 6, 8], 0),
    "longer": ([1, 2, 3], [*range(1, 11)], 0),
    "trimmed": ([1, 2, 3], [*range(10, 40)], 5),
    "as many": ([1, 2, 3], [*range(10, 16)], 3),  # as were added to the old one
    "empty": ([1, 2, 3], [], 0),
}  # fmt: skip


def made_anew(client: Any, way: str, names: list[str]) -> None:
    """Remove streams and make them anew, with a group, in one transaction."""
    pipe = client.pipeline(transaction=True)
    pipe.execute_command(*((way,) if way == "FLUSHALL" else (way, *names)))
    for name in names:
        _, after, max_entries = ANOTHER[name]
        for number in after:
            trim = ("MAXLEN", max_entries) if max_entries else ()
            pipe.execute_command("XADD", name, *trim, f"{number}-1", "another", number)
        pipe.execute_command("XGROUP", "CREATE", name, "g", "0", "MKSTREAM")
    pipe.execute()


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("way", ["FLUSHALL", "DEL"])
def test_two_histories_are_never_joined(
    durable: DurableServer, client: Any, store: Store[bytes], way: str, stopped: bool
) -> None:
    # Nothing tells the one that goes on exactly at the old one's counts, unless FLUSHALL was seen.
    names = [name for name in ANOTHER if name != "as many" or (way == "FLUSHALL" and not stopped)]
    for name in names:
        add(client, name, *ANOTHER[name][0])

    def first() -> bool:
        return all(
            name.encode() in store.streams() and len(store.stream(name)) == len(ANOTHER[name][0])
            for name in names
        )

    def second() -> bool:
        return len(store.streams()) == 2 * len(names) and all(
            name.encode() in store.streams()
            and ids(store, name) == [f"{n}-1" for n in ANOTHER[name][1][-ANOTHER[name][2] :]]
            for name in names
        )

    with followed(store, durable) as report:
        eventually(first)
        if not stopped:
            made_anew(client, way, names)
            eventually(second)
    if stopped:
        made_anew(client, way, names)
        with followed(store, durable) as report:
            eventually(second)
    for name in names:
        (kept,) = report.set_aside[name.encode()]
        assert ids(store, kept.decode()) == [f"{n}-1" for n in ANOTHER[name][0]]
        assert all(entry.pairs[0][0] == b"n" for entry in store.stream(kept))
        assert all(entry.pairs[0][0] == b"another" for entry in store.stream(name))
        assert [group.name for group in store.stream(name).groups()] == [b"g"]
        assert any(kept.decode() in note for note in report.notes)


def test_a_recreated_stream_is_not_trimmed_by_the_old_position(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", *range(50, 60))
    with followed(store, durable, trim="all") as report:
        eventually(lambda: report.trimmed == 10)
        client.execute_command("DEL", "s")
        add(client, "s", 1, 2, 3)
        eventually(lambda: report.trimmed == 13)
    assert ids(store, "s") == ["1-1", "2-1", "3-1"]
    assert len(store.streams()) == 2


def test_a_stream_trimmed_after_every_read_stays_one_stream(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    """Also over restarts, and beside keys that are removed."""
    add(client, "s", 1)
    for turn in range(1, 3):
        with followed(store, durable, trim="all") as report:
            for number in range(turn * 10, turn * 10 + 3):
                client.execute_command("SET", "other", "1")
                client.execute_command("DEL", "other")
                add(client, "s", number)
                eventually(lambda last=f"{number}-1": ids(store, "s")[-1:] == [last])
                eventually(lambda: client.execute_command("XLEN", "s") == 0)
        assert report.missed == 0
        assert not report.set_aside
    assert len(store.stream("s")) == 7


def test_the_report_notes_groups_that_differ(
    durable: DurableServer, client: Any, store: Store[bytes]
) -> None:
    add(client, "s", 1, 2, 3)
    for group in ("read", "gone", "still"):
        client.execute_command("XGROUP", "CREATE", "s", group, "1-1")
    with followed(store, durable) as report:
        eventually(lambda: b"s" in store.streams())
        client.execute_command("XREADGROUP", "GROUP", "read", "c", "STREAMS", "s", ">")
        client.execute_command("XGROUP", "DESTROY", "s", "gone")
        client.execute_command("XGROUP", "CREATE", "s", "new", "0")
        eventually(lambda: len(report.notes) == 3)
        add(client, "s", 4)
        eventually(lambda: ids(store, "s")[-1] == "4-1")
    here = {group.name: group for group in store.stream("s").info_full().group_infos}
    assert set(here) == {b"read", b"gone", b"still"}
    assert str(here[b"read"].last_delivered_id) == "1-1"
    told = sorted(report.notes)
    assert ["'gone'" in told[0], "'new'" in told[1], "'read'" in told[2]] == [True] * 3
    assert all("groups are not followed" in note for note in told)
    with followed(store, durable) as again:
        eventually(lambda: len(again.notes) == 3)  # said again by a follower that is started later
    assert sorted(again.notes) == told


def test_notes_that_have_no_room_are_counted() -> None:
    report = Report()
    for number in range(150):
        report.note(f"note {number}")
        report.note(f"note {number}")
    assert len(report.notes) == 100
    assert report.as_dict()["notes_left_out"] == 50
    for number in range(0, 5000, 2):
        report.miss(b"s", parse_id(f"{number + 1}-0"), parse_id(f"{number + 3}-0"), 1)
    assert report.missed == sum(gap.entries for gap in report.gaps) == 2500
    assert len(report.gaps) <= 1000
    assert str(report.gaps[-1].below) == "5001-0"
