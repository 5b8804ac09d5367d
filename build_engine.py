"""Compiles the commit's path with mypyc, for a wheel; only the build imports this.

Invariants: all of ``modules`` is compiled, or nothing of it: they call each other directly; what
cannot be compiled stays as it is, interpreted, and the build goes on; an editable installation is
never compiled, so that a change of the source counts at once and tests can reach inside. The
sources are the same either way: there is no second form of them.

What differs when it is compiled: ``self.x = new`` frees the old value *before* the attribute is
set, and so does ``items[at] = new`` for a list. Where freeing it runs code or lets go of the
interpreter (files, LMDB's objects, callables, whatever a caller handed in), another thread can read
a value that is half freed, and the process dies. So an attribute that more than one thread sees is
swapped as ``logstore/engine/shm/late_free.py`` says; ``tests/house/test_swaps.py`` finds those that
are not.

What is compiled, and with which options of the compiler, was decided by measuring: see "What is
compiled" in ``docs/internals.md``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

# 0: leave the engine interpreted; 1: fail if it cannot be compiled
SWITCH = "LOGSTORE_BUILD_ENGINE"
# Every module of these packages is compiled, but for those below.
PACKAGES = (
    "engine.apply", "engine.commit", "engine.groups", "engine.runtime", "engine.shm",
    "engine.snapshots", "engine.streams", "engine.txn", "engine.waiting", "index",
)  # fmt: skip
# Single ones of other packages: each commit or each read of a group runs them, or their tuples
# would be made at every start (``logstore/tuples.py``).
SINGLE = (
    "engine.features.expiry", "engine.features.retention", "engine.features.settings",
    "features.settings", "format", "log.frame", "log.groupframe", "log.node_reader",
    "log.writer", "row_seal",
)  # fmt: skip
INTERPRETED = {
    "engine.commit.committer": "it decides about interrupts, which compiled code does not take",
    "engine.commit.durability": "once a second, or where the disk is waited for",
    "engine.commit.log_tail": "once a segment",
    "engine.groups.dead_letter": "once an entry that failed too often",
    "engine.runtime.identity": "one call of the system",
    "engine.runtime.maintenance_locks": "once a round of maintenance",
    "engine.runtime.pins": "once a scan",
    "engine.shm.futex": "one call of the system",
    "engine.shm.process": "once an opening",
    "engine.shm.readonly_watch": "one call of the system",
    "engine.shm.late_free": "what holds on to old values must not be compiled itself",
    "engine.streams.idempotency": "two dictionaries an add",
    "engine.streams.lifecycle": "once a stream",
    "engine.streams.trim": "once a node",
    "engine.waiting.thread": "it sleeps",
    "engine.waiting.wait": "it sleeps",
    "index.env": "one call of LMDB",
    "index.verify": "for a check alone",
}
# -Og compiles in half the time of -O1, and what it makes is smaller and runs no more instructions.
OPTIMIZED = "g"
# -Og alone calls even Py_DECREF: what its headers say is inline is put in place, as -O1 does.
INLINE = "-Dinline=inline __attribute__((always_inline))"
# The warnings of -Wall take as long as all else; -g makes what nobody debugs three times as large.
LEFT_OUT = ("-Wall", "-Wsign-compare", "-g")
# In the C of mypyc: the name of the module from which it takes what makes named tuples.
_TYPING = re.compile(
    r"CPyStatics\[\d+\]; /\* 'typing' \*/"
    r"(\n.* = CPyDict_GetItem\(.*(?:\n.*){4}\n.* /\* '(?:_NamedTuple|NamedTupleMeta)' \*/)"
)


def modules(root: Path) -> list[str]:
    """The modules to compile, by their names below ``logstore``, in the sources at ``root``."""
    found = [
        f"{package}.{path.stem}"
        for package in PACKAGES
        for path in (root / "logstore" / package.replace(".", "/")).glob("*.py")
        if path.stem != "__init__"
    ]
    return sorted({*found, *SINGLE} - INTERPRETED.keys())


class _Quiet(build_ext):
    """`build_ext` without the options of the compiler that only cost time."""

    def build_extensions(self) -> None:
        """Build all extensions."""
        command = getattr(self.compiler, "compiler_so", [])
        command[:] = [option for option in command if option not in LEFT_OUT]
        super().build_extensions()


class BuildExt(_Quiet):
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
    names = [f"logstore/{name.replace('.', '/')}.py" for name in modules(source)]
    flags = [
        "--config-file=",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--python-version=3.11",
    ]
    with _inside(source):
        extensions: list[Extension] = mypycify(
            [*flags, *names], opt_level=OPTIMIZED, debug_level="0", group_name="logstore",
            target_dir=str(scratch / "c"),
        )  # fmt: skip
        for extension in extensions:
            extension.extra_compile_args.append(INLINE)
            for name in extension.sources:
                path = Path(name)
                path.write_text(_with_our_tuples(path.read_text()))
        inner = Distribution({"name": "logstore-engine", "ext_modules": extensions})
        command = _Quiet(inner)
        command.build_lib, command.build_temp = str(built), str(scratch / "objects")
        command.debug = debug
        command.finalize_options()
        command.run()
    return built


def _with_our_tuples(text: str) -> str:
    """The C of mypyc, in which classes of named tuples are made by ours and not by ``typing``.

    mypyc puts the base and the metaclass of ``typing`` in place of those in the source, whatever
    that imports, and making a class takes four times as long with them. So the module where it
    looks for the two is exchanged; a source with named tuples has imported ours by then. If mypyc
    writes this otherwise one day, ``tests/engine/test_compiled.py`` tells.
    """
    ours = re.search(r"CPyStatics\[\d+\]; /\* 'logstore\.tuples' \*/", text)
    return text if ours is None else _TYPING.sub(lambda found: ours[0] + found[1], text)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
