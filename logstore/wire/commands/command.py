"""COMMAND and its subcommands: the table, told to clients."""

from __future__ import annotations

from logstore.wire.resp.failures import SYNTAX, Failed
from logstore.wire.resp.globs import Glob
from logstore.wire.resp.reply import NULL_ARRAY, Reply, Simple
from logstore.wire.resp.words import Words, shown
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Look, Reader, Step, Tell
from logstore.wire.table import Command

NAMES_AT_ONCE = 100


def row(command: Command) -> Reply:
    """A command as COMMAND tells it."""
    first, last, step = command.keys
    flags = {Simple(flag.encode()) for flag in command.flags}
    return [
        command.name.encode(),
        command.arity,
        sorted(flags, key=lambda flag: flag.text),
        first,
        last,
        step,
        [Simple(b"@" + category.encode()) for category in command.categories],
        [],
        [],
        [row(part) for part in command.subcommands.values()],
    ]


def docs(command: Command) -> Reply:
    """A command as COMMAND DOCS tells it."""
    fields: dict[bytes, Reply] = {
        b"summary": command.summary.encode(),
        b"since": command.since.encode(),
        b"group": command.group.encode(),
    }
    if command.complexity:
        fields[b"complexity"] = command.complexity.encode()
    if command.subcommands:
        fields[b"subcommands"] = {
            subcommand.name.encode(): docs(subcommand)
            for subcommand in command.subcommands.values()
        }
    return fields


def _named(client: Client, name: bytes) -> Command | None:
    text = shown(name).lower()
    root = client.service.table.commands.get(text.partition("|")[0])
    return root if root is None or "|" not in text else root.subcommands.get(text)


def everything(client: Client, _words: Words) -> Step:
    """As COMMAND."""
    return Look(lambda _: [row(command) for command in client.service.table.commands.values()])


def counted(client: Client, _words: Words) -> Step:
    """As COMMAND COUNT."""
    return Tell(lambda: len(client.service.table))


def some(client: Client, words: Words) -> Step:
    """As COMMAND INFO."""
    names = words.rest()
    if not names:
        return everything(client, words)

    def find(reader: Reader) -> Reply:
        known: dict[str, Reply] = {}
        rows = reader.rows()
        for at in range(0, len(names), NAMES_AT_ONCE):
            page: list[Reply] = []
            for name in names[at : at + NAMES_AT_ONCE]:
                command = _named(client, name)
                told = "" if command is None else command.name
                if told not in known:
                    known[told] = NULL_ARRAY if command is None else row(command)
                page.append(known[told])
            rows.add(page)
        return rows.done()

    return Look(find)


def documented(client: Client, words: Words) -> Step:
    """As COMMAND DOCS."""
    names = words.rest()
    commands = client.service.table.commands.values()

    def find(_reader: Reader) -> Reply:
        asked = [_named(client, name) for name in names] if names else list(commands)
        named = {command.name: command for command in asked if command is not None}
        return {name.encode(): docs(command) for name, command in named.items()}

    return Look(find)


def listed(client: Client, words: Words) -> Step:
    """As COMMAND LIST, also by pattern or category."""
    how = what = b""
    if words.take(b"FILTERBY"):
        how, what = words.option(), words.next()
        if how not in (b"PATTERN", b"ACLCAT", b"MODULE"):
            raise Failed(SYNTAX)
    words.end()
    commands = client.service.table.commands.values()
    glob, category = Glob(what, nocase=True), shown(what.lower())

    def fits(command: Command) -> bool:
        if how == b"PATTERN":
            return glob.fits(command.name.encode())
        if how == b"ACLCAT":
            return category in command.categories
        return not how

    return Look(lambda _: [command.name.encode() for command in commands if fits(command)])


def keys_of(client: Client, words: Words) -> Step:
    """As COMMAND GETKEYS."""
    given = words.rest()
    command = client.service.table.find(given)
    if not command.keys[0] and "movablekeys" not in command.flags:
        raise Failed("ERR The command has no key arguments")
    keys = [given[place] for place, _ in command.keys_in(given)]
    return Look(lambda _: keys)


def _sub(name: str, arity: int, parse: Parse, summary: str) -> Command:
    return Command(
        f"command|{name}",
        arity,
        parse,
        ("loading", "stale"),
        since="2.8.13",
        complexity="O(N), N commands",
        group="server",
        summary=summary,
        categories=("slow", "connection"),
    )


_SUBCOMMANDS = [
    _sub("count", 2, counted, "Tells how many commands there are."),
    _sub("docs", -2, documented, "Tells what commands are for."),
    _sub("info", -2, some, "Tells how commands are called."),
    _sub("list", -2, listed, "Tells the names of commands."),
    _sub("getkeys", -3, keys_of, "Tells the keys of a command."),
]
COMMANDS = [
    Command("command", -1, everything, ("loading", "stale"), since="2.8.13", group="server",
            complexity="O(N), N commands", summary="Tells of all commands.",
            categories=("slow", "connection"),
            subcommands={command.name: command for command in _SUBCOMMANDS}),
]  # fmt: skip
