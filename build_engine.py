"""Compiles the commit's path with mypyc, for a wheel; only the build imports this.

Invariants: all of ``MODULES`` is compiled, or nothing of it: they call each other directly; what
cannot be compiled stays as it is, interpreted, and the build goes on; an editable installation is
never compiled, so that a change of the source counts at once and tests can reach inside. The
sources are the same either way: there is no second form of them.

What differs when it is compiled: ``self.x = new`` frees the old value *before* the attribute is
set, and so does ``items[at] = new`` for a list. Where freeing it runs code or lets go of the
interpreter (files, LMDB's objects, callables, whatever a caller handed in), another thread can read
a value that is half freed, and the process dies. So an attribute that more than one thread sees is
swapped as ``logstore/engine/shm/swap.py`` says; ``tests/house/test_swaps.py`` finds those that
are not.

Not compiled, and why: the faces (they answer wrong types with errors of their own, compiled code
does so with its own), ``fs`` (others inherit from it), ``engine.commit.committer`` (interrupts).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

# 0: leave the engine interpreted; 1: fail if it cannot be compiled
SWITCH = "LOGSTORE_BUILD_ENGINE"
MODULES = (
    "engine.apply.groups",
    "engine.apply.new_streams",
    "engine.apply.streams",
    "engine.apply.write_txn",
    "engine.commit.pipeline",
    "engine.features.expiry",
    "engine.features.retention",
    "engine.features.settings",
    "engine.groups.ack",
    "engine.groups.admin",
    "engine.groups.claim",
    "engine.groups.deliver",
    "engine.groups.describe",
    "engine.runtime.background",
    "engine.runtime.engine",
    "engine.runtime.reader_gate",
    "engine.runtime.record_cache",
    "engine.runtime.reopen",
    "engine.runtime.reserve",
    "engine.runtime.segments",
    "engine.runtime.snapshot",
    "engine.shm.carried",
    "engine.shm.control_block",
    "engine.shm.mailbox",
    "engine.shm.metrics",
    "engine.shm.pace",
    "engine.shm.saved_waiter",
    "engine.shm.wait_words",
    "engine.shm.waiter_record",
    "engine.shm.waiters",
    "engine.shm.writer_lock",
    "engine.streams.add",
    "engine.streams.budget",
    "engine.streams.delete",
    "engine.streams.read",
    "engine.streams.removal",
    "engine.txn.groups",
    "engine.txn.nodes",
    "engine.txn.pel",
    "engine.txn.view",
    "engine.waiting.arrivals",
    "engine.waiting.handoff",
    "engine.waiting.offers",
    "engine.waiting.queue",
    "engine.waiting.session",
    "engine.waiting.tickets",
    "features.settings",
    "format",
    "index.absence_check",
    "index.bulk",
    "index.group_keys",
    "index.group_txn",
    "index.keys",
    "index.txn",
    "log.frame",
    "log.groupframe",
    "log.located",
    "log.version",
    "log.writer",
    "sealed",
)


class BuildExt(build_ext):
    """`build_ext` that also compiles the engine."""

    def run(self) -> None:
        """Build the codec, then the engine."""
        if not (self.inplace or self.editable_mode):
            self._remove_left()
        super().run()
        wish = os.environ.get(SWITCH, "")
        if wish == "0" or self.inplace or self.editable_mode:
            return
        with tempfile.TemporaryDirectory(prefix="logstore-engine-") as scratch:
            try:
                built = _compile(self.distribution, Path(scratch), bool(self.debug))
            except (Exception, SystemExit) as exc:  # mypyc exits where it finds an error
                if wish == "1":
                    raise
                self.warn(f"the engine stays interpreted: it could not be compiled ({exc})")
                return
            shutil.copytree(built, self.build_lib, dirs_exist_ok=True)

    def _remove_left(self) -> None:
        """Take away what an earlier build left in the build folder: of modules that are gone since,
        and compiled ones of those that stay interpreted this time. All of it would be in the wheel.
        """
        modules = {
            Path(path).resolve() for path in self.get_finalized_command("build_py").get_outputs()
        }
        for package in {name.partition(".")[0] for name in self.distribution.packages or ()}:
            for path in (Path(self.build_lib) / package).rglob("*"):
                compiled = path.suffix in {".so", ".pyd"}
                gone = path.suffix == ".py" and path.resolve() not in modules
                if path.is_file() and (compiled or gone):
                    path.unlink()
            for path in Path(self.build_lib).glob(f"{package}__mypyc.*"):
                path.unlink()


def _compile(distribution: Distribution, scratch: Path, debug: bool) -> Path:
    """Compile the modules from a copy of the package; the folder with what became of it."""
    from mypyc.build import mypycify

    source, built = scratch / "source", scratch / "built"
    folders: dict[str, str] = distribution.package_dir
    for package in distribution.packages or ():
        folder = folders.get(package, package.replace(".", "/"))
        target = source / package.replace(".", "/")
        target.mkdir(parents=True, exist_ok=True)
        for each in Path(folder).glob("*.py*"):
            if each.is_file():
                shutil.copy(each, target)
    names = [f"logstore/{name.replace('.', '/')}.py" for name in MODULES]
    flags = [
        "--config-file=",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--python-version=3.11",
    ]
    with _inside(source):
        extensions: list[Extension] = mypycify(
            [*flags, *names], opt_level="1", debug_level="0", group_name="logstore",
            target_dir=str(scratch / "c"),
        )  # fmt: skip
        inner = Distribution({"name": "logstore-engine", "ext_modules": extensions})
        command = build_ext(inner)
        command.build_lib, command.build_temp = str(built), str(scratch / "objects")
        command.debug = debug
        command.finalize_options()
        command.run()
    return built


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
