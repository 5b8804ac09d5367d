"""Prevents opening a store from loading what it does not need: names of modules, not times.

What is loaded decides how long a short command takes: most of it is loading.
"""

from __future__ import annotations

from pathlib import Path

from logstore.codec import codec_name
from tests.house.repo import ROOT
from tests.support.processes import run_program

LISTED = ROOT / "tests" / "house" / "loaded_modules.txt"
# Each takes as long to load as a good part of all else.
HEAVY = {
    "anycrc", "argparse", "asyncio", "click", "crc32c", "dataclasses", "email", "hashlib",
    "importlib.metadata", "inspect", "json", "logging", "platform", "pyarrow", "redis", "rich",
    "shutil", "socket", "tempfile", "unittest", "valkey", "zipfile",
}  # fmt: skip
# Of ours, needed by who reads a range, waits, configures, gives IDs for many entries, or asks for
# Arrow.
NOT_AT_ONCE = {
    "api.worker", "api.entry_reads", "engine.features.due_features",
    "engine.features.setting_changes", "engine.groups.deliver", "engine.streams.lifecycle",
    "engine.txn.pel", "engine.waiting.handoff", "engine.waiting.wait_session",
}  # fmt: skip
if codec_name() == "native":
    NOT_AT_ONCE |= {
        "codec.arrow_builder",
        "codec.edit",
        "codec.entry_objects",
        "codec.given_ids",
        "codec.node",
        "codec.node_batch",
    }
OPEN_MODULES_MAX, ADD_MODULES_MAX = 215, 260  # Python's own and those of other packages included
OPENED = """
import logstore
with logstore.open({path!r}, background=False) as store:
    stream = store.stream("s")
    stream.add({{"a": "1"}})
    stream.add_many([{{"a": "1"}}])
    list(stream.range())
"""


def loaded(code: str) -> set[str]:
    """What some code loads on top of what the interpreter has loaded by itself."""
    told = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    return set(run_program(told).stdout.split())


def test_an_import_alone_loads_nothing_of_ours_yet() -> None:
    found = loaded("import logstore")
    assert {name for name in found if name.startswith("logstore")} == {
        "logstore", "logstore.loading",
    }  # fmt: skip
    assert found & HEAVY == set()
    assert len(found) < 30


def test_opening_and_adding_loads_what_is_listed(tmp_path: Path) -> None:
    """A new name is a decision: is it needed by everybody who opens a store? Then list it."""
    found = loaded(OPENED.format(path=str(tmp_path / "store")))
    assert found & HEAVY == set()
    assert len(found) <= OPEN_MODULES_MAX
    ours = {name for name in found if name.split(".")[0] == "logstore"}
    pure = {name for name in ours if name.startswith("logstore.codec.")}  # as the codec in use has
    listed = set(LISTED.read_text().split())
    assert sorted(ours - pure - listed) == []


def test_opening_what_is_there_loads_nothing_more(tmp_path: Path) -> None:
    """Prevents a dear way to open a store that was closed, which is the way of each day."""
    opened = OPENED.format(path=str(tmp_path / "store"))
    first = loaded(opened)
    again = loaded(opened)
    assert sorted(again - first) == []


def test_a_worker_that_commits_transactions_loads_nothing_heavy(tmp_path: Path) -> None:
    """What tells of groups, copies streams and watches without a right to write took a tenth of a
    second of the first job."""
    code = f"""
import logstore
with logstore.open({str(tmp_path / "store")!r}, background=False) as store:
    store.stream("s").add({{"a": "1"}})
    given = store.stream("s").group("g", start="0").read("w", count=1)[0]
    with store.transaction() as tx:
        tx.stream("out").add({{"b": "2"}})
        tx.ack(given)
"""
    found = loaded(code)
    assert found & (HEAVY | {"ctypes"}) == set()
    assert {
        "logstore.api.info",
        "logstore.engine.dump",
        "logstore.api.transaction",
    } & found == {"logstore.api.transaction"}


def test_a_start_that_reads_nothing_loads_neither_reads_nor_the_pure_codec(tmp_path: Path) -> None:
    """Nor what is done when a time has come: a store that is closed at once has no use for it."""
    code = f"""
import logstore
with logstore.open({str(tmp_path / "store")!r}) as store:
    store.stream("s").add({{"a": "1"}})
"""
    found = loaded(code)
    assert found & {f"logstore.{name}" for name in NOT_AT_ONCE} == set()
    assert ("ctypes" in found) == (codec_name() != "native")


def test_the_command_add_loads_click_and_little_else_on_top(tmp_path: Path) -> None:
    code = f"""
import contextlib, io, sys
from logstore.tools.cli import main
sys.argv = ["logstore", "add", {str(tmp_path / "store")!r}, "s", "a=1"]
sys.stdout = io.TextIOWrapper(io.BytesIO())  # what follows is not the command's output
with contextlib.suppress(SystemExit):
    main()
sys.stdout = sys.__stdout__
"""
    found = loaded(code)
    with_click = {"click", "inspect", "platform"}  # what click loads, and uuid, which it asks for
    assert found & (HEAVY - with_click) == set()
    assert len(found) <= ADD_MODULES_MAX


HELP = """
import io, sys
import click
from logstore.tools.commands import COMMANDS, main

def shown(*words):
    sys.stdout = io.TextIOWrapper(io.BytesIO())
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert end.code == 0, words
    sys.stdout = sys.__stdout__

for name in COMMANDS:
    shown(name)
    command = main.get_command(None, name)
    for each in command.list_commands(None) if isinstance(command, click.Group) else ():
        shown(name, each)
"""
# What help may load of ours besides the modules of the commands themselves and what --help of
# `logstore` loads: constants and words that options show.
HELP_ALSO = {"logstore.clock", "logstore.options", "logstore.store_path"}
# Words that commands share with the web view.
HELP_ALSO |= {
    f"logstore.telemetry{each}"
    for each in ("", ".doctor_findings", ".segment_parts", ".stream_lines")
}
HELP_HEAVY = HEAVY - {"click", "dataclasses", "inspect", "json", "platform", "shutil"}
HELP_MODULES_MAX = 40  # Python's own, on top of what --help of `logstore` loads, of all commands


def test_help_of_every_command_opens_no_store_and_renders_with_click_alone() -> None:
    """All commands in one process: what none of them loads is not there at the end."""
    top = loaded(HELP.partition("for name")[0] + "shown()")
    found = loaded(HELP) - top
    ours = {name for name in found if name.split(".")[0] == "logstore"}
    assert {name for name in ours if not name.startswith("logstore.tools.")} <= HELP_ALSO
    assert found & HELP_HEAVY == set()
    assert len(found - ours) <= HELP_MODULES_MAX


def test_loaded_objects_are_of_the_oldest_generation_and_stay_frozen() -> None:
    code = """
import gc
from logstore.loading import load
load("logstore.api.store")
assert gc.isenabled() and not gc.get_freeze_count()
assert gc.get_count()[0] < 700
gc.freeze()
load("logstore.api.info")
assert gc.get_freeze_count()
gc.disable()
load("logstore.api.info")
assert not gc.isenabled()
"""
    assert "logstore.api.info" in loaded(code)


def test_names_can_be_imported_listed_and_asked_for() -> None:
    code = """
import logstore
assert set(dir(logstore)) >= set(logstore.__all__)
from logstore import *
from logstore import Store, StoreInfo, Error
assert logstore.StoreInfo is StoreInfo and issubclass(logstore.ClosedError, Error)
assert not hasattr(logstore, "nonsense")
"""
    assert "logstore.api.info" in loaded(code)


def test_the_checksum_is_that_of_its_package() -> None:
    """Whoever imports the package later, or before, meets the same function."""
    code = """
from logstore.crc import crc32c
assert "crc32c" not in sys.modules
import crc32c as package
assert package.crc32c is crc32c
assert crc32c(b"123456789") == 0xE3069283
"""
    assert "crc32c" in loaded(code)
    other = "import crc32c as package\nfrom logstore.crc import crc32c\n"
    assert "logstore.crc" in loaded(f"{other}assert package.crc32c is crc32c")


def test_a_warning_loads_logging_and_is_told() -> None:
    code = "from logstore.logger import Logger; Logger('logstore').warning('%d of it', 3)"
    assert run_program(code).stderr == "3 of it\n"
    quiet = "from logstore.logger import Logger; Logger('logstore').info('nobody hears')"
    assert "logging" not in loaded(quiet)
