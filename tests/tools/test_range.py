"""Prevents ranges and tails that give other entries than were asked for, or in another order."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore
from tests.tools.commands import COMMAND, environment, invoke, objects, ok, process


def ids(text: str) -> list[str]:
    """The IDs of the lines."""
    return [line.split()[0] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), ["1-1", "1-2", "2-0", "3-0"]),
        (("1", "2"), ["1-1", "1-2", "2-0"]),
        (("(1-1", "+"), ["1-2", "2-0", "3-0"]),
        (("-", "(2-0"), ["1-1", "1-2"]),
        (("--count", "2"), ["1-1", "1-2"]),
        (("--count", "0"), []),
        (("--reverse", "-n", "1"), ["3-0"]),
        (("1-2", "2-0", "--reverse"), ["2-0", "1-2"]),
        (("9", "+"), []),
        (("--since", "-1h"), []),
        (("--until", "1970-01-01"), ["1-1", "1-2", "2-0", "3-0"]),
        (("2", "--until", "1970-01-01T00:00:00.002Z"), ["2-0"]),
    ],
)
def test_intervals(arguments: tuple[str, ...], wanted: list[str], store: Path) -> None:
    assert ids(ok("range", store, "race", *arguments)) == wanted


def test_the_last_ones_since_a_moment(store: Path) -> None:
    assert ids(ok("tail", store, "race", "-n", "1", "--since", "1970-01-01")) == [
        "1-1", "1-2", "2-0", "3-0",
    ]  # fmt: skip
    assert ok("tail", store, "race", "--since", "-1h") == ""
    done = invoke("range", store, "race", "--since", "yesterday")
    assert (done.exit_code, "'-1h'" in done.stderr) == (1, True)


def test_text(store: Path) -> None:
    assert ok("range", store, "race").splitlines() == [
        "1-1 rider=Castilla speed=30.2",
        "1-2 'rider=Anna B' 'note=ü\\n\\\\'",
        "2-0 tag=a tag=b",
        "3-0 '\\x00\\xff=\\xfe'",
    ]


def test_an_id_that_is_a_time_is_told_as_one(tmp_path: Path) -> None:
    """In a form that --since takes; --raw leaves it out, and programs get what they got."""
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store["s"].add({"a": "1"}, "1700000000123-4")
        store["s"].add({"a": "2"}, "1700000000124-0")
    for command in ("range", "tail"):
        lines = ok(command, path, "s").splitlines()
        assert lines[0] == "1700000000123-4 2023-11-14T22:13:20.123Z a=1"
        raw = ok(command, path, "s", "--raw").splitlines()
        assert raw == ["1700000000123-4 a=1", "1700000000124-0 a=2"]
        assert ids(ok(command, path, "s", "--since", lines[1].split()[1])) == ["1700000000124-0"]
        assert objects(ok(command, path, "s", "--json"))[0] == {
            "id": "1700000000123-4", "fields": {"a": "1"},
        }  # fmt: skip


def test_json_has_the_types_of_a_schema(tmp_path: Path) -> None:
    """Every digit of them, and what is text only stays text."""
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store["s"].configure(schema="n long, x decimal(38, 3), ok bool, tags json, room string")
        row = {"n": 1, "x": "12345678901234567890.125", "ok": True, "tags": {"a": [1]}, "room": "7"}
        store["s"].add(row, "1-0")
    wanted = (
        '{"id": "1-0", "fields": {"n": 1, "x": 12345678901234567890.125, "ok": true, '
        '"tags": {"a": [1]}, "room": "7"}}\n'
    )
    assert ok("range", path, "s", "--json").replace('{"a":[1]}', '{"a": [1]}') == wanted
    assert ok("tail", path, "s", "--json") == ok("range", path, "s", "--json")
    assert ok("export", path, "s") == ok("range", path, "s", "--json")


def test_letters_of_any_language_need_no_quotes(tmp_path: Path) -> None:
    pairs = {"article": "Käse", "пирог": "寿司", "wide": "a\u3000b", "none": "", "half": "½;"}
    ok(
        "add",
        tmp_path / "s",
        "a",
        *(f"{name}={value}" for name, value in pairs.items()),
        "--id",
        "1-1",
    )
    line = "1-1 article=Käse пирог=寿司 'wide=a\\u3000b' none= 'half=½;'"
    assert ok("range", tmp_path / "s", "a").splitlines() == [line]


def test_json_as_a_process(store: Path) -> None:
    done = process("range", store, "race", "--json")
    assert done.returncode == 0
    assert objects(done.stdout) == [
        {"id": "1-1", "fields": {"rider": "Castilla", "speed": "30.2"}},
        {"id": "1-2", "fields": {"rider": "Anna B", "note": "ü\n\\"}},
        {"id": "2-0", "pairs": [["tag", "a"], ["tag", "b"]]},
        {"id": "3-0", "pairs_base64": [["AP8=", "/g=="]]},
    ]


def test_a_terminal_without_utf8_still_gets_lines(store: Path) -> None:
    """A locale of ASCII must not make a UnicodeEncodeError of an umlaut."""
    done = process("range", store, "race", "1-2", "1-2", stdin=b"")
    assert "ü" in done.stdout.decode()
    import subprocess

    from tests.tools.commands import COMMAND, environment

    plain = subprocess.run(
        [*COMMAND, "range", str(store), "race", "1-2", "1-2"], capture_output=True, check=True,
        env={**environment(), "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert b"\\xfc" in plain.stdout


def test_an_id_that_is_none(store: Path) -> None:
    done = invoke("range", store, "race", "yesterday")
    assert done.exit_code == 1
    assert "'yesterday'" in done.stderr


def test_where_takes_the_values_that_fields_must_have(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store["s"].add_many((f"{n}-0", {"a": n % 2, "b": n % 3}) for n in range(1, 13))
    for line, found in (
        (["range", path, "s", "--where", "a=1", "--where", "b=2"], ["5-0", "11-0"]),
        (["tail", path, "s", "-n", "2", "--where", "a=0"], ["10-0", "12-0"]),
        (["range", path, "s", "--where", "c=0"], []),
    ):
        assert [each["id"] for each in objects(ok(*line, "--json"))] == found
    assert invoke("range", path, "s", "--where", "a").exit_code == 2
    assert invoke("range", path, "s", "--where", "a=1", "--where", "a=2").exit_code == 2


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (["temp > 20"], [2, 3]), (["temp>=20.5 and room = 'a b'"], [3]), (["temp=20"], [1]),
        (["temp > 19", "room = 'a'"], [1, 2]), (["room=a b"], [3]), (["room='a b'"], [3]),
        (["note=x, 5"], []), (["note=a=b"], [2]), (["room=a", "temp=20.5"], [2]),
        (["note = 'a=b' or temp between 1 and 20"], [1, 2]), (["note is null"], [1, 3]),
    ],
)  # fmt: skip
def test_where_takes_conditions(tmp_path: Path, where: list[str], found: list[int]) -> None:
    with logstore.open(tmp_path / "s") as store:
        store["s"].configure(schema="temp double, room string, note string?")
        store["s"].add({"temp": 20, "room": "a"}, "1-0")
        store["s"].add({"temp": 20.5, "room": "a", "note": "a=b"}, "2-0")
        store["s"].add({"temp": 21, "room": "a b"}, "3-0")
    given = [part for each in where for part in ("--where", each)]
    for command in ("range", "tail"):
        told = objects(ok(command, tmp_path / "s", "s", *given, "--json"))
        assert [int(each["id"].partition("-")[0]) for each in told] == found


@pytest.mark.parametrize(
    ("where", "code", "why"),
    [
        (["temp > 'warm'"], 1, "no number"), (["temp >"], 1, "is missing"),
        (["tmp > 5"], 1, "no column 'tmp'"), (["temp > 20 and room = 'a"], 1, "has no end"),
        (["temp > 20", "room=a"], 2, "room = 'a'"), (["temp"], 2, "FIELD=VALUE"),
        (["note=x > 5"], 1, "cannot stand"), (["(temp > 20"], 1, "')' is missing"),
        (["tmp=30.5"], 1, "no column 'tmp', only 'temp', 'room'"), (["temp=warm"], 1, "no number"),
        (["room = Küche"], 1, "a text stands in 'quotes'\n  room = Küche\n         ^\n"),
        (["lower(room)='a'"], 1, "there are no functions"),
        (["tags.fw=1.3"], 1, "such as \"tags.fw = 'a text'\""),
    ],
)  # fmt: skip
def test_conditions_that_cannot_be(tmp_path: Path, where: list[str], code: int, why: str) -> None:
    with logstore.open(tmp_path / "s") as store:
        store["s"].configure(schema="temp double, room string, tags json?")
        store["s"].add({"temp": 20, "room": "a"})
    given = [part for each in where for part in ("--where", each)]
    done = invoke("range", tmp_path / "s", "s", *given)
    assert done.exit_code == code
    assert why in done.stderr


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A tail that follows, ended in any case."""
    command = [*COMMAND, "tail", *arguments, "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def test_the_last_ones_in_order(store: Path) -> None:
    assert [line.split()[0] for line in ok("tail", store, "race", "-n", "2").splitlines()] == [
        "2-0",
        "3-0",
    ]
    assert len(ok("tail", store, "race").splitlines()) == 4
    assert ok("tail", store, "race", "-n", "0") == ""


def test_json(store: Path) -> None:
    assert [one["id"] for one in objects(ok("tail", store, "race", "--json"))] == [
        "1-1", "1-2", "2-0", "3-0",
    ]  # fmt: skip


def test_a_stream_whose_entries_were_all_deleted(store: Path) -> None:
    with logstore.open(store) as opened:
        opened.stream("race").delete_range("-", "+")
    assert ok("tail", store, "race") == ""


def test_follow_gives_what_comes_and_ends_on_ctrl_c(store: Path) -> None:
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"3-0 ")
        with logstore.open(store) as opened:
            for at in range(4, 9):
                opened.stream("race").add({"at": at}, f"{at}-0")
                assert running.stdout.readline() == f"{at}-0 at={at}\n".encode()
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
        assert running.stderr.read() == b""


def test_follow_after_the_newest_were_deleted(store: Path) -> None:
    """It goes on from the last ID, not from the last entry that is left."""
    with logstore.open(store) as opened:
        opened.stream("race").delete("3-0")
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"2-0 ")
        with logstore.open(store) as opened:
            opened.stream("race").add({"a": "b"}, "3-1")
        assert running.stdout.readline() == b"3-1 a=b\n"


def test_follow_ends_when_nobody_reads(store: Path) -> None:
    with following(str(store), "race", "-n", "1") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith(b"3-0 ")
        running.stdout.close()
        with logstore.open(store) as opened:
            opened.stream("race").add({"a": "b"}, "4-0")
        assert running.wait(10) == 0
        assert running.stderr.read() == b""
