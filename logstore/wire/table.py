"""The table of commands: what each is called, how many words it takes, what it may do.

A command names the function that turns its words into a step; HELP of a command with subcommands is
made of the table, so that it tells what there is. Invariants: names are lower case; a command with
subcommands has them in a table of its own, under ``name|subcommand``. Lies below the commands, and
knows no client: who calls ``parse`` gives it one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from logstore.options import Profile
from logstore.wire.resp.failures import Failed, wrong_arity
from logstore.wire.resp.reply import Simple
from logstore.wire.resp.words import SHOWN_MAX, Words, shown
from logstore.wire.steps import Step, Tell

NAME_MAX = 64  # bytes of the name of a command


def is_valkey(profile: Profile) -> bool:
    """Whether a profile is of a Valkey, else it is of a Redis."""
    return profile.startswith("valkey")


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or subcommand.

    Between MULTI and EXEC it is refused if its flags have ``no_multi``, done at once if it is
    ``at_once``, and queued otherwise.
    """

    name: str  # "xadd", "xgroup|create"
    arity: int  # words with the name; negative: at least so many
    parse: Callable[..., Step] | None  # of a client and its words; None: it only has subcommands
    flags: tuple[str, ...] = ()
    keys: tuple[int, int, int] = (0, 0, 0)  # first, last, step
    since: str = ""
    complexity: str = ""
    group: str = "stream"
    summary: str = ""
    categories: tuple[str, ...] = ()
    levels: frozenset[str] | None = None  # profiles that have it; None: all
    subcommands: dict[str, Command] = field(default_factory=dict)
    # What users need to be allowed with its keys, "r", "w", both or neither: of each key in turn,
    # the last one also of all that follow. None: "r" of what is readonly, "w" of what writes.
    access: tuple[str, ...] | None = None
    at_once: bool = False
    valkey_flags: tuple[str, ...] = ()  # that it has in Valkey, beside its flags

    def of(self, profile: Profile) -> Command:
        """The command as it is in a profile that has it."""
        parts = {name: part.of(profile) for name, part in self.subcommands.items()}
        flags = self.flags + self.valkey_flags if is_valkey(profile) else self.flags
        return replace(self, flags=flags, subcommands=parts)

    def keys_in(self, words: Sequence[bytes]) -> list[tuple[int, str]]:
        """The places of the keys in a request, and what is done with each; [] if it is no whole
        request."""
        access = self.access or ("w" if "write" in self.flags else "r",)
        if "movablekeys" in self.flags:
            return [(place, access[0]) for place in _streams(words)]
        first, last, step = self.keys
        if not first:
            return []
        end = last if last >= 0 else len(words) + last
        places = range(first, min(end, len(words) - 1) + 1, step)
        return [(at, access[min(number, len(access) - 1)]) for number, at in enumerate(places)]


_OPTIONS = {
    b"BLOCK": 1,
    b"COUNT": 1,
    b"MAXCOUNT": 1,
    b"MAXSIZE": 1,
    b"CLAIM": 1,
    b"GROUP": 2,
    b"NOACK": 0,
}


def _streams(words: Sequence[bytes]) -> range:
    """Where XREAD and XREADGROUP have keys, found as they do: an option's value is never a word
    that they look for."""
    at = 1
    while at < len(words):
        word = words[at].upper()
        at += 1
        if word == b"STREAMS":
            rest = len(words) - at
            return range(at, at + rest // 2) if not rest % 2 else range(0)
        if word not in _OPTIONS:
            break
        at += _OPTIONS[word]
    return range(0)


class Table:
    """The commands of a server."""

    def __init__(self, profile: Profile, commands: Iterable[Command]) -> None:
        self.profile: Profile = profile
        self.commands = {command.name: command.of(profile) for command in commands}
        # Those without subcommands, by their names as clients write them: found in one step.
        self._written = {
            word: command
            for name, command in self.commands.items()
            if not command.subcommands
            for word in (name.encode(), name.upper().encode())
        }

    def find(self, words: list[bytes]) -> Command:
        """The command of these words, subcommand looked up, number of words checked."""
        command = self._written.get(words[0]) or self.commands.get(_name(words[0]))
        if command is None:
            raise Failed(_unknown(words))
        if command.subcommands and len(words) > 1:
            sub = command.subcommands.get(f"{command.name}|{_name(words[1])}")
            if sub is None and command.parse is None:
                told = shown(words[1])
                raise Failed(f"ERR unknown subcommand '{told}'. Try {command.name.upper()} HELP.")
            command = sub or command
        if command.parse is None or not fits_arity(command.arity, len(words)):
            raise wrong_arity(command.name)
        return command

    def not_in_multi(self, command: Command) -> Failed:
        """The refusal of a command that may not stand between MULTI and EXEC."""
        named = f"Command '{command.name}'" if is_valkey(self.profile) else "Command"
        return Failed(f"ERR {named} not allowed inside a transaction")

    def lookup(self, words: Sequence[bytes]) -> Command | None:
        """The command of these words, however many there are; None if there is none."""
        command = self.commands.get(_name(words[0]))
        if command is None or not command.subcommands or len(words) == 1:
            return command
        return command.subcommands.get(f"{command.name}|{_name(words[1])}")

    def named(self, name: str) -> Command | None:
        """A command, or ``command|subcommand``, by its name in small letters."""
        command = self.commands.get(name.partition("|")[0])
        return command.subcommands.get(name) if command is not None and "|" in name else command

    def of_category(self, category: str) -> list[Command]:
        """Commands and subcommands of a category, in the order of the table."""
        return [
            member
            for command in self.commands.values()
            for member in (command, *command.subcommands.values())
            if category in member.categories
        ]

    def __len__(self) -> int:
        return len(self.commands)


def fits_arity(arity: int, count: int) -> bool:
    """Whether a command that is told with this arity takes so many words."""
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


def help_of(
    name: str,
    parts: Sequence[Command],
    arguments: Mapping[str, str] | None = None,
    *,
    since: str = "6.2.0",
    categories: tuple[str, ...] = ("slow",),
) -> Command:
    """The subcommand HELP of a command; ``arguments``: by subcommand, what stands behind it."""
    lines = [f"{name.upper()} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for part in parts:
        sub = part.name.partition("|")[2]
        lines += [f"{sub.upper()} {(arguments or {}).get(sub, '')}".rstrip(), f"    {part.summary}"]
    lines += ["HELP", "    Print this help."]
    told = [Simple(line.encode()) for line in lines]

    def parse(_client: object, _words: Words) -> Step:
        return Tell(lambda: told)

    return Command(
        f"{name}|help",
        2,
        parse,
        ("loading", "stale"),
        since=since,
        complexity="O(1)",
        group=parts[0].group,
        summary="Tells the subcommands.",
        categories=categories,
    )
