"""A store that was shipped to a URI: its manifest, its objects, and its files read where they are.

``MANIFEST.json`` names every file of a store as of one moment, and for each the object that has its
bytes: ``objects/`` and the SHA-256 of them. So an object never changes, and the manifest is the one
commit point: what it does not name does not count, whatever stands there.

Invariants: a manifest that is not whole, and an object whose bytes are not those that the manifest
names, is a CorruptionError and never a shorter store; a name in a manifest is one that a store has,
so that nothing is written outside of the target; no error shows the secrets of a URI. Knows no
index and no engine.

Invariants of files that are read where they are: all that is read belongs to the one state that the
manifest named; nothing is written. What is read is not checked against the digest of its object,
which would mean to read all of it: every frame, hint and checkpoint has a checksum of its own, as
in a store. An object that a newer state made needless is looked for again in the newest manifest,
whose segment of that number begins with the same bytes, or which keeps the last one that there was
for a time; if that is over, SnapshotExpiredError is raised. Hints and checkpoints are derived: one
that was lost there counts as one that was never made.
"""

from __future__ import annotations

import hashlib
import json
import stat as modes
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from logstore.errors import (
    CorruptionError,
    FileSystemError,
    FormatVersionError,
    NotAStoreError,
    OptionError,
    ReadOnlyError,
    SnapshotExpiredError,
)
from logstore.fs import LOCAL, File, FileStat, FileSystem
from logstore.loading import installing
from logstore.log import file_names
from logstore.log import file_names as names
from logstore.store_path import UriPath, is_uri, shown
from logstore.tuples import NamedTuple

MANIFEST = "MANIFEST.json"
OBJECTS = "objects"
KIND, VERSION = "logstore-shipped", 1
MANIFEST_MAX_BYTES = 256 << 20
CHUNK_BYTES = 4 << 20
TRY_AGAIN = "try again when it can be reached"
NOT_PUBLISHED = f"nothing was published: {TRY_AGAIN}, what is there already is not sent again"
_NEEDS = {
    "hdfs": "; HDFS needs a Java (JAVA_HOME) and Hadoop's client with libhdfs (HADOOP_HOME, and "
    "its jars in CLASSPATH)"
}
_DIGEST_DIGITS = 64
_OF_OBJECTS = ("abfs", "gcs", "s3")  # which need no directories
Progress = Callable[[int, int], None]


class ShippedPart(NamedTuple):
    """A file of a store, by its path in the store; ``sha256`` (hex) also names its object.

    ``head`` (hex): how a segment begins, so that opening a store does not ask for each.
    """

    path: str
    size_bytes: int
    sha256: str
    head: str = ""


class KeptPart(NamedTuple):
    """A file of older states only, kept for their readers; ``since_ms``: when a state lacked it."""

    part: ShippedPart
    since_ms: int


class Manifest(NamedTuple):
    """A store as of one moment: all that was committed up to ``position``.

    ``line``: whose ships these are (``log.shipfile``); empty: of a logstore that had no lines.
    ``kept`` belongs to no store that is opened, or restored, of it. ``erasures``: how many the
    store had counted (``log.shipfile``) before the state was read.
    """

    uuid: str
    position: int
    shipped_ms: int
    parts: tuple[ShippedPart, ...]
    line: str = ""
    kept: tuple[KeptPart, ...] = ()
    erasures: int = 0

    def pack(self) -> bytes:
        """The bytes of MANIFEST.json: the body and, over it, a checksum."""
        body = {**self._asdict(), "kind": KIND, "version": VERSION}
        text = json.dumps(body)
        return json.dumps({"manifest": text, "sha256": digest(text.encode())}).encode()


class ShipTarget:
    """A directory at a URI, of any file system that pyarrow has."""

    def __init__(self, uri: str) -> None:
        """OptionError for a URI that cannot be one; nothing is looked for yet."""
        try:
            import pyarrow.fs as arrow_fs
        except ImportError:
            raise OptionError(f"URIs need pyarrow: {installing('arrow')}") from None
        self.shown = shown(uri)
        text = uri if is_uri(uri) else Path(uri).absolute().as_uri()
        try:
            found, root = arrow_fs.FileSystem.from_uri(text)
        except ValueError as exc:
            why = str(exc).replace(text, self.shown)
            raise OptionError(
                f"{self.shown} is no URI that pyarrow reads: {why}; give a path, or s3://, gs://, "
                "abfs://, hdfs:// or file://"
            ) from None
        except OSError as exc:  # of HDFS its text has a line for each place of a library
            why = str(exc).replace(text, self.shown).partition("\n")[0]
            hint = _NEEDS.get(urlsplit(text).scheme, f"; {TRY_AGAIN}")
            raise FileSystemError(f"{self.shown} cannot be reached: {why}{hint}") from None
        self.fs: Any = found
        self.root: str = root.rstrip("/")
        self.has_objects = found.type_name in _OF_OBJECTS
        if self.has_objects and not self.root:
            raise OptionError(
                f"{self.shown or uri} names no bucket: give one, and a path in it, as in "
                "s3://bucket/stores/races"
            )
        self.is_local = found.type_name == "local"

    def path(self, *parts: str) -> str:
        """The path of something below, as the file system has it."""
        return "/".join((self.root, *parts))

    @contextmanager
    def errors(self, doing: str, hint: str = TRY_AGAIN) -> Iterator[None]:
        """Errors of the file system become FileSystemError; FileNotFoundError stays as it is."""
        try:
            yield
        except (FileNotFoundError, FileSystemError):
            raise
        except OSError as exc:
            raise FileSystemError(f"{doing} at {self.shown} failed: {exc}; {hint}") from exc

    def directories(self, root: str) -> list[str]:
        """The names of directories in one of the file system, as in a shell without hidden ones."""
        import pyarrow.fs as arrow_fs

        with self.errors("looking for stores"):
            found = self.fs.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True))
        named = [str(each.base_name) for each in found if not each.is_file]
        return sorted(name for name in named if not name.startswith("."))

    def sizes(self) -> dict[str, int]:
        """Bytes of each object that is there, by its name; also of what no manifest names."""
        import pyarrow.fs as arrow_fs

        with self.errors("listing the objects"):
            selector = arrow_fs.FileSelector(self.path(OBJECTS), allow_not_found=True)
            found = self.fs.get_file_info(selector)
        return {str(each.base_name): int(each.size or 0) for each in found if each.is_file}

    def manifest(self) -> Manifest | None:
        """The manifest of the last ship; None if nothing was shipped. CorruptionError for a damaged
        one."""
        with self.errors("reading the manifest"):
            try:
                with self.fs.open_input_file(self.path(MANIFEST)) as file:
                    data: bytes = file.read(MANIFEST_MAX_BYTES)
            except FileNotFoundError:
                return None
        return _unpack(data, self.shown)

    def published(self) -> Manifest:
        """As ``manifest``; NotAStoreError if nothing was shipped."""
        found = self.manifest()
        if found is None:
            begun = any(map(is_object, self.sizes()))
            raise NotAStoreError(
                f"nothing was shipped to {self.shown}: it has no {MANIFEST}"
                + (", as its first ship has not ended: wait, or ship again" if begun else "")
            )
        return found

    def source(self, part: ShippedPart) -> Any:
        """An object, opened for reading anywhere in it; FileNotFoundError if it is gone."""
        return self.fs.open_input_file(self.path(OBJECTS, part.sha256))

    def chunks(self, part: ShippedPart) -> Iterator[bytes]:
        """The bytes of an object, checked at the end; CorruptionError if they are others.

        SnapshotExpiredError if it is not there any more.
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
                raise SnapshotExpiredError(
                    f"{part.path} is not at {self.shown} any more: another ship published a newer "
                    "state meanwhile, so try again; or objects were deleted by hand, so ship again "
                    "from the store"
                ) from None
        if left or found.hexdigest() != part.sha256:
            raise CorruptionError(
                f"{part.path} at {self.shown} is not what was shipped ({part.size_bytes} bytes, "
                f"the object {part.sha256}): ship again from the store with verify=True, which "
                "sends it anew"
            )


@lru_cache(maxsize=8)
def place(uri: str) -> ShipTarget:
    """The directory at a URI, its connection kept: a task reads many splits of one."""
    return ShipTarget(uri)


def is_pattern(uri: str) -> bool:
    """Whether the path of a URI has ``*`` or ``[...]`` in it (a ``?`` begins its query)."""
    return any(each in urlsplit(uri).path for each in "*[")


def matching(pattern: str) -> list[str]:
    """The URIs, sorted, of all that was shipped to directories that a pattern finds.

    One whose first ship has not ended is among them: whoever opens it is told so, and does not
    take it for an empty one.
    """
    parts = urlsplit(pattern)
    texts = parts.path.split("/")
    first = next(at for at, text in enumerate(texts) if is_pattern(f"/{text}"))
    base = "/".join(texts[:first])
    here = place(urlunsplit(parts._replace(path=base)))
    found = [(base, here.root)]
    for text in texts[first:]:
        if is_pattern(f"/{text}"):
            pairs = [(each, name) for each in found for name in here.directories(each[1])]
            pairs = [(each, name) for each, name in pairs if fnmatchcase(name, unquote(text))]
        else:
            pairs = [(each, unquote(text)) for each in found]
        found = [(f"{uri}/{quote(name)}", f"{root}/{name}") for (uri, root), name in pairs]
    with here.errors("looking for stores"):
        looked = here.fs.get_file_info([f"{root}/{MANIFEST}" for _, root in found])
    uris = [urlunsplit(parts._replace(path=uri)) for uri, _ in found]
    return sorted(
        uri for uri, info in zip(uris, looked, strict=True) if info.is_file or _begun(uri)
    )


def _begun(uri: str) -> bool:
    """Whether a ship to a URI that has no manifest has sent something."""
    return any(map(is_object, place(uri).sizes()))


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def is_object(name: str) -> bool:
    """Whether a name in objects/ is one that we give."""
    return len(name) == _DIGEST_DIGITS and all(each in "0123456789abcdef" for each in name)


def is_derived(path: str) -> bool:
    """Whether a file of a store is made of its log: a hint or a checkpoint."""
    return not path.endswith(file_names.SEGMENT_SUFFIX) and path != file_names.STORE


def is_ours(name: str) -> bool:
    """The same, finished or not."""
    return is_object(name.removesuffix(file_names.TEMPORARY))


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
        parts = tuple(ShippedPart(*each) for each in body["parts"])
        kept = tuple(
            KeptPart(ShippedPart(*each), int(since)) for each, since in body.get("kept", ())
        )
        for part in (*parts, *(old.part for old in kept)):
            bytes.fromhex(part.head)
            if not _is_of_a_store(part.path) or not is_object(part.sha256) or part.size_bytes < 0:
                raise ValueError(f"it names {part.path!r}, which no store has")
        line, erasures = str(body.get("line", "")), int(body.get("erasures", 0))
        uuid, position = body["uuid"], body["position"]
        return Manifest(uuid, position, body["shipped_ms"], parts, line, kept, erasures)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptionError(
            f"{MANIFEST} at {where} is damaged ({exc}): ship to a new URI, or delete it and ship "
            "again: what is there already is not sent again"
        ) from None


def _is_of_a_store(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if name.endswith(file_names.TEMPORARY):
        return False
    if folder == file_names.LOG:
        return file_names.is_segment_file(name)
    half = name + file_names.TEMPORARY
    return path == file_names.STORE or (
        folder == file_names.CHECKPOINTS and file_names.is_half_checkpoint(half)
    )


READ_BYTES = 64 << 10
READ_AHEAD_MAX_BYTES = 8 << 20


class ShippedFile(File):
    """One of them; reads that follow each other fetch more at a time. Threads may share it."""

    def __init__(self, path: Path, part: ShippedPart, files: ShippedFiles) -> None:
        super().__init__(-1, path)
        self._part = part
        self._files = files
        self._source: Any = None
        self._kept = 0, bytes.fromhex(part.head)  # where what was read last begins
        self._ahead_bytes = READ_BYTES
        self._lock = threading.Lock()

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """As of a local file; SnapshotExpiredError if it is gone."""
        end = min(offset + size_bytes, self._part.size_bytes)
        if end <= offset:
            return b""
        begin, data = self._kept
        if begin <= offset and end <= begin + len(data):
            return data[offset - begin : end - begin]
        with self._lock:
            begin, data = self._kept
            follows = begin <= offset <= begin + len(data) + self._ahead_bytes
            grown = min(2 * self._ahead_bytes, READ_AHEAD_MAX_BYTES)
            self._ahead_bytes = grown if follows else READ_BYTES
            wanted = max(size_bytes, self._ahead_bytes)
            found = self._read(min(wanted, self._part.size_bytes - offset), offset)
            self._kept = offset, found
        return found[: end - offset]

    def _read(self, size_bytes: int, offset: int) -> bytes:
        place = self._files.place
        with place.errors(f"reading {self._part.path}"):
            for newest in (False, True):
                try:
                    if self._source is None or newest:
                        self._source = place.source(self._files.part(self._part, newest=newest))
                    data: bytes = self._source.read_at(size_bytes, offset)
                except FileNotFoundError:
                    continue
                return data
        raise self._files.lost(self._part.path)

    def stat(self) -> FileStat:
        """Its size; it has no place on a device."""
        return FileStat(0, 0, self._part.size_bytes, 0, modes.S_IFREG)

    def close(self) -> None:
        """Let go of it."""
        self._source = None


class ShippedFiles(FileSystem):
    """What stands at a URI, under paths of it (`UriPath`); all other paths are local ones.

    ``parts`` may be some of the files only.
    """

    def __init__(self, place: ShipTarget, uuid: str, parts: Iterable[ShippedPart]) -> None:
        self.place = place
        self.uuid = uuid
        self.parts = {part.path: part for part in parts}

    def part(self, known: ShippedPart, *, newest: bool) -> ShippedPart:
        """A file as it was, or as the newest state has it. SnapshotExpiredError if it has none."""
        if not newest:
            return known
        state = self.place.manifest()
        if state is not None and state.uuid == self.uuid:
            for part in (*state.parts, *(old.part for old in state.kept)):
                if part.path == known.path and part.size_bytes >= known.size_bytes:
                    return part
        raise self.gone(known.path)

    def lost(self, path: str) -> SnapshotExpiredError | FileNotFoundError:
        """The error of a file that the newest manifest names, and whose object is not there; a
        derived file is not missed, and is no longer among those that are here."""
        if is_derived(path):
            self.parts.pop(path, None)
            return FileNotFoundError(f"{path} is not at {self.place.shown} any more")
        return SnapshotExpiredError(
            f"{path} is not at {self.place.shown} any more: its object was deleted there; ship "
            "again from the store, which sends it anew"
        )

    def gone(self, path: str) -> SnapshotExpiredError:
        """The error of a file that is not there any more."""
        return SnapshotExpiredError(
            f"{path} is not at {self.place.shown} any more: another ship published a newer state "
            "meanwhile, or objects were deleted by hand; open it, or load, again (who ships says "
            "by 'keep' how long old objects stay; those of before an erasure go at once)"
        )

    def _names(self, path: UriPath) -> set[str]:
        """The first names of the paths below a path."""
        below = f"{path.below}/" if path.below else ""
        found = [each.removeprefix(below) for each in self.parts if each.startswith(below)]
        return {each.partition("/")[0] for each in found}

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        """ReadOnlyError for what is to be written at the URI."""
        if not isinstance(path, UriPath):
            return super().open(path, write=write, create=create, exclusive=exclusive)
        if write or create or exclusive:
            raise self._refused(path)
        part = self.parts.get(path.below)
        if part is None:
            raise FileNotFoundError(f"{path} was not shipped")
        file = ShippedFile(path, part, self)
        if is_derived(part.path):
            file.pread(1, 0)  # here it is found missing, as in a directory
        return file

    def hold(self, path: Path) -> Path:
        """A URI needs no holding: what it showed is in the manifest."""
        return path if isinstance(path, UriPath) else super().hold(path)

    def rename(self, source: Path, target: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(source, UriPath):
            raise self._refused(source)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().remove_tree(path)

    def make_directory(self, path: Path) -> None:
        """ReadOnlyError at the URI."""
        if isinstance(path, UriPath):
            raise self._refused(path)
        super().make_directory(path)

    @staticmethod
    def _refused(path: UriPath) -> ReadOnlyError:
        return ReadOnlyError(f"{path} is read only: change the store that is shipped there")

    def refuse_link(self, path: Path) -> None:
        """There are none."""
        if not isinstance(path, UriPath):
            super().refuse_link(path)

    def names(self, path: Path) -> list[str]:
        """As of a local directory."""
        return sorted(self._names(path)) if isinstance(path, UriPath) else super().names(path)

    def other_names(self, path: Path) -> set[str]:
        """As of a local directory."""
        if not isinstance(path, UriPath):
            return super().other_names(path)
        return {name for name in self._names(path) if (path / name).below in self.parts}

    def exists(self, path: Path) -> bool:
        """As of a local file."""
        if not isinstance(path, UriPath):
            return super().exists(path)
        return path.below in self.parts or bool(self._names(path))

    def stat(self, path: Path) -> FileStat:
        """Its size; it has no place on a device."""
        if not isinstance(path, UriPath):
            return super().stat(path)
        return self.open(path).stat()

    def tree_bytes(self, path: Path) -> int:
        """The bytes of all that was shipped."""
        if not isinstance(path, UriPath):
            return super().tree_bytes(path)
        return sum(part.size_bytes for part in self.parts.values())

    def writable(self, path: Path) -> bool:
        """Nothing is written at a URI."""
        return not isinstance(path, UriPath) and super().writable(path)


def is_shipped(path: Path) -> bool:
    """Whether a store was shipped to a path, by its name, or as a look there shows."""
    if isinstance(path, UriPath):
        return True
    return LOCAL.exists(path / MANIFEST) and not LOCAL.exists(path / names.STORE)
