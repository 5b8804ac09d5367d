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
    SnapshotExpiredError,
)
from logstore.loading import installing
from logstore.log import file_names
from logstore.store_path import is_uri, shown
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


class Part(NamedTuple):
    """A file of a store, by its path in the store; ``sha256`` (hex) also names its object.

    ``head`` (hex): how a segment begins, so that opening a store does not ask for each.
    """

    path: str
    size_bytes: int
    sha256: str
    head: str = ""


class Manifest(NamedTuple):
    """A store as of one moment: all that was committed up to ``position``.

    ``line``: whose ships these are (``log.shipfile``); empty: of a logstore that had no lines.
    """

    uuid: str
    position: int
    shipped_ms: int
    parts: tuple[Part, ...]
    line: str = ""

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
        self.is_local = found.type_name == "local"

    def path(self, *parts: str) -> str:
        """The path of something below, as the file system has it."""
        return "/".join((self.root, *parts))

    @contextmanager
    def errors(self, doing: str, hint: str = TRY_AGAIN) -> Iterator[None]:
        """FileSystemError for what the file system says; what is missing stays what it is."""
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
        """What was shipped last; None: nothing. CorruptionError for a damaged manifest."""
        with self.errors("reading the manifest"):
            try:
                with self.fs.open_input_file(self.path(MANIFEST)) as file:
                    data: bytes = file.read(MANIFEST_MAX_BYTES)
            except FileNotFoundError:
                return None
        return _unpack(data, self.shown)

    def published(self) -> Manifest:
        """The same; NotAStoreError for nothing."""
        found = self.manifest()
        if found is None:
            begun = any(map(is_object, self.sizes()))
            raise NotAStoreError(
                f"nothing was shipped to {self.shown}: it has no {MANIFEST}"
                + (", as its first ship has not ended: wait, or ship again" if begun else "")
            )
        return found

    def source(self, part: Part) -> Any:
        """An object, opened for reading anywhere in it; FileNotFoundError if it is gone."""
        return self.fs.open_input_file(self.path(OBJECTS, part.sha256))

    def chunks(self, part: Part) -> Iterator[bytes]:
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
                    "state meanwhile, or objects were deleted by hand; try again"
                ) from None
        if left or found.hexdigest() != part.sha256:
            raise CorruptionError(
                f"{part.path} at {self.shown} is not what was shipped ({part.size_bytes} bytes): "
                f"delete the object {part.sha256}, and ship again from the store"
            )


@lru_cache(maxsize=8)
def place(uri: str) -> Place:
    """The directory at a URI, its connection kept: a task reads many splits of one."""
    return Place(uri)


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
        parts = tuple(Part(*each) for each in body["parts"])
        for part in parts:
            bytes.fromhex(part.head)
            if not _is_of_a_store(part.path) or not is_object(part.sha256) or part.size_bytes < 0:
                raise ValueError(f"it names {part.path!r}, which no store has")
        line = str(body.get("line", ""))
        return Manifest(body["uuid"], body["position"], body["shipped_ms"], parts, line)
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
