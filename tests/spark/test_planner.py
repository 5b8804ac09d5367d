"""Prevents a planner of the reader in the JVM that plans otherwise, or leaves a request unanswered.

It is the process that Spark's driver starts, asked here as the driver asks it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import __version__
from logstore.format import FORMAT_VERSION
from logstore.ids import StreamID
from logstore.scan import split_reads
from logstore.scan.record_batches import Gather
from logstore.scan.snapshot_file import Split
from tests.scan.scanned_stores import make_store
from tests.spark.tables import source_of

pytest.importorskip("pyspark", reason="pyspark is not installed: make test installs it")
ROWS = 500


class Planner:
    """The process, and what it was asked."""

    def __init__(self, path: Path, log: Path) -> None:
        self.options = {"path": str(path), "stream": "laps"}
        self.log = log
        with log.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "logstore.spark_io.plan"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told,
            )  # fmt: skip
        self.hello = self.answer()
        self.asked = 0

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def send(self, line: bytes) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        return self.answer()

    def ask(self, kind: str, *, schema: str = "", **options: str) -> Any:
        self.asked += 1
        request: dict[str, Any] = {"id": self.asked, "kind": kind, "schema": schema, "cores": 2}
        found = self.send(json.dumps(request | {"options": self.options | options}).encode())
        assert found.pop("id") == self.asked
        return found


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[Planner]:
    with make_store(tmp_path / "store") as store:
        store["laps"].add_many(({"n": n, "who": "x"} for n in range(ROWS)), batch=20)
    made = Planner(tmp_path / "store", tmp_path / "log")
    yield made
    made.process.kill()
    made.process.wait()
    for pipe in (made.process.stdin, made.process.stdout):
        assert pipe is not None
        pipe.close()


def as_split(found: dict[str, Any]) -> Split:
    """What the JVM makes of it."""
    del found["shown"]
    made = found | {
        "uuid": bytes.fromhex(found["uuid"]),
        "first": StreamID(*found["first"]),
        "last": StreamID(*found["last"]),
        "blocks": base64.b64decode(found["blocks"]),
        "objects": tuple(found["objects"]),
    }
    return Split(**made)


def test_it_says_which_version_it_is(planner: Planner) -> None:
    assert planner.hello == {"version": __version__, "format": FORMAT_VERSION}


def test_its_schema_is_that_of_the_python_source(planner: Planner) -> None:
    schema = source_of(planner.options["path"], stream="laps").schema()
    assert json.loads(planner.ask("schema")["schema"]) == json.loads(schema.json())


def test_its_splits_have_every_entry_once(planner: Planner) -> None:
    schema = planner.ask("schema")["schema"]
    answer = planner.ask("plan", schema=schema, minPartitions="4")
    splits = [as_split(each) for each in answer["splits"]]
    assert len(splits) == 4
    read = [
        each.num_rows for split in splits for each in split_reads.batches(split, Gather(["ms"]))
    ]
    assert sum(read) == ROWS == sum(split.entries for split in splits)
    assert answer["exact"] is True


@pytest.mark.parametrize(
    "options", [{"startId": "5-0"}, {"endId": "9999999999999-0"}, {"failOnDataLoss": "false"}]
)
def test_a_count_is_not_exact_where_a_node_may_be_cut_or_lost(
    planner: Planner, options: dict[str, str]
) -> None:
    schema = planner.ask("schema")["schema"]
    assert planner.ask("plan", schema=schema, **options)["exact"] is False


def test_it_says_what_each_column_is(planner: Planner) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    text = StringType()
    names = ("Stream", "who", "_corrupt_record", "store")
    schema = StructType([StructField(name, text) for name in names]).add("n", IntegerType())
    answer = planner.ask("columns", schema=schema.json(), mode="failfast")
    kinds = [(each["kind"], each["field"]) for each in answer["columns"]]
    assert [kind for kind, _ in kinds] == ["stream", "field", "corrupt", "store", "field"]
    assert (kinds[1][1], kinds[4][1]) == ("who", "n")
    assert (answer["mode"], answer["fail_on_loss"]) == ("FAILFAST", True)
    assert answer["stores"] == [planner.options["path"]]


def test_it_says_when_the_python_source_must_read(planner: Planner) -> None:
    assert planner.ask("schema", table="groups") == {"python": "option 'table' is for it"}
    schema = planner.ask("schema")["schema"]
    answer = planner.ask("columns", schema=schema, reader="python")
    assert answer == {"python": "option 'reader' is python"}
    error = planner.ask("schema", table="groups", reader="jvm")["error"]
    assert error["kind"] == "OptionError"


def test_whatever_it_is_sent_it_answers_and_goes_on(planner: Planner) -> None:
    for line in (b"", b"no JSON", b"[]", b"{}", b"\xff\xfe", b'{"id": 7, "kind": "halt"}'):
        assert planner.send(line)["error"]["kind"]
    assert planner.send(b'{"id": 7, "kind": "halt"}')["id"] == 7
    assert "schema" in planner.ask("schema")
    assert "Traceback" in planner.log.read_text()


def test_an_error_is_the_class_and_the_text_of_the_python_source(planner: Planner) -> None:
    error = planner.ask("schema", stream="nobody")["error"]
    assert error["kind"] == "StreamNotFoundError"
    assert "there is no such stream" in error["message"]


def test_warnings_go_to_standard_error(planner: Planner) -> None:
    planner.ask("schema")
    schema = (
        '{"type":"struct","fields":[{"name":"N","type":"string","nullable":true,"metadata":{}}]}'
    )
    planner.ask("plan", schema=schema)
    assert "names of fields differ by case" in planner.log.read_text()


def test_it_ends_with_its_input(planner: Planner) -> None:
    assert planner.process.stdin is not None
    planner.process.stdin.close()
    assert planner.process.wait(60) == 0
