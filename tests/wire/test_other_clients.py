"""Prevents an answer that redis-cli, or clients of other languages, take otherwise than a real
server's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.support.waits import eventually
from tests.tools.commands import COMMAND, environment
from tests.wire.lines import Line
from tests.wire.wired import InProcess

TIMEOUT_S = 120
BINARY = r"\x00\xff\r\n"
Asked = tuple[str, str]  # the arguments, as of a shell; what stands in stdin
FORMS: tuple[Asked, ...] = (
    ("PING", ""),
    ("--no-raw PING", ""),
    ("--no-raw XADD s 1-1 a 1 b 2", ""),
    ("-3 --no-raw XADD s 2-1 a 1", ""),
    ("-r 3 -i 0.01 XADD s 3-* a 1", ""),
    ("--no-raw XGROUP CREATE s g 0", ""),
    ("--no-raw XREAD COUNT 2 STREAMS s 0", ""),
    ("-3 --no-raw XREAD COUNT 2 STREAMS s 0", ""),
    ("-3 --json XREAD COUNT 2 STREAMS s 0", ""),
    ("--no-raw XREADGROUP GROUP g alice COUNT 2 STREAMS s >", ""),
    ("-3 --no-raw XINFO STREAM s", ""),
    ("--no-raw XINFO STREAM s", ""),
    ("-3 --no-raw XINFO GROUPS s", ""),
    ("--quoted-json XINFO GROUPS s", ""),
    ("--raw XPENDING s g", ""),
    ("-3 --csv XPENDING s g", ""),
    ("--csv XRANGE s - +", ""),
    ("--json XRANGE s - +", ""),
    ("-d , -D ; XRANGE s - + COUNT 1", ""),
    ("--no-raw XRANGE none - +", ""),
    ("--no-raw XREAD STREAMS none 0", ""),
    ("-3 --no-raw XREAD STREAMS none 0", ""),
    ("-n 0 DBSIZE", ""),
    ("-e --no-raw XADD s 1-1 a 1", ""),
    ("-e --no-raw NOSUCH a b", ""),
    ("-e XADD s", ""),
    ("--no-raw XGROUP CREATE s g 0", ""),
    ("--no-raw TYPE s", ""),
    ("--no-raw OBJECT ENCODING s", ""),
    ("--no-raw XLEN s", ""),
)
PIPED = (
    "XADD p 1-1 a 1\r\nXADD p 1-1 a 1\r\nXLEN p\r\n"
    "*5\r\n$4\r\nXADD\r\n$1\r\np\r\n$3\r\n3-1\r\n$1\r\na\r\n$1\r\n1\r\n"
)
STDIN: tuple[Asked, ...] = (
    ("-x XADD in 1-1 field", "from stdin, as it is\n"),
    ("-X TAG XADD in 2-1 TAG value", "a field\n"),
    ("--no-raw XRANGE in - +", ""),
    (
        "--no-raw",
        "MULTI\nXADD in 3-1 'a b' \"" + BINARY + "\"\nXLEN in\nXADD in 3-1 a 1\nEXEC\n"
        "XRANGE in 3-1 3-1\n",
    ),
    ("--no-raw", "MULTI\nXADD in 9-1 a 1\nXADD in\nEXEC\nDISCARD\nXLEN in\n"),
    ("--no-raw", "WATCH in\nMULTI\nDISCARD\nUNWATCH\nSELECT 0\nRESET\nEXEC\n"),
    ("-3 --no-raw", "MULTI\nXREAD BLOCK 0 STREAMS in $\nXINFO STREAM in\nEXEC\n"),
    ("--no-raw", "XADD in 1-1 'unbalanced\n3 XLEN in\n\nXLEN in\nquit\nXLEN in\n"),
    ("--quoted-input --no-raw XRANGE \"i\\x6e\" - + COUNT 1", ""),
    ("--pipe", PIPED),
    ("--no-raw XRANGE p - +", ""),
)  # fmt: skip


@pytest.fixture(scope="module")
def cli() -> str:
    """Where redis-cli is."""
    found = shutil.which("redis-cli")
    if found is None:
        pytest.skip("no redis-cli on PATH: it is in Debian's redis-tools")
    return found


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of `logstore serve`, a process of its own, in the words of Redis 8.2."""
    served = InProcess(tmp_path / "store", "redis-8.2")
    yield served.port
    served.stop()


def asked(cli: str, port: int, arguments: Sequence[str], stdin: str = "") -> tuple[int, str]:
    """How redis-cli ends, and what it prints."""
    done = subprocess.run(
        [cli, "-p", str(port), *arguments], input=stdin.encode(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("latin-1").replace(str(port), "PORT")


def same(cli: str, ours: int, theirs: int, sessions: Sequence[Asked]) -> list[str]:
    """What is printed, once it was found to be the same."""
    told = []
    for arguments, stdin in sessions:
        words = arguments.split(" ")
        mine, other = (asked(cli, each, words, stdin) for each in (ours, theirs))
        assert mine == other, (arguments, stdin)
        told.append(mine[1])
    return told


@pytest.mark.peers
def test_redis_cli_prints_what_it_prints_at_a_redis(cli: str, port: int, redis_peer: Peer) -> None:
    told = same(cli, port, redis_peer.port, FORMS)
    assert told[0] == "PONG\n"
    assert told[7].startswith('1# "s" => \n   1) 1) "1-1"\n')  # a map: RESP3 was spoken
    assert told[6].startswith('1) 1) "s"\n')


@pytest.mark.peers
def test_redis_cli_with_a_value_from_stdin(cli: str, port: int, redis_peer: Peer) -> None:
    told = same(cli, port, redis_peer.port, STDIN)
    assert told[2].startswith('1) 1) "1-1"\n   2) 1) "field"\n      2) "from stdin, as it is\\n"\n')
    assert told[3].startswith("OK\nQUEUED\nQUEUED\nQUEUED\n1)")
    assert told[-2].endswith("errors: 1, replies: 4\n")


@pytest.mark.peers
def test_redis_cli_finds_all_keys_and_the_largest(cli: str, port: int, redis_peer: Peer) -> None:
    """Keys come in another order here, and lines about what is largest so far with it."""
    keys = [f"race:{number}" for number in range(1, 60)] + ["odd key"]
    ends: list[list[str]] = []
    for server in (port, redis_peer.port):
        with Line(server) as line:
            for number, key in enumerate(keys, 1):
                for entry in range(1, number + 1):
                    line("XADD", key, f"{entry}-1", "a", "1")
        found = []
        for words in (
            ["--scan"], ["--scan", "--pattern", "race:1*"], ["--scan", "--pattern", "none*"],
            ["--scan", "--quoted-pattern", r'"odd\x20*"'], ["--bigkeys"],
        ):  # fmt: skip
            code, text = asked(cli, server, words)
            assert code == 0, (words, text)
            _, _, summary = text.partition("-------- summary")
            found.append(summary or "\n".join(sorted(text.splitlines())))
        assert found[0].splitlines() == sorted(keys)
        assert "Biggest stream found '\"odd key\"' has 60 entries" in found[-1]
        ends.append(found)
    assert ends[0] == ends[1]


@pytest.mark.peers
def test_a_read_that_blocks_is_woken_by_another_client(
    cli: str, port: int, redis_peer: Peer
) -> None:
    told = []
    for server in (port, redis_peer.port):
        words = ["-3", "--no-raw", "XREAD", "BLOCK", "20000", "STREAMS", "news", "$"]
        with subprocess.Popen([cli, "-p", str(server), *words], stdout=subprocess.PIPE) as waits:
            with Line(server) as line:
                eventually(lambda: b"blocked_clients:1" in line("INFO", "clients"))
            assert asked(cli, server, ["XADD", "news", "1-1", "a", "1"]) == (0, "1-1\n")
            assert waits.stdout is not None
            told.append((waits.stdout.read(), waits.wait(TIMEOUT_S)))
    assert told[0] == told[1]
    assert told[0][1] == 0


@pytest.mark.peers
def test_a_unix_socket_and_a_password(cli: str, tmp_path: Path) -> None:
    secret, path = tmp_path / "secret", tmp_path / "socket"
    secret.write_text("hidden words\n")
    command = [
        *COMMAND, "serve", str(tmp_path / "store"), "--port", "0", "--requirepass-file",
        str(secret), "--unixsocket", str(path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as served:
        try:
            assert served.stdout is not None
            served.stdout.readline()
            found = []
            for password in ("hidden words", "wrong", None):
                given = {} if password is None else {"REDISCLI_AUTH": password}
                done = subprocess.run(
                    [cli, "-s", str(path), "--no-raw", "XLEN", "s"], capture_output=True,
                    text=True, timeout=TIMEOUT_S, check=False, env={**os.environ, **given},
                )  # fmt: skip
                found.append((done.stdout, done.stderr))
        finally:
            served.terminate()
    unknown = "(error) NOAUTH Authentication required.\n"
    assert [printed for printed, _ in found] == ["(integer) 0\n", unknown, unknown]
    assert "WRONGPASS" in found[1][1]


HERE = Path(__file__).parent
BUILD_S, RUN_S = 300, 60


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Go, built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on PATH: it is in Debian's golang-go")
    copy = tmp_path_factory.mktemp("go") / "goredis"
    shutil.copytree(HERE / "goredis", copy)
    try:
        built = subprocess.run(
            [go, "build", "-mod=mod", "-o", "program", "."], cwd=copy, capture_output=True,
            text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"go-redis was not had and built in {BUILD_S} s")
    if built.returncode:
        pytest.skip(
            "go-redis cannot be had here: `go build -mod=mod` in tests/wire/goredis says why"
        )
    return copy / "program"


@pytest.fixture(scope="module")
def node() -> str:
    """Node, with the clients."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node on PATH")
    look = [found, "-e", "require('ioredis'); require('redis')"]
    if subprocess.run(look, capture_output=True, check=False).returncode:
        pytest.skip("node finds no ioredis and redis: npm install them, and name them in NODE_PATH")
    return found


def output_of_both(path: Path, peer: Peer, command: Sequence[str | Path]) -> list[str]:
    """What the program prints, once it was found to be the same."""
    served = InProcess(path / "store", "redis-8.2" if peer.name == "redis" else "valkey-9")
    try:
        ours, theirs = (
            subprocess.run(
                [*command, f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=RUN_S,
                check=True,
            ).stdout.splitlines()
            for port in (served.port, peer.port)
        )  # fmt: skip
    finally:
        served.stop()
    assert ours == theirs
    return ours


@pytest.mark.peers
def test_go_redis(go_program: Path, tmp_path: Path, peer: Peer) -> None:
    lines = output_of_both(tmp_path, peer, [go_program])
    assert "2 xread block: [{t [{9-1 map[a:b]}]}] <nil>" in lines
    assert "3 destroy: 1 <nil>" in lines


@pytest.mark.peers
def test_ioredis_and_node_redis(node: str, tmp_path: Path, peer: Peer) -> None:
    lines = output_of_both(tmp_path, peer, [node, HERE / "node" / "clients.js"])
    assert 'xread block: [["t",[["9-1",["a","b"]]]]]' in lines
    assert lines[-1] == "end"
