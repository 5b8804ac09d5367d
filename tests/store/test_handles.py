"""Prevents handles that outlive their store, drag a second engine in, or lose it when pickled."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import ClosedError, OptionError, ReadOnlyError
from logstore.api.store import Store
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import engine_of, is_open
from tests.support.processes import run_program


def test_a_closed_store_refuses_everything(store: Store[bytes]) -> None:
    stream = store.stream("s")
    stream.add_many({"n": n} for n in range(700))
    entries = stream.range()
    next(entries)
    tx = store.transaction()
    tx.stream("s").add({"a": 1})
    store.close()
    store.close()
    calls: list[Any] = [
        lambda: stream.add({"a": 1}), lambda: stream.add_many([{"a": 1}]), lambda: stream.get("1"),
        lambda: len(stream), lambda: list(stream), lambda: list(entries), stream.info,
        lambda: stream.delete("1"), lambda: stream.trim(max_entries=0), lambda: stream.last_id,
        lambda: stream.read("0"), store.streams, store.info, store.sync, store.checkpoint,
        lambda: store.drop("s"), lambda: store.create("t"), lambda: "s" in store, store.metrics,
        lambda: store.durable_upto, lambda: store.read({"s": "0"}), tx.commit,
        lambda: store.recovery, store.compact,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ClosedError, match="open it again"):
            call()
    assert "closed" in repr(store)


def test_the_same_path_twice_shares_one_engine(
    store: Store[bytes], open_store: OpenStore, tmp_path: Path
) -> None:
    path = Path(store.path)
    (tmp_path / "link").symlink_to(path)
    again, linked = open_store(), open_store(tmp_path / "link", encoding="utf-8")
    assert engine_of(store) is engine_of(again) is engine_of(linked)
    store.stream("s").add({"a": 1})
    store.close()
    assert [entry.fields["a"] for entry in linked.stream("s")] == ["1"]
    again.close()
    linked.stream("s").add({"a": 2})
    linked.close()
    assert not is_open(path)
    assert len(open_store().stream("s")) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"sync": "always"}, {"lock_timeout": 3}, {"background": True}, {"clock": None},
        {"node_max_bytes": 77}, {"node_max_entries": 6}, {"segment_bytes": 1 << 20},
    ],
)  # fmt: skip
def test_conflicting_options_are_refused(
    store: Store[bytes], open_store: OpenStore, options: dict[str, Any]
) -> None:
    path = Path(store.path)
    with pytest.raises(OptionError, match=r"other options|was created with"):
        open_store(**options)
    assert is_open(path)
    store.stream("s").add({"still": "open"})
    store.close()
    assert not is_open(path)
    if "clock" in options or options.keys() & {"sync", "lock_timeout", "background"}:
        open_store(**options)
    else:
        with pytest.raises(OptionError, match="was created with"):
            open_store(**options)
        assert not is_open(path)


def test_pickled_handles_share_the_engine(store: Store[bytes]) -> None:
    stream = store.stream(b"\xff")
    stream.add({"a": 1})
    copy = pickle.loads(pickle.dumps(stream))
    assert (copy.name, list(copy)) == (b"\xff", list(stream))
    assert copy._opened.engine() is engine_of(store)
    copy._opened.close()


def test_a_pickled_store_of_the_system_s_clock(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", encoding="utf-8", lock_timeout=3) as store:
        copy = pickle.loads(pickle.dumps(store))
        with copy:
            assert (copy.encoding, engine_of(copy)) == ("utf-8", engine_of(store))


def work(stream: Any, queue: Any) -> None:
    """In another process: use a handle that was handed over."""
    stream.add({"pid": os.getpid()})
    queue.put(len(stream))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_handles_work_in_children(store: Store[bytes], method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    store.stream("s").add({"pid": os.getpid()})
    queue = context.Queue()
    child = context.Process(target=work, args=(store.stream("s"), queue))
    child.start()
    assert queue.get(timeout=120) == 2
    child.join(30)
    assert child.exitcode == 0
    assert len(store.stream("s")) == 2
    store.stream("s").add({"pid": 0})


def test_a_readonly_store_only_reads(store: Store[bytes], open_store: OpenStore) -> None:
    stream = store.stream("s")
    stream.add_many(((ms, 0), {"n": ms}) for ms in range(1, 30))
    stream.delete("3", "7", "8", "9", "10")
    store.close()
    names = sorted(path.relative_to(store.path) for path in store.path.rglob("*"))
    reader = open_store(readonly=True)
    same = everything(reader)
    refused: list[Any] = [
        lambda: reader.stream("s").add({"a": 1}), lambda: reader.stream("s").add_many([{"a": 1}]),
        lambda: reader.stream("s").delete("1"), lambda: reader.stream("s").delete_range("-", "+"),
        lambda: reader.stream("s").trim(max_entries=0), lambda: reader.stream("s").set_id("99"),
        lambda: reader.create("t"), lambda: reader.drop("s"), reader.compact, reader.checkpoint,
    ]  # fmt: skip
    for call in refused:
        with pytest.raises(ReadOnlyError):
            call()
    with pytest.raises(ReadOnlyError), reader.transaction() as tx:
        tx.drop("s")
    assert sorted(path.relative_to(store.path) for path in store.path.rglob("*")) == names
    writer = open_store()
    assert everything(writer) == everything(reader) == same
    writer.stream("s").add({"n": 30}, id="30-0")
    assert everything(reader) == everything(writer)


def test_imports_are_lazy() -> None:
    """An executor decodes nodes without the index: neither lmdb nor pyarrow may be needed."""
    code = (
        "import sys; sys.modules['lmdb'] = sys.modules['pyarrow'] = None\n"
        "import logstore, logstore.codec, logstore.ids, logstore.errors, logstore.log.log_reader\n"
        "from logstore import StreamID, Error, Entry\n"
        "lp = logstore.codec.codec().new_node(1, 1, [b'a', b'b'])\n"
        "assert logstore.codec.codec().entries(lp, 1, 1)[0][3] == [b'a', b'b']\n"
        "try: logstore.open\n"
        "except ImportError: print('fine')\n"
    )
    done = run_program(code)
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = logstore.nonsense
    assert "open" in dir(logstore)
