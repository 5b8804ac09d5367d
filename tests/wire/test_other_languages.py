"""Prevents an answer that clients of other languages take otherwise than a real server's.

A small program in Go (go-redis) and one in JavaScript (ioredis, node-redis) ask `logstore serve`
and a real server the same, and print what the client makes of each answer. They run where the
clients can be had: `go` gets go-redis from its proxy, or as GOFLAGS (`-modfile=...`, say) tell it;
`npm install ioredis redis` puts the others under a folder that NODE_PATH names.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.peers.servers import Peer
from tests.wire.wired import InProcess

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


def told(path: Path, peer: Peer, command: Sequence[str | Path]) -> list[str]:
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
    lines = told(tmp_path, peer, [go_program])
    assert "2 xread block: [{t [{9-1 map[a:b]}]}] <nil>" in lines
    assert "3 destroy: 1 <nil>" in lines


@pytest.mark.peers
def test_ioredis_and_node_redis(node: str, tmp_path: Path, peer: Peer) -> None:
    lines = told(tmp_path, peer, [node, HERE / "node" / "clients.js"])
    assert 'xread block: [["t",[["9-1",["a","b"]]]]]' in lines
    assert lines[-1] == "end"
