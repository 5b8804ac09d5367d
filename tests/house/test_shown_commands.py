"""Prevents a command that is told of, in whatever page, docstring or message, and is not there.

`test_docs` runs what can be run here. This looks at all the rest, and at that, too: a command has
its name, its options have theirs, a line that one types is taken as it stands; `make` has the
target, Python the module, `pyproject.toml` the extra, the repository the file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from logstore.tools.command_examples import EXAMPLES
from logstore.tools.commands import main
from tests.house.repo import ROOT, files, project
from tests.house.shown import COMMENT, HOUSE, Shown, fences, mentions, said, typed, variables
from tests.torture import PARTS

DEPLOY = Path("examples/deploy")
# Programs that are not ours, and whose arguments nobody here knows.
FOREIGN = {
    *("auditwheel", "cat", "cd", "chmod", "chown", "cibuildwheel", "cp", "docker", "git"),
    *("gunicorn", "huey_consumer", "install", "twine"),
    *("journalctl", "ln", "ls", "mv", "openssl", "python3", "redis-cli", "spark-submit"),
    *("systemctl", "taskiq", "useradd", "uvicorn"),
}
# What is told of such programs without their names.
OF_REDIS_CLI = {"--bigkeys", "--csv", "--memkeys", "--pipe", "--replica", "--scan"}
ASSIGNED = re.compile(r"(\w+)=")
OPTION = re.compile(r"--[a-z][\w-]*|-[a-zA-Z]")
LANGUAGES = {"console", "ini", "json", "python", "text"}
PROMPT = re.compile(r"(\$ )?(logstore|make|pip|python) [a-z-]+ ")
UNIT = re.compile(r"logstore(-\w+)?\.(service|timer)|logstore-(doctor|backup|web|work)")
EXTRAS = re.compile(r"['\"](?:\.|logstore-streams)\[([a-z,]+)\]")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


class NotThereError(Exception):
    """Something is shown that is not there."""


def hold(found: object, message: str) -> None:
    """Raise NotThereError if something is not so."""
    if not found:
        raise NotThereError(message)


# -- what there is -------------------------------------------------------------------------------
def leaves(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """The commands, with those of groups of commands, by their last words."""
    assert isinstance(command, click.Group)
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            yield from leaves(found, ctx)


@cache
def all_options() -> dict[str, list[tuple[str, click.Parameter]]]:
    """Options by name: the commands that have one, and what it is there."""
    ctx = click.Context(main)
    found: dict[str, list[tuple[str, click.Parameter]]] = {}
    for name, command in [("", main), *leaves(main, ctx)]:
        for option in command.get_params(ctx):
            for spelled in [*option.opts, *option.secondary_opts]:
                found.setdefault(spelled, []).append((name, option))
    return found


# -- commands ------------------------------------------------------------------------------------
def check_line(text: str, *, whole: bool = True) -> None:
    """A line of a shell, with as many commands as it has."""
    text = re.sub(r"\$\([^)]*\)", "X", COMMENT.sub("", text))  # what another command printed
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in {"&&", "||", "|", ";", ">"}:
            words.append(word)
            continue
        while words and (found := ASSIGNED.match(words[0])):
            hold(not found[1].startswith("LOGSTORE_") or found[1] in variables(), words[0])
            del words[0]
        if words:
            check_words(words, whole)
        words = ["cat"] if word == ">" else []  # what follows is a file


def check_words(words: list[str], whole: bool) -> None:
    """A command and its arguments."""
    program, *more = words
    name = program.rpartition("/")[2] if program.startswith("/") else program
    if name == "sudo":
        check_words(more[2:], whole)
    elif name == "logstore":
        check_ours(more, whole)
    elif name == "make":
        check_make(more)
    elif name == ".ci/env.py":
        check_words(more[more.index("--") + 1 :], whole)
    elif name == "python":
        hold(more[0] == "-m" or (ROOT / "examples" / more[0]).is_file(), f"no {more[0]}")
        if more[0] == "-m":
            check_module(more[1], more[2:])
    elif name == "pytest":
        check_tests(more)
    elif name == "pip":
        # The distribution is in no index yet.
        hold("logstore-streams" not in " ".join(more), "say: pip install '.[...]', in a clone")
        extras = project()["project"]["optional-dependencies"]
        for found in re.findall(r"\[([^\]]+)\]", " ".join(more)):
            hold(set(found.split(",")) <= set(extras), f"no extra {found}")
    else:
        hold(name in FOREIGN, f"nobody knows the program {name}")
        check_foreign(more)


def check_ours(words: list[str], whole: bool) -> None:
    """A command of ours: in a line all its arguments are there, in a sentence perhaps none."""
    words = ["1" if word == "N" else word for word in words if word.strip(".")]
    command, ctx, at = named(words)
    known = {name: option for option in [*main.params, *command.get_params(ctx)]
             for name in [*option.opts, *option.secondary_opts]}  # fmt: skip
    arguments, left = [], words[at:]
    while left:
        word = left.pop(0)
        if not OPTION.fullmatch(word):
            arguments.append(word)
            continue
        hold(word in known, f"{command.name} has no {word}")
        option = known[word]
        if not (isinstance(option, click.Option) and option.is_flag):
            del left[: option.nargs]
    if whole or arguments:
        taken(words)


def named(words: list[str]) -> tuple[click.Command, click.Context, int]:
    """The command that some words begin with, and how many of them name it."""
    command: click.Command = main
    ctx = click.Context(main, info_name="logstore")
    at = 0
    while isinstance(command, click.Group) and at < len(words):
        if not OPTION.fullmatch(words[at]):
            found = command.get_command(ctx, words[at])
            hold(found, f"no command {words[at]}")
            assert found is not None
            command, ctx = found, click.Context(found, info_name=words[at], parent=ctx)
        at += 1
    return command, ctx, at


def taken(words: list[str]) -> None:
    """Raise NotThereError unless the command takes the words; nothing is run."""
    command, ctx, at = named(words)
    before = [word for word in words[:at] if OPTION.fullmatch(word)]
    hold(before or at, "it names no command")
    hold(set(before) <= {name for option in main.params for name in option.opts}, f"{before}")
    if isinstance(command, click.Group):
        hold(before, f"{command.name} has commands, and none is named")
        return
    instead = [option for option in command.params if option.is_eager and not option.expose_value]
    if any({*option.opts} & {*words} for option in instead):  # --demo would run, here and now
        return
    try:
        command.make_context(ctx.info_name, words[at:], parent=ctx.parent)
    except click.exceptions.Exit:  # --help
        return
    except click.UsageError as error:
        raise NotThereError(error.format_message()) from None


def check_make(words: list[str]) -> None:
    """Targets of the Makefile, its variables, and what the program of a target is given."""
    text = (ROOT / "Makefile").read_text()
    targets = [word for word in words if "=" not in word]
    hold(set(targets) <= TARGETS, f"the Makefile has not all of {targets}")
    for name, value in (word.split("=", 1) for word in words if "=" in word):
        hold(re.search(rf"\$\({name}\)|^{name} \?=|ifndef {name}$", text, re.MULTILINE), name)
        if name == "ARGS":
            recipe = re.search(rf"^{targets[0]}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
            assert recipe is not None
            module = re.search(r"python -m (\S+)", recipe[1])
            if module is None:
                check_tests(shlex.split(value))
            else:
                check_module(module[1], shlex.split(value))
        elif name == "PATHS" and "..." not in value:
            check_files(value.split())


def check_module(name: str, words: list[str]) -> None:
    """A module that is run, with options that it has, and words that it knows."""
    at = ROOT / name.replace(".", "/")
    source = at / "__main__.py" if at.is_dir() else at.with_suffix(".py")
    hold(source.is_file(), f"no module {name}")
    text = source.read_text()
    for word in words:
        if word.startswith("-"):
            hold(f'"{word}"' in text, f"{name} has no {word}")
            continue
        known = word.isdigit() or word.isupper() or word in PARTS
        known = known or re.search(rf"\b{re.escape(word)}\b", text) is not None
        known = known or (source.parent / f"{word}.py").is_file() or any(ROOT.glob(f"{word}*"))
        hold(known, f"{name} does not know {word}")


def check_tests(words: list[str]) -> None:
    """Paths of tests, beside options of pytest."""
    check_files([word for word in words if word.startswith("tests/")])


def check_foreign(words: list[str]) -> None:
    """Of a program that is not ours: files of the repository, and units that are in it."""
    check_files([word for word in words if word.partition("/")[0] in {"docs", "examples"}])
    for word in words:
        if UNIT.fullmatch(word):
            hold(any((ROOT / DEPLOY).glob(f"{word}*")), f"no unit {word}")


def check_files(names: list[str]) -> None:
    """Files of the repository."""
    for name in names:
        hold(any(ROOT.glob(name)), f"no file {name}")


def check_options(words: list[str]) -> None:
    """Options that a sentence names without their command, or with its last word alone."""
    of = words.pop(0) if not words[0].startswith("-") else None
    hold(of is None or of in {name for name, _ in leaves(main, click.Context(main))}, f"no {of}")
    for at, word in enumerate(words):
        if not word.startswith("-") or word in OF_REDIS_CLI:
            continue
        found = [each for name, each in all_options().get(word, []) if of in {None, name}]
        hold(found, f"no command has {word}")
        value = words[at + 1] if at + 1 < len(words) else ""
        kinds = [each.type for each in found if isinstance(each.type, click.Choice)]
        if value and len(kinds) == len(found):
            hold(any(value in kind.choices for kind in kinds), f"{word} does not take {value}")


# -- tests ---------------------------------------------------------------------------------------
LINES = list(typed())
OF_PROGRAMS = re.compile(r"(?:logstore|make|\.ci/env\.py|python -m|LOGSTORE_\w+=\S+ \w+) ")
OF_OPTIONS = re.compile(r"(?:[a-z]+ )?--[a-z]")


def faults(found: list[Shown], check: object) -> list[str]:
    """What is wrong with some of what is shown."""
    assert callable(check)
    wrong = []
    for one in found:
        try:
            check(one.text)
        except (NotThereError, ValueError) as error:
            wrong.append(f"{one.where}: {one.text}: {error}")
    return wrong


@pytest.fixture
def files_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that commands look for before they run."""
    monkeypatch.chdir(tmp_path)
    names = (
        "flights.csv.gz france.jsonl france.parquet later.jsonl readings.parquet rooms.csv "
        "secret sensor.jsonl sensor.parquet"
    )
    for name in names.split():
        (tmp_path / name).touch()


@pytest.mark.usefixtures("files_there")
def test_a_line_that_one_types_is_taken() -> None:
    assert len(LINES) > 200
    assert faults(LINES, check_line) == []


@pytest.mark.usefixtures("files_there")
def test_an_example_of_help_is_taken() -> None:
    found = [Shown(name, each) for name, some in EXAMPLES.items() for each in some]
    assert len(found) > 60
    assert faults(found, check_line) == []


@pytest.mark.usefixtures("files_there")
def test_a_command_in_a_sentence_is_there() -> None:
    found = [one for one in mentions() if OF_PROGRAMS.match(one.text)]
    assert len(found) > 80
    assert faults(found, lambda text: check_line(text, whole=False)) == []


def test_an_option_in_a_sentence_is_there() -> None:
    found = [
        one for one in mentions()
        if OF_OPTIONS.match(one.text) and one.text.split()[0] not in FOREIGN
    ]  # fmt: skip
    assert len(found) > 40
    assert faults(found, lambda text: check_options(shlex.split(text))) == []


def test_a_command_that_a_message_names_is_there() -> None:
    found = list(said())
    assert len(found) > 80
    assert faults(found, lambda text: check_line(text, whole=False)) == []


def test_every_block_says_what_it_is() -> None:
    """So none is passed over: Python and a console are run or looked at, an INI file and JSON are
    compared (tests/wire/test_units.py, tests/tools/test_manual.py), text has no commands."""
    unknown = [each for each in fences() if each.language not in LANGUAGES]
    assert unknown == []
    silent = [
        f"{each.page}:{each.line}: {line}"
        for each in fences() if each.language == "text"
        for line in each.text.splitlines()
        if PROMPT.match(line) and not line.startswith("logstore serve STORE [")
    ]  # fmt: skip
    assert silent == []


def test_variables_that_are_named_are_read() -> None:
    named = {(one.where, name) for one in [*mentions(), *LINES]
             for name in re.findall(r"\bLOGSTORE_\w+", one.text)}  # fmt: skip
    assert len(named) > 20
    assert sorted(each for each in named if each[1] not in variables()) == []


def test_extras_that_are_named_are_there() -> None:
    """Also those that an error tells to install."""
    extras = project()["project"]["optional-dependencies"]
    missing, seen = [], 0
    for path in files():
        if path.suffix in {".py", ".md", ".ipynb", ".html"} and HOUSE not in path.parents:
            for found in EXTRAS.findall((ROOT / path).read_text()):
                seen += 1
                missing += [f"{path}: {name}" for name in found.split(",") if name not in extras]
    assert missing == []
    assert seen > 20


@pytest.mark.parametrize(
    "line",
    ["logstore expport s", "logstore export s a --since -1h", "logstore range", "make tests",
     "make test-core ARGS=tests/nothing", "make bench ARGS=nothing", "make mutation ARGS=--alles",
     "python -m tests.store.odd", "pip install '.[sparks]'", "frobnicate --now",
     "systemctl start logstore-backups.timer", "cp examples/deploy/logstore.servic /etc",
     "LOGSTORE_NOTHING=1 make test-core", "logstore check s | logstore nothing"],
)  # fmt: skip
def test_a_missing_name_is_found(line: str) -> None:
    """A canary: a test that lets everything pass would stay green for ever."""
    assert faults([Shown("here", line)], check_line) != []
