"""Prevents replies that differ from the peers': the same words to both, every reply compared."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.wire.lines import Line, Reply
from tests.wire.served import serving

STEPS = int(os.environ.get("LOGSTORE_WIRE_STEPS", "4000"))
SEED = int(os.environ.get("LOGSTORE_SEED", "0")) or 20260722
KEYS = (b"a", b"b", b"c\xff")
GROUPS = (b"g", b"h")
CONSUMERS = (b"alice", b"bob", b"")
IDS = (
    b"1-1", b"1-2", b"2-0", b"2", b"3-5", b"4-18446744073709551615", b"5-0", b"6-1", b"7-7", b"8-0",
    b"9", b"12-3", b"0-0", b"0-1", b"99-99",
)  # fmt: skip
ODD = (
    b"", b"-", b"+", b"$", b">", b"*", b"(1-1", b"(5", b"(-", b"1-", b"-1", b"1-1-1", b"x", b"01-1",
    b"18446744073709551615-18446744073709551615", b"18446744073709551616", b"1-*", b" 1",
    b"(18446744073709551615-18446744073709551615", b"(0-0", b"0-*", b"1-x",
)  # fmt: skip
NUMBERS = (b"0", b"1", b"2", b"3", b"5", b"10")
ODD_NUMBERS = (b"-1", b"x", b"", b"01", b"+1", b"1.5", b"9223372036854775808", b"-0", b" 1")
SLACK_MS = 3000
Words = list[bytes]


class Draw:
    """Random words; now and then wrong ones."""

    def __init__(self, random_: random.Random, *, new: bool, destroys: bool) -> None:
        self.random = random_
        self.new = new  # the peer knows what Redis 8.2 added
        # After XGROUP DESTROY of the group that had read least, Redis 8.2.3 goes on to count it
        # among those that ACKED asks: not as here, so a run has either one or the other.
        self.destroys = destroys
        self._next = 1

    def one(self, *choices: bytes) -> bytes:
        return self.random.choice(choices)

    def maybe(self, *words: bytes, chance: float = 0.3) -> Words:
        return list(words) if self.random.random() < chance else []

    def key(self) -> bytes:
        return self.one(*KEYS)

    def id(self) -> bytes:
        return self.one(*(ODD if self.random.random() < 0.06 else IDS))

    def number(self) -> bytes:
        return self.one(*(ODD_NUMBERS if self.random.random() < 0.06 else NUMBERS))

    def ids(self) -> Words:
        return [self.id() for _ in range(self.random.randint(1, 4))]

    def block(self) -> Words:
        ids = self.ids()
        count = len(ids) if self.random.random() < 0.95 else self.random.randint(-1, 6)
        return [b"IDS", b"%d" % count, *ids]

    def references(self) -> Words:
        modes = [b"KEEPREF", b"DELREF", *([] if self.destroys else [b"ACKED"])]
        return [self.one(*modes)] if self.new and self.coin() else []

    def coin(self, chance: float = 0.3) -> bool:
        return self.random.random() < chance

    def trim(self) -> Words:
        strategy = self.one(b"MAXLEN", b"MINID", b"maxlen")
        words = [strategy, *self.maybe(self.one(b"~", b"="), chance=0.5)]
        words.append(self.id() if strategy == b"MINID" else self.number())
        if (words[1] == b"~" and self.coin()) or self.coin(0.05):
            words += [b"LIMIT", self.number()]
        if self.coin(0.02):
            words += [*self.references(), *self.references()]
        if self.coin(0.02):
            words = words[-2:] if b"LIMIT" in words else [b"LIMIT", self.number()]
        return words + self.references()

    def new_id(self) -> bytes:
        if self.coin(0.3):
            return self.id().replace(b"*", b"")  # of that moment: not the same at both
        self._next += self.random.randint(0, 2)
        return self.one(b"%d-%d" % (self._next, self.random.randint(0, 3)), b"%d-*" % self._next)


def _xadd(draw: Draw) -> Words:
    words = [b"XADD", draw.key(), *draw.maybe(b"NOMKSTREAM", chance=0.1)]
    if draw.coin(0.2):
        words += draw.trim()
    fields = [
        draw.one(b"f", b"g", b"", b"7", b"x" * 70) for _ in range(draw.one(b"1", b"2")[0] & 3)
    ]
    pairs = [part for field in fields for part in (field, draw.one(b"v", b"-12", b"", b"9" * 30))]
    return [*words, draw.new_id(), *pairs, *draw.maybe(b"odd", chance=0.02)]


def _range(draw: Draw) -> Words:
    command = draw.one(b"XRANGE", b"XREVRANGE", b"xrange")
    ends = [draw.one(draw.id(), b"-", b"+", b"(" + draw.one(*IDS)) for _ in range(2)]
    return [command, draw.key(), *ends, *draw.maybe(b"COUNT", draw.number())]


def _xread(draw: Draw) -> Words:
    count = draw.random.randint(1, 3)
    keys = draw.random.sample(KEYS, count)
    ids = [draw.one(draw.id(), b"$", b"0") for _ in keys]
    return [b"XREAD", *draw.maybe(b"COUNT", draw.number()), b"STREAMS", *keys, *ids,
            *draw.maybe(b"0", chance=0.02)]  # fmt: skip


def _xreadgroup(draw: Draw) -> Words:
    keys = draw.random.sample(KEYS, draw.random.randint(1, 2))
    ids = [draw.one(b">", b">", b">", b"0", draw.id()) for _ in keys]
    return [b"XREADGROUP", b"GROUP", draw.one(*GROUPS), draw.one(b"alice", b"bob"),
            *draw.maybe(b"COUNT", draw.number(), chance=0.6), *draw.maybe(b"NOACK", chance=0.15),
            b"STREAMS", *keys, *ids]  # fmt: skip


def _xgroup(draw: Draw) -> Words:
    sub = draw.one(b"CREATE", b"CREATE", b"SETID", b"CREATECONSUMER", b"DELCONSUMER",
                   b"DESTROY" if draw.destroys else b"CREATE", b"NONE", b"HELPX")  # fmt: skip
    words = [b"XGROUP", sub, draw.key(), draw.one(*GROUPS)]
    if sub in (b"CREATE", b"SETID"):
        words.append(draw.one(b"$", b"0", draw.id()))
        words += draw.maybe(b"MKSTREAM", chance=0.4 if sub == b"CREATE" else 0.02)
        words += draw.maybe(b"ENTRIESREAD", draw.number(), chance=0.2)
    elif sub in (b"CREATECONSUMER", b"DELCONSUMER"):
        words.append(draw.one(b"alice", b"bob"))
    return words if draw.coin(0.97) else words[:-1]


def _xack(draw: Draw) -> Words:
    return [b"XACK", draw.key(), draw.one(*GROUPS), *draw.ids()]


def _xackdel(draw: Draw) -> Words:
    return [b"XACKDEL", draw.key(), draw.one(*GROUPS), *draw.references(), *draw.block()]


def _xdel(draw: Draw) -> Words:
    return [b"XDEL", draw.key(), *draw.ids()]


def _xdelex(draw: Draw) -> Words:
    return [b"XDELEX", draw.key(), *draw.references(), *draw.block()]


def _xtrim(draw: Draw) -> Words:
    return [b"XTRIM", draw.key(), *draw.trim(), *draw.maybe(b"x", chance=0.02)]


def _xsetid(draw: Draw) -> Words:
    return [b"XSETID", draw.key(), draw.one(draw.id(), b"%d-0" % draw._next),
            *draw.maybe(b"ENTRIESADDED", draw.number()),
            *draw.maybe(b"MAXDELETEDID", draw.id())]  # fmt: skip


def _xpending(draw: Draw) -> Words:
    words = [b"XPENDING", draw.key(), draw.one(*GROUPS)]
    if draw.coin(0.6):
        words += draw.maybe(b"IDLE", draw.one(b"0", b"100000000"))
        words += [draw.one(b"-", draw.id(), b"(1-1"), draw.one(b"+", draw.id()), draw.number()]
        words += draw.maybe(draw.one(*CONSUMERS))
    return words


def _xclaim(draw: Draw) -> Words:
    words = [b"XCLAIM", draw.key(), draw.one(*GROUPS), draw.one(b"alice", b"bob"),
             draw.one(b"0", b"0", b"100000000", draw.number()), *draw.ids()]  # fmt: skip
    words += draw.maybe(b"IDLE", draw.number(), chance=0.1)
    words += draw.maybe(b"RETRYCOUNT", draw.number(), chance=0.2)
    words += draw.maybe(b"FORCE") + draw.maybe(b"JUSTID") + draw.maybe(b"LASTID", draw.id())
    return words + draw.maybe(b"NONE", chance=0.02)


def _xautoclaim(draw: Draw) -> Words:
    return [b"XAUTOCLAIM", draw.key(), draw.one(*GROUPS), draw.one(b"alice", b"bob"),
            draw.one(b"0", b"0", b"100000000"), draw.one(b"-", b"0", draw.id()),
            *draw.maybe(b"COUNT", draw.number()), *draw.maybe(b"JUSTID")]  # fmt: skip


def _info(draw: Draw) -> Words:
    what = draw.one(b"STREAM", b"GROUPS", b"CONSUMERS", b"STREAM")
    words = [b"XINFO", what, draw.key()]
    if what == b"CONSUMERS":
        words.append(draw.one(*GROUPS))
    elif what == b"STREAM" and draw.coin(0.4):
        words += [b"FULL", *draw.maybe(b"COUNT", draw.number())]
    return words


def _keys(draw: Draw) -> Words:
    return draw.random.choice([
        [b"XLEN", draw.key()], [b"EXISTS", *KEYS], [b"TYPE", draw.key()], [b"DBSIZE"],
        [b"OBJECT", b"ENCODING", draw.key()], [b"ECHO", b"x"], [b"PING"], [b"XLEN"],
        [b"XADD", draw.key(), b"*"], [b"NOSUCH", b"a", b"b"], [b"XGROUP"], [b"XINFO", b"NONE"],
        [b"SELECT", draw.one(b"0", b"x")], [b"XACK", b"a"], [b"CLIENT", b"GETNAME"],
    ])  # fmt: skip


def _delete(draw: Draw) -> Words:
    return [draw.one(b"DEL", b"UNLINK"), draw.key()] if draw.coin(0.2) else [b"MULTI"]


def _rename(draw: Draw) -> Words:
    words = [draw.one(b"RENAME", b"RENAMENX"), draw.key(), draw.key()]
    return words if draw.coin(0.97) else words[:-1]


def _copy(draw: Draw) -> Words:
    words = [b"COPY", draw.key(), draw.key()]
    words += draw.maybe(b"DB", draw.one(b"0", b"0", b"x", b"-1", b"99"), chance=0.2)
    return words + draw.maybe(b"REPLACE", chance=0.5) + draw.maybe(b"DB", chance=0.02)


FAR_S = 2_000_000_000


def _expire(draw: Draw) -> Words:
    """Times that are far away, or past."""
    command = draw.one(b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT")
    far = FAR_S * 1000 if command.startswith(b"P") else FAR_S
    when = draw.one(b"%d" % far, b"%d" % (far + 7), b"%d" % (far * 3 // 2))
    if draw.coin(0.1):
        when = draw.one(b"9223372036854775807", b"9223372036854775", b"9223372036854776",
                        b"-9223372036854775808", *ODD_NUMBERS)  # fmt: skip
    elif draw.coin(0.04):
        when = draw.one(b"0", b"-1", b"-1000000000000")
    words = [command, draw.key(), when]
    while draw.coin(0.3):
        words.append(draw.one(b"NX", b"XX", b"GT", b"LT", b"gt"))
    return words + draw.maybe(draw.one(b"ZZ", b"\xff"), chance=0.02)


def _when(draw: Draw) -> Words:
    return [draw.one(b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME", b"PERSIST"), draw.key()]


OLD: tuple[tuple[int, Callable[[Draw], Words]], ...] = (
    (30, _xadd), (10, _range), (10, _xread), (14, _xreadgroup), (8, _xgroup), (6, _xack),
    (5, _xdel), (4, _xtrim), (2, _xsetid), (6, _xpending), (6, _xclaim), (6, _xautoclaim),
    (8, _info), (4, _keys), (1, _delete), (1, _rename), (1, _copy), (3, _expire), (4, _when),
)  # fmt: skip
NEW = ((5, _xackdel), (5, _xdelex))


def _slack(words: Words) -> int:
    """By how much numbers of a reply may differ: 0 if it holds no times."""
    if words[0] in (b"TTL", b"EXPIRETIME"):
        return SLACK_MS // 1000
    timed = (b"XPENDING", b"XINFO", b"PTTL", b"PEXPIRETIME", b"EXEC")
    return SLACK_MS if words[0] in timed else 0


def without_lag(reply: Reply) -> Reply:
    """A reply without what Valkey computes by the rules of Redis 7: lag and entries-read."""
    if not isinstance(reply, list | tuple):
        return reply
    found = [without_lag(each) for each in reply]
    hidden = (b"lag", b"entries-read")
    return [
        None if place and found[place - 1] in hidden else each for place, each in enumerate(found)
    ]


def difference(ours: Reply, theirs: Reply, where: str = "", *, slack: int) -> str | None:
    """Where replies differ, but for the time that passed between them; None if they do not."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            found = difference(one, other, f"{where}/{place}", slack=slack)
            if found is not None:
                return found
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} ours, {len(theirs)} theirs"
        return None
    if slack and type(ours) is int and type(theirs) is int and min(ours, theirs) >= 0:
        return None if abs(ours - theirs) <= slack else f"{where}: {ours} ours, {theirs} theirs"
    if type(ours) is type(theirs) and ours == theirs:
        return None
    return f"{where}: {ours!r} ours, {theirs!r} theirs"


FIRST = (
    [b"XINFO", b"STREAM", b"none", b"FULL", b"COUNT", b""],
    [b"XINFO", b"STREAM", b"none", b"RUBBISH"],
)


@pytest.mark.peers
@pytest.mark.parametrize("protocol", [2, 3])
def test_every_reply_is_the_peers(tmp_path: Path, peer: Peer, protocol: int) -> None:
    new = peer.name == "redis"
    draw = Draw(random.Random(SEED + protocol), new=new, destroys=protocol == 3)
    makers = OLD + NEW if new else OLD
    weights = [weight for weight, _ in makers]
    peer.client.config_set("stream-node-max-entries", 5)
    sizes = {"sync": "os", "node_max_entries": 5}
    profile = "redis-8.2" if new else "valkey-9"
    queued = 0
    with (
        serving(tmp_path / "store", store=sizes, profile=profile) as served,
        Line(served.port) as ours,
        Line(peer.port) as theirs,
    ):
        told: list[str] = []
        if protocol == 3:
            assert ours("HELLO", 3)
            theirs("HELLO", 3)
        for words in FIRST:  # what chance draws too seldom
            mine, other = ours(*words), theirs(*words)
            assert difference(mine, other, slack=_slack(words)) is None, (words, mine, other)
        for step in range(STEPS):
            words = draw.random.choices(makers, weights)[0][1](draw)
            if queued:
                queued -= 1
                if words == [b"MULTI"] and queued and draw.coin(0.7):
                    continue
                if not queued:
                    words = [draw.one(b"EXEC", b"EXEC", b"DISCARD")]
            elif words == [b"MULTI"]:
                queued = draw.random.randint(2, 6)
            mine, other = ours(*words), theirs(*words)
            told.append(f"{words} -> {other!r}")
            if not new:
                mine, other = without_lag(mine), without_lag(other)
            found = difference(mine, other, slack=_slack(words))
            if found is not None:
                pytest.fail("\n".join([f"step {step}: {words}", found, "before:", *told[-25:-1]]))
    peer.client.config_set("stream-node-max-entries", 100)
