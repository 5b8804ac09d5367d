"""The table of commands: what each is called, how many words it takes, what it may do.

Invariants: names are lower case; a command with subcommands has them in a table of its own, under
``name|subcommand``. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from logstore.wire.failures import Failed, wrong_arity
from logstore.wire.steps import Step
from logstore.wire.words import SHOWN_MAX, Words, shown

if TYPE_CHECKING:
    from logstore.wire.session import Session

Parse: TypeAlias = Callable[["Session", Words], Step]
NAME_MAX = 64  # bytes of the name of a command


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or subcommand."""

    name: str  # "xadd", "xgroup|create"
    arity: int  # words with the name; negative: at least so many
    parse: Parse | None  # None: it only has subcommands
    flags: tuple[str, ...] = ()
    keys: tuple[int, int, int] = (0, 0, 0)  # first, last, step
    since: str = ""
    complexity: str = ""
    group: str = "stream"
    summary: str = ""
    categories: tuple[str, ...] = ()
    levels: frozenset[str] | None = None  # profiles that have it; None: all
    subcommands: dict[str, Command] = field(default_factory=dict)


class Table:
    """The commands of a server."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.commands = {command.name: command for command in commands}

    def find(self, words: list[bytes]) -> Command:
        """The command of these words, subcommand looked up, number of words checked."""
        command = self.commands.get(_name(words[0]))
        if command is None:
            raise Failed(_unknown(words))
        if command.subcommands and len(words) > 1:
            sub = command.subcommands.get(f"{command.name}|{_name(words[1])}")
            if sub is None and command.parse is None:
                told = shown(words[1])
                raise Failed(f"ERR unknown subcommand '{told}'. Try {command.name.upper()} HELP.")
            command = sub or command
        if not _fits(command.arity, len(words)):
            raise wrong_arity(command.name)
        if command.parse is None:
            raise wrong_arity(command.name)
        return command

    def __len__(self) -> int:
        return len(self.commands)


def _fits(arity: int, count: int) -> bool:
    return count == arity if arity >= 0 else count >= -arity


def _name(word: bytes) -> str:
    """A word as the name of a command; "" if it is too long for any."""
    return "" if len(word) > NAME_MAX else word.decode("latin-1").lower()


def _unknown(words: list[bytes]) -> str:
    """The error for a command that is not there, clipped as the peers do it."""
    told, size = [], 0
    for word in words[1:]:
        if size >= SHOWN_MAX:
            break
        told.append(f"'{shown(word, SHOWN_MAX - size)}' ")
        size += len(told[-1])
    return f"ERR unknown command '{shown(words[0])}', with args beginning with: {''.join(told)}"
