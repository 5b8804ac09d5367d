"""What a store looks like at a URI of an object store or another file system, and how it is read.

``MANIFEST.json`` names every file of a store as of one moment, and for each the object that has its
bytes: ``objects/`` and the SHA-256 of them. So an object never changes, and the manifest is the one
commit point: what it does not name does not count, whatever stands there.

Invariants: a manifest that is not whole, and an object whose bytes are not those that the manifest
names, is a CorruptionError and never a shorter store; a name in a manifest is one that a store has,
so that nothing is written outside of the target; no error shows the secrets of a URI. Knows no
index and no engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from logstore import format as fmt
from logstore.errors import (
    CorruptionError,
    FileSystemError,
    FormatVersionError,
    NotAStoreError,
    OptionError,
    SnapshotExpired,
)
from logstore.fs import LOCAL, File, FileSystem
from logstore.log import names
from logstore.tuples import NamedTuple

MANIFEST = "MANIFEST.json"
OBJECTS = "objects"
KIND, VERSION = "logstore-shipped", 1
MANIFEST_MAX_BYTES = 256 << 20
CHUNK_BYTES = 4 << 20
_DIGEST_DIGITS = 64
_OF_OBJECTS = ("abfs", "gcs", "s3")  # which need no directories
Progress = Callable[[int, int], None]


class Part(NamedTuple):
    """A file of a store, by its path in the store; ``sha256`` (hex) also names its object."""

    path: str
    size_bytes: int
    sha256: str


class Manifest(NamedTuple):
    """A store as of one moment: all that was committed up to ``position``."""

    uuid: str
    position: int
    shipped_ms: int
    parts: tuple[Part, ...]

    def pack(self) -> bytes:
        """The bytes of MANIFEST.json: the body and, over it, a checksum."""
        body = {**self._asdict(), "kind": KIND, "version": VERSION}
        text = json.dumps(body)
        return json.dumps({"manifest": text, "sha256": digest(text.encode())}).encode()


class Place:
    """A directory at a URI, of any file system that pyarrow has."""

    def __init__(self, uri: str) -> None:
        """OptionError for a URI that cannot be one; nothing is looked for yet."""
        try:
            import pyarrow.fs as arrow_fs
        except ImportError:
            raise OptionError(
                "URIs need pyarrow: install it with pip install 'logstore-streams[arrow]'"
            ) from None
        self.shown = shown(uri)
        text = uri if "://" in uri else Path(uri).absolute().as_uri()
        try:
            found, root = arrow_fs.FileSystem.from_uri(text)
        except (ValueError, OSError) as exc:
            why = str(exc).replace(text, self.shown)
            raise OptionError(f"{self.shown} is no URI that pyarrow reads: {why}") from None
        self.fs: Any = found
        self.root: str = root.rstrip("/")
        self.has_objects = found.type_name in _OF_OBJECTS
        self.is_local = found.type_name == "local"

    def path(self, *parts: str) -> str:
        """The path of something below, as the file system has it."""
        return "/".join((self.root, *parts))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """FileSystemError for what the file system says; what is missing stays what it is."""
        try:
            yield
        except (FileNotFoundError, FileSystemError):
            raise
        except OSError as exc:
            raise FileSystemError(
                f"{doing} at {self.shown} failed: {exc}; nothing was published: try again when it "
                "can be reached, what is there already is not sent again"
            ) from exc

    def sizes(self) -> dict[str, int]:
        """Bytes of each object that is there, by its name; also of what no manifest names."""
        import pyarrow.fs as arrow_fs

        with self.errors("listing the objects"):
            selector = arrow_fs.FileSelector(self.path(OBJECTS), allow_not_found=True)
            found = self.fs.get_file_info(selector)
        return {str(each.base_name): int(each.size or 0) for each in found if each.is_file}

    def manifest(self) -> Manifest | None:
        """What was shipped last; None: nothing. CorruptionError for a damaged manifest."""
        with self.errors("reading the manifest"):
            try:
                with self.fs.open_input_file(self.path(MANIFEST)) as file:
                    data: bytes = file.read(MANIFEST_MAX_BYTES)
            except FileNotFoundError:
                return None
        return _unpack(data, self.shown)

    def chunks(self, part: Part) -> Iterator[bytes]:
        """The bytes of an object, checked at the end; CorruptionError if they are others.

        SnapshotExpired if it is not there any more.
        """
        found, left = hashlib.sha256(), part.size_bytes
        with self.errors(f"reading {part.path}"):
            try:
                with self.fs.open_input_stream(self.path(OBJECTS, part.sha256)) as file:
                    while data := file.read(min(CHUNK_BYTES, left + 1)):
                        left -= len(data)
                        found.update(data)
                        if left < 0:
                            break
                        yield data
            except FileNotFoundError:
                raise SnapshotExpired(
                    f"{part.path} is not at {self.shown} any more: another ship published a newer "
                    "state meanwhile, or objects were deleted by hand; try again"
                ) from None
        if left or found.hexdigest() != part.sha256:
            raise CorruptionError(
                f"{part.path} at {self.shown} is not what was shipped ({part.size_bytes} bytes): "
                f"delete the object {part.sha256}, and ship again from the store"
            )


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def shown(uri: str) -> str:
    """A URI without the secrets that it may have: user, password and query."""
    if "://" not in uri:
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri.partition("://")[0] + "://..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_object(name: str) -> bool:
    """Whether a name in objects/ is one that we give."""
    return len(name) == _DIGEST_DIGITS and all(each in "0123456789abcdef" for each in name)


def is_ours(name: str) -> bool:
    """The same, finished or not."""
    return is_object(name.removesuffix(names.TEMPORARY))


def _unpack(data: bytes, where: str) -> Manifest:
    try:
        outer = json.loads(data)
        if digest(outer["manifest"].encode()) != outer["sha256"]:
            raise ValueError("its checksum does not fit")
        body = json.loads(outer["manifest"])
        if body["kind"] != KIND:
            raise ValueError(f"it is a {body['kind']!r}")
        if body["version"] > VERSION:
            raise FormatVersionError(
                f"{where} was shipped by a newer logstore (manifest version {body['version']}): "
                "read it with that"
            )
        parts = tuple(Part(*each) for each in body["parts"])
        for part in parts:
            if not _is_of_a_store(part.path) or not is_object(part.sha256) or part.size_bytes < 0:
                raise ValueError(f"it names {part.path!r}, which no store has")
        return Manifest(body["uuid"], body["position"], body["shipped_ms"], parts)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptionError(
            f"{MANIFEST} at {where} is damaged ({exc}): ship to a new URI, or delete it and ship "
            "again: what is there already is not sent again"
        ) from None


def _is_of_a_store(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if name.endswith(names.TEMPORARY):
        return False
    if folder == names.LOG:
        return names.is_segment_file(name)
    half = name + names.TEMPORARY
    return path == names.STORE or (folder == names.CHECKPOINTS and names.is_half_checkpoint(half))


def fetch(
    uri: str, target: Path, *, progress: Progress | None = None, fs: FileSystem = LOCAL
) -> Manifest:
    """Make a store in an empty or new directory of what was shipped to a URI.

    Crash order: everything but STORE is written and synced, then STORE: without it the directory is
    no store. NotAStoreError if nothing was shipped there; CorruptionError, SnapshotExpired and
    FileSystemError as the objects are.
    """
    place = Place(uri)
    manifest = place.manifest()
    if manifest is None:
        raise NotAStoreError(f"nothing was shipped to {place.shown}: it has no {MANIFEST}")
    if fs.names(target):
        raise OptionError(f"{target} is not empty: give a new or an empty directory for the store")
    for folder in (names.LOG, names.CHECKPOINTS, names.PINS, names.INDEX):
        fs.make_directory(target / folder)
    total = sum(part.size_bytes for part in manifest.parts)
    done, store = 0, b""
    for part in manifest.parts:
        if progress is not None:
            progress(done, total)
        if part.path == names.STORE:
            if part.size_bytes > fmt.STORE_BODY_MAX_BYTES * 2:
                raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: its STORE is huge")
            store = b"".join(place.chunks(part))
        else:
            _write(fs, target / part.path, place.chunks(part))
        done += part.size_bytes
    if not store:
        raise CorruptionError(f"{MANIFEST} at {place.shown} is damaged: it names no STORE")
    for folder in (names.LOG, names.CHECKPOINTS):
        fs.sync_directory(target / folder)
    fs.write_atomic(target / names.STORE, store)
    return manifest


def _write(fs: FileSystem, path: Path, chunks: Iterator[bytes]) -> None:
    file: File = fs.open_new(path)
    offset = 0
    try:
        for data in chunks:
            file.pwrite(data, offset)
            offset += len(data)
        file.sync()
    finally:
        file.close()
