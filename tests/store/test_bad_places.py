"""Prevents a store in a place that cannot hold one, and writing to what is none."""

from __future__ import annotations

import os
import resource
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    FileSystemError,
    FormatVersionError,
    NotAStoreError,
)  # fmt: skip
from logstore import format as fmt
from logstore.fsinfo import mount_type
from tests.store.conftest import OpenStore
from tests.store.look import everything


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
