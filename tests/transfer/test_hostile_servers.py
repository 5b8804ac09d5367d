"""Prevents a server that lies from writing into other streams, or holding an import for ever."""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logstore.api.store import Store
from logstore.errors import Error, PeerError
from logstore.transfer import (
    Follow,
    Server,
    Wanted,
    export_server,
    follow,
    import_server,
    peer_server,
)
from tests.transfer.hostile import (
    NOTHING,
    NULL,
    Answer,
    Hostile,
    Words,
    array,
    bulk,
    entry,
    facts,
    hostile,
    number,
)

MAP = b"%1\r\n$1\r\na\r\n:1\r\n"
SHAPES = [
    MAP, b"_\r\n", b"$-1\r\n", NULL, number(7), bulk(b"text"), array(number(1)),
    array(NULL, NULL), b"*2\r\n:1\r\n", b"$9999999999\r\nabc", b"$abc\r\n", b"*-7\r\n",
    b"*1\r\n" * 5000, b":" + b"9" * 5000 + b"\r\n", b"!!\r\n", b"$4\r\nabcdef\r\n",
    array(bulk(b"0"), bulk(b"x")), array(*[number(1)] * 5), array(array(NOTHING, NOTHING)),
]  # fmt: skip
# Answers that say that there is nothing, or that are as good as the right one.
MEANT = {
    "DUMP": (b"$-1\r\n", NULL, bulk(b"text")), "XREAD": (b"$-1\r\n", NULL),
    "XRANGE": (), "SCAN": (), "XINFO STREAM": (), "XINFO GROUPS": (), "EXEC": (array(NULL, NULL),),
}  # fmt: skip


@pytest.fixture
def liar(store: Store[Any]) -> Iterator[Hostile]:
    """A server that is honest so far, and whose stream is not here yet."""
    store.stream("made").add({"a": 1}, id="1-1")
    payload = store.stream("made").dump()
    store.drop("made")
    store.stream("other").add({"mine": 1}, id="1-1")
    with hostile(payload) as server:
        yield server


def importing(store: Store[Any], liar: Hostile, **how: Any) -> None:
    """Import what is asked for."""
    with Server(liar.url, reply_s=0.4) as server:
        import_server(store, server, Wanted([b"pub*"]), **how)


def following(store: Store[Any], liar: Hostile, then: dict[str, Answer]) -> None:
    """Follow; the script changes when all is here."""
    stop = threading.Event()

    def progress() -> None:
        for _ in range(3000):
            if b"pub1" in store:
                liar.script.update(then)
                return
            stop.wait(0.01)

    thread = threading.Thread(target=progress)
    thread.start()
    threading.Timer(20.0, stop.set).start()
    try:
        with Server(liar.url, reply_s=0.4) as server:
            follow(store, server, Wanted([b"pub*"]), Follow(look_s=0.1), stop=stop)
    finally:
        stop.set()
        thread.join()


def refused(liar: Hostile, command: str, work: Callable[[], object]) -> PeerError:
    """It must end with an error that names the server and the command."""
    with pytest.raises(PeerError) as found:
        work()
    text = str(found.value)
    assert f"127.0.0.1:{liar.port}" in text
    assert command.split(maxsplit=1)[0] in text or "went away" in text, text
    return found.value


def untouched(store: Store[Any]) -> None:
    """What is here is as it was."""
    assert [each.pairs for each in store.stream("other")] == [[(b"mine", b"1")]]
    assert not [name for name in store.streams() if name not in (b"other", b"pub1")]


@pytest.mark.parametrize(
    "command", ["SCAN", "XINFO STREAM", "DUMP", "EXEC", "XRANGE", "XINFO GROUPS"]
)
def test_replies_of_other_shapes_are_typed_errors(
    store: Store[Any], liar: Hostile, command: str
) -> None:
    """Each names the server and the command, and nothing is changed here."""
    paged = command in {"XRANGE", "XINFO GROUPS"}
    for shape in SHAPES:
        if shape in MEANT[command]:
            continue
        liar.script = {command: shape}
        told = "PEXPIRETIME" if shape == array(bulk(b"0"), bulk(b"x")) else command
        refused(
            liar,
            told if command == "EXEC" else command,
            lambda: importing(store, liar, dump_max_bytes=0 if paged else 1 << 20),
        )
        assert store.streams() == [b"other"], shape
    untouched(store)


FOLLOWED: dict[str, Answer] = {
    "a name that was not asked for": array(array(bulk(b"other"), array(entry(b"2-1", b"a", b"1")))),
    "a name twice": array(*[array(bulk(b"pub1"), array(entry(b"2-1", b"a", b"1")))] * 2),
    "IDs that go backwards": array(
        array(bulk(b"pub1"), array(entry(b"3-1", b"a", b"1"), entry(b"2-1", b"a", b"1")))
    ),
    "what is here already": array(array(bulk(b"pub1"), array(entry(b"1-1", b"a", b"1")))),
    "odd fields": array(array(bulk(b"pub1"), array(entry(b"2-1", b"a", b"1", b"b")))),
    "no fields": array(array(bulk(b"pub1"), array(entry(b"2-1")))),
    "no ID": array(array(bulk(b"pub1"), array(entry(b"2-x", b"a", b"1")))),
    "more than was asked for": array(
        array(bulk(b"pub1"), array(*[entry(b"%d-1" % at, b"a", b"1") for at in range(2, 1003)]))
    ),
}


@pytest.mark.parametrize("why", FOLLOWED)
def test_unrequested_replies_are_refused(store: Store[Any], liar: Hostile, why: str) -> None:
    """Neither into another stream, nor twice, nor out of order."""
    lie = FOLLOWED[why]
    refused(liar, "XREAD", lambda: following(store, liar, {"XREAD": lie}))
    untouched(store)
    assert [str(each.id) for each in store.stream("pub1")] == ["1-1"]


def test_one_lie_of_many_replies_stops_all_of_them(store: Store[Any], liar: Hostile) -> None:
    """The second look, in one MULTI, is held against what was asked for, too."""
    good = array(array(bulk(b"pub1"), array(entry(b"2-1", b"a", b"1"))))
    bad = array(
        array(bulk(b"pub1"), array(entry(b"2-1", b"a", b"1"))),
        array(bulk(b"other"), array(entry(b"2-1", b"a", b"1"))),
    )

    def answer(words: Words) -> bytes:
        return good if b"BLOCK" in words else bad

    then: dict[str, Answer] = {"XREAD": answer, "XINFO STREAM": facts(b"2-1", 2)}
    refused(liar, "XREAD", lambda: following(store, liar, then))
    untouched(store)
    assert [str(each.id) for each in store.stream("pub1")] == ["1-1"]


@pytest.mark.parametrize("shape", [MAP, number(7), bulk(b"text"), array(number(1)), b"*1\r\n" * 99])
@pytest.mark.parametrize("command", ["XREAD", "XINFO STREAM", "XINFO GROUPS", "SCAN", "EXEC"])
def test_shapes_while_it_is_followed(
    store: Store[Any], liar: Hostile, command: str, shape: bytes
) -> None:
    news: dict[str, Answer] = {}
    if command == "EXEC":
        news["XREAD"] = array(array(bulk(b"pub1"), array(entry(b"2-1", b"a", b"1"))))
    refused(liar, command, lambda: following(store, liar, {**news, command: shape}))
    untouched(store)


def test_a_scan_that_never_ends_is_ended(store: Store[Any], liar: Hostile) -> None:
    """The same cursor again; always another one without another key; keys without end."""
    numbers = itertools.count(1)

    def keys(prefix: bytes) -> Callable[[Words], bytes]:
        return lambda _: array(
            bulk(b"%d" % next(numbers)), array(bulk(prefix + b"%d" % next(numbers)))
        )

    answers: list[Answer] = [
        array(bulk(b"5"), array(bulk(b"pub1"))),
        lambda _: array(bulk(b"%d" % next(numbers)), NOTHING),
        keys(b"pub"),
    ]  # fmt: skip
    for answer in answers:
        liar.script = {"SCAN": answer}
        refused(liar, "SCAN", lambda: importing(store, liar))
    assert len(liar.seen) < 5000
    untouched(store)


def test_a_forged_header_takes_no_memory(
    store: Store[Any], liar: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a reply that does not end, in bytes or in items."""
    monkeypatch.setattr(peer_server, "SMALL_REPLY_MAX_BYTES", 4 << 20)
    endless = [
        b"$99999999\r\n", b"*99999999\r\n", b"*1000000\r\n" + b"*0\r\n" * 1_000_000,
        b"+" + b"x" * (9 << 20), b"$8388608\r\n" + b"x" * 8_388_610,
        b"*70000\r\n" + b":1\r\n" * 70_000,
    ]  # fmt: skip
    with Server(liar.url, reply_s=0.4) as server:
        server.call("DBSIZE")
        for reply in endless:
            liar.script = {"DBSIZE": reply}
            tracemalloc.start()
            try:
                refused(liar, "DBSIZE", lambda: server.call("DBSIZE"))
                assert tracemalloc.get_traced_memory()[1] < 40 << 20, reply[:20]
            finally:
                tracemalloc.stop()
    untouched(store)


def test_pages_that_do_not_go_on_are_refused(store: Store[Any], liar: Hostile) -> None:
    """A thousand entries, the same again and again."""
    page = array(*[entry(b"%d-1" % at, b"a", b"1") for at in range(1, 1001)])
    liar.script = {"XRANGE": page}
    refused(liar, "XRANGE", lambda: importing(store, liar, dump_max_bytes=0))
    assert store.streams() == [b"other"]


@pytest.mark.parametrize("shape", [MAP, NULL, number(7), array(number(1))])
def test_an_export_reads_no_better(store: Store[Any], liar: Hostile, shape: bytes) -> None:
    for command in ("INFO", "EXISTS", "RESTORE"):
        if command == "EXISTS" and shape == number(7):
            continue  # it has such a key, then, and that is the same
        liar.script = {command: shape}
        with Server(liar.url, reply_s=0.4) as server, pytest.raises(Error):
            export_server(store, server, Wanted(prefix=b"new:"))
    untouched(store)
