"""Take the golden vectors of the codec from real servers.

Run from the root: ``python -m tests.golden.codec.generate``. It replays the operations below on
Redis and Valkey, stops if they do not agree to the byte, and writes vectors.json beside itself:
per vector its limits, its operations, the nodes they leave (key and listpack in hex; a listpack
over 1 KiB as {"zlib": base64}) and the live entries. Texts are bytes as latin-1;
{"repeat": "x", "times": n} stands for a long one. Where Redis and Valkey are known to differ (see
DISPUTED), "nodes" are those of Redis, and "valkey_nodes" stand beside them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.peers.dump import parse_dump
from tests.peers.servers import Peer, start

HERE = Path(__file__).parent
HEX_BYTES_MAX = 1024
# Redis gives an element of 16383 or 2097151 bytes a back length one byte longer than Valkey does.
DISPUTED = ("length-16378", "length-2097146")

Text = str | dict[str, Any]
Operation = list[Any]


def to_bytes(text: Text) -> bytes:
    """The bytes that a text of a vector stands for."""
    if isinstance(text, dict):
        return str(text["repeat"]).encode("latin-1") * int(text["times"])
    return text.encode("latin-1")


def to_text(data: bytes) -> Text:
    """The text of a vector that stands for these bytes."""
    if len(data) > 64 and data == data[:1] * len(data):
        return {"repeat": data[:1].decode("latin-1"), "times": len(data)}
    return data.decode("latin-1")


def to_command(operation: Operation) -> tuple[Any, ...]:
    """The command of an operation, for the key "golden"."""
    match operation:
        case ["add", id, flat]:
            return ("XADD", "golden", id, *map(to_bytes, flat))
        case ["delete", id]:
            return ("XDEL", "golden", id)
        case ["maxlen", count]:
            return ("XTRIM", "golden", "MAXLEN", "=", count)
        case ["minid", id]:
            return ("XTRIM", "golden", "MINID", "=", id)
    raise ValueError(operation)


def one_value(text: Text) -> list[Operation]:
    """A stream of two entries: the text as field and value, and as a value only."""
    return [["add", "1-1", [text, text]], ["add", "1-2", [text, "again"]]]


def integers() -> Iterator[str]:
    """Both sides of every border of an integer's width, and texts that are almost integers."""
    for border in (127, 4095, 2**15 - 1, 2**23 - 1, 2**31 - 1, 2**63 - 1):
        yield from (str(border - 1), str(border), str(border + 1))
    for border in (-4096, -(2**15), -(2**23), -(2**31), -(2**63)):
        yield from (str(border - 1), str(border), str(border + 1))
    yield from ("0", "-1", "-127", "-128", "64", "128")
    yield from (
        "-0",
        "00",
        "007",
        "+1",
        " 1",
        "1 ",
        "-",
        "--1",
        "1.0",
        "1e3",
        "0x1",
        "-01",
        "9" * 20,
    )
    yield from ("1" * 19, "1" * 20, "1" * 21, "-" + "1" * 19, "1\x00", "\xff\xfe")


def lengths() -> Iterator[int]:
    """Lengths on both sides of every border of a string's encoding and of its back length."""
    yield from (0, 1, 62, 63, 64, 65, 125, 126, 127, 128)
    yield from (4093, 4094, 4095, 4096, 4097)
    # with the 5 encoding bytes of a long string: 16382, 16383 and 16384; 2097150 to 2097152
    yield from (16376, 16377, 16378, 16379, 16382, 16383, 2097145, 2097146, 2097147)


def counters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Live entries and tombstones that cross 127 and 128, where the counters change width."""
    adds: list[Operation] = [["add", f"1-{i}", ["n", str(i)]] for i in range(1, 131)]
    deletes: list[Operation] = [["delete", f"1-{i}"] for i in range(130, 0, -1)]
    for count in (127, 128, 129):
        yield f"count-{count}", {"entries": 200, "operations": adds[:count]}
        yield f"count-130-deleted-{count}", {"entries": 200, "operations": adds + deletes[:count]}
    yield (
        "count-back-to-127",
        {"entries": 200, "operations": [*adds[:128], ["delete", "1-5"]]},
    )
    yield "maxlen-keeps-1", {"entries": 200, "operations": [*adds, ["maxlen", 1]]}


def shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields that are and are not the master's, IDs below and far above it, limits, zombies."""
    adds: list[Operation] = [["add", f"{i}-0", ["f", "v" * i]] for i in range(1, 11)]
    top = 2**64 - 1
    yield (
        "worked-example",
        {
            "operations": [
                ["add", "1526919030474-55", ["message", "hello"]],
                ["add", "1526919030475-0", ["message", "127"]],
                ["add", "1526919030475-1", ["other", "x", "n", "-1"]],
            ]
        },
    )
    fields = [
        ["a", "1", "b", "2"],
        ["b", "1", "a", "2"],
        ["a", "1"],
        ["a", "1", "b", "2", "c", "3"],
    ]
    fields += [["a", "1", "a", "2"], ["", ""], ["", "", "", ""], ["A", "1", "b", "2"]]
    for at, first in enumerate(fields):
        operations: list[Operation] = [["add", "5-5", first]]
        operations += [["add", f"{6 + i}-{i}", flat] for i, flat in enumerate(fields)]
        yield f"fields-{at}", {"operations": operations}
    many: list[Text] = [text for i in range(130) for text in (f"field{i}", str(i))]
    yield "many-fields", {"operations": [["add", "1-1", many], ["add", "1-2", [*many, "x", "y"]]]}
    far = [f"0-{top}", "1-0", f"1-{2**63}", f"1-{top}", f"{2**63}-0", f"{2**63 + 1}-1"]
    yield (
        "differences-wrap",
        {"operations": [["add", id, ["f", "v"]] for id in (*far, f"{top}-{top}")]},
    )
    for limit in (0, 1, 60, 61, 62, 100):
        yield f"node-max-bytes-{limit}", {"bytes": limit, "operations": adds}
    for limit in (0, 1, 3):
        yield f"node-max-entries-{limit}", {"entries": limit, "operations": adds}
    yield (
        "zombie",
        {
            "operations": [
                *adds[:3],
                ["delete", "3-0"],
                ["minid", "3-0"],
                ["add", "9-9", ["f", "v"]],
            ]
        },
    )
    yield "first-entry-deleted", {"operations": [*adds, ["delete", "1-0"], ["minid", "4-0"]]}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """All vectors: a name, and limits and operations."""
    for text in integers():
        yield f"text-{text!r}", {"operations": one_value(text)}
    for length in lengths():
        yield f"length-{length}", {"operations": one_value(to_text(b"x" * length)), "bytes": 0}
    yield from counters()
    yield from shapes()


def replay(peer: Peer, vector: dict[str, Any]) -> tuple[Any, Any]:
    """Nodes and live entries that the operations leave on a server."""
    peer.command("FLUSHALL")
    peer.command("CONFIG", "SET", "stream-node-max-bytes", vector.get("bytes", 4096))
    peer.command("CONFIG", "SET", "stream-node-max-entries", vector.get("entries", 100))
    for reply in peer.pipeline([to_command(operation) for operation in vector["operations"]]):
        if isinstance(reply, Exception):
            raise reply
    return parse_dump(peer.command("DUMP", "golden"))[0], peer.command("XRANGE", "golden", "-", "+")


def to_recorded(lp: bytes) -> str | dict[str, str]:
    """A listpack as it is written."""
    if len(lp) <= HEX_BYTES_MAX:
        return lp.hex()
    return {"zlib": base64.b64encode(zlib.compress(lp, 9)).decode()}


def from_recorded(lp: str | dict[str, str]) -> bytes:
    """A listpack as it was."""
    if isinstance(lp, str):
        return bytes.fromhex(lp)
    return zlib.decompress(base64.b64decode(lp["zlib"]))


def recorded(name: str, vector: dict[str, Any], nodes: Any, entries: Any) -> dict[str, Any]:
    """A vector as it is written."""
    return {
        "name": name,
        "node_max_bytes": vector.get("bytes", 4096),
        "node_max_entries": vector.get("entries", 100),
        "operations": vector["operations"],
        "nodes": [[key.hex(), to_recorded(lp)] for key, lp in nodes],
        "entries": [[id.decode(), [to_text(text) for text in flat]] for id, flat in entries],
    }


def main() -> None:
    """Write vectors.json."""
    peers = [start("redis"), start("valkey")]
    lines: list[str] = []
    for name, vector in vectors():
        (nodes, entries), (valkey_nodes, valkey_entries) = (replay(p, vector) for p in peers)
        if entries != valkey_entries or (nodes != valkey_nodes) != (name in DISPUTED):
            raise SystemExit(f"{name}: the servers agree where they did not, or do not any more")
        line = recorded(name, vector, nodes, entries)
        if name in DISPUTED:
            line["valkey_nodes"] = recorded(name, vector, valkey_nodes, entries)["nodes"]
        lines.append(json.dumps(line))
    (HERE / "vectors.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} vectors, as {' and '.join(peer.version for peer in peers)} have them")


if __name__ == "__main__":
    main()
