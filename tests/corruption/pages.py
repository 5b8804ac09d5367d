"""A process that has a store open while pages of its index are overwritten under it.

Run as `python -m tests.corruption.pages STORE TRUTH`. It opens the store, says "open" on a line and
waits for one on stdin; then reads everything, adds to every stream, reads again, closes, and prints
what it saw as one JSON object. What it read is held against the truth here: only counts go out.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.dump import export
from logstore.rdb.value import StreamInfoValue
from tests.corruption.shop import Shop


class Reader:
    """Asks, and counts the answers: right, refused (a typed error), absent, wrong."""

    def __init__(self, store: logstore.Store[Any], truth: Shop) -> None:
        self._store, self._truth = store, truth
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.absences: Counter[str] = Counter()

    def ask(self, what: str, question: Callable[[], Any], expected: Any, absent: Any) -> None:
        """One question; ``absent`` is the answer that says that there is nothing."""
        try:
            found = question()
        except logstore.Error:
            self.seen["refused"] += 1
            return
        if found == expected:
            self.seen["right"] += 1
        elif found == absent or less(found, expected):
            self.seen["absent"] += 1
            kind = what.rpartition(" ")[2]
            self.absences["get" if "-" in kind else kind] += 1
        else:
            self.seen["wrong"] += 1
            self.wrong.append(f"{what}: {found!r:.300} and not {expected!r:.300}")

    def everything(self) -> None:
        """By ID, by range, and what else is known of each stream."""
        for name, live in self._truth.live.items():
            stream = self._store.stream(name)
            for id, pairs in list(live.items())[::5]:
                self.ask(f"{name!r} {id}", lambda s=stream, i=id: _pairs(s.get(i)), pairs, None)
            self._range(name, live)
            info = _plain(self._truth.infos[name])
            self.ask(f"{name!r} info", lambda n=name: _info(self._store._engine(), n), info, None)
            settings = self._truth.settings[name]
            plain = type(settings)()
            self.ask(f"{name!r} settings", lambda s=stream: s.settings, settings, plain)
            kept = self._truth.scheduled[name]
            self.ask(
                f"{name!r} scheduled", lambda s=stream: [e.pairs for e in s.scheduled()], kept, []
            )

    def _range(self, name: bytes, live: dict[str, Any]) -> None:
        """Each entry once and in order; one that is missing counts as absent."""
        found: list[tuple[str, Any]] = []
        try:
            found.extend((str(entry.id), entry.pairs) for entry in self._store.stream(name))
        except logstore.Error:
            self.seen["refused"] += 1
            live = {}  # who is told that it is not all of it misses nothing
        for id, pairs in found:
            if self._truth.live[name].get(id) == pairs:
                self.seen["right"] += 1
            elif self._truth.ever.get(name, {}).get(id) == pairs:
                self.seen["deleted"] += 1
            else:
                self.seen["wrong"] += 1
                self.wrong.append(f"{name!r} {id}: {pairs!r}")
        if len({id for id, _ in found}) < len(found):
            self.seen["twice"] += 1
        if len(live) > len(found):
            self.seen["absent"] += 1
            self.absences["range"] += 1

    def add(self) -> None:
        """An entry to each stream: refused, or there."""
        for name in self._truth.live:
            stream = self._store.stream(name)
            try:
                id = stream.add({b"after": b"damage"})
                found = _pairs(stream.get(id)) if id is not None else None
            except logstore.Error:
                self.seen["refused"] += 1
                continue
            good = found == [(b"after", b"damage")]
            self.seen["right" if good else "absent" if found is None else "wrong"] += 1


def less(found: Any, expected: Any) -> bool:
    """Whether an answer says nothing else than the truth, but not all of it."""
    if found == expected or found is None:
        return True
    if isinstance(found, dict) and isinstance(expected, dict):
        return all(key in expected and less(found[key], expected[key]) for key in found)
    if isinstance(found, list) and isinstance(expected, list):
        left = iter(expected)
        return all(any(less(each, one) for one in left) for each in found)
    return False


def _plain(info: StreamInfoValue) -> dict[str, Any]:
    """Groups and producers by name, pending entries by ID."""
    groups = {
        group.name: {
            "last": group.last, "read": group.entries_read, "nacked": group.nacked,
            "consumers": {each.name: tuple(each) for each in group.consumers},
            "pending": {
                group.pending.id_at(at): (
                    group.consumers[owner - 1].name if owner else b"",
                    group.pending.times[at], group.pending.counts[at],
                )
                for at, owner in enumerate(group.pending.owners)
            },
        }
        for group in info.groups
    }  # fmt: skip
    known = info.idempotence
    once = None if known is None else {who: dict(items) for who, items in known.producers}
    counts = (info.length, info.last, info.first, info.max_deleted, info.entries_added)
    return {"counts": counts, "groups": groups, "once": once}


def _pairs(entry: logstore.Entry[Any] | None) -> Any:
    return None if entry is None else entry.pairs


def _info(engine: Any, name: bytes) -> Any:
    try:
        return _plain(export.read(engine, name).info)
    except logstore.StreamNotFoundError:
        return None


def main(path: str, truth_file: str) -> None:
    """One run."""
    truth: Shop = pickle.loads(Path(truth_file).read_bytes())
    store = logstore.open(path, background=False)
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.readline()
    reader = Reader(store, truth)
    reader.everything()
    reader.add()
    try:
        store.close()
    except logstore.Error:
        reader.seen["close refused"] += 1
    sys.stdout.write(
        json.dumps(
            {"seen": dict(reader.seen), "wrong": reader.wrong, "absences": dict(reader.absences)}
        )
        + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])


PAGE = 4096


META_PAGES = 2


Damage = Callable[[bytearray, int, random.Random], None]


def bits(page: bytearray, at: int, rng: random.Random) -> None:
    """Three bits of a page."""
    for _ in range(3):
        page[at + rng.randrange(PAGE)] ^= 1 << rng.randrange(8)


def noise(page: bytearray, at: int, rng: random.Random) -> None:
    """The whole page."""
    page[at : at + PAGE] = rng.randbytes(PAGE)


def body(page: bytearray, at: int, rng: random.Random) -> None:
    """The rows, not the page's head and row table."""
    page[at + 300 : at + PAGE] = rng.randbytes(PAGE - 300)


def zeros(page: bytearray, at: int, _: random.Random) -> None:
    """The whole page."""
    page[at : at + PAGE] = bytes(PAGE)


def another(page: bytearray, at: int, rng: random.Random) -> None:
    """Another page of the same file: also an older state of the same page, which is a valid one."""
    source = rng.randrange(META_PAGES, len(page) // PAGE) * PAGE
    page[at : at + PAGE] = page[source : source + PAGE]


DAMAGES: dict[str, Damage] = {
    "bits of pages": bits, "rows of pages": body, "pages of noise": noise, "pages of zeros": zeros,
    "pages from elsewhere": another,
}  # fmt: skip
