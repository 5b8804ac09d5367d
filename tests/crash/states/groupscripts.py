"""Workloads on consumer groups, and on what stands beside entries: settings, schedules, more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import logstore
from logstore.engine.txn import pel
from logstore.index.group_keys import NOBODY
from logstore.log import file_names
from tests.crash.states.model import pairs, value
from tests.crash.states.scripts import CHECKPOINT, COMPACT, PURGE, REOPEN, add, batch, delete
from tests.crash.states.workload import Begun, Do, Session, Workload
from tests.model.groups import Group, Held
from tests.model.store import StoreModel
from tests.model.streams import Stream
from tests.support import inside
from tests.support.inside import START_MS, do_due_work

T = START_MS


def at_ms(ms: int, step: Do) -> Do:
    """A step at a time after the start."""

    def do(at: Session) -> object:
        at.clock.ms = T + ms
        return step.do(at)

    def model(model: StoreModel) -> object:
        model.now = T + ms
        return step.model(model)

    return step._replace(do=do, model=model)


def on(
    name: str, do: Any, model: Callable[[Group, Stream, int], object], group: str = "g"
) -> Do:  # fmt: skip
    """An operation on a group of stream ``s``; the model's has the group, its stream, the time."""

    def on_model(store: StoreModel) -> None:
        stream = store.streams[b"s"]
        model(stream.groups[group.encode()], stream, store.now)
        store.settle(b"s", group.encode())

    return Do(name, lambda at: do(at.store.stream("s").group(group)), on_model)


def make(group: str, start: tuple[int, int] = (0, 0)) -> Do:
    """A group."""

    def model(store: StoreModel) -> None:
        store.streams[b"s"].groups[group.encode()] = Group(start)

    return Do(f"create {group}", lambda at: at.store.stream("s").group(group).create(start), model)


def read(who: str, count: int, ms: int, group: str = "g") -> Do:
    """New entries for a consumer."""
    return at_ms(ms, on(
        f"read {who}", lambda of: of.read(who, count=count),
        lambda model, stream, now: model.read(stream, who.encode(), now, count=count), group,
    ))  # fmt: skip


def ack(*ns: int, group: str = "g") -> Do:
    """Done."""
    return on(
        f"ack {ns}", lambda of: of.ack(*((n, 1) for n in ns)),
        lambda model, stream, now: model.ack([(n, 1) for n in ns]), group,
    )  # fmt: skip


def nack(n: int, mode: str) -> Do:
    """Given back."""
    return on(
        f"nack {n} {mode}", lambda of: of.nack((n, 1), mode=mode),
        lambda model, stream, now: model.nack(stream, [(n, 1)], mode=mode),
    )  # fmt: skip


def put_off(n: int, ms: int, delay_ms: int, group: str = "g") -> Do:
    """Given back for later: nobody's, and idle for long enough when it is time; without an idle
    time to read by, idle from then on."""

    def model(model: Group, stream: Stream, now: int) -> None:
        model.consumer(NOBODY, now)
        count = model.pending[n, 1].count
        at = now + delay_ms * 2 ** (count - 1)
        if model.min_idle_ms is None:
            at = pel.due_of(pel.put_off_until(at))
        else:
            at -= model.min_idle_ms
        model.pending[n, 1] = Held(NOBODY, at, count)

    return at_ms(ms, on(
        f"put off {n}", lambda of: of.nack((n, 1), delay=delay_ms / 1000), model, group
    ))  # fmt: skip


def expecting(n: int) -> Do:
    """An add to a stream whose last ID is the one before; one that expects another is refused."""

    def do(at: Session) -> None:
        stream, row = at.store.stream("e"), {"v": value(n)}
        with suppress(logstore.LastIDConflictError):
            stream.add(row, f"{n}-1", expected_last_id=f"{n}-1")
            raise AssertionError("it expected another last ID")
        stream.add(row, f"{n}-1", expected_last_id=f"{n - 1}-1" if n > 1 else "0")

    return Do(f"expecting {n}", do, lambda model: model.add(b"e", pairs(n), (n, 1)))


def claim(who: str, n: int, ms: int) -> Do:
    """Taken over."""
    return at_ms(ms, on(
        f"claim {n}", lambda of: of.claim(who, (n, 1), min_idle=0),
        lambda model, stream, now: model.claim(stream, who.encode(), now, [(n, 1)], min_idle=0),
    ))  # fmt: skip


def autoclaim(who: str, count: int, ms: int) -> Do:
    """Taken over, those idle longest."""
    return at_ms(ms, on(
        f"autoclaim {who}", lambda of: of.autoclaim(who, min_idle=0.1, count=count),
        lambda model, stream, now: model.autoclaim(
            stream, who.encode(), now, min_idle=100, start=None, count=count),
    ))  # fmt: skip


def _work_steps() -> tuple[Do, Do]:
    """A read is a commit of its own; then both outcomes and the add are one."""

    def do_read(at: Session) -> None:
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

    def settle(model: StoreModel) -> None:
        stream = model.streams[b"s"]
        group = stream.groups[b"g"]
        done, back = group.of(b"tx")
        model.add(b"out", pairs(1), (1, 1))
        group.ack([done])
        group.nack(stream, [back])
        model.settle(b"s", b"g")

    return (
        at_ms(3000, Do("read tx", do_read, read("tx", 2, 3000).model)),
        Do("settle in a transaction", do_settle, settle),
    )


def _configured(model: Group, stream: Stream, now: int) -> None:
    model.max_deliveries, model.dead_letter, model.min_idle_ms = 3, b"dead", 60_000


def _set_id(model: Group, stream: Stream, now: int) -> None:
    model.last = (3, 1)


def _ack_delete(model: StoreModel) -> None:
    model.streams[b"s"].groups[b"g"].ack([(2, 1)])
    model.delete(b"s", [(2, 1)])


def _destroyed(model: StoreModel) -> None:
    del model.streams[b"s"].groups[b"h"]


GROUPS = (
    batch("s", 1, 9), make("g"), make("h", (2, 1)), read("a", 4, 100), read("h1", 3, 150, "h"),
    ack(3), nack(2, "fail"), nack(4, "silent"), put_off(5, 200, 5000, "h"), claim("b", 1, 300),
    at_ms(350, on("consumer", lambda of: of.add_consumer("idle"),
                  lambda model, stream, now: model.consumer(b"idle", now))),
    claim("c", 1, 400), CHECKPOINT, autoclaim("b", 2, 700),
    on("set_id", lambda of: of.set_id("3-1"), _set_id, "h"), add("s", 20, 30_000),
    on("configure", lambda of: of.configure(
        max_deliveries=3, dead_letter="dead", min_idle=60), _configured),
    Do("ack_delete", lambda at: at.store.stream("s").group("g").ack_delete("2-1"), _ack_delete),
    Do("delete with references", lambda at: at.store.stream("s").delete("4-1", references="delete"),
       lambda model: model.delete(b"s", [(4, 1)], "delete")),
    *_work_steps(), COMPACT, add("s", 21, 40_000),
    at_ms(4000, on("dead letter", lambda of: of.nack("1-1"),
                   lambda model, stream, now: model.nack(stream, [(1, 1)]))),
    on("fatal", lambda of: of.claim("d", "6-1", min_idle=0, retry_count=2, idle=1),
       lambda model, stream, now: model.claim(
           stream, b"d", now, [(6, 1)], min_idle=0, idle=1000, retry_count=2)),
    read("e", 3, 4100), put_off(8, 4200, 5000),
    on("remove consumer", lambda of: of.remove_consumer("h1"),
       lambda model, stream, now: model.remove_consumer(b"h1"), "h"),
    Do("destroy", lambda at: at.store.stream("s").group("h").destroy(), _destroyed),
    PURGE, REOPEN, delete("s", 7),
)  # fmt: skip


# -- beside the entries --------------------------------------------------------------------------
def configure(name: str, **given: Any) -> Do:
    """Settings of a stream; other limits of what is remembered forget it, as in Redis."""
    return Do(
        f"configure {name}", lambda at: at.store.stream(name).configure(**given),
        lambda model: model.configure(name.encode(), **given),
    )  # fmt: skip


def schedule(name: str, n: int, ms: int) -> Do:
    """An entry for later."""
    return Do(
        f"schedule {n}", lambda at: at.store.stream(name).schedule({"v": value(n)}, at=T + ms),
        lambda model: model.schedule(name.encode(), pairs(n), T + ms, n),
    )  # fmt: skip


def cancel(name: str, ms: int) -> Do:
    """One that waits, not any more."""

    def do(at: Session) -> None:
        (key,) = [
            each.key for each in at.store.stream(name).scheduled() if each.key.due_ms == T + ms
        ]
        assert at.store.stream(name).cancel(key)

    def model(model: StoreModel) -> None:
        stream = model.streams[name.encode()]
        stream.scheduled = [row for row in stream.scheduled if row[0] != T + ms]

    return Do("cancel", do, model)


def due(ms: int) -> Do:
    """All whose time has come by then: entries are added, streams dropped, in one commit."""
    return at_ms(ms, Do(
        "what is due", lambda at: do_due_work(at.store), lambda model: model.wake()
    ))  # fmt: skip


def once(n: int, ms: int) -> Do:
    """An idempotent add, or the same once more."""
    return at_ms(ms, Do(
        f"once {n}", lambda at: at.store.stream("p").add(
            {"v": value(n)}, producer="me", idempotent_id=f"n{n}"),
        lambda model: model.add_once(b"p", pairs(n), b"me", b"n%d" % n),
    ))  # fmt: skip


def once_many(first: int, count: int, ms: int) -> Do:
    """Idempotent adds in one commit."""
    rows = [(f"n{n}", {"v": value(n)}) for n in range(first, first + count)]

    def model(model: StoreModel) -> None:
        for n in range(first, first + count):
            model.add_once(b"p", pairs(n), b"you", b"n%d" % n)

    return at_ms(ms, Do(
        f"once {first} to {first + count}",
        lambda at: at.store.stream("p").add_many(rows, producer="you"), model,
    ))  # fmt: skip


def same_text(text: int, *ns: int) -> Do:
    """Entries of one key, in one commit."""

    def model(model: StoreModel) -> None:
        for n in ns:
            model.add(b"c", pairs(text), (n, 1))

    rows = [(f"{n}-1", {"v": value(text)}) for n in ns]
    return Do(f"add {ns}", lambda at: at.store.stream("c").add_many(rows), model)


def keep_newest(*replaced: int) -> Do:
    """What a newer entry of its key replaces goes, in one commit."""
    return Do(
        f"replace {replaced}", lambda at: inside.keep_newest(at.store),
        lambda model: model.delete(b"c", [(n, 1) for n in replaced]),
    )  # fmt: skip


def lives(n: int, length_ms: int) -> Do:
    """An entry with a time to live."""
    return Do(
        f"add {n} for {length_ms} ms", lambda at: at.store.stream("c").add(
            {"v": value(n)}, f"{n}-1", ttl=length_ms / 1000),
        lambda model: model.add(b"c", pairs(n), (n, 1)),
    )  # fmt: skip


def outlived(n: int, ms: int) -> Do:
    """Its time is over: it is deleted."""

    def model(model: StoreModel) -> None:
        model.delete(b"c", [(n, 1)])

    return at_ms(ms, Do(f"{n} expired", lambda at: do_due_work(at.store), model))


RETAIN = Do("retain", lambda at: at.store.retain(), lambda model: model.trim(b"r", 5, None))


def expire(name: str, ms: int | None) -> Do:
    """A stream that ends, or does not any more."""

    def do(at: Session) -> None:
        stream = at.store.stream(name)
        assert stream.persist() if ms is None else stream.expire(at=T + ms)

    def model(model: StoreModel) -> None:
        model.streams[name.encode()].expires_ms = 0 if ms is None else T + ms

    return Do(f"expire {name}", do, model)


def rename(old: str, new: str) -> Do:
    """Another name, in the place of a stream that may have it."""
    return Do(
        f"rename {old}", lambda at: at.store.rename(old, new),
        lambda model: model.rename(old.encode(), new.encode(), replace=True),
    )  # fmt: skip


def copy(source: str, target: str) -> Do:
    """A copy with its groups; settings of retention and schedules stay behind."""
    return Do(
        f"copy {source}", lambda at: at.store.copy(source, target, replace=True),
        lambda model: model.copy(source.encode(), target.encode(), replace=True),
    )  # fmt: skip


BESIDE = (
    batch("r", 1, 9, 300), configure("r", max_entries=3), RETAIN,
    schedule("r", 50, 1000), schedule("q", 51, 900), schedule("q", 52, 5000), CHECKPOINT,
    due(1500), once(60, 1600), once(60, 1700),
    once_many(61, 3, 1800), cancel("q", 5000), add("big", 70, 50_000), schedule("q", 53, 96_000),
    same_text(70, 70, 71), configure("c", compact_by=b"v"), keep_newest(70),
    same_text(70, 72), CHECKPOINT, keep_newest(71),
    configure("p", idempotent_max_ids=5), once(80, 1900), lives(74, 5000), CHECKPOINT,
    lives(75, 2000), outlived(75, 4000), outlived(74, 40_000), expire("r", 99_000),
    rename("q", "q2"), copy("p", "p2"), CHECKPOINT, rename("p2", "p"), add("big", 71, 50_000),
    expire("big", 90_000), expire("r", None), COMPACT, due(95_000), REOPEN,
    rename("r", "q2"), PURGE, add("q2", T + 5000),
)  # fmt: skip


# -- schemas -------------------------------------------------------------------------------------
def schema(name: str, text: str | None) -> Do:
    """The columns of a stream, or none."""

    def model(model: StoreModel) -> None:
        model.streams[name.encode()].schema = text

    return Do(f"schema {text}", lambda at: at.store.stream(name).configure(schema=text), model)


SCHEMAS = (
    add("s", 1), schema("s", "v string"), add("s", 2), CHECKPOINT, add("t", 1),
    schema("s", "v string, w int?"), add("s", 3), copy("s", "c"), rename("s", "s2"),
    schema("t", "*"), CHECKPOINT, schema("c", "v binary, *"), add("c", 4), schema("s2", None),
    add("s2", 5), COMPACT, schema("s2", "v binary"), REOPEN, add("s2", 6),
)  # fmt: skip


# -- again ---------------------------------------------------------------------------------------
def repeat(name: str, n: int, every_ms: int, called: str) -> Do:
    """An entry that comes again and again, or a change of it."""
    return Do(
        f"{called}: {n} each {every_ms} ms", lambda at: at.store.stream(name).schedule(
            {"v": value(n)}, every=every_ms / 1000, name=called),
        lambda model: model.repeat(name.encode(), pairs(n), every_ms, called),
    )  # fmt: skip


def stop(name: str, called: str) -> Do:
    """It repeats no longer."""

    def model(model: StoreModel) -> None:
        stream = model.streams[name.encode()]
        stream.scheduled = [each for each in stream.scheduled if each.name != called]

    return Do(f"stop {called}", lambda at: at.store.stream(name).cancel(name=called), model)


def requeue(*places: int) -> Do:
    """Dead letters go back to their stream, in one commit; without places all there are."""

    def do(at: Session) -> None:
        dead = [entry.id for entry in at.store.stream("dead").range()]
        at.store.requeue("dead", *(dead[place] for place in places))

    def model(model: StoreModel) -> None:
        dead = list(model.streams[b"dead"].entries)
        model.requeue(b"dead", [dead[place] for place in places or range(len(dead))])

    return Do(f"requeue {places}", do, model)


def _begun(path: Path) -> Begun:
    """Three dead letters, a stream that takes them back, and what repeats each second."""
    session = Session(path, "always")
    session.open()
    try:
        stream = session.store.stream("s")
        stream.add_many({"v": value(n)} for n in (1, 2, 3))
        group = stream.group("g", start="0")
        group.configure(max_deliveries=1, dead_letter="dead")
        for delivery in group.read("a", count=3):
            delivery.nack(error="no")
        session.store.stream("t").schedule({"v": value(50)}, every=1, name="tick")
        return Begun(session.content())
    finally:
        session.store.close()
        shutil.rmtree(
            path / file_names.INDEX / "1"
        )  # it was not recorded, so nobody is to trust it


AGAIN = (
    due(1500), repeat("t", 51, 1000, "tick"), requeue(1), repeat("u", 52, 700, "tock"),
    due(7200), CHECKPOINT, expecting(1), requeue(), stop("t", "tick"), due(8000), expecting(2),
)  # fmt: skip

WORKLOADS = (
    Workload("groups", GROUPS),
    Workload("beside the entries", BESIDE),
    Workload("schemas", SCHEMAS),
    Workload("again", AGAIN, begin=_begun),
)
