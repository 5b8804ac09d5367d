"""Every argument of the public face with every odd value, and what comes of each.

``python -m tests.store.odd_arguments`` writes the outcomes to ``odd_arguments.txt``, which a test
compares, with each codec: a change there is a change of what users may give.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import logstore
from logstore import Error
from logstore.api.store import Store
from logstore.api.transaction import Steps, TransactionGroup, TransactionStream
from tests.support.inside import FixedClock
from tests.support.parameters import parameters

PINNED = Path(__file__).with_name("odd_arguments.txt")
NOW_MS = 1_700_000_000_000
ODD: dict[str, Any] = {
    "None": None, "True": True, "-2^63-1": -(2**63) - 1, "-1": -1, "0": 0, "1": 1,
    "2^31": 2**31, "2^63-1": 2**63 - 1, "2^63": 2**63, "2^64-1": 2**64 - 1, "2^64": 2**64,
    "10^5000": 10**5000, "0.5": 0.5, "-0.5": -0.5, "1e308": 1e308, "inf": float("inf"),
    "nan": float("nan"), "''": "", "'x'": "x", "'-'": "-", "'('": "(", "surrogate": "\ud800",
    "b''": b"", "b'255'": b"\xff", "list": [], "[None]": [None], "tuple": (), "dict": {},
    "{5: 5}": {5: 5}, "object": object(), "function": print, "naive": datetime(2024, 1, 1),  # noqa: DTZ001
    "year 1": datetime(1, 1, 1, tzinfo=UTC), "year 9999": datetime(9999, 12, 31, tzinfo=UTC),
    "longest": timedelta.max, "negative": timedelta(-1),
}  # fmt: skip
NO_SUCH = {"self", "args", "block"}  # block= is refused whatever it is
STOPPED = threading.Event()
STOPPED.set()


class Shop:
    """A store with a new stream for each call: three entries, a group with one of them pending."""

    def __init__(self, path: Path) -> None:
        self.clock = FixedClock(NOW_MS)
        self.store: Store[bytes] = logstore.open(
            path, sync="os", background=False, clock=self.clock
        )
        made = self.store.stream("first")
        made.add_many([(f"{ms}-1", {"n": ms}) for ms in (1, 2, 3)])
        made.group("g", "0").read("c", count=1)
        self.payload = made.dump()
        self._count = 0

    @property
    def name(self) -> str:
        """The name of the stream of the call at hand."""
        return f"s{self._count}"

    def renew(self) -> None:
        """Drop the stream of the last call, make one for the next."""
        for name in self.store.streams():
            self.store.drop(name)
        self._count += 1
        self.store.restore(self.name, self.payload)
        self.store._opened.on_dead.clear()

    def delivery(self) -> Any:
        """A delivery of the group."""
        return self.group().backlog("c")[0]

    def stream(self) -> Any:
        """The stream."""
        return self.store.stream(self.name)

    def group(self) -> Any:
        """The group."""
        return self.stream().group("g")


FIELDS = {"a": "b"}
# What must be given, by face and method; what may be left out is left out.
FACES: dict[type, tuple[Callable[[Shop], Any], dict[str, dict[str, Any]]]] = {
    logstore.Store: (lambda shop: shop.store, {
        "stream": {"name": "s"}, "create": {"name": "t"}, "drop": {"name": "t"},
        "rename": {"old": Shop.name, "new": "t"}, "copy": {"source": Shop.name, "target": "t"},
        "read": {"after": "after"}, "transaction": {}, "compact": {},
        "follow": {"after": "after", "timeout": 0},
        "__contains__": {"name": "t"},
        "__getitem__": {"name": "t"}, "on_dead_letter": {"callback": print},
        "restore": {"name": "t", "payload": "payload"}, "requeue": {"dead_letter": Shop.name},
    }),
    logstore.Stream: (Shop.stream, {
        "add": {"fields": FIELDS}, "add_many": {"rows": [FIELDS]}, "schedule": {"fields": FIELDS},
        "cancel": {"key": "1-1"}, "expire": {}, "persist": {}, "delete": {"ids": "1-1"},
        "delete_each": {"ids": "1-1"}, "delete_range": {"start": "1", "end": "2"},
        "trim": {"max_entries": 1}, "set_id": {"last_id": "9-9"}, "configure": {},
        "group": {"name": "h"},
        "get": {"id": "1-1"}, "__getitem__": {"id": "1-1"}, "__contains__": {"id": "1-1"},
        "count": {}, "describe": {}, "range": {}, "read": {"after": "0"},
        "follow": {"after": "0", "timeout": 0},
        "latest": {"key": "k"},
        "info_full": {}, "dump": {},
    }),
    logstore.Group: (Shop.group, {
        "create": {}, "set_id": {"last_id": "0"}, "destroy": {}, "add_consumer": {"consumer": "d"},
        "remove_consumer": {"consumer": "c"}, "configure": {}, "ack": {"ids": "1-1"},
        "nack": {"ids": "1-1"}, "ack_delete": {"ids": "1-1"}, "read": {"consumer": "c"},
        "backlog": {"consumer": "c"}, "claim": {"consumer": "c", "ids": "1-1", "min_idle": 0},
        "autoclaim": {"consumer": "c", "min_idle": 0},
        "reassign": {"min_idle": 0, "alive_within": 9},
        "consume": {"consumer": "c", "handler": print, "timeout": 0, "stop": STOPPED},
        "pending_entries": {},
    }),
    logstore.Delivery: (Shop.delivery, {"nack": {}}),
    logstore.Transaction: (lambda shop: shop.store.transaction(), {
        "stream": {"name": "t"}, "create": {"name": "t"}, "drop": {"name": "t"},
        "rename": {"old": Shop.name, "new": "t"}, "copy": {"source": Shop.name, "target": "t"},
        "ack": {"deliveries": "delivery"}, "nack": {"deliveries": "delivery"},
    }),
    TransactionStream: (lambda shop: shop.store.transaction().stream(shop.name), {
        "add": {"fields": FIELDS}, "add_many": {"rows": [FIELDS]}, "schedule": {"fields": FIELDS},
        "cancel": {"key": "1-1"}, "expire": {}, "persist": {}, "delete": {"ids": "1-1"},
        "delete_each": {"ids": "1-1"}, "delete_range": {"start": "1", "end": "2"},
        "trim": {"max_entries": 1}, "set_id": {"last_id": "9-9"}, "group": {"name": "h"},
    }),
    TransactionGroup: (lambda shop: shop.store.transaction().stream(shop.name).group("g"), {
        "destroy": {}, "create": {}, "set_id": {"last_id": "0"}, "add_consumer": {"consumer": "d"},
        "remove_consumer": {"consumer": "c"}, "ack": {"ids": "1-1"}, "nack": {"ids": "1-1"},
        "ack_delete": {"ids": "1-1"}, "claim": {"consumer": "c", "ids": "1-1", "min_idle": 0},
    }),
}  # fmt: skip
# Those that need another one beside them, or instead of what is given always.
BESIDE: dict[str, dict[str, Any]] = {
    "Stream.trim.min_id": {"max_entries": None}, "Stream.trim.max_age": {"max_entries": None},
    "Stream.trim.limit": {"approximate": True},
    "TransactionStream.trim.min_id": {"max_entries": None},
    "TransactionStream.trim.max_age": {"max_entries": None},
    "TransactionStream.trim.limit": {"approximate": True},
    "Stream.add.limit": {"max_entries": 1}, "Stream.add_many.limit": {"max_entries": 1},
    "Stream.add.idempotent_id": {"producer": "p"},
    "TransactionStream.add.idempotent_id": {"producer": "p"},
    "Stream.schedule.create": {"after": 1}, "Stream.schedule.sync": {"after": 1},
    "Stream.schedule.fields": {"after": 1}, "Stream.expire.only": {"after": 1},
    "Stream.expire.sync": {"after": 1}, "TransactionStream.schedule.fields": {"after": 1},
    "TransactionStream.schedule.create": {"after": 1},
    **{
        f"{face}.schedule.{option}": given
        for face in ("Stream", "TransactionStream")
        for option, given in {
            "every": {"name": "n"},
            "cron": {"name": "n"},
            "tz": {"name": "n", "cron": "* * * * *"},
            "name": {"every": 1000},
        }.items()
    },
    "TransactionStream.expire.only": {"after": 1},
    "Group.configure.max_deliveries": {"dead_letter": "dead"},
    "Group.configure.dead_letter": {"max_deliveries": 2},
    "Group.consume.max_deliveries": {"dead_letter": "dead"},
    "Group.consume.dead_letter": {"max_deliveries": 2},
}  # fmt: skip


def cases() -> Iterator[tuple[type, str, str]]:
    """Each argument: its face, its method, its name."""
    for face, (_, methods) in FACES.items():
        for method in methods:
            for name in parameters(getattr(face, method)):
                if name not in NO_SUCH:
                    yield face, method, name


def outcome(shop: Shop, face: type, method: str, name: str, value: Any) -> str:
    """What comes of this value: "ok", or the name of the error."""
    shop.renew()
    before = shop.store.metrics()["commits"]
    make, methods = FACES[face]
    named = {**methods[method], **BESIDE.get(f"{face.__name__}.{method}.{name}", {})}
    for key, given in named.items():
        if isinstance(given, property):
            named[key] = shop.name
        elif given == "after":
            named[key] = {shop.name: "0"}
        elif given == "payload":
            named[key] = shop.payload
        elif given == "delivery":
            named[key] = shop.delivery()
            before += 1
    named[name] = value
    try:
        made = make(shop)
        before = shop.store.metrics()["commits"]
        call = getattr(made, method)
        kinds = parameters(call)
        stars = [each for each, kind in kinds.items() if kind.kind is kind.VAR_POSITIONAL]
        if stars:
            first = [named.pop(each) for each in kinds if each in named and each not in stars
                     and kinds[each].kind is kinds[each].POSITIONAL_OR_KEYWORD]  # fmt: skip
            rest = [named.pop(each) for each in stars if each in named]
            found = call(*first, *rest, **named)
        else:
            found = call(**named)
        if isinstance(found, Iterator):
            list(itertools.islice(found, 3))
        steps = getattr(made, "_steps", None)
        if isinstance(steps, Steps):
            steps.commit()
    except Exception as error:  # noqa: BLE001  the name of what came is what is asked for
        changed = shop.store.metrics()["commits"] != before
        told = type(error).__name__
        if not isinstance(error, Error) and (type(error), method) != (KeyError, "__getitem__"):
            told = f"BARE {told} {str(error)[:80]!r}"
        return told + (" AND CHANGED" if changed else "")
    return "ok"


@contextmanager
def quiet() -> Iterator[None]:
    """What handlers print, and what is logged, is of no interest."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    out = sys.stdout
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        sys.stdout = nothing
        try:
            yield
        finally:
            sys.stdout = out
            logging.disable(before)


def lines(path: Path) -> list[str]:
    """All outcomes, a line for each argument and outcome."""
    told: list[str] = []
    shop = Shop(path)
    with quiet(), shop.store:
        for face, method, name in cases():
            by: dict[str, list[str]] = {}
            for label, value in ODD.items():
                by.setdefault(outcome(shop, face, method, name, value), []).append(label)
            for each, labels in sorted(by.items()):
                told.append(f"{face.__name__}.{method}({name}=) {each}: {', '.join(labels)}")
    return told


def main() -> None:
    """Write the outcomes of this engine."""
    with tempfile.TemporaryDirectory() as scratch:
        PINNED.write_text("\n".join(lines(Path(scratch) / "store")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
