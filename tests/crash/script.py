"""A scripted workload and its model: what the store must hold after each step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.options import Sync

State = dict[bytes, list[tuple[str, bytes]]]
LIMITS: dict[str, int] = {"segment_bytes": 64 * 1024, "node_max_entries": 4}


class ScriptStep(NamedTuple):
    """One operation and what it does to the model; ``states`` are those that a cut may leave."""

    name: str
    do: Callable[[logstore.Store[bytes]], Any]
    model: Callable[[State], None]
    commits: int = 1


def _value(number: int, size: int = 30) -> bytes:
    return (b"%06d" % number) * (size // 6 + 1)


def add(stream: str, number: int, size: int = 30) -> ScriptStep:
    """One entry with an ID of its number."""

    def model(state: State) -> None:
        entries = state.setdefault(stream.encode(), [])
        entries.append((f"{number}-1", _value(number, size)))

    return ScriptStep(
        f"add {number}",
        lambda store: store.stream(stream).add({"v": _value(number, size)}, id=f"{number}-1"),
        model,
    )


def add_many(stream: str, first: int, count: int) -> ScriptStep:
    """A batch in one commit."""

    def model(state: State) -> None:
        for number in range(first, first + count):
            add(stream, number).model(state)

    rows = [(f"{number}-1", {"v": _value(number)}) for number in range(first, first + count)]
    return ScriptStep(
        f"add_many {first}", lambda store: store.stream(stream).add_many(rows), model
    )  # fmt: skip


def delete(stream: str, *numbers: int) -> ScriptStep:
    """Entries by ID."""
    ids = [f"{number}-1" for number in numbers]

    def model(state: State) -> None:
        if stream.encode() in state:
            state[stream.encode()] = [row for row in state[stream.encode()] if row[0] not in ids]

    return ScriptStep(f"delete {numbers}", lambda store: store.stream(stream).delete(*ids), model)


def trim(stream: str, max_entries: int) -> ScriptStep:
    """All but the newest."""

    def model(state: State) -> None:
        entries = state.get(stream.encode(), [])
        del entries[: max(0, len(entries) - max_entries)]

    return ScriptStep(
        f"trim {max_entries}",
        lambda store: store.stream(stream).trim(max_entries=max_entries, approximate=False),
        model,
    )


def drop(stream: str) -> ScriptStep:
    """The stream goes."""

    def model(state: State) -> None:
        state.pop(stream.encode(), None)

    return ScriptStep(f"drop {stream}", lambda store: store.drop(stream), model)


def rename(old: str, new: str) -> ScriptStep:
    """A stream gets another name; who had it goes."""

    def model(state: State) -> None:
        if old.encode() in state:
            state[new.encode()] = state.pop(old.encode())

    return ScriptStep(f"rename {old} {new}", lambda store: store.rename(old, new), model)


def copied(source: str, target: str) -> ScriptStep:
    """A stream, once more under another name; who had it goes."""

    def model(state: State) -> None:
        if source.encode() in state:
            state[target.encode()] = list(state[source.encode()])

    return ScriptStep(
        f"copy {source} {target}", lambda store: store.copy(source, target, replace=True), model
    )


def expire(stream: str, *, past: bool) -> ScriptStep:
    """A stream is to expire in a century, or has."""

    def model(state: State) -> None:
        if past:
            state.pop(stream.encode(), None)

    when = datetime(1970, 1, 2, tzinfo=UTC) if past else 5_000_000_000_000
    return ScriptStep(f"expire {stream}", lambda store: store.stream(stream).expire(at=when), model)


def transaction(number: int, gone: int) -> ScriptStep:
    """Two adds and a delete, all or nothing."""

    def do(store: logstore.Store[bytes]) -> None:
        with store.transaction() as tx:
            tx.stream("a").add({"v": _value(number)}, id=f"{number}-1")
            tx.stream("b").add({"v": _value(number)}, id=f"{number}-1")
            tx.stream("a").delete(f"{gone}-1")

    def model(state: State) -> None:
        add("a", number).model(state)
        add("b", number).model(state)
        delete("a", gone).model(state)

    return ScriptStep(f"transaction {number}", do, model)


SCRIPT: tuple[ScriptStep, ...] = (
    add("a", 1), add("a", 2), add_many("b", 3, 10), add("c", 13), delete("a", 1),
    transaction(14, 2), add("a", 15, 30_000), add("a", 16, 30_000), add("a", 17, 30_000),
    delete("b", 3, 4, 5, 6, 7), trim("b", 3), drop("c"), add_many("a", 18, 6), trim("a", 4),
    add("c", 24), transaction(25, 23), add("b", 26, 50_000), add("b", 27, 50_000), delete("b", 26),
    copied("b", "c"), expire("c", past=False), rename("c", "a"), expire("b", past=True),
)  # fmt: skip


def states(script: tuple[ScriptStep, ...] = SCRIPT) -> list[State]:
    """The state before the script and after each step."""
    found: list[State] = [{}]
    for step in script:
        state = copy.deepcopy(found[-1])
        step.model(state)
        found.append(state)
    return found


def dump(store: logstore.Store[bytes]) -> State:
    """What a store holds, read in both directions and counted."""
    found: State = {}
    for name in store.streams():
        stream = store.stream(name)
        rows = [(str(entry.id), entry.fields[b"v"]) for entry in stream.range()]
        back = [(str(entry.id), entry.fields[b"v"]) for entry in stream.range(reverse=True)]
        assert rows == back[::-1]
        assert len(stream) == len(rows)
        found[name] = rows
    return found


def open_store(path: Path, sync: Sync) -> logstore.Store[bytes]:
    """Without threads of its own, so that operations are counted alike in every run."""
    if (path / "STORE").exists():
        return logstore.open(path, sync=sync, background=False)
    return logstore.open(path, sync=sync, background=False, **LIMITS)


def files(path: Path) -> dict[str, bytes]:
    """The log and the marker, byte for byte."""
    found = [*(path / "log").iterdir(), path / "STORE"]
    return {each.name: each.read_bytes() for each in found}
