"""``logstore inspect hint`` and ``inspect checkpoint``: what an index is rebuilt from.

Invariants: they read the files alone, as recovery reads them; a file that recovery would pass over
is shown as invalid, with the reason, and ends the command with 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logstore import format as fmt
from logstore.errors import CorruptionError, UsageError
from logstore.fs import LOCAL
from logstore.log import checkpoint, hint, names
from logstore.tools.inspecting import INDENT, frame_row, line_of, plain, uuid_of
from logstore.tools.inspecting_index import typed
from logstore.tools.output import EXIT_ERROR, Output


def show_hint(output: Output, path: Path, number: int) -> None:
    """Write the hint of a segment."""
    if not LOCAL.exists(names.hint(path, number)):
        there = ", ".join(map(str, names.hints(LOCAL, path))) or "none"
        raise UsageError(f"segment {number} has no hint; there are: {there}")
    found = hint.inspected(LOCAL, path, uuid_of(path), number)
    if found is None:
        output.exit_code = EXIT_ERROR
        size = LOCAL.size_bytes(names.hint(path, number))
        rows: list[dict[str, Any]] = [
            {"what": "invalid", "offset": 0, "end": size, "why": "it is passed over"}
        ]
    else:
        rows = [
            {"what": "head", "offset": 0, "end": fmt.HINT_HEAD.size,
             "segment_bytes": found.segment_bytes, "joined": found.joined,
             "frames": len(found.frames)},
            *map(frame_row, found.frames),
        ]  # fmt: skip
    _show(output, rows)


def show_checkpoint(output: Output, path: Path, position: int | None) -> None:
    """Write the checkpoint of a position, or the newest."""
    positions = names.checkpoints(LOCAL, path)
    if not positions:
        raise UsageError("the store has no checkpoint: 'logstore checkpoint' takes one")
    if position not in (None, *positions):
        there = ", ".join(map(str, positions))
        raise UsageError(f"there is no such checkpoint; there are: {there}")
    chosen = position or positions[-1]
    if position is None and len(positions) > 1 and not output.json:
        output.words(f"older ones: {', '.join(map(str, positions[:-1]))}")
    try:
        head, chunks = checkpoint.read(LOCAL, path, uuid_of(path), chosen)
    except CorruptionError as exc:
        output.exit_code = EXIT_ERROR
        size = LOCAL.size_bytes(names.checkpoint(path, chosen))
        _show(output, [{"what": "invalid", "offset": 0, "end": size, "why": exc.message}])
        return
    fits = checkpoint.fits_log(LOCAL, path, uuid_of(path), head)
    segment, offset = fmt.position_parts(head.position)
    shown = {**head._asdict(), "segment": segment, "offset": offset, "fits_the_log": fits}
    output.exit_code = 0 if fits else EXIT_ERROR
    if output.json:
        output.json_object({"what": "head", **shown})
        for number, row in enumerate(_chunks(chunks)):
            output.json_object({"what": "chunk", "number": number, **row})
        return
    output.report({name: typed(shown, name) for name in shown}, raw=True)
    output.line("")
    rows = [[number, row["kind"], row["rows"]] for number, row in enumerate(_chunks(chunks))]
    output.table(("chunk", "kind", "rows"), rows)


def _chunks(chunks: list[Any]) -> Iterator[dict[str, Any]]:
    """Each chunk: its kind, how many rows it has, and what stands beside them."""
    for chunk in chunks:
        beside = {name: plain(chunk[name]) for name in chunk if name not in {"kind", "rows"}}
        yield {"kind": chunk.get("kind", ""), "rows": len(chunk.get("rows", ())), **beside}


def _show(output: Output, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if output.json:
            output.json_object(row)
        else:
            output.words(line_of(row), INDENT)
