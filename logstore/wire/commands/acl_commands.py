"""ACL and its subcommands: users, what they may do, and who was refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from logstore.wire.acl import CATEGORIES, RuleError, Selector, shown
from logstore.wire.resp.reply import OK, Failed, Ordered, Reply, wrong_arity
from logstore.wire.resp.words import Words
from logstore.wire.service import Client, Parse
from logstore.wire.steps import Admin, CommandStep, ReplyStep, done
from logstore.wire.table import Command, constant, fits_arity, help_of
from logstore.wire.users import User

PASSWORD_BITS = 256
PASSWORD_MAX_BITS = 4096
SHOWN_MAX = 128
_NO_FILE = (
    "ERR This server was not started with an ACL file (--aclfile): users that ACL SETUSER made are "
    "gone when it ends"
)


def _once(work: Callable[[], Reply]) -> CommandStep:
    """A step whose work is done once, though a transaction may be tried more than once."""
    replies: list[Reply] = []

    def make() -> Reply:
        if not replies:
            try:
                replies.append(work())
            except RuleError as exc:
                raise Failed(f"ERR {exc}") from None
        return replies[0]

    return ReplyStep(make)


def _end(words: Words) -> None:
    """Nothing may be left."""
    if len(words):
        raise Failed(
            f"ERR unknown subcommand or wrong number of arguments for '{shown(words.said(1))}'. "
            "Try ACL HELP."
        )


def who_am_i(client: Client, _words: Words) -> CommandStep:
    """As ACL WHOAMI."""
    return ReplyStep(lambda: client.user.name)


def users(client: Client, _words: Words) -> CommandStep:
    """As ACL USERS."""
    return ReplyStep(lambda: [user.name for user in client.service.users.in_order()])


def listed(client: Client, _words: Words) -> CommandStep:
    """As ACL LIST."""
    return ReplyStep(lambda: [bytes(user) for user in client.service.users.in_order()])


def categories(client: Client, words: Words) -> CommandStep:
    """As ACL CAT."""
    if not len(words):
        return ReplyStep(lambda: [category.encode() for category in CATEGORIES])
    wanted = words.next()
    _end(words)
    name = wanted.lower().decode("latin-1")
    if name not in CATEGORIES:
        raise Failed(f"ERR Unknown category '{shown(wanted[:SHOWN_MAX])}'")
    named = client.service.table.of_category(name)
    return ReplyStep(lambda: [command.name.encode() for command in named])


def set_user(client: Client, words: Words) -> CommandStep:
    """As ACL SETUSER: all of the rules, or none."""
    name, rules = words.next(), words.rest()
    service = client.service

    def work() -> Reply:
        service.users.set(name, rules)
        service.users_changed([], asked_by=client)
        return OK

    return _once(work)


def get_user(client: Client, words: Words) -> CommandStep:
    """As ACL GETUSER."""
    name = words.next()

    def find() -> Reply:
        user = client.service.users.by_name.get(name)
        if user is None:
            return None
        root, *others = user.rights.selectors
        return {
            b"flags": Ordered(list(user.rights.flags)),
            b"passwords": list(user.rights.passwords),
            **_selector(root),
            b"selectors": [_selector(selector) for selector in others],
        }

    return ReplyStep(find)


def _selector(selector: Selector) -> dict[bytes, Reply]:
    return {
        b"commands": selector.commands_told,
        b"keys": selector.keys_told,
        b"channels": selector.channels_told,
    }


def delete_users(client: Client, words: Words) -> CommandStep:
    """As ACL DELUSER: their connections end."""
    names = words.rest()
    service = client.service

    def work() -> Reply:
        gone = service.users.remove(names)
        service.users_changed(gone, asked_by=client)
        return len(gone)

    return _once(work)


def load(client: Client, _words: Words) -> CommandStep:
    """As ACL LOAD."""
    path, service = _file(client), client.service

    def work() -> Reply:
        service.users_changed(service.users.load_file(path), asked_by=client)
        return OK

    return _once(work)


def _file(client: Client) -> Path:
    path = client.service.users_file
    if path is None:
        raise Failed(_NO_FILE)
    return path


def save(client: Client, _words: Words) -> CommandStep:
    """As ACL SAVE: the file is as it was, or holds all users."""
    path, service = _file(client), client.service

    def work() -> Reply:
        service.users.save_file(path)
        return OK

    return Admin(work, commits=False)


def log(client: Client, words: Words) -> CommandStep:
    """As ACL LOG."""
    denials = client.service.denials
    most = 10
    if words.take(b"RESET"):
        _end(words)

        return done(denials.clear)
    if len(words):
        most = max(0, words.integer())
    _end(words)
    return ReplyStep(lambda: denials.newest(most))


def generated(_client: Client, words: Words) -> CommandStep:
    """As ACL GENPASS: a new password each time."""
    bits = words.integer() if len(words) else PASSWORD_BITS
    _end(words)
    if not 0 < bits <= PASSWORD_MAX_BITS:
        raise Failed(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a "
            f"positive number up to {PASSWORD_MAX_BITS}"
        )
    digits = (bits + 3) // 4
    made = secrets.token_hex((digits + 1) // 2)[:digits].encode()
    return ReplyStep(lambda: made)


def dry_run(client: Client, words: Words) -> CommandStep:
    """As ACL DRYRUN: whether a user may run a command, which is not run."""
    name, asked = words.next(), words.rest()
    service = client.service

    def find() -> Reply:
        user = service.users.by_name.get(name)
        if user is None:
            raise Failed(f"ERR User '{shown(name)}' not found")
        return _tried(user, service.table.lookup(asked), asked)

    return ReplyStep(find)


def _tried(user: User, command: Command | None, words: list[bytes]) -> Reply:
    if command is None:
        raise Failed(f"ERR Command '{shown(words[0])}' not found")
    if not fits_arity(command.arity, len(words)):
        raise wrong_arity(command.name)
    denied = user.denies(command, words)
    if denied is None:
        return OK
    return denied.message(user.name, command).encode("utf-8", "surrogateescape")


_FLAGS = ("noscript", "loading", "stale")
_EVERYBODY = ("whoami", "cat", "genpass")


def _one(name: str, arity: int, parse: Parse, since: str, summary: str) -> Command:
    admin = name not in _EVERYBODY
    flags = (*(["admin"] if admin else []), *_FLAGS)
    categories = ("admin", "slow", "dangerous") if admin else ("slow",)
    return constant(
        f"acl|{name}", arity, parse, since, summary, group="server", flags=flags,
        categories=categories,
    )  # fmt: skip


_PARTS = (
    _one("cat", -2, categories, "6.0.0", "Tells categories of commands, or the commands of one."),
    _one("deluser", -3, delete_users, "6.0.0", "Removes users, and ends their connections."),
    _one("dryrun", -4, dry_run, "7.0.0", "Tells whether a user may run a command."),
    _one("genpass", -2, generated, "6.0.0", "Makes a password."),
    _one("getuser", 3, get_user, "6.0.0", "Tells the rules of a user."),
    _one("list", 2, listed, "6.0.0", "Tells all users as the lines of an ACL file."),
    _one("load", 2, load, "6.0.0", "Takes over the users of the ACL file."),
    _one("log", -2, log, "6.0.0", "Tells who was refused, or forgets it."),
    _one("save", 2, save, "6.0.0", "Writes the users to the ACL file."),
    _one("setuser", -3, set_user, "6.0.0", "Makes or changes a user."),
    _one("users", 2, users, "6.0.0", "Tells the names of users."),
    _one("whoami", 2, who_am_i, "6.0.0", "Tells the user's name."),
)
_ARGUMENTS = {
    "cat": "[<category>]",
    "deluser": "<username> [<username> ...]",
    "dryrun": "<username> <command> [<arg> ...]",
    "genpass": "[<bits>]",
    "getuser": "<username>",
    "log": "[<count> | RESET]",
    "setuser": "<username> <attribute> [<attribute> ...]",
}


def _parts(parts: Iterable[Command]) -> dict[str, Command]:
    return {part.name: part for part in parts}


COMMANDS = [
    Command("acl", -2, None, since="6.0.0", complexity="O(1)", group="server",
            summary="What each user may do.", categories=("slow",),
            subcommands=_parts((*_PARTS, help_of("acl", _PARTS, _ARGUMENTS, since="6.0.0")))),
]  # fmt: skip
