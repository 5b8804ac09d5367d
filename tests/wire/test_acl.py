"""Prevents users who may do more, or less, than the same rules give them in Redis."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import OptionError
from logstore.wire.acl import RuleError
from logstore.wire.catalogue import table_of, users_of
from logstore.wire.server.listening import Listen
from logstore.wire.table import Command
from tests.house.repo import ROOT
from tests.peers.servers import Peer
from tests.support.waits import eventually
from tests.wire.lines import Line, Refusal, Reply, request
from tests.wire.served import Served, serving

STEPS = int(os.environ.get("LOGSTORE_WIRE_STEPS", "4000")) // 2
SEED = int(os.environ.get("LOGSTORE_SEED", "0")) or 20261122
HASH = b"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"  # of "password"


@contextmanager
def lines(peer: Peer, served: Served) -> Iterator[tuple[Line, Line]]:
    """A line to each, of the default user."""
    with Line(served.port) as ours, Line(peer.port) as theirs:
        yield ours, theirs


# -- the table of commands ------------------------------------------------------------------------
def access_of(flags: set[str]) -> str:
    """What a user needs to be allowed with a key that has these flags in Redis."""
    return "r" * ("access" in flags) + "w" * bool(flags & {"insert", "update", "delete"})


def told_by(info: Any) -> tuple[Any, ...]:
    """Of a row of COMMAND INFO what matters for rights, and for clients that know by it."""
    flags = {each.decode() for each in info[2]}
    specs = [dict(zip(each[::2], each[1::2], strict=True)) for each in info[8]]
    return (
        flags, (info[3], info[4], info[5]), {each.decode()[1:] for each in info[6]},
        [access_of({flag.decode() for flag in each[b"flags"]}) for each in specs],
    )  # fmt: skip


def table_facts(command: Command) -> tuple[Any, ...]:
    """The same of a command of the table."""
    has_keys = bool(command.keys[0]) or "movablekeys" in command.flags
    access = command.access or ("w" if "write" in command.flags else "r",)
    return (
        set(command.flags),
        command.keys,
        set(command.categories),
        list(access) if has_keys else [],
    )


def test_each_command_needs_the_rights_that_it_needs_in_redis(redis_peer: Peer) -> None:
    differ: list[str] = []
    for command in table_of("redis-8.2").commands.values():
        (info,) = redis_peer.command("COMMAND", "INFO", command.name)
        subs = {each[0].decode(): each for each in info[9]}
        pairs = [(command, info)]
        pairs += [(each, subs[each.name]) for each in command.subcommands.values()]
        for ours, theirs in pairs:
            mine, other = table_facts(ours), told_by(theirs)
            if ours.name.startswith("cluster|"):  # refused in any case
                mine, other = ((row[0] & {"admin"}, row[2]) for row in (mine, other))
            if mine != other:
                differ.append(f"{ours.name}: {mine} ours, {other} theirs")
    assert not differ, "\n".join(differ)


def test_keys_are_found_where_the_command_looks_for_them() -> None:
    table = users_of("redis-8.10").table

    def keys(text: str) -> list[tuple[str, str]]:
        words = text.encode().split()
        return [(words[at].decode(), access) for at, access in table.find(words).keys_in(words)]

    assert keys("XREAD COUNT 1 BLOCK 0 STREAMS a b 0 0") == [("a", "r"), ("b", "r")]
    # A group that is called like the word does not hide the streams, as it does in Redis.
    assert keys("XREADGROUP COUNT 1 GROUP streams c STREAMS key >") == [("key", "r")]
    assert keys("XREADGROUP GROUP streams streams NOACK CLAIM 1 STREAMS a >") == [("a", "r")]
    assert keys("XREAD STREAMS a b 0") == []
    assert keys("XREAD NOSUCH STREAMS a 0") == []
    assert keys("RENAME a b") == [("a", "rw"), ("b", "w")]
    assert keys("COPY a b REPLACE") == [("a", "r"), ("b", "w")]
    assert keys("DEL a b c") == [("a", "w"), ("b", "w"), ("c", "w")]
    assert keys("XGROUP CREATE a g 0") == [("a", "w")]
    assert keys("MEMORY USAGE a SAMPLES 5") == [("a", "")]


# -- side by side ---------------------------------------------------------------------------------
SAME = (
    """
ACL WHOAMI
ACL USERS
ACL LIST
ACL GETUSER default
ACL GETUSER none
ACL CAT
ACL CAT nosuch
ACL CAT a b
ACL NOSUCH
ACL SETUSER
ACL SETUSER u
ACL GETUSER u
ACL SETUSER u on >one >two #{hash} ~a* %R~b* %W~c %RW~d &ch +@stream -xadd +xgroup|create
ACL GETUSER u
ACL LIST
ACL SETUSER u <one !{hash}
ACL SETUSER u <one
ACL SETUSER u !{hash}
ACL SETUSER u #abc
ACL SETUSER u !abc
ACL SETUSER u #{HASH}
ACL GETUSER u
ACL SETUSER u nopass
ACL SETUSER u >x
ACL SETUSER u resetpass
ACL GETUSER u
ACL SETUSER u (+xadd ~x*) (%R~y +xread) ( ~z -@all )
ACL SETUSER u ( +xlen ~q
ACL SETUSER u )
ACL SETUSER u (on)
ACL SETUSER u (+nosuch)
ACL SETUSER u ()
ACL GETUSER u
ACL LIST
ACL SETUSER u clearselectors
ACL GETUSER u
ACL SETUSER u allkeys ~x
ACL SETUSER u ~*
ACL SETUSER u ~x
ACL SETUSER u allchannels
ACL SETUSER u &x
ACL SETUSER u resetchannels &x &y &x
ACL SETUSER u resetkeys ~x %R~x %W~y %R~y %R~z %rw~zz %~a
ACL SETUSER u %RR~a
ACL SETUSER u %X~a
ACL SETUSER u %R~a~b %R
ACL GETUSER u
ACL SETUSER u +nosuch
ACL SETUSER u -nosuch
ACL SETUSER u +@nosuch
ACL SETUSER u -@nosuch
ACL SETUSER u +xgroup|
ACL SETUSER u +xgroup|nosuch
ACL SETUSER u +xgroup|create|x
ACL SETUSER u -xgroup|nosuch
ACL SETUSER u -xread|x
ACL SETUSER u +
ACL SETUSER u -
ACL SETUSER u nosuch
ACL SETUSER u on off on nosuch2
ACL GETUSER u
ACL SETUSER u +select|0 +SELECT|1 +XREAD|COUNT
ACL GETUSER u
ACL SETUSER u +@all -@dangerous +info -xgroup|destroy
ACL GETUSER u
ACL SETUSER u -xgroup
ACL SETUSER u +@DANGEROUS
ACL GETUSER u
ACL SETUSER u +@all
ACL GETUSER u
ACL SETUSER u -@all +@read +@write -@read +xlen +@read
ACL GETUSER u
ACL SETUSER u nocommands allcommands -@string -@admin
ACL GETUSER u
ACL SETUSER u off skip-sanitize-payload
ACL GETUSER u
ACL SETUSER u sanitize-payload
ACL SETUSER u reset
ACL GETUSER u
ACL SETUSER v on nopass ~* +@all
ACL DRYRUN u xadd s * a b
ACL DRYRUN v xadd s * a b
ACL DRYRUN v xadd s
ACL DRYRUN v nosuch
ACL DRYRUN none xadd s * a b
ACL DRYRUN v xgroup
ACL SETUSER v resetkeys %R~r* %W~w*
ACL DRYRUN v xread streams r1 r2 0 0
ACL DRYRUN v xread streams r1 w2 0 0
ACL DRYRUN v rename w1 w2
ACL DRYRUN v copy r1 w2
ACL DRYRUN v copy w1 r2
ACL DRYRUN v xlen w
ACL DRYRUN v xlen x
ACL DRYRUN v ping
ACL USERS
ACL DELUSER default
ACL DELUSER none
ACL DELUSER u none u
ACL DELUSER
ACL LOG RESET
ACL LOG
ACL LOG x
ACL LOG -1
ACL LOG 1 2
ACL GENPASS x
ACL GENPASS 0
ACL GENPASS 4097
ACL GENPASS 5 5
AUTH x
AUTH a b c
AUTH default x
AUTH v x
ACL WHOAMI
XADD w 1-1 a b
XADD r 1-1 a b
XLEN r
XADD x 1-1 a b
EXISTS x
HELLO 2 AUTH none x
HELLO 2 AUTH default y SETNAME n
ACL WHOAMI
ACL SETUSER v off
AUTH v x
HELLO 9 AUTH v x
RESET
ACL WHOAMI
CONFIG GET acllog-max-len
CONFIG SET acllog-max-len 0
CONFIG SET acllog-max-len -1
""".strip()
    .format(hash=HASH.decode(), HASH=HASH.decode().upper())
    .splitlines()
)


def test_acl_answers_as_redis_does(redis_peer: Peer, served: Served) -> None:
    with lines(redis_peer, served) as (ours, theirs):
        for line in SAME:
            words = line.split()
            mine, other = ours(*words), theirs(*words)
            if words[0] == "HELLO" and isinstance(other, list):
                mine, other = mine[:6], other[:6]  # without the number of the connection
            assert mine == other, line
        for name in (b"a b", b"a\0b", b"a\n"):
            assert ours("ACL", "SETUSER", name) == theirs("ACL", "SETUSER", name)
        for rule in (b"~a b", b"&a b", b"", b"~a\0b", b"wrong\r\nrule", b"~\xff\xfe"):
            assert ours("ACL", "SETUSER", "w", rule) == theirs("ACL", "SETUSER", "w", rule), rule
        assert ours("ACL", "GETUSER", "w") == theirs("ACL", "GETUSER", "w")
        for category in ours("ACL", "CAT"):
            mine, other = set(ours("ACL", "CAT", category)), set(theirs("ACL", "CAT", category))
            assert mine <= other, category
            names = {each.name for each in table_of("redis-8.2").commands.values()}
            assert not {each for each in other - mine if each.decode() in names}, category
        assert len(ours("ACL", "GENPASS")) == len(theirs("ACL", "GENPASS")) == 64
        assert len(ours("ACL", "GENPASS", 5)) == len(theirs("ACL", "GENPASS", 5)) == 2
        assert ours("HELLO", 3)[0] == theirs("HELLO", 3)[0]
        assert ours("ACL", "GETUSER", "default") == theirs("ACL", "GETUSER", "default")


# -- by chance ------------------------------------------------------------------------------------
NAMES = ("ann", "bob")
KEYS = ("a", "ab", "abc", "b", "b1", "c*", "q")
GLOBS = ("a*", "?", "[ab]?", "[^a]*", "a", "*c", "c\\*", "b[0-9]", "*")
OPS = (
    """
XADD {k} * f v|XADD {k} * f v|XLEN {k}|XRANGE {k} - +|XREVRANGE {k} + - COUNT 1|XDEL {k} 1-1
XTRIM {k} MAXLEN 5|XREAD STREAMS {k} 0|XREAD COUNT 1 STREAMS {k} {k} 0 0|XACK {k} g 1-1
XGROUP CREATE {k} g $ MKSTREAM|XGROUP DESTROY {k} g|XGROUP HELP|XINFO STREAM {k}|XINFO GROUPS {k}
XREADGROUP GROUP g c STREAMS {k} >|XPENDING {k} g|XCLAIM {k} g c 0 1-1|XAUTOCLAIM {k} g c 0 0
XSETID {k} 9-9|DEL {k}|DEL {k} {k}|EXISTS {k} {k}|TYPE {k}|RENAME {k} {k}|RENAMENX {k} {k}
COPY {k} {k}|EXPIRE {k} 1000|TTL {k}|PERSIST {k}|DUMP {k}|RESTORE {k} 0 x|OBJECT ENCODING {k}
MEMORY USAGE {k}|KEYS x|SCAN 0 MATCH x|DBSIZE|PING|ECHO x|SELECT 0|SELECT 1|CLIENT ID|CLIENT LIST
CLIENT GETNAME|CONFIG GET port|CONFIG SET port|INFO errorstats|COMMAND COUNT|TIME|LASTSAVE|WATCH {k}
MULTI|DISCARD|UNWATCH|ACL WHOAMI|ACL LIST|ACL CAT|ROLE|SLOWLOG LEN|FLUSHALL X|XREAD x|XGROUP X
XACKDEL {k} g IDS 1 1-1|XDELEX {k} IDS 1 1-1|RANDOMKEY|OBJECT FREQ {k}|CLUSTER INFO|MONITOR x
""".strip()
    .replace("\n", "|")
    .split("|")
)
CATEGORIES = ("read", "write", "stream", "admin", "dangerous", "fast", "slow", "keyspace",
              "connection", "transaction", "blocking", "string", "all")  # fmt: skip
COMMANDS = ("xadd", "xlen", "xread", "xreadgroup", "xgroup", "xgroup|create", "xgroup|help",
            "xinfo|stream", "config|get", "config", "client|list", "client", "acl|whoami", "del",
            "XRANGE", "memory|usage", "object", "select|0", "auth", "exists", "keys", "nosuch",
            "xread|count", "xgroup|nosuch")  # fmt: skip


class Rules:
    """Random rules, right ones and now and then wrong ones."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        one = random_.choice
        self._makers: list[tuple[int, Callable[[], str]]] = [
            (4, lambda: one(("~", "%R~", "%W~", "%RW~")) + one(GLOBS)),
            (2, lambda: one(("allkeys", "resetkeys", "resetkeys"))),
            (6, lambda: one("+-") + one(COMMANDS)),
            (6, lambda: one("+-") + "@" + one(CATEGORIES)),
            (1, lambda: one(("allcommands", "nocommands", "reset", "clearselectors"))),
            (1, lambda: one(("on", "off", "nopass", "resetpass", ">pw", "<pw", "#" + HASH.decode(),
                             "!" + HASH.decode(), "sanitize-payload", "&c", "allchannels",
                             "resetchannels", "%R", "wrong", "+@nosuch"))),
        ]  # fmt: skip

    def one(self) -> str:
        if self.random.random() < 0.1:
            inner = [self._simple() for _ in range(self.random.randint(0, 3))]
            return "(" + " ".join(inner) + ")"
        return self._simple()

    def _simple(self) -> str:
        weights = [weight for weight, _ in self._makers]
        return self.random.choices(self._makers, weights)[0][1]()


def permitted(reply: Reply) -> str:
    """Whether a user might, or could log in, as it was told; all else counts as done."""
    told = isinstance(reply, Refusal) and reply.startswith(("NOPERM", "WRONGPASS", "EXECABORT"))
    return str(reply) if told else "may"


def refused(line: Line) -> dict[str, int]:
    """What INFO counts of refusals, by their kind."""
    found = re.findall(r"acl_access_denied_(\w+):(\d+)", line("INFO", "stats").decode())
    return {kind: int(count) for kind, count in found}


def test_random_users_may_what_they_may_in_redis(redis_peer: Peer, served: Served) -> None:
    draw = random.Random(SEED)
    rules = Rules(draw)
    counts = {"may": 0, "not": 0, "set": 0}
    with (
        lines(redis_peer, served) as (ours, theirs),
        Line(served.port) as mine, Line(redis_peer.port) as other,
    ):  # fmt: skip
        for name in NAMES:
            for line in (ours, theirs):
                line("ACL", "SETUSER", name, "on", "nopass", "~a*", "+@stream", "+@connection")
        for line in (mine, other):
            assert line("AUTH", "ann", "x") == b"OK"
        before: list[str] = []
        at_start = [refused(line) for line in (ours, theirs)]
        for step in range(STEPS):
            if draw.random() < 0.25:
                name = draw.choice(NAMES)
                words = ["ACL", "SETUSER", name, *(rules.one() for _ in range(draw.randint(1, 3)))]
                found = ours(*words), theirs(*words)
                before.append(f"{words} -> {found[1]!r}")
                assert found[0] == found[1], before[-20:]
                counts["set"] += found[0] == b"OK"
                assert ours("ACL", "GETUSER", name) == theirs("ACL", "GETUSER", name), before[-20:]
                if draw.random() < 0.1:
                    assert ours("ACL", "LIST") == theirs("ACL", "LIST"), before[-20:]
                continue
            words = [draw.choice(KEYS) if each == "{k}" else each
                     for each in draw.choice(OPS).split()]  # fmt: skip
            name = draw.choice(NAMES)
            assert ours("ACL", "DRYRUN", name, *words) == theirs("ACL", "DRYRUN", name, *words), (
                step, words, before[-20:],
            )  # fmt: skip
            if words[0] in ("MONITOR", "FLUSHALL"):
                continue
            if draw.random() < 0.2:
                words = ["AUTH", draw.choice(NAMES), draw.choice(("pw", "password", "x"))]
            found = permitted(mine(*words)), permitted(other(*words))
            assert found[0] == found[1], (step, words, before[-20:])
            counts["may" if found[0] == "may" else "not"] += 1
        denied = [
            {kind: count - start[kind] for kind, count in refused(each).items()}
            for each, start in zip((ours, theirs), at_start, strict=True)
        ]
        assert denied[0] == denied[1]
        assert len(denied[0]) == 4
    assert min(counts.values()) > STEPS / 50, counts


# -- what happens to those who are connected -------------------------------------------------------
def waits(ours: Line, name: str) -> None:
    """Until a client with this user blocks."""
    wanted = re.compile(rb"flags=b .*user=" + name.encode())
    eventually(lambda: wanted.search(ours("CLIENT", "LIST")))


def test_rights_that_are_lost_hold_for_what_waits_and_for_exec(
    redis_peer: Peer, served: Served
) -> None:
    found: list[list[Reply]] = []
    for port in (served.port, redis_peer.port):
        with Line(port) as admin, Line(port) as user, Line(port) as group:
            told: list[Reply] = []
            admin("ACL", "SETUSER", "ann", "reset", "on", "nopass", "~*", "+@all")
            admin("DEL", "s", "t")
            admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
            for line in (user, group):
                line("AUTH", "ann", "x")
            user.send(request(b"XREAD BLOCK 0 STREAMS s $".split()))
            waits(admin, "ann")
            group.send(request(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split()))
            while b"blocked_clients:2" not in admin("INFO", "clients"):
                time.sleep(0.01)
            admin("ACL", "SETUSER", "ann", "resetkeys", "~t")
            admin("XADD", "s", "1-1", "a", "b")
            told += [user.reply(), group.reply(), admin("XLEN", "s")]
            told += [user("MULTI"), user("XADD", "t", "1-1", "a", "b"), user("XLEN", "t"),
                     user("PING"), admin("ACL", "SETUSER", "ann", "resetkeys", "-ping"),
                     user("EXEC"), user("XLEN", "t")]  # fmt: skip
            admin("ACL", "SETUSER", "ann", "~t", "-exec")
            told += [user("MULTI"), user("XLEN", "s"), user("DISCARD")]
            told += [user("MULTI"), user("XLEN", "t"), user("EXEC"), user("DISCARD")]
            admin("ACL", "SETUSER", "ann", "off")
            told += [user("XLEN", "t"), user("AUTH", "ann", "x")]
            entries = admin("ACL", "LOG")
            told.append([each[:10] for each in entries])
            assert all(b"user=ann" in each[13] for each in entries), entries
            told += [admin("ACL", "LOG", "RESET"), admin("ACL", "LOG")]
            told.append(admin("ACL", "DELUSER", "ann"))
            with pytest.raises((EOFError, ConnectionError)):
                user("PING")
            found.append(told)
    assert found[0] == found[1]


def test_connections_of_a_user_are_ended(redis_peer: Peer, served: Served) -> None:
    for port in (served.port, redis_peer.port):
        with Line(port) as admin, Line(port) as user, Line(port) as other:
            admin("ACL", "SETUSER", "eve", "reset", "on", "nopass", "+@all")
            assert user("AUTH", "eve", "x") == b"OK"
            assert admin("CLIENT", "KILL", "USER", "none") == "ERR No such user 'none'"
            assert admin("CLIENT", "KILL", "USER", "eve") == 1
            with pytest.raises((EOFError, ConnectionError)):
                user("PING")
            assert other("PING") == b"PONG"
            assert admin("CLIENT", "KILL", "USER", "eve") == 0
            assert admin("ACL", "DELUSER", "eve") == 1


def test_a_client_that_deletes_its_own_user_is_answered_and_closed(
    redis_peer: Peer, served: Served
) -> None:
    for port in (served.port, redis_peer.port):
        with Line(port) as admin, Line(port) as user:
            admin("ACL", "SETUSER", "eve", "reset", "on", ">pw", "~*", "+@all")
            assert user("AUTH", "eve", "pw") == b"OK"
            assert b"user=eve" in user("CLIENT", "INFO")
            assert user("ACL", "DELUSER", "eve") == 1
            with pytest.raises((EOFError, ConnectionError)):
                user("PING")


def test_a_default_user_without_rights_is_what_strangers_are(
    redis_peer: Peer, served: Served
) -> None:
    with lines(redis_peer, served) as pair:
        told: list[list[Reply]] = []
        for port, admin in zip((served.port, redis_peer.port), pair, strict=True):
            found: list[Reply] = []
            admin("ACL", "SETUSER", "root", "reset", "on", ">pw", "~*", "&*", "+@all")
            admin("AUTH", "root", "pw")
            try:
                admin("ACL", "SETUSER", "default", "-@all", "+@read", "resetkeys", "~r*")
                with Line(port) as line:
                    found += [line("XLEN", "r"), line("XADD", "r", "*", "a", "b"), line("PING")]
                admin("ACL", "SETUSER", "default", "off")
                with Line(port) as line:
                    found += [line("XLEN", "r"), line("HELLO"), line("HELLO", 3), line("QUIT")]
                with Line(port) as line:
                    found += [line("AUTH", "default", "x"), line("AUTH", "root", "pw"),
                              line("XLEN", "r"), line("RESET"), line("XLEN", "r")]  # fmt: skip
                admin("ACL", "SETUSER", "default", "on", ">new")
                with Line(port) as line:
                    found += [line("AUTH", "new"), line("AUTH", "old"), line("ACL", "WHOAMI")]
            finally:
                admin("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")
            told.append(found)
        assert told[0] == told[1]


def test_pipelined_adds_are_permitted_by_key(served: Served) -> None:
    with Line(served.port) as admin, Line(served.port) as user:
        admin("ACL", "SETUSER", "ann", "on", "nopass", "%W~mine*", "+xadd", "+multi", "+exec")
        user("AUTH", "ann", "x")
        one, other = ([b"XADD", key, b"*", b"a", b"b"] for key in (b"mine", b"other"))
        user.send(request(one) * 50 + request(other) * 50 + request(one) * 50)
        replies = [user.reply() for _ in range(150)]
        refused = [str(each) for each in replies if isinstance(each, Refusal)]
        assert refused == ["NOPERM No permissions to access a key"] * 50
        assert replies[50:100] == refused
        assert admin("XLEN", "mine") == 100
        assert admin("XLEN", "other") == 0
        assert b"acl_access_denied_key:50" in admin("INFO", "stats")
        (entry,) = admin("ACL", "LOG")
        assert entry[:10] == [b"count", 50, b"reason", b"key", b"context", b"toplevel",
                              b"object", b"other", b"username", b"ann"]  # fmt: skip


# -- files ----------------------------------------------------------------------------------------
def test_a_file_holds_users(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    text = (
        f"user default off\nuser ann on #{HASH.decode()} ~* resetchannels -@all +@read\n\n"
        "user bob on >pw (~x +xadd) ( ~y\t+xlen )\n"
    )
    path.write_text(text)
    users = users_of("redis-8.2", b"secret", path)
    with serving(tmp_path / "store", users=users, users_file=path) as served:
        with Line(served.port) as line:
            assert line("PING").startswith("NOAUTH")
            assert line("AUTH", "secret").startswith("WRONGPASS")
            assert line("AUTH", "ann", "password") == b"OK"
            assert line("XLEN", "s") == 0
            assert line("XADD", "s", "*", "a", "b") == (
                "NOPERM User ann has no permissions to run the 'xadd' command"
            )
        with Line(served.port) as line, Line(served.port) as bob:
            path.write_text(
                text + "user root on >pw ~* +@all\nuser root on\nnonsense\nuser x +no\n"
            )
            assert bob("AUTH", "bob", "pw") == b"OK"
            served.service.users.set(b"root", [b"on", b">pw", b"~*", b"&*", b"+@all"])
            assert line("AUTH", "root", "pw") == b"OK"
            refusal = line("ACL", "LOAD")
            assert "Duplicate user 'root' found on line 6." in refusal
            assert f"{path}:7 should start with user keyword" in refusal
            assert f"{path}:8: Error in applying operation '+no'" in refusal
            assert "no change" in refusal
            assert line("ACL", "USERS") == [b"ann", b"bob", b"default", b"root"]
            assert line("ACL", "SAVE") == b"OK"
            assert path.read_text() == "".join(each.decode() + "\n" for each in line("ACL", "LIST"))
            assert path.stat().st_mode & 0o777 == 0o600
            path.write_text("user root on >pw ~* +@all\n")
            assert line("ACL", "LOAD") == b"OK"
            with pytest.raises((EOFError, ConnectionError)):
                bob("PING")
            assert line("PING") == b"PONG"
            assert line("ACL", "GETUSER", "default")[5].startswith(b"+@all")
            assert line("AUTH", "secret") == b"OK"  # the file does not say what that user is


def test_a_file_that_redis_saved_is_taken(redis_peer: Peer, served: Served) -> None:
    with lines(redis_peer, served) as (_, theirs):
        theirs("ACL", "SETUSER", "ann", "on", ">a", "%R~x*", "~y", "+@read", "(~z +xadd)", "&c")
        theirs("ACL", "SETUSER", "bob", "off", "-@all", "+xread", "+xgroup|create", "+select|0")
        text = b"".join(each + b"\n" for each in theirs("ACL", "LIST"))
        users = users_of("redis-8.2")
        users.load(text, "file")
        assert b"".join(bytes(each) + b"\n" for each in users.in_order()) == text


_ODD = st.text(
    st.sampled_from("ab*?[]\\|'\"#(){}%~&+-@<>! \n\t\r\v\f\0\x85\xa0\xff"), max_size=5
).map(lambda text: text.encode("latin-1"))
_HEADS = st.sampled_from(
    [b"~", b"%R~", b"%W~", b"&", b">", b"<", b"+xadd|", b"-xadd|", b"+xgroup|", b"-", b"+", b"+@",
     b"-@", b"(~a ", b"(", b"#", b""]
)  # fmt: skip


@given(_ODD, st.lists(st.builds(lambda head, odd: head + odd, _HEADS, _ODD), max_size=4))
def test_saved_users_have_the_same_rights(name: bytes, rules: list[bytes]) -> None:
    """A first argument with a newline once made a user of its own in the file."""
    users = users_of("redis-8.2")
    with suppress(RuleError):
        users.set(b"u" + name, rules)
    text = b"".join(bytes(user) + b"\n" for user in users.in_order())
    again = users_of("redis-8.2")
    again.load(text, "file")
    assert [bytes(user) for user in again.in_order()] == [bytes(user) for user in users.in_order()]


@pytest.mark.parametrize("text", ["users\n", "user a +get\n", "user a on\nuser a off\n",
                                  "user a ( ~x\n", "user a #12\n"])  # fmt: skip
def test_a_wrong_file_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.acl"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"users\.acl"):
        users_of("redis-8.2", path=path)


def test_the_users_of_the_page_may_do_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "redis.md").read_text()
    (file,) = re.findall(r"```text\n(user default .*?)```", text, re.DOTALL)
    path = tmp_path / "users.acl"
    path.write_text(file)
    users = users_of("redis-8.2", path=path)
    with serving(tmp_path / "store", users=users, users_file=path) as served, Line(
        served.port
    ) as line:  # fmt: skip
        assert "NOAUTH" in line("XADD", "orders:1", "*", "a", "b")
        line("AUTH", "orders", "test2")
        assert line("XADD", "orders:1", "1-1", "a", "b") == b"1-1"
        assert "NOPERM" in line("XADD", "others", "*", "a", "b")
        assert "NOPERM" in line("XLEN", "orders:1")
        line("AUTH", "reporting", "test")
        assert line("XLEN", "orders:1") == 1
        assert line("KEYS", "*") == [b"orders:1"]
        assert "NOPERM" in line("XADD", "orders:1", "*", "a", "b")
        line("AUTH", "admin", "password")
        assert line("DEL", "orders:1") == 1


def test_the_default_user_is_open_on_loopback_only(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_text("user root on >pw ~* +@all\n")
    with pytest.raises(Exception, match="aclfile"):
        Listen("192.0.2.1").check(users_of("redis-8.2", path=path))
    path.write_text("user default off\nuser root on >pw ~* +@all\n")
    users = users_of("redis-8.2", path=path)
    with serving(
        tmp_path / "store", users=users, users_file=path, listen=Listen("0.0.0.0", port=0)
    ) as served, Line(served.port) as line:  # fmt: skip
        assert line("AUTH", "root", "pw") == b"OK"
        assert "other machines" in line("ACL", "SETUSER", "default", "on", "nopass")
        assert line("ACL", "SETUSER", "default", "on") == b"OK"
        path.write_text("user root on >pw ~* +@all\n")
        assert "other machines" in line("ACL", "LOAD")
        assert line("ACL", "GETUSER", "default")[1] == [b"on", b"sanitize-payload"]
