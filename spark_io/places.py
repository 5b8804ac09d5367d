"""Which stores a load names: one directory or URI, several, or those that a pattern finds.

Invariants: a store is read once, whatever it is called by: one that is named twice, or a copy of
another one, is an OptionError, for its rows would come twice. A pattern that finds no store is one,
too. Opens nothing but STORE files, and of what was shipped its manifests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from logstore.errors import NotAStoreError, OptionError
from logstore.fs import LOCAL
from logstore.log import file_names, shipped, storefile
from logstore.log.shipped import is_shipped
from logstore.uri_path import is_uri, shown

PATH, PATHS = "path", "paths"  # Spark makes the second one of load([a, b]), as JSON
_WILD = "*?["


def several(given: Mapping[str, str]) -> bool:
    """Whether a load may have more than one store, by what it says: a list or a pattern."""
    return PATHS in given or _is_wild(given.get(PATH, ""))


def stores(given: Mapping[str, str]) -> tuple[str, ...]:
    """The stores of a load, each once: the places that `spark_io.stores` opens."""
    found: list[str] = []
    for text in _named(given):
        found += _found(text)
    by_uuid: dict[bytes, str] = {}
    for place in found:
        uuid = _uuid(place)
        before = by_uuid.setdefault(uuid, place)
        if before is not place:
            how = "is named twice"
            if before != place:
                how = f"and {shown(before)} are the same store, or copies of one"
            raise OptionError(f"{shown(place)} {how}: its rows would come twice, so leave one out")
    return tuple(found)


def local(text: str, option: str) -> str:
    """The local directory that an option names, absolute; OptionError."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(text.removeprefix("file:"))  # a `?` is a pattern here, and no query
        text = "/" + text.lstrip("/")
    elif "://" in text:
        raise OptionError(f"option {option!r} must be a local directory, not {shown(text)!r}")
    return str(Path(text).absolute())


def _named(given: Mapping[str, str]) -> list[str]:
    if PATHS not in given:
        if not given.get(PATH):
            raise OptionError("option 'path' is missing: give a directory")
        return [given[PATH]]
    if PATH in given:
        raise OptionError("give either option 'path' or paths in load(...), not both")
    try:
        found = json.loads(given[PATHS])
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise OptionError(f"the paths of load(...) are no list of directories: {given[PATHS]!r}")
    if not found:
        raise OptionError("load([]) names no store: give a directory")
    return found


def _found(text: str) -> list[str]:
    if is_remote(text):
        found = shipped.matching(text) if _is_wild(text) else [text]
        if not found:
            raise OptionError(f"option 'path': no store was shipped to where {shown(text)!r} finds")
        return found
    place = local(text, PATH)
    return [place] if _is_store(place) or not _is_wild(place) else _matching(place)


def is_remote(place: str) -> bool:
    """Whether it is a URI, and no local path."""
    return is_uri(place) and not place.startswith("file:")


def _uuid(place: str) -> bytes:
    if is_remote(place) or is_shipped(Path(place)) or _is_being_shipped(Path(place)):
        return bytes.fromhex(shipped.place(place).published().uuid)
    return storefile.read(LOCAL, Path(place)).uuid


def _is_wild(place: str) -> bool:
    if is_remote(place):
        return shipped.is_pattern(place)
    return any(each in place for each in _WILD)


def _is_store(place: str) -> bool:
    return LOCAL.exists(Path(place, file_names.STORE))


def _matching(pattern: str) -> list[str]:
    """The stores that a pattern finds, sorted. What is no store is left out, but not what has a log
    and no STORE, or objects of a ship and no manifest: opening it says what is wrong with it."""
    root, *parts = Path(pattern).parts
    found = [Path(root)]
    for part in parts:
        if _is_wild(part):
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


def _is_being_shipped(place: Path) -> bool:
    """Whether a first ship to a directory has sent something, and has not published it yet."""
    if not LOCAL.exists(place / shipped.OBJECTS) or LOCAL.exists(place / shipped.MANIFEST):
        return False
    return any(map(shipped.is_object, _names(place / shipped.OBJECTS, "*")))


def _names(folder: Path, pattern: str) -> list[str]:
    """As in a shell, what begins with a dot is only found by a pattern that does."""
    try:
        listed = LOCAL.names(folder)
    except NotAStoreError:  # a file
        return []
    return [
        name
        for name in listed
        if fnmatchcase(name, pattern) and (pattern[0] == "." or name[0] != ".")
    ]
