"""A store and a script: each operation is done on the store, and written down as the commands that
do the same on a server, each with the reply that the store's outcome demands.

The server plays the script afterwards, in one pipeline. Automatic IDs of the clock's time are sent
as the explicit IDs that the store gave; all other ID forms go out as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import logstore
from logstore.api.store import Store
from logstore.ids import MAX_ID, StreamID
from tests.codec.strategies import next_id
from tests.peers.dump import Metadata, parse_dump
from tests.peers.servers import Peer
from tests.store.whole_store import dump_payload, stream_nodes
from tests.support.inside import FixedClock, delete_index, roll

NAMES = (b"s", b"\x00/../t")
FAR_MS = 1 << 45  # no server's clock is there yet
Check = Callable[[Any], bool]


def text(id: StreamID) -> bytes:
    """An ID as a reply has it."""
    return b"%d-%d" % id


class Mirror:
    """One store, and what a server must answer to the same operations."""

    def __init__(self, path: Path, sizes: tuple[int, int]) -> None:
        self.path = path
        self.sizes = sizes
        self.clock = FixedClock(1000)
        self.store = self._open(*sizes)
        self.given: dict[bytes, list[StreamID]] = {name: [] for name in NAMES}
        self.script: list[tuple[tuple[Any, ...], Check, Any]] = []

    def _open(self, *limits: int) -> Store[bytes]:
        most_bytes, most_entries = limits or (None, None)
        return logstore.open(
            self.path, sync="os", background=False, clock=self.clock, node_max_bytes=most_bytes,
            node_max_entries=most_entries,
        )  # fmt: skip

    # -- the script ---------------------------------------------------------------------------
    def expect(self, command: tuple[Any, ...], wanted: Any) -> None:
        """The command must be answered with this reply."""
        self.script.append((command, lambda reply: reply == wanted, wanted))

    def refused(
        self, command: tuple[Any, ...], error: logstore.Error, faults: int = 1,
        reply: Any = None,
    ) -> None:  # fmt: skip
        """The command must be refused with the words that our error begins with.

        Of several faults in one command each side may name another one. Swapped ends, which only
        the store refuses, are answered by the servers as a range without entries is.
        """
        if "give the smaller ID first" in str(error):
            self.expect(command, [] if reply is None else reply([]))
            return

        def check(reply: Any) -> bool:
            refusal = isinstance(reply, redis.ResponseError)
            return refusal and (faults > 1 or error.message.startswith(str(reply)))

        self.script.append((command, check, error))

    def both(
        self, command: tuple[Any, ...], call: Callable[[], Any], reply: Any = None, faults: int = 1
    ) -> Any:
        """Do it on the store; the outcome, turned by ``reply``, is what the server must answer."""
        try:
            found = call()
        except (logstore.UsageError, logstore.StreamNotFoundError) as error:
            self.refused(command, error, faults, reply)
            return None
        self.expect(command, found if reply is None else reply(found))
        return found

    def judge(self, peer: Peer) -> None:
        """Let a server play the script."""
        peer.command("FLUSHALL")
        peer.command("CONFIG", "SET", "stream-node-max-bytes", self.sizes[0])
        peer.command("CONFIG", "SET", "stream-node-max-entries", self.sizes[1])
        replies = peer.pipeline([command for command, _, _ in self.script])
        for (command, check, wanted), reply in zip(self.script, replies, strict=True):
            assert check(reply), f"{peer.version} {command}: {reply!r}, the store: {wanted!r}"

    # -- what is drawn ------------------------------------------------------------------------
    def known(self, name: bytes, index: int) -> StreamID:
        """An ID that was once given, 7-7 before there is one."""
        found = self.given[name]
        return found[index % len(found)] if found else StreamID(7, 7)

    def id_of(self, name: bytes, drawn: tuple[Any, ...]) -> Any:
        """The ID argument of a drawn form."""
        match drawn:
            case ("step", step):
                return StreamID(*next_id(self.store.stream(name).last_id, step))
            case ("known", index):
                return self.known(name, index)
            case ("auto of", step):
                return f"{min(self.store.stream(name).last_id.ms + step, MAX_ID.ms)}-*"
            case ("raw", raw):
                return raw
        raise ValueError(drawn)

    def run(self, operation: tuple[Any, ...]) -> None:
        """Do one drawn operation."""
        kind, *rest = operation
        getattr(self, "do_" + kind)(*rest)

    # -- operations ---------------------------------------------------------------------------
    def do_add(
        self, which: int, drawn: tuple[Any, ...], flat: list[bytes], trim: dict[str, Any],
        create: bool,
    ) -> None:  # fmt: skip
        name = NAMES[which]
        stream = self.store.stream(name)
        last, id = stream.last_id, self.id_of(name, drawn)
        options, words = self._trim(name, trim)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        how = () if create else ("NOMKSTREAM",)
        before = len(self.script)
        found = self.both(
            ("XADD", name, *how, *words, _plain(id), *flat),
            lambda: stream.add(pairs, id=id, create=create, **options),
            lambda added: None if added is None else text(added),
            _faults(trim) + (drawn[0] in ("raw", "known")),
        )
        if found is not None:
            self.given[name].append(found)
            if id in ("*", b"*") and (last.ms < FAR_MS or self.clock.ms > last.ms):
                command = ("XADD", name, *how, *words, text(found), *flat)
                self.script[before] = (command, *self.script[before][1:])
                wanted = StreamID(self.clock.ms, 0) if self.clock.ms > last.ms else last.next()
                assert found == wanted
        self.look(name)

    def do_many(
        self, which: int, flats: list[list[bytes]], steps: list[tuple[int, int]] | None,
        batch: int, trim: dict[str, Any],
    ) -> None:  # fmt: skip
        name = NAMES[which]
        stream = self.store.stream(name)
        options, words = self._trim(name, trim)
        rows: list[Any] = [list(zip(flat[::2], flat[1::2], strict=True)) for flat in flats]
        if steps is not None:
            last, ids = stream.last_id, []
            for step in steps:
                last = StreamID(*next_id(last, step))
                if last > MAX_ID:  # no ID is above the largest one: ``do_add`` asks for such
                    break
                ids.append(last)
            rows = list(zip(ids, rows, strict=False))
            flats = flats[: len(rows)]
        try:
            found = list(stream.add_many(rows, batch=batch, **options))
        except logstore.UsageError as error:
            if words:
                self.refused(("XADD", name, *words, "*", b"f", b"v"), error, _faults(trim))
            elif not isinstance(error, logstore.IDOrderError) or stream.last_id.ms < MAX_ID.ms:
                raise
            return
        self.given[name] += found
        for at, (id, flat) in enumerate(zip(found, flats, strict=True)):
            self.expect(("XADD", name, text(id), *flat), text(id))
            if words and (at % batch == batch - 1 or at == len(found) - 1):
                self.script.append((("XTRIM", name, *words), lambda reply: True, None))
        self.look(name)

    def do_delete(self, which: int, drawn: list[tuple[Any, ...]]) -> None:
        name = NAMES[which]
        ids = [self.id_of(name, one) for one in drawn]
        stream = self.store.stream(name)
        if name not in self.store:  # servers do not look at the IDs then, we always do
            ids = [self.known(name, 0)]
        self.both(("XDEL", name, *map(_plain, ids)), lambda: stream.delete(*ids))
        self.look(name)

    def do_delete_range(self, which: int, start: tuple[Any, ...], end: tuple[Any, ...]) -> None:
        name = NAMES[which]
        stream = self.store.stream(name)
        low, high = self._edge(name, start), self._edge(name, end)
        try:
            ids = [text(entry.id) for entry in stream.range(low, high)]
            gone = stream.delete_range(low, high)
        except logstore.UsageError as error:
            self.refused(("XRANGE", name, low, high), error)
            return
        assert gone == len(ids)
        if ids:
            self.expect(("XDEL", name, *ids), gone)
        self.look(name)

    def do_trim(self, which: int, trim: dict[str, Any]) -> None:
        name = NAMES[which]
        options, words = self._trim(name, {"approximate": False, **trim})
        stream = self.store.stream(name)
        if {"max_entries", "min_id"} & set(options):
            self.both(("XTRIM", name, *words), lambda: stream.trim(**options), faults=_faults(trim))
        else:
            with pytest.raises(logstore.OptionError, match=r"must be called with|LIMIT"):
                stream.trim(**options)
        self.look(name)

    def do_set_id(
        self, which: int, drawn: tuple[Any, ...], added: int | None, deleted: tuple[Any, ...] | None
    ) -> None:
        name = NAMES[which]
        stream = self.store.stream(name)
        last = self.id_of(name, drawn)
        most = None if deleted is None else self.id_of(name, deleted)
        if name in self.store:
            info = stream.info()
            if added is not None:
                added += info.length - 2
            if self._zombies(name) and isinstance(most, StreamID):
                most = max(most, info.max_deleted_entry_id)  # see test_node_limits
        words: tuple[Any, ...] = () if added is None else ("ENTRIESADDED", added)
        words += () if most is None else ("MAXDELETEDID", _plain(most))
        self.both(
            ("XSETID", name, _plain(last), *words),
            lambda: stream.set_id(last, entries_added=added, max_deleted_id=most),
            lambda _: b"OK",
            (drawn[0] == "raw") + (deleted is not None) + (added is not None and added < 0),
        )
        self.look(name)

    def _zombies(self, name: bytes) -> bool:
        return any(lp[6:7] == b"\0" for _, lp in stream_nodes(self.store, name))

    def do_drop(self, which: int) -> None:
        name = NAMES[which]
        self.both(("DEL", name), lambda: self.store.drop(name), int)
        self.look(name)

    def do_create(self, which: int) -> None:
        name = NAMES[which]
        if self.store.create(name):
            self.expect(("XGROUP", "CREATE", name, "g", "$", "MKSTREAM"), b"OK")
            self.expect(("XGROUP", "DESTROY", name, "g"), 1)
        self.look(name)

    def do_clock(self, forward: int) -> None:
        self.clock.ms = max(0, self.clock.ms + forward)

    def do_reopen(self, how: str) -> None:
        """Close and open; ``how`` says what happens before and between."""
        if "roll" in how:
            roll(self.store)
        if "reopen" in how or "rebuild" in how:
            self.store.close()
            if "rebuild" in how:
                delete_index(self.path)
            self.store = self._open()
        self.do_nodes()

    # -- reading ------------------------------------------------------------------------------
    def do_range(
        self, which: int, start: tuple[Any, ...], end: tuple[Any, ...], count: int | None,
        reverse: bool,
    ) -> None:  # fmt: skip
        name = NAMES[which]
        low, high = self._edge(name, start), self._edge(name, end)
        command: tuple[Any, ...] = ("XRANGE", name, low, high)
        if reverse:
            command = ("XREVRANGE", name, high, low)
        if count is not None:
            command = (*command, "COUNT", count)
        stream = self.store.stream(name)
        empty: list[Any] | None = None if count == 0 and name in self.store else []
        self.both(
            command,
            lambda: list(stream.range(low, high, count=count, reverse=reverse)),
            lambda found: [_reply(entry) for entry in found] or empty,
        )

    def do_read(self, drawn: list[tuple[Any, ...]], count: int | None) -> None:
        after = {
            name: _plain(self.id_of(name, one)) for name, one in zip(NAMES, drawn, strict=False)
        }
        for name in [name for name, id in after.items() if id == "+"]:
            last = self.store.stream(name).last
            if last is not None and last.id != self.store.stream(name).last_id:
                after[name] = "0"  # Valkey gives nothing if the last entry was deleted
        limit = () if count is None else ("COUNT", count)
        self.both(
            ("XREAD", *limit, "STREAMS", *after, *after.values()),
            lambda: self.store.read(after, count=count),
            lambda found: [
                [name, [_reply(entry) for entry in entries]] for name, entries in found.items()
            ] or None,
        )  # fmt: skip

    def do_nodes(self) -> None:
        """Everything, and the bytes of every node."""
        for which, name in enumerate(NAMES):
            self.do_range(which, ("raw", "-"), ("raw", "+"), None, False)
            self.do_range(which, ("raw", "-"), ("raw", "+"), None, True)
            self.look(name)
            if name not in self.store:
                self.expect(("DUMP", name), None)
                continue
            info = self.store.stream(name).info()
            metadata = Metadata(
                info.length, info.last_generated_id, info.recorded_first_entry_id,
                info.max_deleted_entry_id, info.entries_added, b"", 0, 0,
            )[:5]  # fmt: skip
            nodes = stream_nodes(self.store, name)

            def check(reply: Any, nodes: Any = nodes, metadata: Any = metadata) -> bool:
                found = parse_dump(reply)
                return bool(found[0] == nodes and found[1][:5] == metadata)

            self.script.append((("DUMP", name), check, (metadata, nodes)))

    def do_restore(self) -> None:
        """The servers take our nodes, sanitized, and read the same from them."""
        for name in self.store.streams():
            copy = name + b" restored"
            self.expect(("RESTORE", copy, 0, dump_payload(self.store, name)), b"OK")
            entries = [_reply(entry) for entry in self.store.stream(name).range()]
            self.expect(("XRANGE", copy, "-", "+"), entries)
            self.both(("XINFO", "STREAM", copy), self.store.stream(name).info, _info)

    def look(self, name: bytes) -> None:
        """What XINFO STREAM says."""
        stream = self.store.stream(name)
        self.expect(("XLEN", name), len(stream))
        self.both(("XINFO", "STREAM", name), stream.info, _info)

    # -- arguments ----------------------------------------------------------------------------
    def _edge(self, name: bytes, drawn: tuple[Any, ...]) -> Any:
        if drawn[0] == "after":
            return b"(" + text(self.known(name, drawn[1]))
        if drawn[0] == "ms":
            return b"%s%d" % (drawn[1], self.known(name, drawn[2]).ms)
        return _plain(self.id_of(name, drawn))

    def _trim(self, name: bytes, drawn: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        options = dict(drawn)
        if options.get("min_id") is not None:
            options["min_id"] = _plain(self.id_of(name, options["min_id"]))
        how = "~" if options.get("approximate", True) else "="
        words: tuple[Any, ...] = ()
        for option, word in (("max_entries", "MAXLEN"), ("min_id", "MINID")):
            if options.get(option) is not None:
                words += (word, how, options[option])
        if options.get("limit") is not None:
            words += ("LIMIT", options["limit"])
        return options, words


def _faults(trim: dict[str, Any]) -> int:
    """How many things may be wrong with a trim."""
    max_entries, min_id, limit = (trim.get(name) for name in ("max_entries", "min_id", "limit"))
    return sum((
        max_entries is not None and max_entries < 0,
        min_id is not None and min_id[0] == "raw",
        max_entries is not None and min_id is not None,
        limit is not None and limit < 0,
        limit is not None and not trim.get("approximate", True),
        limit is not None and max_entries is None and min_id is None,
        limit == 0,  # servers look for it in another place then
    ))  # fmt: skip


def _plain(id: Any) -> Any:
    return text(id) if isinstance(id, StreamID) else id


def _reply(entry: Any) -> Any:
    if entry is None:
        return None
    return [text(entry.id), [part for pair in entry.pairs for part in pair]]


def _info(info: logstore.StreamInfo) -> list[Any]:
    return [
        b"length", info.length,
        b"radix-tree-keys", info.radix_tree_keys,
        b"radix-tree-nodes", info.radix_tree_nodes,
        b"last-generated-id", text(info.last_generated_id),
        b"max-deleted-entry-id", text(info.max_deleted_entry_id),
        b"entries-added", info.entries_added,
        b"recorded-first-entry-id", text(info.recorded_first_entry_id),
        b"groups", info.groups,
        b"first-entry", _reply(info.first_entry),
        b"last-entry", _reply(info.last_entry),
    ]  # fmt: skip
