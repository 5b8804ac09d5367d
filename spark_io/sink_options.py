"""Options of the Spark sinks, checked before a task begins.

Invariants: an option that is not known, or whose value cannot be, is an OptionError that names it;
what is returned is plain data and can be sent anywhere. Opens nothing but the STORE file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from logstore.errors import OptionError
from logstore.fs import LOCAL
from logstore.log import storefile
from logstore.options import StoreLimits
from logstore.spark_io import source_options
from logstore.tuples import NamedTuple

KNOWN = ("path", "stream", "idColumn", "ifExists", "producer", "checkpointLocation")
APPEND, ERROR, IGNORE = "append", "error", "ignore"  # of ifExists
_LOWER = {name.lower(): name for name in KNOWN}
_OF_SPARK = ("queryname", "outputmode")  # what DataStreamWriter may hand over of its own


class SinkOptions(NamedTuple):
    """Where rows go. ``stream`` is empty if a column says it."""

    path: str
    limits: StoreLimits
    stream: str
    id_column: str
    if_exists: str
    producer: str
    checkpoint: str


def of_table(options: Mapping[str, str]) -> dict[str, str]:
    """What of a table's options says where rows go; the others say what is read of it."""
    return {key: value for key, value in options.items() if key in ("path", "stream")}


def parse(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write, checked."""
    given = source_options.given_by_user(options)
    if not given:
        raise OptionError(
            "no options: give at least 'path'. (Of a table that was created with columns of its "
            "own Spark hands none over: write a DataFrame instead)"
        )
    for key in given:
        if key not in _LOWER and key not in _OF_SPARK:
            near = difflib.get_close_matches(key, _LOWER, 1)
            hint = f"did you mean '{_LOWER[near[0]]}'? " if near else ""
            raise OptionError(f"no option {key!r} of a write; {hint}There are {', '.join(KNOWN)}")
    path = source_options.directory(given, "path")
    store = storefile.read(LOCAL, Path(path))
    exists = given.get("ifexists", APPEND)
    if exists not in (APPEND, ERROR, IGNORE):
        raise OptionError(f"option 'ifExists' is append, error or ignore, not {exists!r}")
    producer = given.get("producer", "")
    if streaming and not producer:
        raise OptionError(
            "option 'producer' is missing: a name of your own for this streaming query, under "
            "which the store remembers its last batch, so that a batch that is repeated is not "
            "written twice"
        )
    if not streaming and producer:
        raise OptionError("option 'producer' is for streaming queries: leave it out")
    if streaming and exists != APPEND:
        raise OptionError("option 'ifExists' is for batch writes: leave it out")
    return SinkOptions(
        path,
        store.limits,
        given.get("stream", ""),
        given.get("idcolumn", ""),
        exists,
        producer,
        given.get("checkpointlocation", ""),
    )
