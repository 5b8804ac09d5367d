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
from logstore.wire.words import Words

if TYPE_CHECKING:
    from logstore.wire.session import Session

Parse: TypeAlias = Callable[["Session", Words], Step]
SHOWN_MAX = 128


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
        name = _text(words[0])
        command = self.commands.get(name.lower())
        if command is None:
            raise Failed(_unknown(name, words[1:]))
        if command.subcommands and len(words) > 1:
            sub = command.subcommands.get(f"{command.name}|{_text(words[1]).lower()}")
            if sub is None and command.parse is None:
                shown = _text(words[1])[:SHOWN_MAX]
                raise Failed(f"ERR unknown subcommand '{shown}'. Try {command.name.upper()} HELP.")
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


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


def _unknown(name: str, arguments: list[bytes]) -> str:
    shown = ""
    for word in arguments:
        if len(shown) >= SHOWN_MAX:
            break
        shown += f"'{_text(word)[: SHOWN_MAX - len(shown)]}' "
    return f"ERR unknown command '{name[:SHOWN_MAX]}', with args beginning with: {shown}"
