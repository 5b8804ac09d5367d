"""Prevents bad input that changes something, or that is refused without a word on what to do."""

from __future__ import annotations

import inspect
import os
import resource
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    EntryTypeError,
    Error,
    FileSystemError,
    FormatVersionError,
    IDOrderError,
    InvalidEntryError,
    InvalidIDError,
    NotAStoreError,
    OptionError,
    StreamNotFoundError,
    TooLargeError,
    UsageError,
)  # fmt: skip  # fmt: skip
from logstore import format as fmt
from logstore.api.store import Store
from logstore.codec import native_or_none
from logstore.fsinfo import mount_type
from tests.store import odd_arguments
from tests.store.conftest import OpenStore
from tests.store.whole_store import everything
from tests.support.inside import FixedClock, log_bytes
from tests.support.parameters import parameters
from tests.support.processes import run_program

Call = Callable[[Any], Any]
U64 = 2**64
PAST_LAST = f"({U64 - 1}-{U64 - 1}"
KIB64 = b"x" * 65536
MIB64 = b"x" * (64 << 20)


def add(fields: Any, **options: Any) -> Call:
    """An add to the stream that is there."""
    return lambda store: store.stream("s").add(fields, **options)


def add_many(rows: Any, **options: Any) -> Call:
    """A bulk add to the stream that is there."""
    return lambda store: store.stream("s").add_many(rows, **options)


def delete_range(start: str, end: str) -> Call:
    """Delete an interval."""
    return lambda store: store.stream("s").delete_range(start, end)


FINE = {"a": "b"}
TABLE: list[tuple[str, type[Error], str, Call]] = [
    ("an ID not above the last", IDOrderError, r"above last_id, or '\*'", add(FINE, id="5-0")),
    ("below it", IDOrderError, "above last_id", add(FINE, id=(4, 9))),
    ("automatic below it", IDOrderError, "above last_id", add(FINE, id="4-*")),
    ("in a batch", IDOrderError, "row 1: 6-0 after 6-0", add_many([("6-0", FINE), ("6-0", FINE)])),
    ("0-0", InvalidIDError, "greater than 0-0", add(FINE, id="0-0")),
    ("0-0 in a batch", InvalidIDError, "greater than 0-0", add_many([("0-0", FINE)])),
    ("malformed", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id="x")),
    ("malformed in a batch", InvalidIDError, "give '<ms>", add_many([("9", FINE), ("y", FINE)])),
    ("past 2^64-1", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=f"{U64}-0")),
    ("past it in the sequence", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=(6, U64))),
    ("None as an ID", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=None)),
    ("True as an ID", InvalidIDError, "give '<ms>-<seq>'", add(FINE, id=True)),
    ("no fields", InvalidEntryError, "at least one field", add({})),
    ("no pairs", InvalidEntryError, "at least one field", add([])),
    ("no fields in a batch", InvalidEntryError, "row 1", add_many([FINE, {}])),
    ("bool as a value", EntryTypeError, "bytes, int or float, not bool", add({"a": True})),
    ("None as a value", EntryTypeError, "not NoneType", add({"a": None})),
    ("None as a name", EntryTypeError, "not NoneType", add({None: "a"})),
    ("a list as a value", EntryTypeError, "not list", add({"a": [1]})),
    ("text as an entry", EntryTypeError, "mapping or pairs", add("ab")),
    ("None as an entry", EntryTypeError, "mapping or pairs", add(None)),
    ("None in a batch", EntryTypeError, "row 1", add_many([FINE, None])),
    ("a pair of three", EntryTypeError, "no .* pair", add([("a", "b", "c")])),
    ("a lone surrogate", InvalidEntryError, "surrogate", add({"a": "\ud800"})),
    ("a count of text", OptionError, "max_entries must be an integer", add(FINE, max_entries="5")),
    ("a negative max_entries", OptionError, "must be >= 0", add(FINE, max_entries=-1)),
    ("two rules", OptionError, "not compatible", add(FINE, max_entries=1, min_id="1")),
    ("a wrong min_id", InvalidIDError, "give '<ms>-<seq>'", add(FINE, min_id="(1-1")),
    (
        "a limit of an exact trim", OptionError, "approximate=True",
        add(FINE, max_entries=1, limit=1, approximate=False),
    ),
    ("a limit of text", OptionError, "limit must be an integer", add(FINE, min_id="1", limit="1")),
    ("a limit alone", OptionError, "without specifying", add(FINE, limit=1)),
    ("an unknown policy", OptionError, "'always', 'everysec' or 'os'", add(FINE, sync="never")),
    ("no batch", OptionError, "batch must be 1 to", add_many([FINE], batch=0)),
    ("a batch of text", OptionError, "batch must be an integer", add_many([FINE], batch="9")),
    ("a trim without a rule", OptionError, "must be called with", lambda s: s.stream("s").trim()),
    ("a range of text", InvalidIDError, "give '<ms>", delete_range("a", "b")),
    ("a range past the end", InvalidIDError, "interval", delete_range(PAST_LAST, "+")),
    ("one wrong ID of two", InvalidIDError, "'<ms>", lambda s: s.stream("s").delete("5-0", "")),
    ("a last ID below an entry", UsageError, "top item", lambda s: s.stream("s").set_id("1")),
    (
        "a count of text", OptionError, "must be an integer",
        lambda s: s.stream("s").set_id("9", entries_added="1"),
    ),
    ("an unknown stream", StreamNotFoundError, "does not exist", lambda s: s.stream("none").info()),
    ("its ID", StreamNotFoundError, "does not exist", lambda s: s.stream("none").set_id("9")),
    ("a name over the limit", TooLargeError, "at most 65536", lambda s: s.stream(KIB64 + b"x")),
    ("None as a name of a stream", EntryTypeError, "str or bytes", lambda s: s.drop(None)),
    ("an entry over the limit", TooLargeError, "split it", add([("a", MIB64)] * 17)),
    ("one in a batch", TooLargeError, "row 1", add_many([FINE, [("a", MIB64)] * 17])),
    ("a field over the limit", TooLargeError, "split it", add([(MIB64, b"")] * 17)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "words", "call"), [line[1:] for line in TABLE], ids=[line[0] for line in TABLE]
)
def test_bad_input_is_refused_and_changes_nothing(
    store: Store[bytes], kind: type[Error], words: str, call: Call
) -> None:
    store.stream("s").add_many(((ms, 0), {"n": ms}) for ms in range(1, 6))
    before, size, commits = everything(store), log_bytes(store.path), store.metrics()["commits"]
    with pytest.raises(kind, match=words):
        call(store)
    assert issubclass(kind, Error)
    assert everything(store) == before
    assert (log_bytes(store.path), store.metrics()["commits"]) == (size, commits)
    assert store.stream("s").add(FINE, id="6-0") == (6, 0)


LARGE = """
import resource, sys
import logstore
from logstore.codec import native_or_none, pure
from logstore.errors import TooLargeError
large, codec = b"x" * (64 << 20), {"pure": pure, "native": native_or_none}[sys.argv[1]]
names = [f"f{at}" for at in range(17)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    match sys.argv[2]:
        case "pairs":
            codec.rows([[(b"a", large)] * 1000])
        case "a mapping":
            codec.rows([dict.fromkeys(names, large)])
        case "of the names before":
            codec.rows([dict.fromkeys(names, "x"), dict.fromkeys(names, large)])
        case "columns":
            codec.columns(names, [["x", large] for _ in names])
        case "texts":
            codec.rows([dict.fromkeys(names, large.decode())])
        case "texts beyond ASCII":
            codec.rows([dict.fromkeys(names, "\u00e9" * (32 << 20))])
        case "names beyond ASCII":
            codec.rows([[("\u00e9" * (32 << 20), "")] * 17])
        case "an add":
            with logstore.open(sys.argv[3]) as store:
                store.stream("s").add(dict.fromkeys(names, large))
except TooLargeError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""
WAYS = [
    "pairs", "a mapping", "of the names before", "columns", "texts", "texts beyond ASCII",
    "names beyond ASCII", "an add",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", ["pure", "native"])
def test_too_large_input_is_refused_before_memory_is_taken(
    tmp_path: Path, codec: str, way: str
) -> None:
    """In a process of its own: what others took before hid that a gigabyte was copied first."""
    if codec == "native" and native_or_none is None:
        pytest.skip("the compiled codec is not there")
    environment = {**os.environ, "LOGSTORE_CODEC": codec}
    done = run_program(LARGE, codec, way, tmp_path / "store", env=environment)
    grown_kib, told = done.stdout.split(" ", 1)
    assert "split it" in told
    assert int(grown_kib) < 100 << 10, f"{int(grown_kib) >> 10} MiB"


OPTIONS: list[dict[str, Any]] = [
    {"sync": "never"}, {"sync": None}, {"sync": []}, {"encoding": "nonsense"}, {"lock_timeout": -1},
    {"lock_timeout": "3"}, {"lock_timeout": float("nan")}, {"lock_timeout": float("inf")},
    {"lock_timeout": True}, {"node_max_bytes": -1}, {"node_max_bytes": (1 << 30) + 1},
    {"node_max_bytes": "5"}, {"node_max_entries": -1}, {"node_max_entries": 2.5},
    {"node_max_entries": True}, {"segment_bytes": 100}, {"segment_bytes": 1 << 40},
    {"segment_bytes": None, "clock": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_wrong_options_create_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        logstore.open(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_stream_and_are_one_tree(open_store: OpenStore) -> None:
    with pytest.raises(StreamNotFoundError, match=r"stream 'n\\\\xff'") as caught:
        open_store().stream(b"n\xff").info()
    assert caught.value.stream == b"n\xff"
    assert isinstance(caught.value, KeyError)
    assert issubclass(UsageError, ValueError)
    assert issubclass(EntryTypeError, TypeError)


MAX = 2**63 - 1
HINT = "see what it is, then write it: python -m tests.store.odd_arguments"


def test_every_odd_argument_has_the_outcome_that_is_pinned(tmp_path: Path) -> None:
    """The same file is compared, by `make test-pure`, where nothing is compiled."""
    found = odd_arguments.lines(tmp_path / "store")
    assert [each for each in found if "BARE" in each or "AND CHANGED" in each] == []
    assert found == odd_arguments.PINNED.read_text(encoding="utf-8").splitlines(), HINT


def test_no_method_that_takes_arguments_is_left_out() -> None:
    known = {f"{face.__name__}.{method}" for face, method, _ in odd_arguments.cases()}
    missing = [
        f"{face.__name__}.{name}"
        for face in odd_arguments.FACES
        for name, method in inspect.getmembers(face, inspect.isfunction)
        if not name.startswith("_") and f"{face.__name__}.{name}" not in known
        and parameters(method)
    ]  # fmt: skip
    # A path, the IDs of pins, a field's name, as of any mapping, and of rows of Arrow what
    # tests/scan and test_add_arrow look at.
    scans = {"Store.merge", "Store.moment", "Store.scan", "Stream.add_arrow", "Stream.scan"}
    assert [name for name in missing if name not in scans] == [
        "Store.backup",
        "Store.release_pins",
        "Store.ship",
        "Delivery.get",
    ]


OPENED = [
    name for name in parameters(logstore.open)
    if name not in {"path", "clock", "compact_rate"}
]  # fmt: skip


@pytest.mark.parametrize("name", [*OPENED, "compact_rate"])
def test_odd_options_of_open(tmp_path: Path, name: str) -> None:
    refused: set[type] = set()
    for place, value in enumerate(odd_arguments.ODD.values()):
        path = tmp_path / str(place)
        try:
            with logstore.open(path, **{"background": False, name: value}):
                continue
        except logstore.Error as error:
            refused.add(type(error))
        assert not path.exists()
    # Who only reads makes no store.
    allowed = {OptionError, logstore.NotAStoreError} if name == "readonly" else {OptionError}
    assert refused == allowed


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5], ids=repr)
def test_an_invalid_path_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(OptionError, match="path"):
        logstore.open(value)
    with (
        logstore.open(tmp_path / "store", background=False) as store,
        pytest.raises(OptionError, match="path"),
    ):
        store.backup(value)


@pytest.mark.parametrize("value", [None, 5, b"x", 1.5, ""], ids=repr)
def test_an_invalid_uri_is_refused(tmp_path: Path, value: Any) -> None:
    with (
        logstore.open(tmp_path / "store", background=False) as store,
        pytest.raises(OptionError, match="uri must be a URI or a path"),
    ):
        store.ship(value)


TOLD = [-1, 2**63, 2**64, 253_402_300_800_000, None, "0", 1.5, True, float("nan")]


@pytest.mark.parametrize("told", TOLD, ids=repr)
def test_a_clock_that_tells_no_time_is_an_error_of_ours(tmp_path: Path, told: Any) -> None:
    clock: Any = FixedClock(odd_arguments.NOW_MS)
    with logstore.open(tmp_path / "store", sync="os", background=False, clock=clock) as store:
        stream = store.stream("s")
        group = stream.group("g", "0")
        first = stream.add({"a": "b"})
        group.read("c")
        clock.ms = told
        for call in (
            lambda: stream.add({"a": "b"}), lambda: stream.delete(first), lambda: group.read("c"),
            lambda: group.claim("d", first, min_idle=0), group.consumers,
            lambda: list(group.pending_entries()), lambda: stream.expire(after=1),
            lambda: stream.schedule({"a": "b"}, after=1),
            lambda: stream.trim(max_age=1), lambda: store.drop("s"), stream.info_full,
        ):  # fmt: skip
            with pytest.raises(OptionError, match=r"clock\.now_ms\(\) must give"):
                call()
        clock.ms = 253_402_300_799_999  # the last that is taken
        stream.add({"a": "b"}, id="*")
        assert group.claim("d", first, min_idle=0)[0].idle.days > 2_000_000
        assert [each.idle.days for each in group.consumers()] == [2_913_221, 0]
        assert len(stream) == 2


def test_two_handles_with_one_clock_share_the_store(tmp_path: Path) -> None:
    clock = FixedClock(5)
    with (
        logstore.open(tmp_path / "store", background=False, clock=clock) as one,
        logstore.open(tmp_path / "store", background=False, clock=clock) as two,
    ):
        assert one._live() is two._live()
        with pytest.raises(OptionError):
            logstore.open(tmp_path / "store", background=False, clock=FixedClock(6))


def test_a_wait_of_more_than_a_life_is_for_ever(open_store: Any) -> None:
    stream = open_store().stream("s")
    stream.add({"a": "b"}, "1-0")
    for timeout in (1e308, float("inf"), 10**5000):
        assert len(stream.read("0", timeout=timeout)) == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_counts_at_their_limit_stop_no_add(tmp_path: Path, reopened: bool) -> None:
    """They go on as servers count them: in 64 bits."""

    def opened() -> Store[bytes]:
        return logstore.open(tmp_path / "store", sync="os", background=False)

    store = opened()
    stream = store.stream("s")
    stream.add({"n": 0}, "1-0")
    for wrong in (MAX + 1, 2**64 - 1, 2**64, -1):
        with pytest.raises(OptionError, match="entries_added must"):
            stream.set_id("1-0", entries_added=wrong)
    stream.set_id("1-0", entries_added=MAX)
    group = stream.group("g", "0", entries_read=MAX)
    for count in (1, 150, 1, 5):  # the open node, new nodes
        if reopened:
            store.close()
            store = opened()
            stream = store.stream("s")
            group = stream.group("g")
        stream.add_many([{"n": each} for each in range(count)])
        stream.group(f"g{count}", "$").read("c")
        assert len(group.read("c")) >= count
        assert group.info().lag == 0
    assert stream.info().entries_added == MAX + 157
    assert group.info().entries_read == -(2**63) + 156
    copied = store.restore("t", stream.dump())
    assert copied.info().entries_added == MAX + 157
    assert store.copy("s", "u")
    copied.add({"n": 1})
    assert copied.info().entries_added == MAX + 158
    assert len(list(copied)) == 159
    store.close()


def files(path: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("readonly", [True, False])
def test_a_directory_of_other_files(tmp_path: Path, create: bool, readonly: bool) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(NotAStoreError, match=r"empty or (a )?new"):
        logstore.open(tmp_path, create=create, readonly=readonly)
    assert files(tmp_path).keys() - {"LOCK"} == {"photo.jpg"}


@pytest.mark.parametrize("options", [{"create": False}, {"readonly": True}])
def test_a_missing_directory_stays_missing(tmp_path: Path, options: dict[str, bool]) -> None:
    with pytest.raises(NotAStoreError, match="is not a store"):
        logstore.open(tmp_path / "none", **options)  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        logstore.open(tmp_path, create=False)
    logstore.open(tmp_path).close()
    logstore.open(tmp_path, create=False).close()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_file_in_the_way(tmp_path: Path, create: bool, inside: str) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises((NotAStoreError, FileSystemError)):
        logstore.open(tmp_path / "file" / inside, create=create)
    assert files(tmp_path) == {"file": b"mine"}


def test_a_newer_format(open_store: OpenStore) -> None:
    store = open_store()
    store.stream("s").add({"a": 1})
    store.close()
    marker = store.path / "STORE"
    data = bytearray(marker.read_bytes())
    magic, version, *rest = fmt.STORE_HEAD.unpack_from(data)
    fmt.STORE_HEAD.pack_into(data, 0, magic, version + 1, *rest)
    marker.write_bytes(data)
    before = files(store.path)
    for readonly in (False, True):
        with pytest.raises(FormatVersionError, match="upgrade logstore"):
            open_store(readonly=readonly)
    assert files(store.path) == before


@pytest.mark.parametrize("damage", [b"", b"nonsense", struct.pack("<8sI", b"LOGSTORE", 1)])
def test_a_damaged_marker(open_store: OpenStore, damage: bytes) -> None:
    store = open_store()
    store.stream("s").add({"a": 1})
    store.close()
    marker = store.path / "STORE"
    good = marker.read_bytes()
    for bad in (damage, good[:-1], good[:-1] + bytes([good[-1] ^ 1])):
        marker.write_bytes(bad)
        with pytest.raises((NotAStoreError, CorruptionError)):
            open_store()
    marker.write_bytes(good)
    assert len(open_store().stream("s")) == 1


MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:45 / /mnt/share rw - nfs4 server:/x rw
31 22 0:46 / /mnt/with\040space rw,nosuid shared:2 master:3 - cifs //server/x rw
32 30 254:1 / /mnt/share/local rw - xfs /dev/vdb rw
33 22 0:47 / /mnt/share/local rw - btrfs /dev/vdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"), ("/mnt/share", "nfs4"), ("/mnt/share/a/b", "nfs4"), ("/mnt/shared", "ext4"),
        ("/mnt/with space/x", "cifs"), ("/mnt/share/local/x", "btrfs"),
    ],
)  # fmt: skip
def test_the_type_of_a_mount(path: str, kind: str) -> None:
    assert mount_type(Path(path), MOUNTS) == kind
    assert mount_type(Path(path), "") == ""


def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:45 / {tmp_path} rw - nfs4 server:/x rw\n"
    )
    monkeypatch.setattr("logstore.fsinfo.mount_type", lambda path: mount_type(path, mounts))
    with pytest.raises(FileSystemError, match=r"network file system \(nfs4\).*local disk"):
        logstore.open(tmp_path / "new" / "store")
    assert list(tmp_path.iterdir()) == []


NOBODY = 54321


def as_other_user(path: Path) -> list[str]:
    """What a user who is not root gets from opening it: for writing, then for reading."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        lines: list[str] = []
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            for readonly in (False, True):
                try:
                    with logstore.open(
                        path, sync="os", background=False, readonly=readonly
                    ) as store:
                        lines.append(str(len(store.stream("s"))))
                except logstore.Error as error:
                    lines.append(f"{type(error).__name__} {error}")
        finally:
            os.write(there, "\n".join(lines).encode())
            os._exit(0)
    os.close(there)
    os.waitpid(child, 0)
    with os.fdopen(here) as pipe:
        return pipe.read().split("\n")


@pytest.fixture
def public() -> Iterator[Path]:
    """A closed store with one entry, where every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with logstore.open(Path(folder) / "store", sync="os", background=False) as store:
            store.stream("s").add({"a": 1})
        yield store.path


def test_without_permission_to_write(public: Path) -> None:
    before = files(public)
    refused, read = as_other_user(public)
    assert refused.startswith("FileSystemError no permission")
    assert "readonly=True" in refused
    assert read == "1"
    assert files(public) == before


def test_without_permission_to_read(public: Path) -> None:
    (public / "STORE").chmod(0o600)
    for line in as_other_user(public):
        assert line.startswith("FileSystemError no permission")


def test_without_permission_to_create(public: Path) -> None:
    refused, _ = as_other_user(public.parent / "new")
    assert refused.startswith("FileSystemError no permission")
    assert not (public.parent / "new").exists()


def test_a_full_disk(open_store: OpenStore) -> None:
    """A limit on the size of files stands in for it: writing fails in the same way."""
    store = open_store()
    stream = store.stream("s")
    stream.add({"a": 1}, id="1-0")
    before = everything(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(DiskFullError, match=r"no space left.*compact"):
            stream.add({"a": b"x" * 300_000})
        assert everything(store) == before
        stream.add({"a": 2}, id="2-0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [entry.id.ms for entry in stream] == [1, 2]
    store.close()
    with pytest.raises(ClosedError):
        stream.add({"a": 3})
    assert [entry.id.ms for entry in open_store().stream("s")] == [1, 2]
