"""Prevents monitoring tools, dashboards and whoever asks for health from finding nothing where they
look.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import logstore
from logstore.telemetry.gathering import exposition
from logstore.tools.service import metrics_endpoint, server_process
from logstore.tools.service.metrics_endpoint import ASKERS_MAX, MetricsEndpoint
from logstore.wire.catalogue import service_of
from logstore.wire.resp.reply import Verbatim
from logstore.wire.session import Session
from tests.house.repo import ROOT
from tests.peers.servers import Peer
from tests.tools.commands import COMMAND, TIMEOUT_S, environment, process
from tests.wire.lines import Line, Refusal, request
from tests.wire.served import Served

SAME = """
ROLE
RANDOMKEY
CLUSTER INFO
CLUSTER NODES
CLUSTER SLOTS
CLUSTER KEYSLOT foo
CLUSTER HELP
CLUSTER FOO
SLOWLOG RESET
SLOWLOG GET
SLOWLOG GET 5
SLOWLOG GET -1
SLOWLOG GET -2
SLOWLOG GET x
SLOWLOG LEN
SLOWLOG RESET
SLOWLOG FOO
CONFIG SET stream-node-max-entries 5
CONFIG GET stream-node-max-entries
CONFIG SET stream-node-max-entries x
CONFIG SET stream-node-max-entries 0
CONFIG SET stream-node-max-bytes 4kb
CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-bytes 2K
CONFIG SET stream-node-max-bytes -1
CONFIG SET stream-node-max-bytes x
CONFIG SET stream-node-max-bytes 1gb
CONFIG SET stream-node-max-entries 7 stream-node-max-bytes x
CONFIG SET stream-node-max-entries 7 stream-node-max-entries 8
CONFIG GET stream-node-max-entries
CONFIG SET nosuch 1
CONFIG SET databases 3
CONFIG FOO
ACL FOO
MEMORY FOO
OBJECT FOO
""".strip().splitlines()


def test_replies_to_monitoring_tools_equal_the_peers(redis_peer: Peer, served: Served) -> None:
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("FLUSHALL")
        try:
            for line in SAME:
                assert ours(*line.split()) == theirs(*line.split()), line
        finally:
            theirs("CONFIG", "SET", "stream-node-max-entries", 100, "stream-node-max-bytes", 4096)


def info_fields(line: Line, *sections: str) -> dict[str, str]:
    """INFO as names and values."""
    text = line("INFO", *sections).decode()
    return dict(each.split(":", 1) for each in text.splitlines() if ":" in each)


def test_info_has_what_clients_look_for(redis_peer: Peer, served: Served) -> None:
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("CONFIG", "RESETSTAT")
        theirs("FLUSHALL")
        for line in (ours, theirs):
            line("XADD", "s", "1-1", "f", "v")
            for _ in range(2):
                assert isinstance(line("XADD", "s", "1-1", "f", "v"), Refusal)
            assert isinstance(line("NOSUCH"), Refusal)
            line("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        assert info_fields(ours, "errorstats") == info_fields(theirs, "errorstats")
        assert (
            info_fields(ours, "cluster")
            == info_fields(theirs, "cluster")
            == {"cluster_enabled": "0"}
        )
        mine, other = info_fields(ours), info_fields(theirs)
        names = ("rdb_changes_since_last_save", "instantaneous_ops_per_sec", "used_memory_human",
                 "used_memory_peak_human", "used_memory_rss_human", "total_system_memory_human",
                 "maxmemory_human", "total_error_replies", "cluster_enabled")  # fmt: skip
        for name in names:
            assert name in mine, name
            assert name in other, name
        assert mine["maxmemory_human"] == other["maxmemory_human"] == "0B"
        assert re.fullmatch(r"\d+\.\d\d[KMGT]", mine["used_memory_human"])
        assert mine["total_system_memory_human"][-1] == other["total_system_memory_human"][-1]
        assert mine["rdb_changes_since_last_save"] == "1"
        assert ours("SAVE") == b"OK"
        assert info_fields(ours)["rdb_changes_since_last_save"] == "0"
        for _ in range(300):
            ours("PING")
        assert int(info_fields(ours)["instantaneous_ops_per_sec"]) > 0
        ours("CONFIG", "RESETSTAT")
        assert info_fields(ours, "errorstats") == {}


def test_errors_in_pipelines_and_transactions_are_counted(served: Served) -> None:
    with Line(served.port) as line:
        line("XADD", "s", "18446744073709551615-18446744073709551615", "a", "1")
        line.send(request([b"XADD", b"s", b"*", b"a", b"1"]) * 20)  # one step, one reply
        assert all(isinstance(line.reply(), Refusal) for _ in range(20))
        line("MULTI")
        line("XADD", "s", "1-1", "a", "1")
        line("XGROUP", "CREATE", "none", "g", "$")
        assert len(line("EXEC")) == 2
        assert info_fields(line, "errorstats") == {"errorstat_ERR": "count=22"}


COUNTED = """
XADD s * f v
XADD s 9999999999999-1 f v
XADD s 1-1 f v
XADD s * f
XADD
XLEN s
XRANGE s - +
XRANGE s x +
CONFIG GET port
CONFIG FOO
CONFIG GET
NOSUCH
EXEC
XREAD COUNT 1 STREAMS s 0
XREAD BLOCK 1 STREAMS s $
XGROUP CREATE s g 0
XGROUP CREATE s g 0
XGROUP CREATE none g 0
XREADGROUP GROUP g c COUNT 1 STREAMS s >
XREADGROUP GROUP g c BLOCK 1 STREAMS s >
XREADGROUP GROUP g c BLOCK 1 STREAMS s >
XREADGROUP GROUP none c STREAMS s >
XACK s g 1-1
MULTI
MULTI
XADD s * f v
XADD s 1-1 f v
XADD s NOMKSTREAM
XLEN s
XADD
EXEC
MULTI
XADD s * f v
XADD s * f v
XADD s 1-1 f v
XADD s * MAXLEN x f v
XLEN s
XGROUP CREATE none g 0
EXEC
MULTI
XLEN s
DISCARD
SETEX a
AUTH a b c d
CLIENT GETNAME
XTRIM s MAXLEN 1
XDEL s 1-1
DEL s
TIME
""".strip().splitlines()
_TIMES = re.compile(r"usec=\d+,usec_per_call=\d+\.\d\d,")


def commandstats(line: Line) -> dict[str, str]:
    """INFO commandstats, without times."""
    found = info_fields(line, "commandstats")
    for each in found.values():
        assert _TIMES.search(each)
    return {name: _TIMES.sub("", told) for name, told in found.items()}


def test_calls_of_commands_are_counted_as_by_the_peers(peer: Peer, served: Served) -> None:
    with Line(served.port) as ours, Line(peer.port) as theirs:
        theirs("FLUSHALL")
        for line in (ours, theirs):
            line("CONFIG", "RESETSTAT")
            for at, words in enumerate(COUNTED):
                nested = words == COUNTED[at - 1] == "MULTI"
                if not nested or peer.name == "redis":  # Valkey, and our profile of it, reject it
                    line(*words.split())
        mine, other = commandstats(ours), commandstats(theirs)
        other.pop("cmdstat_setex", None)  # of a type that is not here
        assert mine == other
        assert mine["cmdstat_xadd"] == "calls=7,rejected_calls=4,failed_calls=2"
        assert mine["cmdstat_config|resetstat"] == "calls=1,rejected_calls=0,failed_calls=0"
        assert "cmdstat_info" in commandstats(ours)
        shown = [line("INFO").decode() for line in (ours, theirs)]
        assert not any("Commandstats" in text for text in shown)
        shown = [line("INFO", "all").decode() for line in (ours, theirs)]
        assert all("\r\n\r\n# Commandstats\r\ncmdstat_" in text for text in shown)
        for line in (ours, theirs):
            line("CONFIG", "RESETSTAT")
        assert commandstats(ours) == commandstats(theirs)


def test_calls_of_a_user_without_the_right_are_counted_as_by_the_peers(
    peer: Peer, served: Served
) -> None:
    with Line(served.port) as ours, Line(peer.port) as theirs:
        try:
            for line, port in ((ours, served.port), (theirs, peer.port)):
                line("ACL", "SETUSER", "eve", "on", "nopass", "~a*", "+@all", "-xlen", "-acl")
                with Line(port) as other:
                    other("AUTH", "eve", "x")
                    other("CONFIG", "RESETSTAT")
                    for words in (
                        "XLEN a",
                        "XADD b * f v",
                        "ACL WHOAMI",
                        "ACL FOO",
                        "XADD a * f v",
                    ):
                        other(*words.split())
                    other.send(request([b"XADD", b"b", b"*", b"a", b"1"]) * 5)
                    for _ in range(5):
                        assert isinstance(other.reply(), Refusal)
            assert commandstats(ours) == commandstats(theirs)
        finally:
            theirs("ACL", "DELUSER", "eve")


def test_adds_are_counted_on_each_way(served: Served) -> None:
    """One by one, of clients in turns, in a pipeline, in one with others amid them, and refused."""
    add = request([b"XADD", b"s", b"*", b"f", b"v"])
    with Line(served.port) as one, Line(served.port) as other:
        one("CONFIG", "RESETSTAT")
        for line in (one, other, one, other):
            line("XADD", "s", "*", "f", "v")
        one.send(add * 20)
        assert not any(isinstance(one.reply(), Refusal) for _ in range(20))
        one.send((add + request([b"XLEN", b"s"])) * 3 + add * 2)
        for _ in range(8):
            one.reply()
        one("XADD", "full", "18446744073709551615-18446744073709551615", "f", "v")
        one.send(request([b"XADD", b"full", b"*", b"f", b"v"]) * 7)
        for _ in range(7):
            one.reply()
        one("XADD", "full", "*", "f", "v")
        found = info_fields(one, "commandstats")
        assert _TIMES.sub("", found["cmdstat_xadd"]) == (
            f"calls={4 + 20 + 5 + 1 + 7 + 1},rejected_calls=0,failed_calls=8"
        )
        assert found["cmdstat_xlen"].startswith("calls=3,")
        assert int(found["cmdstat_xadd"].split("usec=")[1].split(",")[0]) > 0


def test_monitor_tells_what_others_ask(redis_peer: Peer, served: Served) -> None:
    found = []
    for port in (served.port, redis_peer.port):
        with Line(port) as watching, Line(port) as asking:
            asking("DEL", "s")
            assert watching("MONITOR") == b"OK"
            asking("XADD", "s", "1-1", b'f\x00"\\', b"\r\n\xff")
            asking("NOSUCH")
            asking("XADD", "s")
            asking("CONFIG", "GET", "port")
            asking.send(request([b"XLEN", b"s"]) * 2)
            asking.reply(), asking.reply()
            asking("PING")
            lines = [watching.reply() for _ in range(4)]
            found.append([re.sub(rb"^[0-9.]+ \[0 [0-9.:]+\] ", b"", bytes(line)) for line in lines])
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["OBJECT", "ACL", "CONFIG", "MEMORY", "SLOWLOG"])
def test_help_tells_subcommands(redis_peer: Peer, served: Served, command: str) -> None:
    """What is there is there in the peer, too, and the error that names HELP is right."""
    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        mine, other = ours(command, "HELP"), theirs(command, "HELP")
        assert mine[0] == other[0]
        assert mine[-2:] == other[-2:]

        def words(lines: Any) -> set[bytes]:
            return {line.split()[0] for line in lines[1:] if not line.startswith(b" ")}

        assert words(mine) <= words(other)


def test_limits_of_nodes_are_set_for_new_nodes_and_kept(
    redis_peer: Peer, served: Served, tmp_path: Path
) -> None:
    def fill(line: Line, low: int) -> int:
        for number in range(low, low + 20):
            line("XADD", "s", f"{number}-1", "f", "v")
        found = line("XINFO", "STREAM", "s")
        return int(found[found.index(b"radix-tree-keys") + 1])

    with Line(served.port) as ours, Line(redis_peer.port) as theirs:
        theirs("FLUSHALL")
        theirs("CONFIG", "SET", "stream-node-max-entries", 100)
        try:
            for entries in (100, 5, 0, 7):
                found = []
                for line in (ours, theirs):
                    assert line("CONFIG", "SET", "stream-node-max-entries", entries) == b"OK"
                    found.append(fill(line, 1 + 20 * entries if entries else 2001))
                    line("DEL", "s") if entries == 0 else None
                assert found[0] == found[1], entries
        finally:
            theirs("CONFIG", "SET", "stream-node-max-entries", 100)
        refused = ours("CONFIG", "SET", "stream-node-max-entries", 1_000_001)
        assert "between 0 and 1000000 inclusive" in str(refused)
        with logstore.open(tmp_path / "store", readonly=True) as reader:
            assert reader._engine().limits.node_max_entries == 7


class Coming(Session):
    """A client beside whom another one comes whenever somebody looks at it."""

    @property
    def unblock(self) -> Any:  # type: ignore[override]
        """None: it does not wait."""
        Session(self.service)
        return None

    @unblock.setter
    def unblock(self, _value: object) -> None:
        pass


def test_info_is_told_while_clients_come(tmp_path: Path) -> None:
    """Prevents INFO that fails because a client connects while it counts those that wait."""
    with logstore.open(tmp_path / "store") as store:
        session = Session(service_of(store))
        Coming(session.service)
        reply = session.database.runner.run([session.step([b"INFO", b"clients"])])[0]
        assert isinstance(reply, Verbatim)


DEPLOY = ROOT / "examples" / "deploy"
# What Prometheus adds to each target.
ITS_OWN = {"up"}


def queries(value: Any) -> Iterator[str]:
    """All queries of a dashboard: of its panels and of its variables."""
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in {"expr", "definition"})
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from queries(each)


@pytest.fixture
def told_of(tmp_path: Path) -> dict[str, set[str]]:
    """What a server tells: names of numbers, and their labels."""
    with logstore.open(tmp_path / "store") as store:
        jobs = store.stream("jobs")
        jobs.add({"a": "b"})
        jobs.group("g", start="0").read("anna")
        service = service_of(store)
        service.counts.errors["ERR"] = 1
        text = exposition(server_process.families(service)).decode()
    families = text_string_to_metric_families(text)
    return {sample.name: set(sample.labels) for of in families for sample in of.samples}


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_metrics_of_alerts_and_dashboard_exist(file: str, told_of: dict[str, set[str]]) -> None:
    text = (DEPLOY / file).read_text()
    asked = "\n".join(queries(json.loads(text))) if file.endswith("json") else text
    names = set(re.findall(r"\b(?:logstore_\w+|up)\b", asked))
    assert len(names) > 6
    assert names - ITS_OWN - told_of.keys() == set()
    for name, selector in re.findall(r"\b(logstore_\w+)\{([^}]*)\}", asked):
        labels = set(re.findall(r"(\w+)=", selector)) - {"job", "instance"}
        assert labels <= told_of[name], name


def test_panels_of_the_dashboard_stand_beside_each_other() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24


@contextmanager
def watched_server(path: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """What a server told of itself; it ends cleanly."""
    command = [*COMMAND, "serve", str(path), "--port", "0", "--metrics-port", "0", "--json"]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as running:
        assert running.stdout is not None
        try:
            yield json.loads(running.stdout.readline())
            running.send_signal(signal.SIGTERM)
            assert running.wait(TIMEOUT_S) == 0
        finally:
            running.kill()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request(method, path)
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Numbers by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_server_tells_its_numbers_and_its_health(tmp_path: Path) -> None:
    others = ("--database", f"2={tmp_path / 'two'}")
    with watched_server(tmp_path / "one", *others) as told:
        port = told["metrics_port"]
        with socket.create_connection(("127.0.0.1", told["port"])) as client:
            for line in ("XADD s * a b", "SELECT 2", "NO", "XADD t * a b", "XADD t * a b"):
                client.sendall(request(line.encode().split()))
                assert client.recv(1000)
            status, text = ask(port, "/metrics")
            found = samples(text)
        assert status == 200
        assert found["logstore_entries", "0"] == 1
        assert found["logstore_entries", "2"] == 2
        assert found["logstore_stream_entries", "2", "t"] == 2
        assert found["logstore_process_added_entries_total", "2"] == 2
        assert found["logstore_server_clients",] == 1
        assert found["logstore_server_commands_total",] == 5
        assert found["logstore_server_errors_total", "ERR"] == 1
        assert ask(port, "/health") == (200, "ok\n")
        assert ask(port, "/ready") == (200, "ready\n")
        assert ask(port, "/ready?x=1")[0] == 200
        assert ask(port, "/health", "HEAD") == (200, "")
        assert ask(port, "/")[0] == 404
        assert ask(port, "/metrics", "POST")[0] == 501


def test_slow_metrics_requests_are_closed_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "ASKER_MAX_S", 0.5)
    endpoint = MetricsEndpoint("127.0.0.1", 0, list, lambda: "", lambda: True)
    try:
        slow = [
            socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(ASKERS_MAX + 2)
        ]
        for each in slow:
            each.sendall(b"GET /health HT")
        for each in slow:
            each.settimeout(TIMEOUT_S)
            assert each.recv(100) == b""  # cut off, however it sends
            each.close()
        assert ask(endpoint.port, "/health") == (200, "ok\n")
        for rubbish in (b"\x00\xff\r\n\r\n", b"G" * 100_000, b"GET /health\r\n" * 3):
            with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
                client.sendall(rubbish)
                with suppress(OSError):  # it may be cut off already
                    client.shutdown(socket.SHUT_WR)
                client.settimeout(TIMEOUT_S)
                with suppress(ConnectionError):
                    while client.recv(4096):
                        pass
        assert ask(endpoint.port, "/ready") == (200, "ready\n")
    finally:
        endpoint.close()


def test_silent_connections_hide_no_health() -> None:
    """Who asks is answered, however many others hold a place and say nothing, or half of it."""
    endpoint = MetricsEndpoint("127.0.0.1", 0, list, lambda: "", lambda: True)
    silent: list[socket.socket] = []
    try:
        for number in range(3 * ASKERS_MAX):
            client = socket.create_connection(("127.0.0.1", endpoint.port))
            silent.append(client)
            if number % 2:
                client.sendall(b"GET /health HTTP/1.1\r\nX: ")
            assert ask(endpoint.port, "/health") == (200, "ok\n")
        silent[0].settimeout(TIMEOUT_S)
        assert silent[0].recv(100) == b""  # which made room
        silent[-1].sendall(b"1\r\n\r\n")
        silent[-1].settimeout(TIMEOUT_S)
        assert silent[-1].recv(100).startswith(b"HTTP/1.0 200")  # which came last
    finally:
        for client in silent:
            client.close()
        endpoint.close()


def test_trouble_is_no_health() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, list, lambda: "a sync failed", lambda: True)
    try:
        assert ask(endpoint.port, "/health") == (503, "a sync failed\n")
        assert ask(endpoint.port, "/ready") == (503, "not ready\n")
    finally:
        endpoint.close()


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = process("serve", tmp_path / "s", "--port", "0", "--metrics-port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port} for metrics".encode() in done.stderr
    assert b"stop it, or give another port, 0 for any" in done.stderr
    assert b"Traceback" not in done.stderr
