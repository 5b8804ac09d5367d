#!/usr/bin/env python3
"""Makes and tries what a release uploads, and uploads nothing: ``make release``.

From the commit, in two places: a source distribution and a wheel of it, which must be equal to the
byte. Then the wheel is looked at and tried, and ``dist/`` gets both, their sums and a bill of
materials. docs/releasing.md says what a person does before and behind that.

Invariants: what is built is what is committed; each step that fails ends it with a line that says
why; ``dist/`` is filled at the very end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WHEEL_MOST_BYTES = 6 << 20
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
# What an installation may bring along, by the words of SPDX or of PyPI.
LICENCES = re.compile(
    r"\b(MIT|MIT-0|Apache|Apache-2\.0|BSD|BSD-[23]-Clause|ISC|PSF-2\.0|Zlib|OLDAP-2\.8|LGPL|LGPL-[\w.-]+)\b"
)


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)


def fail(text: str) -> None:
    """End with a line."""
    sys.exit(f"release: {text}")


def run(*command: str | Path, where: Path = ROOT, **variables: str) -> str:
    """What a command prints; its whole output, and the end, if it fails."""
    done = subprocess.run(
        [str(each) for each in command], cwd=where, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        say(done.stdout[-4000:] + done.stderr[-4000:])
        fail(f"{command[0]} {command[1]} ended with {done.returncode}, see above")
    return done.stdout


def build(place: Path, moment: str) -> list[Path]:
    """A source distribution of the commit, and a wheel of that, in an empty place."""
    source = place / "source"
    source.mkdir(parents=True)
    archive = place / "source.tar"
    run("git", "archive", "--format=tar", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="tar")
    fixed = {"SOURCE_DATE_EPOCH": moment, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    fixed |= {"PYTHONPATH": "", "TMPDIR": str(place)}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "out", ".",
        where=source, **fixed)  # fmt: skip
    return sorted((place / "out").iterdir())


def compare(first: list[Path], second: list[Path]) -> None:
    """The same names and bytes; of a wheel the parts that differ are named."""
    if [each.name for each in first] != [each.name for each in second]:
        fail(f"the builds differ: {first} and {second}")
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() == other.read_bytes():
            say(f"equal in both builds: {one.name}, {one.stat().st_size:,} bytes")
            continue
        if one.suffix == ".whl":
            with zipfile.ZipFile(one) as left, zipfile.ZipFile(other) as right:
                parts = [name for name in left.namelist() if left.read(name) != right.read(name)]
            fail(f"{one.name} differs between the builds, in {', '.join(parts) or 'its frame'}")
        fail(f"{one.name} differs between the builds")


def look(sdist: Path, wheel: Path) -> None:
    """Size, contents, and what the compiled modules need of the system."""
    if wheel.stat().st_size > WHEEL_MOST_BYTES:
        fail(f"{wheel.name} has {wheel.stat().st_size:,} bytes, over {WHEEL_MOST_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        native = [name for name in archive.namelist() if name.endswith(".so")]
    if len(native) != 4:
        fail(f"{wheel.name} has {len(native)} compiled modules, not 4: is there a C compiler?")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "check_wheel_contents", "--ignore", "W004,W009", wheel)
    if sys.platform == "linux":
        told = run(sys.executable, "-m", "auditwheel", "show", wheel)
        found = re.search(r'"(manylinux_\d+_\d+_\w+)"', told)
        if found is None:
            fail(f"auditwheel: {wheel.name} can be no manylinux wheel:\n{told}")
        else:
            say(f"auditwheel: as it was built here it is a {found[1]} wheel")


def environment(place: Path, python: str) -> Path:
    """The Python of a new environment."""
    if python == sys.executable:
        venv.create(place, with_pip=True)
    else:
        run(python, "-m", "venv", place)
    return place / "bin" / "python"


def installed(python: Path, what: Path) -> None:
    """Install it with what it needs, and try it."""
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", what, PYTHONPATH="")
    say(run(python, ROOT / ".ci" / "smoke.py", PYTHONPATH="").strip())


def works(python: str) -> bool:
    """Whether there is such a Python, with the version of its name."""
    code = "import sys; print('python%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.stdout.strip() == python


def bill(python: Path, target: Path) -> None:
    """What an installation brings along; its licences are of the list."""
    run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible",
        "--of", "JSON", "-o", target, "--pyproject", ROOT / "pyproject.toml", python)  # fmt: skip
    found: dict[str, Any] = json.loads(target.read_text())
    parts = [each for each in found["components"] if each["name"] not in {"pip", "setuptools"}]
    found["components"] = parts
    target.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    for each in parts:
        told = json.dumps(each.get("licenses", ""))
        if not LICENCES.search(told):
            fail(f"{each['name']} {each['version']} has no licence of the list: {told}")
    names = ", ".join(f"{each['name']} {each['version']}" for each in parts)
    say(f"{target.name}: {len(parts)} parts: {names}")


def main() -> int:
    """All steps."""
    if run("git", "status", "--porcelain").strip():
        say("What is not committed is not in it.")
    moment = run("git", "log", "-1", "--format=%ct").strip()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="logstore-release-") as folder:
        here = Path(folder)
        first, second = build(here / "1", moment), build(here / "2", moment)
        compare(first, second)
        (wheel,) = (each for each in first if each.suffix == ".whl")
        (sdist,) = (each for each in first if each.suffix == ".gz")
        look(sdist, wheel)
        python = environment(here / "wheel", sys.executable)
        installed(python, wheel)
        bill(python, here / "logstore.cdx.json")
        for other in PYTHONS:
            if other == f"python3.{sys.version_info.minor}":
                continue
            if works(other):
                installed(environment(here / other, other), sdist)
            else:
                say(f"{other} is not here: not tried")
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for each in (sdist, wheel, here / "logstore.cdx.json"):
            shutil.copy(each, DIST)
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n"
            for each in sorted(DIST.iterdir())]  # fmt: skip
    (DIST / "SHA256SUMS").write_text("".join(sums))
    say(
        "".join(sums)
        + "All of it is in dist/. What is left is a person's: docs/releasing.md, Push."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
