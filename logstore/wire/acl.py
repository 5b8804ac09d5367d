"""What users may do, as the access control lists (ACLs) of Redis 8 have it.

A user has passwords and selectors; the first selector, the root, is what rules outside parentheses
change. A command is permitted if one selector permits both the command and all of its keys.
Invariants: what a user may do is never changed in place: rules go to a copy, which takes the old
one's place when all of them were understood, so that other threads may look meanwhile; passwords
are kept as SHA-256 only and compared in constant time. Knows no connection.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from logstore.wire.resp.globs import Glob
from logstore.wire.table import Command, Table

CATEGORIES = (
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
)
READ, WRITE = "r", "w"
UNKNOWN = "Unknown command or category name in ACL"
SYNTAX = "Syntax error"
_AFTER_ALL = (
    "Adding a pattern after the * pattern (or the '{0}' flag) is not valid and does not have any "
    "effect. Try '{1}' to start with an empty list of {2}"
)
_NO_PASSWORD = "The password you are trying to remove from the user does not exist"
_BAD_HASH = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
_FIRST_ARGUMENT = "Allowing first-arg of a subcommand is not supported"
_HASH = re.compile(rb"[0-9a-f]{64}")
_SPACE = re.compile(rb"[ \t\n\v\f\r\0]")


class RuleError(Exception):
    """A rule that cannot be; the text says why, without the rule."""


class Denied(NamedTuple):
    """Why a command is not permitted."""

    reason: Literal["command", "key"]
    what: bytes  # the full name of the command, or the key

    def told(self, user: bytes, command: Command) -> str:
        """The reason in the words of ACL DRYRUN, which names the key."""
        name = shown(user)
        if self.reason == "command":
            return f"User {name} has no permissions to run the '{command.name}' command"
        return f"User {name} has no permissions to access the '{shown(self.what)}' key"


def shown(word: bytes) -> str:
    """Bytes in the text of an error, which turns them back."""
    return word.decode("utf-8", "surrogateescape")


def hashed(password: bytes) -> bytes:
    """A password as it is kept: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(password).hexdigest().encode()


def has_spaces(word: bytes) -> bool:
    """Whether a name or pattern could not stand in an ACL file."""
    return _SPACE.search(word) is not None


class _Pattern(NamedTuple):
    """Keys that a selector may read, write, or both."""

    access: str
    glob: bytes
    matcher: Glob

    def __bytes__(self) -> bytes:
        before = b"~" if len(self.access) == 2 else b"%%%b~" % self.access.upper().encode()
        return before + self.glob


class Selector:
    """Commands, and the keys that these commands may have."""

    def __init__(self) -> None:
        self.all_keys = False
        self.all_channels = False
        self.all_commands = False  # each single one; what follows it may have taken some away
        self.begins_with_all = False  # +@all came first: commands of later versions are permitted
        self.commands: set[str] = set()
        self.first_arguments: dict[str, tuple[bytes, ...]] = {}  # +command|argument
        self.patterns: list[_Pattern] = []
        self.channels: list[bytes] = []
        self.rules: list[str] = []  # on commands, since +@all or -@all: what LIST tells

    def copy(self) -> Selector:
        """A copy, which rules may change."""
        made = Selector()
        made.__dict__.update(self.__dict__)
        made.commands, made.first_arguments = set(self.commands), dict(self.first_arguments)
        made.patterns, made.channels = list(self.patterns), list(self.channels)
        made.rules = list(self.rules)
        return made

    # -- what it permits ----------------------------------------------------------------------
    def denies(self, command: Command, words: Sequence[bytes]) -> tuple[int, int]:
        """How it refuses: (0, 0) if not; (1, 0) the command; (2, place) the key that stands there.

        What refuses later counts more when no selector permits, as in Redis.
        """
        if (
            not self.all_commands
            and "no_auth" not in command.flags
            and not self._runs(command, words)
        ):
            return 1, 0
        if not self.all_keys:
            for place, access in command.keys_in(words):
                if not self._reaches(words[place], access):
                    return 2, place
        return 0, 0

    def _runs(self, command: Command, words: Sequence[bytes]) -> bool:
        if command.name in self.commands:
            return True
        arguments = self.first_arguments.get(command.name)
        return arguments is not None and len(words) > 1 and words[1].lower() in arguments

    def _reaches(self, key: bytes, access: str) -> bool:
        return any(
            all(letter in pattern.access for letter in access) and pattern.matcher.fits(key)
            for pattern in self.patterns
        )

    # -- rules --------------------------------------------------------------------------------
    def change(self, rule: bytes, table: Table) -> None:
        """Take a rule over; RuleError, and it may be changed in part."""
        word = rule.lower()
        if word in (b"allkeys", b"~*"):
            self.all_keys, self.patterns = True, []
        elif word == b"resetkeys":
            self.all_keys, self.patterns = False, []
        elif word in (b"allchannels", b"&*"):
            self.all_channels, self.channels = True, []
        elif word == b"resetchannels":
            self.all_channels, self.channels = False, []
        elif word in (b"allcommands", b"+@all"):
            self._every_command(table, permitted=True)
        elif word in (b"nocommands", b"-@all"):
            self._every_command(table, permitted=False)
        elif word[:1] in (b"~", b"%"):
            self._keys(rule)
        elif word[:1] == b"&":
            self._channel(rule[1:])
        elif word[:1] in (b"+", b"-"):
            self._commands(word, table)
        else:
            raise RuleError(SYNTAX)

    def _every_command(self, table: Table, *, permitted: bool) -> None:
        self.all_commands = self.begins_with_all = permitted
        self.commands = set(_names(table.commands.values())) if permitted else set()
        self.first_arguments, self.rules = {}, []

    def _keys(self, rule: bytes) -> None:
        if self.all_keys:
            raise RuleError(_AFTER_ALL.format("allkeys", "resetkeys", "patterns"))
        access, glob = READ + WRITE, rule[1:]
        if rule[:1] == b"%":
            letters, _, glob = rule[1:].partition(b"~")
            access = "".join(sorted(letters.decode("latin-1").lower()))
            if access not in (READ, WRITE, READ + WRITE):
                raise RuleError(SYNTAX)
        if has_spaces(glob):
            raise RuleError(SYNTAX)
        for place, pattern in enumerate(self.patterns):
            if pattern.glob == glob:
                both = "".join(sorted({*pattern.access, *access}))
                self.patterns[place] = pattern._replace(access=both)
                return
        self.patterns.append(_Pattern(access, glob, Glob(glob)))

    def _channel(self, glob: bytes) -> None:
        if self.all_channels:
            raise RuleError(_AFTER_ALL.format("allchannels", "resetchannels", "channels"))
        if has_spaces(glob):
            raise RuleError(SYNTAX)
        if glob not in self.channels:
            self.channels.append(glob)

    def _commands(self, word: bytes, table: Table) -> None:
        """A rule that begins with + or -, in small letters."""
        name, permitted = word[1:].decode("latin-1"), word[:1] == b"+"
        if name[:1] == "@":
            if name[1:] not in CATEGORIES:
                raise RuleError(UNKNOWN)
            for command in table.of_category(name[1:]):
                self._permit(command, permitted=permitted)
        else:
            root, _, argument = name.rpartition("|") if permitted else ("", "", name)
            known = table.named(root or name)
            if known is None:
                raise RuleError(UNKNOWN)
            if root:
                self._part(name, known, argument, table)
            else:
                self._permit(known, permitted=permitted)
        self.rules = [
            earlier
            for earlier in self.rules
            if earlier[1:] != name and not earlier[1:].startswith(name + "|")
        ]
        self.rules.append(("+" if permitted else "-") + name)

    def _part(self, name: str, command: Command, argument: str, table: Table) -> None:
        """+command|argument: a subcommand, or a first argument of what has none."""
        if "|" in command.name:
            raise RuleError(_FIRST_ARGUMENT)
        word = argument.encode("latin-1")
        if not word or has_spaces(word):  # a file of users could not say it
            raise RuleError(SYNTAX)
        if not command.subcommands:
            known = self.first_arguments.get(command.name, ())
            if word not in known:
                self.first_arguments[command.name] = (*known, word)
            return
        subcommand = table.named(name)
        if subcommand is None:
            raise RuleError(UNKNOWN)
        self._permit(subcommand, permitted=True)

    def _permit(self, command: Command, *, permitted: bool) -> None:
        self.first_arguments.pop(command.name, None)
        if permitted:
            self.commands.update(_names((command,)))
        else:
            self.commands.difference_update(_names((command,)))
            self.all_commands = False

    # -- what is told of it -------------------------------------------------------------------
    @property
    def commands_told(self) -> bytes:
        """The rules that give the same commands."""
        begin = "+@all" if self.begins_with_all else "-@all"
        return " ".join([begin, *self.rules]).encode("latin-1")

    @property
    def keys_told(self) -> bytes:
        """The patterns of keys."""
        return b"~*" if self.all_keys else b" ".join(map(bytes, self.patterns))

    @property
    def channels_told(self) -> bytes:
        """The patterns of channels, which have no meaning here."""
        return (
            b"&*" if self.all_channels else b" ".join(b"&" + channel for channel in self.channels)
        )

    def __bytes__(self) -> bytes:
        channels = self.channels_told
        if not self.all_channels:
            channels = b" ".join(filter(None, [b"resetchannels", channels]))
        return b" ".join(filter(None, [self.keys_told, channels, self.commands_told]))


def _names(commands: Iterable[Command]) -> list[str]:
    """The names of commands and their subcommands."""
    return [part.name for command in commands for part in (command, *command.subcommands.values())]


class Rights:
    """All that a user is made of but the name."""

    def __init__(self) -> None:
        self.enabled = False
        self.no_password = False
        self.sanitizes = True  # RESTORE checks its payload; here always
        self.passwords: list[bytes] = []  # hashes
        self.selectors = [Selector()]

    def copy(self) -> Rights:
        """A copy, which rules may change."""
        made = Rights()
        made.__dict__.update(self.__dict__)
        made.passwords = list(self.passwords)
        made.selectors = [selector.copy() for selector in self.selectors]
        return made

    @property
    def everything(self) -> bool:
        """Whether every command is permitted on every key: nothing needs to be looked at."""
        return any(selector.all_commands and selector.all_keys for selector in self.selectors)

    @property
    def open(self) -> bool:
        """Whether everybody may log in."""
        return self.enabled and self.no_password

    @property
    def flags(self) -> list[bytes]:
        """The flags of the user, in the order in which Redis tells them."""
        return [
            b"on" if self.enabled else b"off",
            *([b"nopass"] if self.no_password else []),
            b"sanitize-payload" if self.sanitizes else b"skip-sanitize-payload",
        ]

    def takes(self, digest: bytes) -> bool:
        """Whether a password with this hash logs in; as long for a wrong one as for a right one."""
        fits = [hmac.compare_digest(digest, password) for password in self.passwords]
        return self.enabled and (self.no_password or any(fits))

    def change(self, rule: bytes, table: Table) -> None:
        """Take a rule over; RuleError, and it may be changed in part."""
        match rule.lower():
            case b"":
                pass
            case b"on" | b"off" as word:
                self.enabled = word == b"on"
            case b"skip-sanitize-payload" | b"sanitize-payload" as word:
                self.sanitizes = word == b"sanitize-payload"
            case b"nopass" | b"resetpass" as word:
                self.no_password, self.passwords = word == b"nopass", []
            case b"clearselectors":
                del self.selectors[1:]
            case b"reset":
                self.__dict__.update(Rights().__dict__)
            case word if word[:1] in (b">", b"#", b"<", b"!"):
                self._password(rule)
            case word if word[:1] == b"(" and word[-1:] == b")":
                made = Selector()
                for part in rule[1:-1].split():
                    made.change(part, table)
                self.selectors.append(made)
            case _:
                self.selectors[0].change(rule, table)

    def _password(self, rule: bytes) -> None:
        sign, given = rule[:1], rule[1:]
        if sign in b"#!" and _HASH.fullmatch(given) is None:
            raise RuleError(_BAD_HASH)
        digest = given if sign in b"#!" else hashed(given)
        if sign in b">#":
            if digest not in self.passwords:
                self.passwords.append(digest)
            self.no_password = False
        elif digest in self.passwords:
            self.passwords.remove(digest)
        else:
            raise RuleError(_NO_PASSWORD)

    def __bytes__(self) -> bytes:
        root, *others = self.selectors
        passwords = [b"#" + each for each in self.passwords]
        return b" ".join(
            [*self.flags, *passwords, bytes(root), *(b"(%b)" % bytes(other) for other in others)]
        )
