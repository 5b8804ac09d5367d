"""Prevents a command that destroys without asking, and one that tells what did not happen."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import COMMAND, environment, invoke, objects, ok


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten entries in one stream, a group that was given three of them."""
    path = tmp_path / "events"
    with logstore.open(path, background=False) as opened:
        stream = opened.stream("orders")
        for number in range(10):
            stream.add({"n": str(number)}, f"{number + 1}-0")
        stream.group("g", start="0").read("c", count=3)
    return path


def json_report(*words: object) -> dict[str, object]:
    """What a command reports as JSON."""
    found: dict[str, object] = json.loads(ok(*words, "--json"))
    return found


def ids(path: Path, stream: str = "orders") -> list[str]:
    with logstore.open(path, readonly=True) as opened:
        return [str(entry.id) for entry in opened.stream(stream).range()]


DESTROYING = (
    ("delete", "orders", "1-0"),
    ("delete", "orders", "--range", "1-0", "3-0"),
    ("trim", "orders", "--max-entries", "3"),
    ("drop", "orders"),
    ("rename", "orders", "others", "--replace"),
    ("copy", "orders", "others", "--replace"),
    ("redis import", "redis://127.0.0.1:1", "--replace"),
    ("redis import", "redis://127.0.0.1:1", "--follow", "--trim", "acked"),
    ("redis import", "redis://127.0.0.1:1", "--follow", "--deletes", "apply"),
    ("redis export", "redis://127.0.0.1:1", "--replace"),
    ("schedule", "orders", "--cancel", "waiting"),
)


@pytest.mark.parametrize("words", DESTROYING, ids=" ".join)
def test_without_a_terminal_or_yes_nothing_changes(store: Path, words: tuple[str, ...]) -> None:
    command, *rest = words
    json_report("schedule", store, "orders", "n=1", "--every", "1h", "--name", "waiting")
    done = invoke(*command.split(), store, *rest)
    assert (done.exit_code, "give --yes" in done.stderr) == (2, True)
    assert len(ids(store)) == 10
    assert json_report("schedule", store, "orders")["name"] == "waiting"


@pytest.mark.parametrize(
    "words", [each for each in DESTROYING if "redis" not in each[0]], ids=" ".join
)
def test_a_missing_stream_is_told_before_the_question(store: Path, words: tuple[str, ...]) -> None:
    command, _, *rest = words
    done = invoke(command, store.parent / "none", "orders", *rest)
    assert (done.exit_code, "no such directory" in done.stderr) == (1, True)
    done = invoke(command, store, "none", *rest)
    assert (done.exit_code, "no such stream" in done.stderr) == (1, True)
    assert len(ids(store)) == 10


@pytest.mark.parametrize(
    ("given", "question"),
    [
        (("--max-age", "7s"), "Drop what is older than 7 seconds from 'orders'?"),
        (
            ("--max-age", "1d1h30m"),
            "Drop what is older than 1 day 1 hour 30 minutes from 'orders'?",
        ),
        (("--max-entries", "1000"), "Drop all but the newest 1,000 from 'orders'?"),
        (("--min-id", "3-0"), "Drop what is below 3-0 from 'orders'?"),
    ],
)
def test_a_question_says_what_goes(store: Path, given: tuple[str, ...], question: str) -> None:
    assert question in invoke("trim", store, "orders", *given).stderr


def test_a_question_shows_no_password(store: Path) -> None:
    done = invoke("redis", "export", store, "redis://anna:secret@127.0.0.1:1", "--replace")
    assert "redis://127.0.0.1:1 " in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 10), (b"y\n", 0)])
def test_on_a_terminal_it_asks(store: Path, answer: bytes, left: int) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "trim", str(store), "orders", "--max-entries", "0"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment()
    ) as process:
        os.close(theirs)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(ours, 1000)
        os.write(ours, answer)
        assert process.wait(60) == (0 if left == 0 else 1)
    os.close(ours)
    assert len(ids(store)) == left


def test_delete(store: Path) -> None:
    assert json_report("delete", store, "orders", "1-0", "2-0", "99-0", "--yes") == {"deleted": 2}
    assert json_report("delete", store, "orders", "--range", "(3-0", "5-0", "--yes") == {
        "deleted": 2
    }
    assert ids(store)[0] == "3-0"
    assert invoke("delete", store, "orders", "--yes").exit_code == 2
    assert invoke("delete", store, "orders", "4-0", "--range", "1", "2", "--yes").exit_code == 2


@pytest.mark.parametrize("number", ["1700000000", "7", "(7", "9" * 30, "0"])
@pytest.mark.parametrize(
    "words",
    [
        ("delete", "--range", "{}", "+"),
        ("delete", "--range", "-", "{}"),
        ("trim", "--min-id", "{}"),
    ],
    ids=" ".join,
)
def test_seconds_delete_nothing(store: Path, words: tuple[str, ...], number: str) -> None:
    """As an ID 1700000000 is of 1970: all that is above it is everything."""
    command, *options = [word.format(number) for word in words]
    done = invoke(command, store, "orders", *options, "--yes")
    assert (done.exit_code, "three zeros more" in done.stderr) == (2, True)
    assert len(ids(store)) == 10


def test_trim(store: Path) -> None:
    assert json_report("trim", store, "orders", "--max-entries", "7", "--exact", "--yes") == {
        "trimmed": 3
    }
    assert json_report("trim", store, "orders", "--min-id", "6-0", "--exact", "--yes") == {
        "trimmed": 2
    }
    assert json_report("trim", store, "orders", "--max-age", "1h30m", "--exact", "--yes") == {
        "trimmed": 5
    }
    assert (
        invoke("trim", store, "orders", "--max-entries", "1", "--min-id", "2", "--yes").exit_code
        == 2
    )
    done = invoke("trim", store, "orders", "--max-age", "soon", "--yes")
    assert (done.exit_code, "give 90s, 1h30m, 7d" in done.stderr) == (2, True)


def test_drop_rename_copy(store: Path) -> None:
    assert json_report("copy", store, "orders", "spare") == {"copied": True}
    assert json_report("rename", store, "spare", "spare2") == {"renamed": True}
    assert len(ids(store, "spare2")) == 10
    for words in (("copy", "orders", "spare2"), ("rename", "orders", "spare2")):
        command, *rest = words
        done = invoke(command, store, *rest)
        assert (done.exit_code, "--replace" in done.stderr) == (1, True)
    assert json_report("drop", store, "spare2", "--yes") == {"dropped": True}
    done = invoke("drop", store, "spare2", "--yes")
    assert (done.exit_code, "logstore streams" in done.stderr) == (1, True)


def test_configure_sets_all_that_it_shows(store: Path) -> None:
    shown = set(json_report("configure", store, "orders"))
    options_of = invoke("configure", "--help").stdout
    for name in shown:
        option = "--" + name.removesuffix("_ms").removesuffix("_s").replace("_", "-")
        assert f"{option} " in options_of
    given = (
        *("--idempotent-duration", "5m", "--idempotent-max-ids", 20, "--compact-by", "to"),
        *("--keep-until-shipped", "yes", "--max-age", "7d", "--yes"),
    )
    found = json_report("configure", store, "orders", *given)
    assert (found["idempotent_duration_s"], found["idempotent_max_ids"]) == (300, 20)
    assert (found["compact_by"], found["keep_until_shipped"]) == ("to", True)
    assert json_report("configure", store, "orders", "--compact-by", "none")["compact_by"] is None
    done = invoke("configure", store, "orders", "--idempotent-duration", "5ms")
    assert (done.exit_code, "must be whole seconds, not '5ms'" in done.stderr) == (2, True)
    assert invoke("configure", store, "orders", "--idempotent-max-ids", 0).exit_code == 2
    done = invoke("configure", store, "orders", "--compact-by", "n")  # drops what is there
    assert (done.exit_code, "give --yes" in done.stderr) == (2, True)


def test_a_codec_is_set_with_other_settings_in_one_commit(store: Path) -> None:
    with logstore.open(store) as opened:
        opened.create("fresh")
        opened.create("typed")
        opened.stream("typed").configure(schema="n int")
    found = json_report("configure", store, "fresh", "--codec", "json", "--max-entries", 5)
    assert (found["codec"], found["max_entries"]) == ("json", 5)
    assert json_report("configure", store, "fresh", "--codec", "none")["codec"] is None
    json_report("configure", store, "fresh", "--codec", "msgpack")
    ok("add", store, "fresh", "n=8")
    for name, codec, why in (
        ("fresh", "none", "as long as there are entries"), ("fresh", "json", "'msgpack'"),
        ("typed", "json", "has a schema"),
    ):  # fmt: skip
        done = invoke("configure", store, name, "--codec", codec, "--max-entries", 9)
        assert (done.exit_code, why in done.stderr) == (1, True)
        assert json_report("configure", store, name)["max_entries"] != 9
    assert json_report("configure", store, "typed", "--codec", "none")["codec"] is None
    assert invoke("configure", store, "fresh", "--codec", "xml").exit_code == 2


def test_configure(store: Path) -> None:
    found = json_report(
        "configure", store, "orders", "--max-age", "7d", "--max-entries", "5000000", "--yes"
    )
    assert (found["max_age_ms"], found["max_entries"]) == (7 * 86_400_000, 5_000_000)
    assert json_report("configure", store, "orders", "--max-age", "none")["max_age_ms"] is None
    assert json_report("configure", store, "orders")["max_entries"] == 5_000_000
    group = ("configure", store, "orders", "--group", "g")
    found = json_report(*group, "--max-deliveries", "5", "--dead-letter", "dead")
    assert (found["max_deliveries"], found["dead_letter"]) == (5, "dead")
    assert json_report(*group, "--min-idle", "30s")["min_idle_ms"] == 30_000
    assert json_report(*group, "--backoff", "5s", "--backoff-max", "1m")["backoff_max_ms"] == 60_000
    assert invoke("configure", store, "orders", "--max-deliveries", "5").exit_code == 2
    assert invoke("configure", store, "orders", "--max-entries", "-5").exit_code == 2
    for wrong in (("--max-deliveries", "3"), ("--dead-letter", "orders", "--max-deliveries", "3")):
        fresh = ("configure", store, "orders", "--group", "h")
        with logstore.open(store, background=False) as opened:
            opened.stream("orders").group("h", start="0")
        done = invoke(*fresh, *wrong)
        assert (done.exit_code, "--dead-letter" in done.stderr) == (1, True)
    assert invoke(*group, "--max-age", "7d").exit_code == 2
    done = invoke("configure", store, "orders", "--group", "none such", "--max-deliveries", "5")
    assert (done.exit_code, "logstore groups" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("typed", "size"),
    [("5000", 5000), ("64k", 64 << 10), ("1.5MiB", 3 << 19), ("10GB", 10**10), ("2 TiB", 2 << 40)],
)
def test_a_size_is_typed_with_its_unit(store: Path, typed: str, size: int) -> None:
    assert json_report("configure", store, "orders", "--max-bytes", typed)["max_bytes"] == size


def test_a_size_that_is_none_tells_how_to_write_one(store: Path) -> None:
    for wrong in ("much", "10 apples", "-5", "1e3", ""):
        done = invoke("configure", store, "orders", "--max-bytes", wrong)
        assert (done.exit_code, "10GiB" in done.stderr) == (2, True), wrong


def test_a_length_that_is_not_set_has_the_name_it_has_when_it_is(store: Path) -> None:
    """Without the unit of the field, which nobody types."""
    first = invoke("configure", store, "orders").stdout.splitlines()[0]
    assert first.split() == ["max", "age", "-"]


def test_ping_and_doctor_tell_that_a_disk_is_full(small_disk: Path) -> None:
    """Before an add is refused, and without the space set aside being used."""
    path = small_disk / "events"
    with logstore.open(path, background=False) as opened:
        opened.stream("s").add({"n": "1"})
    assert json_report("ping", path, "--write")["ok"] is True
    with (small_disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    assert json_report("ping", path)["ok"] is True
    done = invoke("ping", path, "--write")
    assert (done.exit_code, "logstore compact" in done.stderr) == (1, True)
    done = invoke("doctor", path, "--watch", "0")
    assert done.exit_code == 3
    assert "the disk is full" in " ".join(done.stdout.split())


def test_settings_that_drop_entries_are_asked_for(store: Path) -> None:
    before = ids(store, "orders")
    for limit in (("--max-entries", "3"), ("--max-age", "0s"), ("--max-bytes", "10")):
        done = invoke("configure", store, "orders", *limit)
        assert (done.exit_code, "--yes" in done.stderr) == (2, True), limit
    for moment in (("--at", "2020-01-01T00:00Z"), ("--after", "0s")):
        done = invoke("expire", store, "orders", *moment)
        assert (done.exit_code, "--yes" in done.stderr) == (2, True), moment
    assert ids(store, "orders") == before
    assert json_report("configure", store, "orders", "--max-entries", "1000")["max_entries"] == 1000
    assert (
        json_report("configure", store, "orders", "--max-entries", "3", "--yes")["max_entries"] == 3
    )
    assert (
        json_report("configure", store, "orders", "--max-entries", "5")["max_entries"] == 5
    )  # not lower
    assert json_report("expire", store, "orders", "--after", "0s", "--yes") == {
        "expires_at": "gone"
    }


def test_expire_and_schedule(store: Path) -> None:
    assert json_report("expire", store, "orders") == {"expires_at": "never"}
    at = json_report("expire", store, "orders", "--at", "2099-01-01T00:00Z")["expires_at"]
    assert at == "2099-01-01T00:00:00+00:00"
    assert json_report("expire", store, "orders")["expires_at"] == at
    assert json_report("expire", store, "orders", "--never") == {"expires_at": "never"}
    assert invoke("expire", store, "orders", "--never", "--after", "1d").exit_code == 2
    with logstore.open(store, background=False) as opened:
        key = opened.stream("orders").schedule({"later": "1"}, after=3600)
    (found,) = objects(ok("schedule", store, "orders", "--json"))
    assert (found["key"], found["fields"]) == (str(key), {"later": "1"})
    assert "later=1" in ok("schedule", store, "orders")
    assert json_report("schedule", store, "orders", "--cancel", str(key), "--yes") == {
        "cancelled": 1
    }
    assert ok("schedule", store, "orders") == ""
    made = json_report("schedule", store, "orders", "n=1", "--every", "1h", "--name", "hourly")
    assert {"key", "due"} == set(made)
    json_report("schedule", store, "orders", "n=2", "--cron", "0 3 * * *", "--name", "nightly")
    done = invoke("schedule", store, "orders", "n=2", "--cron", "0 3 * * *")
    assert (done.exit_code, "--name" in done.stderr) == (2, True)
    rows = {row["name"]: row for row in objects(ok("schedule", store, "orders", "--json"))}
    assert (rows["hourly"]["every"], rows["hourly"]["key"]) == (3600, made["key"])
    assert (rows["nightly"]["cron"], rows["nightly"]["tz"]) == ("0 3 * * *", "UTC")
    assert "'nightly' (cron 0 3 * * * UTC) n=2" in ok("schedule", store, "orders")
    done = invoke("schedule", store, "orders", "--cancel", "weekly", "1-1", "--yes")
    assert (done.exit_code, "nothing waits under weekly, 1-1" in done.stderr) == (1, True)
    done = invoke(
        "schedule", store, "orders", "--cancel", "hourly", "nightly", "1-1", "none", "--yes"
    )
    assert done.exit_code == 1
    assert "under 1-1, none: " in done.stderr
    assert "2 of the 4 were cancelled" in done.stderr
    for wrong in (
        ["n=1"], ["--every", "1h"], ["--cancel"], ["n=1", "--every", "1h"],
        ["n=1", "--cron", "0 0 31 2 *", "--name", "x"], ["--cancel", "--after", "1h", "x"],
    ):  # fmt: skip
        assert invoke("schedule", store, "orders", *wrong).exit_code != 0


def test_groups_pending_ack_claim(store: Path) -> None:
    (group,) = objects(ok("groups", store, "--json"))
    assert (group["stream"], group["name"], group["pending"], group["lag"]) == ("orders", "g", 3, 7)
    rows = objects(ok("pending", store, "orders", "g", "--json"))
    assert [(row["id"], row["consumer"]) for row in rows] == [(f"{n}-0", "c") for n in (1, 2, 3)]
    assert objects(ok("pending", store, "orders", "g", "--min-idle", "1h", "--json")) == []
    assert json_report("ack", store, "orders", "g", "1-0", "7-0") == {"acknowledged": 1}
    claimed = objects(ok("claim", store, "orders", "g", "d", "--min-idle", "0", "--json"))
    assert [entry["id"] for entry in claimed] == ["2-0", "3-0"]
    claimed = objects(ok("claim", store, "orders", "g", "e", "3-0", "--min-idle", "0", "--json"))
    assert [entry["id"] for entry in claimed] == ["3-0"]
    rows = objects(ok("pending", store, "orders", "g", "--consumer", "e", "--json"))
    assert [row["id"] for row in rows] == ["3-0"]
    assert "last delivered" in ok("groups", store, "orders").splitlines()[0]


def test_a_backup_is_verified_and_restored(store: Path, tmp_path: Path) -> None:
    saved, again = tmp_path / "saved", tmp_path / "again"
    assert int(str(json_report("backup", store, saved)["bytes"])) > 0
    found = json_report("verify", saved)
    assert (found["whole"], found["streams"], found["entries"]) == (True, 1, 10)
    ok("trim", store, "orders", "--max-entries", "0", "--yes")
    assert json_report("restore", saved, again)["entries"] == 10
    assert ids(again) == [f"{n}-0" for n in range(1, 11)]
    with logstore.open(again, readonly=True) as opened:
        assert opened.stream("orders").group("g").pending().count == 3
    for target in (again, saved / "inside"):
        done = invoke("restore", saved, target)
        assert (done.exit_code, "give a new or an empty" in done.stderr or "outside" in done.stderr
                ) == (1, True)  # fmt: skip
    assert invoke("restore", tmp_path / "nothing", tmp_path / "new").exit_code == 1
    assert not (tmp_path / "new").exists()


def test_a_damaged_backup_is_not_restored(store: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    ok("backup", store, saved)
    segment = next((saved / "log").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    done = invoke("verify", saved, "--json")
    assert (done.exit_code, json.loads(done.stdout)["whole"]) == (1, False)
    done = invoke("restore", saved, tmp_path / "again")
    assert (done.exit_code, "--salvage" in done.stderr) == (1, True)
    assert not (tmp_path / "again").exists()


def test_a_restore_that_is_killed_leaves_no_store(tmp_path: Path) -> None:
    path, saved, again = (tmp_path / name for name in ("events", "saved", "again"))
    with logstore.open(path, background=False) as opened:
        opened.stream("s").add_many({"n": "x" * 1000} for _ in range(40_000))
        opened.backup(saved)
    command = [*COMMAND, "restore", str(saved), str(again)]
    process = subprocess.Popen(command, env=environment())
    while not (again / "log").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not (again / "STORE").exists():  # it was caught in between, as it is nearly always
        done = invoke("ping", again)
        assert (done.exit_code, "no store" in done.stderr or "not" in done.stderr) == (1, True)
    else:
        assert len(ids(again, "s")) == 40_000


def test_checkpoint_and_ping(store: Path, tmp_path: Path) -> None:
    assert int(str(json_report("checkpoint", store)["checkpoint_bytes"])) > 0
    for more in ((), ("--write",)):
        found = json_report("ping", store, *more)
        assert (found["ok"], found["streams"]) == (True, 1)
    done = invoke("ping", tmp_path / "none")
    assert (done.exit_code, "no such directory" in done.stderr) == (1, True)
    (store / "STORE").write_bytes(b"rubbish")
    assert invoke("ping", store).exit_code == 1
