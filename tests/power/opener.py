"""A process that has the store open and does what it is told, one thing after the other.

Several of them stand for the processes of a real store: what one meets, the others must be told.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from tests.power.disks import die_with_parent

SEGMENT_BYTES = 4 << 20


class Answer(NamedTuple):
    """What came of it: a value, or an error's name, words and place."""

    value: Any = None
    error: str = ""
    said: str = ""
    segment: int | None = None
    offset: int | None = None
    typed: bool = True


class Opener:
    """One process; opened and closed by what it is told."""

    def __init__(self, path: Path) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, path), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, what: str, *args: Any, **options: Any) -> Answer:
        """Do it in that process."""
        self._ours.send((what, args, options))
        assert self._ours.poll(120), f"no answer to {what}"
        found: Answer = self._ours.recv()
        assert found.typed, found
        return found

    def end(self) -> None:
        """End the process as it is: what it has open is not closed."""
        self._process.kill()
        self._process.join()
        self._ours.close()


def _serve(told: Connection, path: Path) -> None:
    die_with_parent()
    store: Any = None
    while True:
        what, args, options = told.recv()
        try:
            if what == "open":
                store = logstore.open(path, segment_bytes=SEGMENT_BYTES, lock_timeout=30, **options)
                answer = Answer(store.recovery)
            elif what == "close":
                store.close()
                answer = Answer()
            else:
                answer = Answer(_DO[what](store, *args, **options))
        except logstore.Error as exc:
            answer = Answer(
                None, type(exc).__name__, str(exc), getattr(exc, "segment", None),
                getattr(exc, "offset", None),
            )  # fmt: skip
        except BaseException as exc:  # noqa: BLE001  told, and so the test ends
            answer = Answer(None, type(exc).__name__, repr(exc), typed=False)
        told.send(answer)


def value(number: int) -> bytes:
    """What the entry of a number holds."""
    return b"%06d" % number * 300


def _add(store: Any, number: int) -> None:
    store.stream("a").add({"v": value(number)}, id=f"{number}-1")


def _numbers(store: Any, last: int = 1 << 60) -> list[int]:
    found: list[int] = []
    for entry in store.stream("a").range("-", (last, 1)):
        assert entry.fields[b"v"] == value(entry.id.ms)
        found.append(entry.id.ms)
    return found


_DO: dict[str, Any] = {
    "add": _add,
    "numbers": _numbers,
    "sync": lambda store: store.sync(),
    "durable": lambda store: store.durable_upto,
    "end": lambda store: store.info().as_dict(),
}
