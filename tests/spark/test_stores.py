"""Prevents a load of several stores that loses or doubles rows, or does not say whose they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import Error, NotAStoreError, OptionError, StreamNotFoundError
from logstore.spark_io import spark_options
from tests.scan.scanned_stores import make_store
from tests.spark.stores import rows
from tests.spark.tables import source_of

ROWS = 10


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of three hosts, and what else lies about."""
    root = tmp_path_factory.mktemp("stores") / "of hosts"
    root.mkdir()
    for host in ("h1", "h2", "h3"):
        with make_store(root / host) as store:
            store["x"].add_many(((n, 0), {"n": n, "from": host}) for n in range(1, ROWS + 1))
            store["x"].group("g").create(start="0")
            if host == "h2":
                store[b"y\xff"].add({"n": "0"}, id="1-0")
    (root / "junk").mkdir()
    (root / "a file").write_text("x")
    make_store(root / ".h4").close()
    return root


def test_each_row_says_its_store(root: Path) -> None:
    """By a pattern, by a list, by a list with patterns in it: the same rows, each once."""
    expected = [(n, str(root / host), host) for host in ("h1", "h2", "h3") for n in range(1, 11)]
    paths = json.dumps([str(root / "h1"), f"file:{root}/h[23]"])
    for named in ({"path": root / "h*"}, {"paths": paths}):
        found = rows("n int, store string, from string", stream="x", **named)
        assert found == expected
    wanted = {"storeColumn": "of", "minPartitions": "9", "endingOffsets": '{"x": "1-0"}'}
    found = rows("of string, store string", path=root / "*", stream="x", **wanted)
    assert found == [(str(root / host), None) for host in ("h1", "h2", "h3")]
    assert len(rows("n int", path=root / "h?", stream="x", startingGroup="g", endId="0")) == 0


def test_partitions_are_shared_by_the_stores(root: Path) -> None:
    from pyspark.sql.types import StructType

    source = source_of(root / "h*", stream="x", minPartitions="6")
    assert len(source.reader(StructType([])).partitions()) == 6
    source = source_of(root / "h*", stream="x")
    source.cores = 2
    assert len(source.reader(StructType([])).partitions()) == 3


def test_a_stream_need_not_be_in_all_of_them(root: Path) -> None:
    found = rows("store string", path=root / "h*", stream="y\\xff")
    assert found == [(str(root / "h2"),)]
    with pytest.raises(StreamNotFoundError, match="no such stream in 3 stores"):
        source_of(root / "h*", stream="z").schema()
    both = rows("stream string, n int", path=root / "h2", streams="y\\xff,x", endId="1")
    assert both == [("y�", 0), ("x", 1)]
    assert spark_options.shown_name(b"y\xff") == "y\\xff"


def test_tables_say_the_store(root: Path) -> None:
    source = source_of(root / "h*", table="streams")
    assert source.schema().endswith(", store string")
    found = rows("stream string, store string", path=root / "h*", table="streams")
    assert found == [
        ("x", str(root / "h1")), ("x", str(root / "h2")), ("y\\xff", str(root / "h2")),
        ("x", str(root / "h3")),
    ]  # fmt: skip


def test_invalid_paths_are_errors_at_the_load(root: Path, tmp_path: Path) -> None:
    """When it is loaded, before a job begins."""
    shutil.copytree(root / "h1", tmp_path / "copy")
    damaged = tmp_path / "damaged" / "store"
    shutil.copytree(root / "h1", damaged)
    (damaged / "STORE").unlink()
    cases: list[tuple[dict[str, Any], type[Error], str]] = [
        ({"path": root / "nothing*"}, OptionError, "there is no store that"),
        ({"path": root / "junk"}, NotAStoreError, "is not a store"),
        ({"path": tmp_path / "damaged" / "*"}, NotAStoreError, "is not a store"),
        ({"paths": [str(root / "h1"), str(root / "h*")]}, OptionError, "is named twice"),
        ({"paths": [str(root / "h1"), str(tmp_path / "copy")]}, OptionError, "copies of one"),
        ({"paths": [], "path": ""}, OptionError, "names no store"),
        ({"paths": [""]}, OptionError, "no list of directories"),
        ({"path": root / "h1", "maxRowsPerTrigger": 1, "paths": ["a"]}, OptionError, "one store"),
        ({"path": root / "h?", "maxRowsPerTrigger": 1}, OptionError, "a streaming query reads one"),
        ({"path": root / "h?", "storeColumn": ""}, OptionError, "'storeColumn' must name"),
    ]
    for given, error, words in cases:
        options = {k: json.dumps(v) if k == "paths" else v for k, v in given.items()}
        with pytest.raises(error, match=words):
            rows("n int", stream="x", **options)


def test_the_column_for_the_store_is_the_store_whatever_entries_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job must not fail on the day when an entry brings a field of this name."""
    shop = tmp_path / "shop"
    with make_store(shop) as store:
        store["sales"].add({"n": "1"}, id="1-0")
    one = {"path": shop, "stream": "sales"}
    assert rows("store string, n int", **one) == [(str(shop), 1)]
    assert caplog.text == ""
    with make_store(shop) as store:
        store["sales"].add({"store": "Lyon", "n": "2"}, id="2-0")
    assert rows("store string, n int", **one) == [(str(shop), 1), (str(shop), 2)]
    assert "read that as fields['store'], or give option 'storeColumn' another" in caplog.text
    assert rows("store string, n int", storeColumn="path", **one) == [(None, 1), ("Lyon", 2)]


def test_the_name_of_the_column_for_the_store_may_be_odd(root: Path) -> None:
    for name in ("of it", "of`it", "a.b", "{}"):
        source = source_of(root / "h*", stream="x", storeColumn=name)
        last = source.schema().fields[-1]
        assert (last.name, last.dataType.simpleString()) == (name, "string")


def test_in_a_query(spark: Any, root: Path) -> None:
    paths = [str(root / "h1"), str(root / "h3")]
    frame = spark.read.format("logstore").option("stream", "x").load(paths)
    assert frame.columns[-1] == "store"
    assert {tuple(row) for row in frame.groupBy("store").count().collect()} == {
        (path, ROWS) for path in paths
    }
    frame = spark.read.format("logstore").option("stream", "x").load(str(root / "h?"))
    assert frame.select("store").distinct().count() == 3
    assert frame.count() == 3 * ROWS
