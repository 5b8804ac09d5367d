"""Prevents a doctor that overlooks what is wrong, finds what is not, or names a command in vain."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import Store
from logstore.api.info import summaries
from logstore.api.opening import opened_of
from logstore.compaction.usage import usage
from logstore.engine.runtime import pins
from logstore.engine.shm.commit_words import Wake
from logstore.fs import LOCAL
from logstore.log import file_names
from logstore.telemetry import doctor_rules
from logstore.telemetry.doctor_findings import SLOW, Examined, Limits
from tests.corruption import frames
from tests.support.inside import delete_index
from tests.tools.commands import invoke, ok, process

SEGMENT_BYTES = 64 << 10


def rows(count: int) -> list[dict[str, str]]:
    """Entries, each a little different."""
    return [{"n": str(n), "t": "x" * 60} for n in range(count)]


def sound(store: Store[bytes]) -> None:
    """What every store here has: a stream that is retained, and a group that is read."""
    stream = store.stream("s")
    stream.configure(max_age=timedelta(days=7))
    stream.add_many(rows(1500))
    group = stream.group("workers", start="0")
    group.configure(min_idle=60)
    group.ack(*(delivery.id for delivery in group.read("anna", count=1500)))


# -- what goes wrong, by the finding that tells of it -------------------------------------------
def no_retention(store: Store[bytes]) -> None:
    store.stream("s").configure(max_age=None)


def dead_share(store: Store[bytes]) -> None:
    store.stream("s").trim(max_entries=100, approximate=False)


def dead_letters(store: Store[bytes]) -> None:
    group = store.stream("s").group("workers")
    group.configure(max_deliveries=1, dead_letter="s's dead")
    store.stream("s").add({"a": "b"})
    group.read("anna", count=1)[0].nack()


def left_behind(store: Store[bytes]) -> None:
    group = store.stream("s").group("workers")
    group.configure(min_idle=None)
    store.stream("s").add({"a": "b"})
    group.read("gone", count=1)


def unread(store: Store[bytes]) -> None:
    store.stream("s").add({"a": "b"})


def redelivered(store: Store[bytes]) -> None:
    group = store.stream("s").group("workers")
    store.stream("s").add({"a": "b"})
    group.read("anna", count=1)
    for _ in range(6):
        group.claim("anna", store.stream("s").last_id, min_idle=0)


def pinned(store: Store[bytes]) -> None:
    store.stream("s").trim(max_entries=100, approximate=False)
    engine = opened_of(store).engine()
    pins.create(LOCAL, engine.path, engine.clock.now_ms(), 3_600_000, purpose="spark")


def retention(store: Store[bytes]) -> None:
    old = store.stream("old")
    old.configure(max_age=timedelta(days=1))
    old.add_many((f"{1_700_000_000_000 + n}-0", fields) for n, fields in enumerate(rows(1200)))


def scheduled(store: Store[bytes]) -> None:
    now_ms = opened_of(store).engine().clock.now_ms()
    store.stream("s").schedule({"a": "b"}, at=now_ms - 3_600_000)


def full(path: Path) -> None:
    (path / file_names.RESERVE).unlink()


def failed_sync(path: Path) -> None:
    Wake.create(LOCAL, path / file_names.WAKE, failed_at=1 << 32 | 64)


def damage(path: Path) -> None:
    number = frames.segments(path)[0]
    middle = frames.of(path, number)
    frames.spoil(path, middle[len(middle) // 2])
    file_names.hint(path, number).unlink()  # else nobody looks there


def no_first_segment(path: Path) -> None:
    file_names.segment(path, frames.segments(path)[0]).unlink()


OPEN: dict[str, Callable[[Store[bytes]], None]] = {
    "no-retention": no_retention,
    "dead-share": dead_share,
    "dead-letters": dead_letters,
    "left-behind": left_behind,
    "unread": unread,
    "redelivered": redelivered,
    "pin": pinned,
    "retention": retention,
    "scheduled": scheduled,
}
CLOSED: dict[str, Callable[[Path], None]] = {
    "index": delete_index,
    "full": full,
    "failed-sync": failed_sync,
    "damage": damage,
    "cannot-open": no_first_segment,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store."""
    path = tmp_path_factory.mktemp("doctor") / "it's sound"
    with logstore.open(path, segment_bytes=SEGMENT_BYTES, background=False) as store:
        sound(store)
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of it, which keeps its index."""
    path = tmp_path / "it's"
    shutil.copytree(template, path)
    with logstore.open(path, background=False):
        pass  # the index of a copy is built anew
    return path


def examined(path: Path, *arguments: Any) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code and the findings, by the rule that made them."""
    done = invoke("doctor", path, "--json", "--large-bytes", 20_000, "--watch", 0, *arguments)
    found = json.loads(done.stdout)
    assert found["healthy"] == (not found["findings"])
    return done.exit_code, {each["check"]: each for each in found["findings"]}


def test_a_sound_store_has_nothing(path: Path) -> None:
    assert examined(path) == (0, {})
    text = ok("doctor", path)
    assert re.fullmatch(r"nothing was found: 1 stream, 1 group, \d segments looked at\n", text)


def spoil(path: Path, check: str) -> None:
    """Have something in the store that a check finds."""
    if check in OPEN:
        with logstore.open(path, background=False) as store:
            OPEN[check](store)
    else:
        CLOSED[check](path)


@pytest.mark.parametrize("check", [*OPEN, *CLOSED])
def test_doctor_finds_each_fault_with_a_command_that_mends_it(path: Path, check: str) -> None:
    """With a command that exists, and takes those arguments."""
    spoil(path, check)
    gone = ["--idle", 0] if check in {"left-behind", "unread"} else []
    code, found = examined(path, *gone)
    assert check in found
    assert code == (3 if any(each["level"] == "wrong" for each in found.values()) else 4)
    assert found[check]["level"] in {"wrong", "slow", "soon"}
    assert len(found[check]["what"]) > 30
    if found[check]["command"]:
        program, *typed = shlex.split(found[check]["command"])
        assert program == "logstore"
        assert str(path) in " ".join(typed)
        assert invoke(*typed[: typed.index(str(path))], "--help").exit_code == 0
    text = invoke("doctor", path, "--large-bytes", 20_000, "--watch", 0, *gone)
    assert text.exit_code == code
    assert found[check]["command"] in text.stdout
    assert f"({check})" in text.stdout.replace("\n       ", " ")


def test_findings_that_are_ignored_or_below_the_level_do_not_count(path: Path) -> None:
    """A unit that fails shall fail for what its owner wants to hear of."""
    for check in ("no-retention", "unread"):
        spoil(path, check)
    assert examined(path, "--idle", 0)[0] == 3
    code, found = examined(path, "--idle", 0, "--ignore", "unread")
    assert (code, set(found)) == (4, {"no-retention"})
    assert examined(path, "--idle", 0, "--ignore", "unread:s/workers")[0] == 4
    assert examined(path, "--idle", 0, "--ignore", "unread:s/other")[0] == 3
    code, found = examined(path, "--idle", 0, "--level", "wrong")
    assert (code, set(found)) == (3, {"unread"})
    assert examined(path, "--idle", 0, "--level", "slow", "--ignore", "unread") == (0, {})
    text = ok("doctor", path, "--large-bytes", 20_000, "--level", "wrong", "--watch", 0)
    assert text.splitlines()[-1] == "left out by --level and --ignore: 1 finding"
    done = invoke("doctor", path, "--ignore", "unred")
    assert (done.exit_code, "there is no check 'unred'" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "check", ["dead-share", "left-behind", "redelivered", "retention", "index"]
)
def test_the_command_mends_it(path: Path, check: str) -> None:
    spoil(path, check)
    gone = ["--idle", "1ms"] if check == "left-behind" else []
    command = examined(path, *gone)[1][check]["command"]
    ok(*shlex.split(command)[1:])
    if check == "left-behind":  # who reads next gets it
        with logstore.open(path, background=False) as store:
            group = store.stream("s").group("workers")
            assert group.settings.min_idle == timedelta(milliseconds=1)
            assert [each.consumer for each in group.pending_entries()] == [b"gone"]
            assert len(group.read("anna", count=1)) == 1
    else:
        assert check not in examined(path)[1]


def test_a_group_that_falls_behind_is_told_from_one_that_catches_up(path: Path) -> None:
    with logstore.open(path, background=False) as store:
        stream = store.stream("s")
        opened, listed = opened_of(store), [b"s"]
        look = Examined(store, path, store.info(), usage(opened.engine()), [], Limits())
        stream.add_many(rows(10))
        before = list(summaries(opened, listed))
        stream.group("workers").read("anna", count=8)
        caught_up = list(summaries(opened, listed))
        stream.add_many(rows(50))
        behind = list(summaries(opened, listed))
        span = timedelta(seconds=2)
        assert list(doctor_rules.growing(look, before, caught_up, span)) == []
        (found,) = doctor_rules.growing(look, before, behind, span)
    assert (found.level, found.about) == (SLOW, "s/workers")
    assert "from 10 to 52 entries within 2s, while 8 were read" in found.what


def test_little_room_is_told(path: Path) -> None:
    with logstore.open(path, background=False) as store:
        used = usage(opened_of(store).engine())
        for free, told in ((used.disk_bytes // 2, 0), (used.disk_bytes // 100, 1), (1, 1)):
            used.free_bytes = free
            look = Examined(store, path, store.info(), used, [], Limits())
            assert len(list(doctor_rules.space(look))) == told


def test_no_store_is_an_error(tmp_path: Path) -> None:
    done = process("doctor", tmp_path)
    assert done.returncode == 1
    assert b"not a store" in done.stderr


def test_doctor_knows_groups_that_redeliver(path: Path) -> None:
    """Where a group redelivers, and nobody reads it, a reader is missing, and no setting."""
    with logstore.open(path) as store:
        store.stream("s").add({"a": "b"})
        store.stream("s").group("workers").read("gone", count=1)
    _, found = examined(path, "--idle", 0)
    assert "nobody reads who would take them over" in found["left-behind"]["what"]
    assert "--min-idle" not in found["left-behind"]["command"]
