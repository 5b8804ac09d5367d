"""The users of a server, and the file that holds them.

Invariants: the user ``default`` is always there. A change takes all of its rules or none. The user
of a session is the same object as long as a user of that name is there. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from logstore.errors import Error
from logstore.fs import LOCAL
from logstore.wire.acl import UNKNOWN, Denied, Rights, RuleError, has_spaces, hashed, shown
from logstore.wire.table import Command, Table

DEFAULT = b"default"
FILE_MAX_BYTES = 1 << 20
_EXPOSED = (
    "The default user needs a password, or to be off: this server can be reached from other "
    "machines"
)


class User:
    """A name and its rights; sessions keep it, so that a change of its rights is one of theirs."""

    def __init__(self, name: bytes, rights: Rights) -> None:
        self.name = name
        self.become(rights)

    def become(self, rights: Rights) -> None:
        """From now on it has these rights, which are changed no more."""
        self.rights = rights
        self.everything = rights.everything

    def denies(self, command: Command, words: Sequence[bytes]) -> Denied | None:
        """Why it may not run these words; None if it may."""
        worst = (1, 0)
        for selector in self.rights.selectors:
            refusal = selector.denies(command, words)
            if not refusal[0]:
                return None
            worst = max(worst, refusal)
        if worst[0] == 1:
            return Denied("command", command.name.encode())
        return Denied("key", words[worst[1]])

    def __bytes__(self) -> bytes:
        return b"user %b %b" % (self.name, bytes(self.rights))


def merged(rules: Sequence[bytes]) -> list[bytes]:
    """Rules with each selector as one, which clients may send in parts; RuleError."""
    whole: list[bytes] = []
    opened: list[bytes] = []
    for rule in rules:
        if opened or (rule[:1] == b"(" and rule[-1:] != b")"):
            opened.append(rule)
            if rule[-1:] == b")" and len(opened) > 1:
                whole.append(b" ".join(opened))
                opened = []
        else:
            whole.append(rule)
    if opened:
        raise RuleError(f"Unmatched parenthesis in acl selector starting at '{shown(opened[0])}'.")
    return whole


class Users:
    """The users of a server; ``default`` is always there."""

    def __init__(self, table: Table, password: bytes = b"") -> None:
        self.table = table
        self._password = password  # of the default user, if no file says what it is
        self.exposed = False  # other machines reach the server: the default user must not be open
        self.default = User(DEFAULT, self._default())
        self.by_name: dict[bytes, User] = {DEFAULT: self.default}

    def _default(self) -> Rights:
        made = Rights()
        password = b">" + self._password if self._password else b"nopass"
        for rule in (b"+@all", b"~*", b"&*", b"on", password):
            made.change(rule, self.table)
        return made

    @property
    def open(self) -> bool:
        """Whether a client needs not log in."""
        return self.default.rights.open

    def in_order(self) -> list[User]:
        """All of them, by name."""
        return [self.by_name[name] for name in sorted(self.by_name)]

    def login(self, name: bytes, password: bytes) -> User | None:
        """The user that this is; None if there is no such user, or the password is wrong."""
        user = self.by_name.get(name)
        fits = (user.rights if user is not None else _nobody()).takes(hashed(password))
        return user if fits else None

    def set(self, name: bytes, rules: Sequence[bytes]) -> None:
        """Change a user, or make it: all of the rules or, with a RuleError, none."""
        if has_spaces(name):
            raise RuleError("Usernames can't contain spaces or null characters")
        user = self.by_name.get(name)
        rights = Rights() if user is None else user.rights.copy()
        for rule in merged(rules):
            try:
                rights.change(rule, self.table)
            except RuleError as exc:
                text = shown(rule.partition(b"\0")[0])
                raise RuleError(f"Error in ACL SETUSER modifier '{text}': {exc}") from None
        if user is None:
            self.by_name[name] = User(name, rights)
            return
        self._check(name, rights)
        user.become(rights)

    def _check(self, name: bytes, rights: Rights) -> None:
        if name == DEFAULT and self.exposed and rights.open:
            raise RuleError(_EXPOSED)

    def remove(self, names: Sequence[bytes]) -> list[User]:
        """Remove users, of which the default one is refused; those that were there."""
        if DEFAULT in names:
            raise RuleError("The 'default' user cannot be removed")
        removed = [self.by_name.pop(name, None) for name in names]
        return [user for user in removed if user is not None]

    # -- files --------------------------------------------------------------------------------
    def load(self, text: bytes, path: str) -> list[User]:
        """Take over all users of a file's text, or with a RuleError none; those gone meanwhile.

        A user of the same name as before is the same object, so that sessions keep it.
        """
        faults: list[str] = []
        rights_by_name: dict[bytes, Rights] = {}
        for number, line in enumerate(text.split(b"\n"), 1):
            words = line.strip(b" \t\r\n").split(b" ")
            if words == [b""]:
                continue
            faults += self._line(words, rights_by_name, f"{path}:{number}", number)
        rights_by_name.setdefault(DEFAULT, self._default())
        try:
            self._check(DEFAULT, rights_by_name[DEFAULT])
        except RuleError as exc:
            faults.append(f"{path}: {exc}. ")
        if faults:
            raise RuleError(
                "".join(faults) + "WARNING: ACL errors detected, no change to the previously "
                "active ACL rules was performed"
            )
        gone = [user for name, user in self.by_name.items() if name not in rights_by_name]
        for user in gone:
            del self.by_name[user.name]
        for name, rights in rights_by_name.items():
            if name in self.by_name:
                self.by_name[name].become(rights)
            else:
                self.by_name[name] = User(name, rights)
        return gone

    def load_file(self, path: Path) -> list[User]:
        """Take over all users of a file, as ``load`` does of its text; those that are gone."""
        try:
            text = LOCAL.read_named(path, FILE_MAX_BYTES)
        except Error as exc:
            raise RuleError(f"Error loading ACLs, opening file '{path}': {exc}") from None
        return self.load(text, str(path))

    def save_file(self, path: Path) -> None:
        """Write all users to a file, all or nothing."""
        LOCAL.write_atomic(
            path, b"".join(bytes(user) + b"\n" for user in self.in_order()), private=True
        )

    def _line(
        self, words: list[bytes], rights_by_name: dict[bytes, Rights], where: str, number: int
    ) -> list[str]:
        """What is wrong with a line of a file; its user is found otherwise."""
        if words[0] != b"user" or len(words) < 2:
            return [f"{where} should start with user keyword followed by the username. "]
        name = words[1]
        if has_spaces(name):
            return [f"'{where}: username '{shown(name)}' contains invalid characters. "]
        if name in rights_by_name:
            return [f"WARNING: Duplicate user '{shown(name)}' found on line {number}. "]
        rights = rights_by_name[name] = Rights()
        try:
            rules = merged(words[2:])
        except RuleError:
            return [f"{where}: Unmatched parenthesis in selector definition."]
        faults: list[str] = []
        refused = False
        for rule in rules:
            try:
                rights.change(rule.strip(b"\t\r\n"), self.table)
            except RuleError as exc:
                if str(exc) == UNKNOWN:  # the rule itself: no password can be in it
                    faults.append(f"{where}: Error in applying operation '{shown(rule)}': {exc}. ")
                elif not refused:
                    faults.append(f"{where}: {exc}. ")
                    refused = True
        return faults


@cache
def _nobody() -> Rights:
    """What a password is compared with if there is no such user, so that it takes as long."""
    made = Rights()
    made.passwords = [hashed(b"")]
    return made
