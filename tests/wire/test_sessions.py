"""Prevents a session of the streams documentation that goes another way here.

Each session is played by a real client against the server and against a real one. Automatic IDs are
mapped: an ID that the documentation prints stands for the one that was given. Where a reply is
printed, it is compared too; ``DIFFERS`` lists the printed replies that no server gives (any more),
with what Redis 8.2.3 says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from tests.peers.servers import Peer
from tests.wire.served import serving

NOT_COMPARED: Any = object()  # holds times, or is only compared with the other server
ABOVE = "The ID specified in XADD is equal or smaller than the target stream top item"

CASTILLA = ("rider Castilla speed 30.2 position 1 location_id 1", "1692632086370-0")
NOREM = ("rider Norem speed 28.8 position 3 location_id 1", "1692632094485-0")
PRICKETT = ("rider Prickett speed 29.7 position 2 location_id 1", "1692632102976-0")
AGAIN = ("rider Castilla speed 29.9 position 1 location_id 2", "1692632147973-0")
FRANCE = [[id, words.split()] for words, id in (CASTILLA, NOREM, PRICKETT, AGAIN)]
ITALY = {
    "Castilla": "1692632639151-0", "Royce": "1692632647899-0", "Sam-Bodden": "1692632662819-0",
    "Prickett": "1692632670501-0", "Norem": "1692632678249-0",
}  # fmt: skip


def rider(name: str, id: str | None = None) -> list[Any]:
    """An entry of the second session."""
    return [id or ITALY[name], ["rider", name]]


MINUTE = (
    f"XCLAIM race:italy italy_riders Bob 0 {ITALY['Royce']} {ITALY['Sam-Bodden']} "
    "IDLE 74642 RETRYCOUNT 1 JUSTID"
)


BASICS: list[tuple[str, Any]] = [
    *((f"XADD race:france * {words}", id) for words, id in (CASTILLA, NOREM, PRICKETT)),
    ("XRANGE race:france 1692632086370-0 + COUNT 2", FRANCE[:2]),
    ("XREAD COUNT 100 BLOCK 30 STREAMS race:france $", None),
    (f"XADD race:france * {AGAIN[0]}", AGAIN[1]),
    ("XLEN race:france", 4),
    ("XADD race:usa 0-1 racer Castilla", "0-1"),
    ("XADD race:usa 0-2 racer Norem", "0-2"),
    ("XADD race:usa 0-1 racer Prickett", ABOVE),
    ("XADD race:usa 0-* racer Prickett", "0-3"),
    ("XRANGE race:france - +", FRANCE),
    ("XRANGE race:france - + COUNT 2", FRANCE[:2]),
    ("XRANGE race:france (1692632094485-0 + COUNT 2", FRANCE[2:]),
    ("XRANGE race:france (1692632147973-0 + COUNT 2", []),
    ("XREVRANGE race:france + - COUNT 1", FRANCE[3:]),
    ("XREAD COUNT 2 STREAMS race:france 0", [["race:france", FRANCE[:2]]]),
    ("XGROUP CREATE race:france france_riders $", "OK"),
]
GROUPS: list[tuple[str, Any]] = [
    ("XGROUP CREATE race:italy italy_riders $ MKSTREAM", "OK"),
    *((f"XADD race:italy * rider {name}", id) for name, id in ITALY.items()),
    (
        "XREADGROUP GROUP italy_riders Alice COUNT 1 STREAMS race:italy >",
        [["race:italy", [rider("Castilla")]]],
    ),
    (
        "XREADGROUP GROUP italy_riders Alice STREAMS race:italy 0",
        [["race:italy", [rider("Castilla")]]],
    ),
    ("XACK race:italy italy_riders 1692632639151-0", 1),
    ("XREADGROUP GROUP italy_riders Alice STREAMS race:italy 0", [["race:italy", []]]),
    (
        "XREADGROUP GROUP italy_riders Bob COUNT 2 STREAMS race:italy >",
        [["race:italy", [rider("Royce"), rider("Sam-Bodden")]]],
    ),
    ("XPENDING race:italy italy_riders", [2, ITALY["Royce"], ITALY["Sam-Bodden"], [["Bob", "2"]]]),
    ("XPENDING race:italy italy_riders - + 10", NOT_COMPARED),
    ("XRANGE race:italy 1692632647899-0 1692632647899-0", [rider("Royce")]),
    # A minute and a quarter go by, as the documentation says.
    (
        MINUTE,
        [ITALY["Royce"], ITALY["Sam-Bodden"]],
    ),
    ("XCLAIM race:italy italy_riders Alice 60000 1692632647899-0", [rider("Royce")]),
    ("XCLAIM race:italy italy_riders Lora 60000 1692632647899-0", []),
    ("XAUTOCLAIM race:italy italy_riders Alice 60000 0-0 COUNT 1", NOT_COMPARED),
    ("XCLAIM race:italy italy_riders Alice 0 1692632647899-0 IDLE 74642 JUSTID", [ITALY["Royce"]]),
    ("XAUTOCLAIM race:italy italy_riders Lora 60000 (1692632662819-0 COUNT 1", NOT_COMPARED),
    ("XAUTOCLAIM race:italy italy_riders Lora 60000 0-0 COUNT 1", NOT_COMPARED),
    ("XINFO STREAM race:italy", NOT_COMPARED),
    ("XINFO GROUPS race:italy", NOT_COMPARED),
    ("XADD race:italy MAXLEN 2 * rider Jones", "1692633189161-0"),
    ("XADD race:italy MAXLEN 2 * rider Wood", "1692633198206-0"),
    ("XADD race:italy MAXLEN 2 * rider Henshaw", "1692633208557-0"),
    ("XLEN race:italy", 2),
    (
        "XRANGE race:italy - +",
        [rider("Wood", "1692633198206-0"), rider("Henshaw", "1692633208557-0")],
    ),
    ("XTRIM race:italy MAXLEN 10", 0),
    ("XTRIM race:italy MAXLEN ~ 10", 0),
    ("XDEL race:italy 1692633208557-0", 1),
    ("XRANGE race:italy - + COUNT 2", [rider("Wood", "1692633198206-0")]),
]
DELETED: list[tuple[str, Any]] = [
    ("XADD mystream 1 myfield mydata", "1-0"),
    ("XGROUP CREATE mystream mygroup 0", "OK"),
    (
        "XREADGROUP GROUP mygroup myconsumer STREAMS mystream >",
        [["mystream", [["1-0", ["myfield", "mydata"]]]]],
    ),
    ("XDEL mystream 1-0", 1),
    ("XREADGROUP GROUP mygroup myconsumer STREAMS mystream 0", [["mystream", [["1-0", None]]]]),
]
TRANSACTION: list[tuple[str, Any]] = [
    ("XADD mystream * sensor-id 1234 temperature 10.5", "1506871964177-0"),
    ("MULTI", "OK"),
    ("XADD mystream 1506872463535-0 foo 10", "QUEUED"),
    ("XADD mystream 1506872463535-1 bar 20", "QUEUED"),
    ("EXEC", ["1506872463535-0", "1506872463535-1"]),
    ("XRANGE mystream - + COUNT 2", [["1506871964177-0", ["sensor-id", "1234", "temperature",
                                                          "10.5"]],
                                     ["1506872463535-0", ["foo", "10"]]]),
    ("XRANGE mystream 1506872463000 + COUNT 10",
     [["1506872463535-0", ["foo", "10"]], ["1506872463535-1", ["bar", "20"]]]),
    ("XADD mystream MAXLEN ~ 1000000 * foo bar", "1506935385635-0"),
]  # fmt: skip
SESSIONS = {"basics": BASICS, "groups": GROUPS, "deleted": DELETED, "transaction": TRANSACTION}

# What the documentation prints and Redis 8.2.3 does not, nor this server: command, printed, said.
DIFFERS = (
    ("XADD mystream * ... (first description of streams)", "1506871964177.0: a dot in the ID",
     "1506871964177-0"),
    ("XAUTOCLAIM race:italy italy_riders Alice 60000 0-0 COUNT 1", "two elements, cursor 0-0",
     "three elements since 7.0, the last one deleted IDs; the cursor is where to go on"),
    ("XAUTOCLAIM race:italy italy_riders Lora 60000 (1692632662819-0 COUNT 1",
     "an entry with a smaller ID than the start that was given", "0-0 and nothing"),
    ("XINFO STREAM race:italy", "seven fields", "ten and more since 7.0"),
    ("XINFO GROUPS race:italy", "four fields", "six since 7.0: entries-read and lag"),
)  # fmt: skip


def plain(reply: Any) -> Any:
    """Bytes as text, errors as their words."""
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, redis.ResponseError):
        return str(reply)
    return [plain(each) for each in reply] if isinstance(reply, list) else reply


def mapped(words: str, given: str | None) -> list[str]:
    """A command with the ID that the documentation prints in place of the automatic one."""
    return [given if word == "*" and given is not None else word for word in words.split()]


def play(client: redis.Redis, session: list[tuple[str, Any]]) -> list[Any]:
    """The replies of a session."""
    client.response_callbacks.clear()
    told: list[Any] = []
    with client.client() as connection:
        connection.response_callbacks.clear()
        for words, printed in session:
            given = printed if isinstance(printed, str) and " * " in words else None
            try:
                told.append(plain(connection.execute_command(*mapped(words, given))))
            except redis.ResponseError as error:
                told.append(str(error))
    return told


def without_times(session: list[tuple[str, Any]], told: list[Any]) -> list[Any]:
    """Replies that can be compared between servers: idle times go."""
    return [
        [row[:2] + row[3:] for row in reply] if "- + 10" in words else reply
        for (words, _), reply in zip(session, told, strict=True)
    ]


@pytest.mark.peers
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_of_the_documentation(tmp_path: Path, redis_peer: Peer, name: str) -> None:
    session = SESSIONS[name]
    with (
        serving(tmp_path / "store", profile="redis-8.2") as served,
        redis.Redis(port=served.port, protocol=2) as ours,
        redis.Redis(port=redis_peer.port, protocol=2) as theirs,
    ):
        mine, other = play(ours, session), play(theirs, session)
    assert without_times(session, mine) == without_times(session, other)
    for (words, printed), reply in zip(session, mine, strict=True):
        if printed is not NOT_COMPARED:
            assert reply == printed, words


def test_the_list_of_differences_names_commands_of_the_sessions() -> None:
    played = {words for session in SESSIONS.values() for words, _ in session}
    for words, printed, said in DIFFERS[1:]:
        assert words in played
        assert printed != said
