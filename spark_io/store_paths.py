"""Which stores a load names: one directory or URI, several, or those that a pattern finds.

Invariants: a store is read once, whatever name it has. A store that is named twice, and a copy of
another one, are an OptionError, for their rows would come twice; so is a pattern that finds no
store. Opens nothing but STORE files, and the manifests of shipped stores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from logstore.errors import NotAStoreError, OptionError
from logstore.fs import LOCAL
from logstore.log import file_names, shipped, storefile
from logstore.log.shipped import is_shipped
from logstore.store_path import is_uri, shown

PATH, PATHS = "path", "paths"  # Spark makes the second one of load([a, b]), as JSON
_WILDCARDS = "*?["
_FILE = "file:"


def several(given: Mapping[str, str]) -> bool:
    """Whether a load may have more than one store: it names a list or a pattern."""
    text = given.get(PATH, "")
    _check_place(text, PATH)
    return PATHS in given or _is_pattern(text)


def stores(given: Mapping[str, str]) -> tuple[str, ...]:
    """The stores of a load, each once: directories or URIs."""
    found: list[str] = []
    for text in _paths(given):
        found += _matching_stores(text)
    by_uuid: dict[bytes, str] = {}
    for path in found:
        uuid = _uuid(path)
        before = by_uuid.setdefault(uuid, path)
        if before is not path:
            how = "is named twice"
            if before != path:
                how = f"and {shown(before)} are the same store, or copies of one"
            raise OptionError(f"{shown(path)} {how}: its rows would come twice, so leave one out")
    return tuple(found)


def local(text: str, option: str) -> str:
    """The local directory that an option names, absolute; OptionError."""
    _check_place(text, option)
    if text.startswith(_FILE):
        path = unquote(text.removeprefix(_FILE))  # a `?` belongs to a pattern here
        if path.startswith("//"):
            host, _, below = path[2:].partition("/")
            path = f"/{below.lstrip('/')}" if host in ("", "localhost") else host
        if not path.startswith("/"):
            raise OptionError(
                f"option {option!r} must name a directory of this host from the root on, as in "
                f"file:///data/store, not {text!r}"
            )
        text = path
    elif "://" in text:
        raise OptionError(f"option {option!r} must be a local directory, not {shown(text)!r}")
    return str(Path(text).absolute())


def _check_place(text: str, option: str) -> None:
    """OptionError for what is neither a path nor a URI."""
    try:
        urlsplit(text)
    except ValueError as error:
        raise OptionError(f"option {option!r} is no URI, {error}: {shown(text)!r}") from None
    if "\0" in text:
        raise OptionError(f"option {option!r} has a null byte, as no path has: {text!r}")
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", text)
    if scheme and scheme[1] != "file":
        raise OptionError(
            f"option {option!r} lacks a slash behind its scheme: write {scheme[1]}://..., not "
            f"{text!r} (and ./{scheme[1]}:/... for a directory of this name)"
        )


def _paths(given: Mapping[str, str]) -> list[str]:
    if PATHS not in given:
        if not given.get(PATH):
            raise OptionError("option 'path' is missing: give a directory")
        return [given[PATH]]
    if PATH in given:
        raise OptionError("give either option 'path' or paths in load(...), not both")
    try:
        found = json.loads(given[PATHS])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise OptionError(f"the paths of load(...) are no list of directories: {given[PATHS]!r}")
    if not found:
        raise OptionError("load([]) names no store: give a directory")
    return found


def _matching_stores(text: str) -> list[str]:
    _check_place(text, PATH)
    if is_remote(text):
        found = shipped.matching(text) if _is_pattern(text) else [text]
        if not found:
            raise OptionError(f"option 'path': no store was shipped to where {shown(text)!r} finds")
        return found
    path = local(text, PATH)
    return [path] if _is_store(path) or not _is_pattern(path) else _matching(path)


def is_remote(path: str) -> bool:
    """Whether it is a URI, and no local path."""
    return is_uri(path) and not path.startswith("file:")


def _uuid(path: str) -> bytes:
    if is_remote(path) or is_shipped(Path(path)) or _is_being_shipped(Path(path)):
        return bytes.fromhex(shipped.place(path).published().uuid)
    return storefile.read(LOCAL, Path(path)).uuid


def _is_pattern(path: str) -> bool:
    if is_remote(path):
        return shipped.is_pattern(path)
    return any(each in path for each in _WILDCARDS)


def _is_store(path: str) -> bool:
    return LOCAL.exists(Path(path, file_names.STORE))


def _matching(pattern: str) -> list[str]:
    """The stores that a pattern finds, sorted. A directory with a log and no STORE is among them,
    and one with shipped objects and no manifest: opening it says what is wrong."""
    root, *parts = Path(pattern).parts
    found = [Path(root)]
    for part in parts:
        if _is_pattern(part):
            found = [each / name for each in found for name in _names(each, part)]
        else:
            found = [each / part for each in found]
    signs = (file_names.STORE, file_names.LOG, shipped.MANIFEST)
    kept = [
        str(each)
        for each in found
        if any(LOCAL.exists(each / name) for name in signs) or _is_being_shipped(each)
    ]
    if not kept:
        raise OptionError(f"option 'path': there is no store that {pattern!r} finds")
    return sorted(kept)


def _is_being_shipped(path: Path) -> bool:
    """Whether a first ship to a directory has sent objects, and has not published them yet."""
    if not LOCAL.exists(path / shipped.OBJECTS) or LOCAL.exists(path / shipped.MANIFEST):
        return False
    return any(map(shipped.is_object, _names(path / shipped.OBJECTS, "*")))


def _names(folder: Path, pattern: str) -> list[str]:
    """The names in a folder that match. As in a shell a leading dot must be in the pattern."""
    try:
        listed = LOCAL.names(folder)
    except NotAStoreError:  # a file
        return []
    return [
        name
        for name in listed
        if fnmatchcase(name, pattern) and (pattern[0] == "." or name[0] != ".")
    ]
