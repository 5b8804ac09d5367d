"""Workloads on consumer groups, and on what stands beside entries: settings, schedules, more."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from logstore.engine.runtime import background
from tests.crash.states.look import START_MS
from tests.crash.states.model import Model, value
from tests.crash.states.scripts import CHECKPOINT, COMPACT, PURGE, REOPEN, add, batch, delete, pairs
from tests.crash.states.workload import Do, Session, Workload

T = START_MS


def at_ms(ms: int, step: Do) -> Do:
    """A step at a time after the start."""

    def do(at: Session) -> object:
        at.clock.ms = T + ms
        return step.do(at)

    return step._replace(do=do)


def on(name: str, do: Any, model: Any, group: str = "g") -> Do:
    """An operation on a group of stream ``s``."""
    return Do(name, lambda at: do(at.store.stream("s").group(group)), model)


def make(group: str, start: str = "0") -> Do:
    """A group."""
    last = "0-0" if start == "0" else start
    return on(f"create {group}", lambda of: of.create(start),
              lambda model: model.make_group("s", group, last), group)  # fmt: skip


def read(who: str, count: int, ms: int, group: str = "g") -> Do:
    """New entries for a consumer."""
    return at_ms(ms, on(
        f"read {who}", lambda of: of.read(who, count=count),
        lambda model: model.read("s", group, who, T + ms, count), group,
    ))  # fmt: skip


def ack(*ns: int, group: str = "g") -> Do:
    """Done."""
    ids = [f"{n}-1" for n in ns]
    return on(
        f"ack {ns}", lambda of: of.ack(*ids), lambda model: model.ack("s", group, *ids), group
    )


def nack(n: int, mode: str, count: int, error: str = "") -> Do:
    """Given back; ``count`` is the delivery count after."""
    return on(
        f"nack {n} {mode}", lambda of: of.nack(f"{n}-1", mode=mode, error=error),
        lambda model: model.pend("s", "g", f"{n}-1", None, count, None),
    )  # fmt: skip


def claim(who: str, n: int, count: int, ms: int) -> Do:
    """Taken over."""
    return at_ms(ms, on(
        f"claim {n}", lambda of: of.claim(who, [f"{n}-1"], min_idle=0),
        lambda model: model.pend("s", "g", f"{n}-1", who, count, T + ms),
    ))  # fmt: skip


def autoclaim(who: str, rows: dict[int, int], ms: int) -> Do:
    """Taken over, those idle longest; the counts after."""

    def model(model: Model) -> None:
        for n, count in rows.items():
            model.pend("s", "g", f"{n}-1", who, count, T + ms)

    return at_ms(ms, on(
        f"autoclaim {who}", lambda of: of.autoclaim(who, min_idle=0.1, count=len(rows)), model
    ))  # fmt: skip


def _work_steps() -> tuple[Do, Do]:
    """A read is a commit of its own; then both outcomes and the add are one."""

    def do_read(at: Session) -> None:
        at.clock.ms = T + 3000
        one, two = at.store.stream("s").group("g").read("tx", count=2)
        at.kept = (one, two)  # type: ignore[attr-defined]

    def do_settle(at: Session) -> None:
        # Who was told that the read counts, and not what came, asks for it.
        kept = getattr(at, "kept", None)
        one, two = kept or at.store.stream("s").group("g").backlog("tx")
        with at.store.transaction() as tx:
            tx.stream("out").add({"v": value(1)}, id="1-1")
            tx.ack(one)
            tx.nack(two)

    def settle(model: Model) -> None:
        done, back = [row[0] for row in model.group("s", "g")["pending"] if row[1] == "tx"]
        model.add("out", "1-1", pairs(1))
        model.ack("s", "g", done)
        model.pend("s", "g", back, None, 1, None)

    return (
        Do("read tx", do_read, lambda model: model.read("s", "g", "tx", T + 3000, 2)),
        Do("settle in a transaction", do_settle, settle),
    )


def _buried(model: Model, n: int, who: str, count: int, error: str) -> None:
    """An entry of the group that went to its dead letter stream."""
    last = model.streams.get("dead", {"last": "0-0"})["last"]
    ms, seq = (int(part) for part in last.split("-"))
    id = f"{T + 4000}-{seq + 1 if ms == T + 4000 else 0}"
    model.ack("s", "g", f"{n}-1")
    model.add("dead", id, [
        *pairs(n), (b"origin_stream", b"s"), (b"origin_id", b"%d-1" % n), (b"origin_group", b"g"),
        (b"origin_consumer", who.encode()), (b"origin_delivery_count", b"%d" % count),
        (b"origin_error", error.encode()),
    ])  # fmt: skip


def _group_settings(model: Model) -> None:
    model.settings("s", "g", max_deliveries=3, dead_letter=b"dead", redeliver_after_ms=60_000)


def _ack_delete(model: Model) -> None:
    model.ack("s", "g", "2-1")
    model.delete("s", "2-1")


def _references(model: Model) -> None:
    for group in ("g", "h"):
        model.ack("s", group, "4-1")
    model.delete("s", "4-1")


def _destroyed(model: Model) -> None:
    del model.streams["s"]["groups"]["h"]


def _set_id(model: Model) -> None:
    model.group("s", "h")["last"] = "3-1"


GROUPS = (
    batch("s", 1, 9), make("g"), make("h", "2-1"), read("a", 4, 100), read("h1", 3, 150, "h"),
    ack(3), nack(2, "fail", 1), nack(4, "silent", 0), claim("b", 1, 2, 300),
    at_ms(350, on("consumer", lambda of: of.add_consumer("idle"),
                  lambda model: model.consumer("s", "g", "idle"))),
    claim("c", 1, 3, 400), CHECKPOINT, autoclaim("b", {2: 2, 4: 1}, 700),
    on("set_id", lambda of: of.set_id("3-1"), _set_id, "h"), add("s", 20, 30_000),
    on("configure", lambda of: of.configure(
        max_deliveries=3, dead_letter="dead", redeliver_after=60), _group_settings),
    on("ack_delete", lambda of: of.ack_delete("2-1"), _ack_delete),
    Do("delete with references", lambda at: at.store.stream("s").delete("4-1", references="delete"),
       _references),
    *_work_steps(), COMPACT, add("s", 21, 40_000),
    at_ms(4000, on("dead letter", lambda of: of.nack("1-1"),
                   lambda model: _buried(model, 1, "c", 3, "given back at delivery 3"))),
    on("fatal", lambda of: of.claim("d", ["6-1"], min_idle=0, retry_count=2, idle=1),
       lambda model: model.pend("s", "g", "6-1", "d", 2, T + 3000)),
    read("e", 3, 4100),
    on("remove consumer", lambda of: of.remove_consumer("h1"),
       lambda model: model.remove_consumer("s", "h", "h1"), "h"),
    on("destroy", lambda of: of.destroy(), _destroyed, "h"), PURGE, REOPEN, delete("s", 7),
)  # fmt: skip


# -- beside the entries --------------------------------------------------------------------------
def configure(name: str, plain: dict[str, Any], **given: Any) -> Do:
    """Settings of a stream."""
    return Do(
        f"configure {name}", lambda at: at.store.stream(name).configure(**given),
        lambda model: model.settings(name, **plain),
    )  # fmt: skip


def bounded(name: str, most: int) -> Do:
    """How many idempotent IDs are remembered; what was is forgotten with a change, as in Redis."""

    def model(model: Model) -> None:
        model.settings(name, idempotent_max_ids=most)
        _, _, added, twice = model.make(name)["producers"]
        model.produced(name, ids=0, producers=0, added=added, twice=twice)

    step = configure(name, {}, idempotent_max_ids=most)
    return step._replace(model=model)


def schedule(name: str, n: int, ms: int) -> Do:
    """An entry for later."""
    return Do(
        f"schedule {n}", lambda at: at.store.stream(name).schedule({"v": value(n)}, at=T + ms),
        lambda model: model.schedule(name, T + ms, pairs(n)),
    )  # fmt: skip


def cancel(name: str, ms: int) -> Do:
    """One that waits, not any more."""

    def do(at: Session) -> None:
        (key,) = [
            each.key for each in at.store.stream(name).scheduled() if each.key.due_ms == T + ms
        ]
        assert at.store.stream(name).cancel(key)

    return Do("cancel", do, lambda model: model.unschedule(name, T + ms))


def due(rows: list[tuple[str, int]], ms: int) -> Do:
    """All that is due by then is added, in one commit."""

    def do(at: Session) -> None:
        while not background.sleep_within(at.store._engine(), 1.0):
            pass

    def model(model: Model) -> None:
        seq: dict[str, int] = {}
        for name, due_ms in rows:
            seq[name] = seq.get(name, -1) + 1
            model.add(name, f"{T + ms}-{seq[name]}", model.unschedule(name, T + due_ms))

    return at_ms(ms, Do("what is due", do, model))


def once(n: int, ms: int, *, again: bool = False) -> Do:
    """An idempotent add, or the same once more."""

    def model(model: Model) -> None:
        _, ids, added, twice = model.make("p")["producers"]
        if not again:
            model.add("p", f"{T + ms}-0", pairs(n))
        new = 0 if again else 1
        model.produced("p", ids=ids + new, producers=1, added=added + new, twice=twice + 1 - new)

    return at_ms(ms, Do(
        f"once {n}", lambda at: at.store.stream("p").add(
            {"v": value(n)}, producer="me", idempotent_id=f"n{n}"), model,
    ))  # fmt: skip


def once_many(first: int, count: int, ms: int) -> Do:
    """Idempotent adds in one commit."""

    def model(model: Model) -> None:
        _, ids, added, twice = model.make("p")["producers"]
        for place in range(count):
            model.add("p", f"{T + ms}-{place}", pairs(first + place))
        model.produced("p", ids=ids + count, producers=2, added=added + count, twice=twice)

    rows = [(f"n{n}", {"v": value(n)}) for n in range(first, first + count)]
    return at_ms(ms, Do(
        f"once {first} to {first + count}",
        lambda at: at.store.stream("p").add_many(rows, producer="you"), model,
    ))  # fmt: skip


def _retained(model: Model) -> None:
    model.trim("r", 5)


RETAIN = Do("retain", lambda at: at.store.retain(), _retained)


def expire(name: str, ms: int | None) -> Do:
    """A stream that ends, or does not any more."""

    def do(at: Session) -> None:
        stream = at.store.stream(name)
        assert stream.persist() if ms is None else stream.expire(at=T + ms)

    def model(model: Model) -> None:
        model.streams[name]["expires"] = None if ms is None else T + ms

    return Do(f"expire {name}", do, model)


def ended(name: str, ms: int) -> Do:
    """The time of a stream has come: it is dropped."""

    def do(at: Session) -> None:
        while not background.sleep_within(at.store._engine(), 1.0):
            pass

    return at_ms(ms, Do(f"{name} expired", do, lambda model: model.drop(name)))


def rename(old: str, new: str) -> Do:
    """Another name, in the place of a stream that may have it."""

    def model(model: Model) -> None:
        model.streams[new] = model.streams.pop(old)

    return Do(f"rename {old}", lambda at: at.store.rename(old, new), model)


def copy(source: str, target: str) -> Do:
    """A copy with its groups; settings of retention and schedules stay behind."""

    def model(model: Model) -> None:
        model.streams.pop(target, None)
        made = deepcopy(model.streams[source])
        kept = {key: each for key, each in made["settings"].items() if key.startswith("idem")}
        model.streams[target] = made | {"scheduled": [], "settings": kept}

    return Do(f"copy {source}", lambda at: at.store.copy(source, target, replace=True), model)


BESIDE = (
    batch("r", 1, 9, 300), configure("r", {"max_entries": 3}, max_entries=3), RETAIN,
    schedule("r", 50, 1000), schedule("q", 51, 900), schedule("q", 52, 5000), CHECKPOINT,
    due([("q", 900), ("r", 1000)], 1500), once(60, 1600), once(60, 1700, again=True),
    once_many(61, 3, 1800), cancel("q", 5000), add("big", 70, 50_000), schedule("q", 53, 96_000),
    bounded("p", 5), once(80, 1900), expire("r", 99_000),
    rename("q", "q2"), copy("p", "p2"), CHECKPOINT, rename("p2", "p"), add("big", 71, 50_000),
    expire("big", 90_000), expire("r", None), COMPACT, ended("big", 95_000), REOPEN,
    rename("r", "q2"), PURGE, add("q2", T + 5000),
)  # fmt: skip

WORKLOADS = (Workload("groups", GROUPS), Workload("beside the entries", BESIDE))
