"""Compiles the commit's path with mypyc, for a wheel; only the build imports this.

Invariants: all of ``MODULES`` is compiled, or nothing of it: they call each other directly; what
cannot be compiled stays as it is, interpreted, and the build goes on; an editable installation is
never compiled, so that a change of the source counts at once and tests can reach inside. The
sources are the same either way: there is no second form of them.

What differs when it is compiled: ``self.x = new`` frees the old value *before* the attribute is
set, and so does ``items[at] = new`` for a list. Where freeing it runs code or lets go of the
interpreter (files, LMDB's objects, callables, whatever a caller handed in), another thread can read
a value that is half freed, and the process dies. So an attribute that more than one thread sees is
swapped as ``logstore/engine/swap.py`` says; ``tests/house/test_swaps.py`` finds those that are not.

Not compiled, and why: the faces (they answer wrong types with errors of their own, compiled code
does so with its own), ``fs`` (others inherit from it), ``engine.commit`` (interrupts).
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
    "format",
    "index.bulk", "index.expirytxn", "index.groupkeys", "index.grouptxn", "index.keys",
    "index.settingtxn", "index.txn", "index.witness",
    "log.frame", "log.groupframe", "log.located", "log.version", "log.writer",
    "engine.acks", "engine.adds", "engine.apply", "engine.arrivals", "engine.attempt",
    "engine.carried", "engine.claims", "engine.configures", "engine.core", "engine.deletes",
    "engine.deliveries", "engine.fresh", "engine.gate", "engine.groupapply", "engine.groups",
    "engine.groupstate", "engine.handover", "engine.hands", "engine.holds", "engine.kept",
    "engine.lag", "engine.lifeapply", "engine.lifetimes", "engine.line", "engine.lock",
    "engine.lookup", "engine.metrics", "engine.nodes", "engine.offers", "engine.opens",
    "engine.pace", "engine.pendings", "engine.pendingset", "engine.places", "engine.producerapply",
    "engine.ranges", "engine.redelivery", "engine.references", "engine.removals", "engine.reserve",
    "engine.retention", "engine.revival", "engine.room", "engine.scheduleapply", "engine.segments",
    "engine.settingapply", "engine.settingstate", "engine.slotrow", "engine.slots",
    "engine.snapshot", "engine.state", "engine.stay", "engine.sync", "engine.ticket",
    "engine.tickets", "engine.waitwords", "engine.wake", "engine.walks",
)  # fmt: skip


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
