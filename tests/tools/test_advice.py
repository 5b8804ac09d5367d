"""Prevents errors and commands that do not say what to do, or what only Python can do."""

from __future__ import annotations

import ast
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import errors
from logstore.tools import wording
from tests.house.repo import modules, tree
from tests.tools.commands import invoke, ok

# A call, a keyword argument, types of Python, names with underscores.
OF_PYTHON = re.compile(
    r"\b[a-z_]+\([^)]*\)|\b[a-z_]+=|StreamID|datetime|timedelta|\b(None|True|False)\b|[a-z]_[a-z]"
)
# Modules whose errors no command meets: it opens stores itself, checks its options itself, and
# neither consumes nor reads on; or it speaks the protocol of Redis.
NOT_MET = {
    "arguments", "arrow_builder", "clock", "conversion",
    "handlers", "idempotency", "latest_entries", "linked", "options", "pool", "record_batches",
    "resp", "transaction", "values", "worker",
}  # fmt: skip
NOT_MET_FILES = {
    Path("logstore/engine/dump/payloads.py"),
    # Values of columns: who adds by a command gives texts.
    Path("logstore/schema/column_types.py"),
    Path("logstore/schema/schema_text.py"),
    # The fields of --where are a mapping already.
    Path("logstore/api/entry_reads.py"),
    # Tables of Arrow are given in Python.
    Path("logstore/api/stream_entries.py"),
    # Conditions and columns of scans: `logstore sql` makes its own of what DuckDB asks for.
    Path("logstore/scan/conditions.py"),
    Path("logstore/scan/query.py"),
    # Writes of Spark.
    Path("logstore/engine/dump/publish.py"),
    Path("logstore/log/stagefile.py"),
    Path("logstore/scan/intake.py"),
}
NOT_MET_ROOMS = {"aio", "redis", "valkey", "wire"}
NOT_MET_MESSAGES = {
    "the store was opened with readonly=True: open it for writing",  # no command that writes does
    "syntax error, LIMIT cannot be used without the special ~ option: give approximate=True",
    # Moments are kept from Python; no command makes or takes one.
    "a moment cannot be kept through a store opened with readonly=True",
    "{} is no moment: make one with store.moment()",
    "{} is a pin, but no moment: make one with store.moment()",
    (
        "the moment {} is over, or of another store than {}: it is kept for an "
        "hour behind the last plan made by it, and ends with its pin, or an "
        "erasure. Make another one with store.moment(), and load all anew"
    ),
    "pins cannot be given back through a store opened with readonly=True",  # --release writes
    "keep_until_shipped must be True or False: {}",  # the command's option is a flag
    "a naive datetime is no ID: give it a time zone",
    "look_s and settle_s are above 0",
    "series_max must be a number from 0 on, not {}",  # of a collector; --series is checked itself
    "the broker is not started: await broker.startup()",  # of taskiq, whose command starts it
    (  # IDs of commands are text
        "a bare number is no ID: {}. It could be milliseconds, seconds or the number of a row: "
        "give milliseconds as text, '<ms>' or '<ms>-<seq>', or (ms, seq), and a time as an aware "
        "datetime"
    ),
    # Commands add text and bytes only.
    (
        "row {}, field {}: give str, bytes, int or float, not {}; "
        "a stream with a codec takes more: store.stream(name, codec='json')"
    ),
    "{} is a naive datetime: give it a time zone: {}",  # a text has none, and is UTC
    # What looks like an argument is base64, in JSON.
    (
        "the value of field {}, {}, is no UTF-8, which the text of a codec is: give JSON, such as "
        '{"$bytes": "/w=="}'
    ),
    # Commands check moments and lengths of time themselves, and set no last ID.
    "time must be an aware datetime: {}",
    "give at= (an aware datetime, or unix milliseconds) or after=, not both",
    (
        "give when: at= (an aware datetime, or unix milliseconds) or after=, or every= or cron= "
        "with a name to repeat it"
    ),
    "at must be an aware datetime: give it a time zone",
    (
        "at must be an aware datetime, unix milliseconds as an int, or text such as "
        "'2027-01-31T12:00Z', not {}"
    ),
    (
        "at={} looks like seconds, and at is unix milliseconds: give int(1000 * time.time()) or an "
        "aware datetime, or after=0 for at once"
    ),
    # No command gives an entry back, and a group that has a backoff has min_idle.
    (
        "an entry that is given back for later goes to who reads by min_idle: give min_idle=30 "
        "to consume, or set it for all with group.configure(min_idle=30)"
    ),
    "compact_by must be the name of a field, at most {} bytes: {}",  # of the command: a text
    # No command opens a stream with a codec.
    (
        "the stream has a schema, which says how its values are written: leave codec out, or drop "
        "the schema with configure(schema=None)"
    ),
    (
        "this handle has the codec {}, which says how values are written: set the schema with "
        "store.stream(name), without codec="
    ),
    "entries_added must be positive",
    "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
    "The ID specified in XSETID is smaller than current max_deleted_entry_id",
    "The entries_added specified in XSETID is smaller than the target stream length",
}
ROOMS = ("logstore", "index", "recovery", "compaction", "tools")


def messages() -> list[tuple[Path, str]]:
    """What errors say, values left out, of all modules that a command may meet."""
    found: list[tuple[Path, str]] = []
    for path in modules(*ROOMS):
        if path.stem in NOT_MET or path in NOT_MET_FILES or NOT_MET_ROOMS & set(path.parts):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name.endswith(("Error", "BadParameter", "Expired", "NotOwnerError")):
                    found.append((path, text(node.args[0])))
    return found


def text(node: ast.expr) -> str:
    """The constant parts of a string."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "{}"
        for part in parts
    )


def test_no_error_that_a_command_meets_advises_python() -> None:
    said = messages()
    assert len(said) > 100
    wrong = [
        (str(path), message)
        for path, message in said
        if message not in NOT_MET_MESSAGES and OF_PYTHON.search(wording.for_a_shell(message))
    ]
    assert wrong == []


def test_each_phrase_is_one_that_is_said() -> None:
    source = "".join(text(node) for path in modules(*ROOMS) if path.stem != "wording"
                     for node in ast.walk(tree(path)) if isinstance(node, ast.expr))  # fmt: skip
    assert [phrase for phrase in wording.PHRASES if phrase not in source] == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--id", "x"], "give MS-SEQ or MS"),
        (["--id", "1-1"], "give an ID above the stream's last one, or '*'"),
        (["--max-entries", "1", "--min-id", "5"], "give one of --max-entries and --min-id"),
    ],
)
def test_advice_can_be_typed(store: Path, arguments: list[str], advice: str) -> None:
    done = invoke("add", store, "race", "a=b", *arguments)
    assert done.exit_code == 1
    assert advice in done.stderr
    told = json.loads(invoke("add", store, "race", "a=b", *arguments, "--json").stderr)
    assert advice in told["message"]


def test_swapped_ends_are_refused_in_words_of_the_shell(store: Path) -> None:
    done = invoke("range", store, "race", "9-9", "1-1")
    assert done.exit_code == 1
    assert "--reverse" in done.stderr
    assert "reverse=True" not in done.stderr


@pytest.mark.parametrize("ending", [".orc", ".xz", ".txt", ".CSVX"])
def test_an_ending_that_is_not_supported_is_refused(store: Path, ending: str) -> None:
    """Before anything is read or written; --format says what such a file is."""
    file = store.parent / f"out{ending}"
    done = invoke("export", store, "race", file)
    assert done.exit_code == 1
    assert "--format" in done.stderr
    assert not file.exists()
    ok("export", store, "race", file, "--format", "jsonl")
    new = store.parent / "new"
    done = invoke("import", new, file, "--stream", "s")
    assert done.exit_code == 1
    assert f"ends in {ending.lower()}" in done.stderr
    assert not new.exists()
    ok("import", new, file, "--stream", "s", "--format", "jsonl")
    with logstore.open(new) as opened:
        assert len(opened.stream("s")) == 4


@pytest.mark.parametrize("name", ["out", "out.jsonl", "out.NDJSON", "out.json", "o.d/out"])
def test_these_are_json_lines(store: Path, name: str) -> None:
    file = store.parent / name
    file.parent.mkdir(exist_ok=True)
    ok("export", store, "race", file)
    assert json.loads(file.read_bytes().splitlines()[0])["id"] == "1-1"


def test_every_error_is_the_same_after_pickling() -> None:
    """A worker's error that cannot be unpickled hangs or breaks its pool."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    kinds = [each for each in found if issubclass(each, errors.Error)]
    made: list[Any] = [errors.InputLineError("no JSON", line_number=7)]
    made += [kind("why") for kind in kinds if kind is not errors.InputLineError]
    made.append(errors.LockTimeoutError("why", owner_pid=5))
    made.append(errors.CorruptFrameError("why", stream=b"s", segment=3, offset=4))
    assert len(made) > 20
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again), again.args) == (str(error), vars(error), error.args)


def test_a_file_is_no_place_for_a_store(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"precious")
    with pytest.raises(logstore.FileSystemError, match="give a directory, not a file"):
        logstore.open(file)
    with pytest.raises(logstore.FileSystemError, match="give a directory, not a file"):
        logstore.open(file, readonly=True)
    assert file.read_bytes() == b"precious"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a place where nobody can make folders")
def test_a_folder_that_cannot_be_made_is_an_error_of_ours() -> None:
    with pytest.raises(logstore.FileSystemError, match="creating /proc/store failed"):
        logstore.open("/proc/store")


def test_read_wants_an_id_for_each_stream(empty: Path) -> None:
    with logstore.open(empty) as store, pytest.raises(logstore.UsageError, match="name: id"):
        store.read(["s"])  # type: ignore[arg-type]


def test_a_backup_into_the_store_itself_is_refused(empty: Path) -> None:
    with logstore.open(empty) as store:
        store.stream("s").add({"a": "1"})
        with pytest.raises(logstore.OptionError, match="outside"):
            store.backup(empty / "backup")
    assert not (empty / "backup").exists()


def test_a_store_that_is_forgotten_at_exit_says_nothing(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules may be gone by then, and the store was closed before that."""
    store = logstore.open(empty)
    monkeypatch.setattr("logstore.api.opening.registry", None)
    store._opened.__del__()
    monkeypatch.undo()
    store.close()


def test_a_scan_without_pyarrow_says_what_to_install(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with logstore.open(empty) as store:
        store.stream("s").add({"a": "1"})
        with pytest.raises(logstore.UsageError, match="pip install 'logstore-streams"):
            store.stream("s").scan()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
def test_a_place_where_nothing_can_be_made_is_told_once() -> None:
    with pytest.raises(logstore.FileSystemError) as caught:
        logstore.open("/proc/no-store")
    assert str(caught.value).count("creating /proc/no-store failed") == 1
