"""XGROUP and its subcommands."""

from __future__ import annotations

from logstore.engine.apply.write_txn import WriteTxn
from logstore.engine.groups import admin
from logstore.engine.groups.admin import NO_KEY
from logstore.ids import StreamID
from logstore.wire.resp.failures import Failed
from logstore.wire.resp.reply import Simple
from logstore.wire.resp.words import Words, loose_id, strict_id
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Change, Step, Tell, ok
from logstore.wire.table import Command

_HELP = (
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Make a consumer group. Options are:",
    "    * MKSTREAM",
    "      Make the stream, empty, if it is missing.",
    "    * ENTRIESREAD entries_read",
    "      How many entries the group has read, for its lag.",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Make a consumer of the group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove a consumer from the group, with what is pending with it.",
    "DESTROY <key> <groupname>",
    "    Remove the group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the last delivered ID of the group.",
    "HELP",
    "    Print this help.",
)


def _number(words: Words) -> int:
    read = words.integer()
    if read < 0 and read != -1:
        raise Failed("ERR value for ENTRIESREAD must be positive or -1")
    return read


def _options(words: Words, command: str, *, make: bool) -> tuple[bool, int | None]:
    make_stream, read = False, None
    while len(words):
        word = words.option()
        if make and word == b"MKSTREAM":
            make_stream = True
        elif word == b"ENTRIESREAD" and len(words):
            read = _number(words)
        else:
            raise wrong_or_unknown(command)
    return make_stream, read


def wrong_or_unknown(command: str) -> Failed:
    """What the peers say of options of XGROUP that they do not know."""
    return Failed(
        f"ERR unknown subcommand or wrong number of arguments for '{command}'. Try XGROUP HELP."
    )


def create(_client: Client, words: Words) -> Step:
    """As XGROUP CREATE."""
    key, name, at = words.next(), words.next(), words.next()
    make_stream, read = _options(words, "CREATE", make=True)

    def op(state: WriteTxn) -> None:
        if not make_stream and state.record_by_name(key) is None:
            raise Failed(f"ERR {NO_KEY}")  # the peers look at the ID after it
        start: StreamID | None = None if at == b"$" else strict_id(at)
        admin.create(state, key, name, start, entries_read=read, make_stream=make_stream)

    return Change(op, ok)


def set_id(_client: Client, words: Words) -> Step:
    """As XGROUP SETID."""
    key, name, at = words.next(), words.next(), words.next()
    _, read = _options(words, "SETID", make=False)

    def op(state: WriteTxn) -> None:
        admin.managed(state, key, name)  # the peers look at the ID after it
        start: StreamID | None = None if at == b"$" else loose_id(at)
        admin.set_id(state, key, name, start, read)

    return Change(op, ok)


def destroy(_client: Client, words: Words) -> Step:
    """As XGROUP DESTROY."""
    key, name = words.next(), words.next()
    return Change(lambda state: admin.destroy(state, key, name), int, frees=True)


def create_consumer(_client: Client, words: Words) -> Step:
    """As XGROUP CREATECONSUMER."""
    key, name, consumer = words.next(), words.next(), words.next()
    return Change(lambda state: admin.create_consumer(state, key, name, consumer), int)


def delete_consumer(_client: Client, words: Words) -> Step:
    """As XGROUP DELCONSUMER."""
    key, name, consumer = words.next(), words.next(), words.next()
    return Change(lambda state: admin.delete_consumer(state, key, name, consumer), frees=True)


def helped(_client: Client, _words: Words) -> Step:
    """As XGROUP HELP."""
    return Tell(lambda: [Simple(line.encode()) for line in _HELP])


def _sub(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    keys = (0, 0, 0) if name == "help" else (2, 2, 1)
    makes = name in ("create", "createconsumer")
    flags = ("loading", "stale") if name == "help" else ("write", *(("denyoom",) if makes else ()))
    categories = ("stream", "slow") if name == "help" else ("write", "stream", "slow")
    return Command(
        f"xgroup|{name}",
        arity,
        parse,
        flags,
        keys,
        since,
        "O(1)",
        summary=summary,
        categories=categories,
    )


_SUBCOMMANDS = [
    _sub("create", -5, create, "5.0.0", "Makes a consumer group."),
    _sub("setid", -5, set_id, "5.0.0", "Sets the last delivered ID of a group."),
    _sub("destroy", 4, destroy, "5.0.0", "Removes a group."),
    _sub("createconsumer", 5, create_consumer, "6.2.0", "Makes a consumer of a group."),
    _sub("delconsumer", 5, delete_consumer, "5.0.0", "Removes a consumer of a group."),
    _sub("help", 2, helped, "5.0.0", "Tells the subcommands."),
]
COMMANDS = [
    Command("xgroup", -2, None, since="5.0.0", summary="Consumer groups.", complexity="",
            categories=("slow",), subcommands={command.name: command for command in _SUBCOMMANDS}),
]  # fmt: skip
