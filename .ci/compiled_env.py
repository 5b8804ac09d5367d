"""The store as a wheel has it, unpacked beside copies of the tests: what users run, tried by them.

The checkout itself is never compiled but for the codec (build_engine.py says why). Kept by a
hash of all sources; a change of the tests alone is copied at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

BESIDE = ("tests", "benchmarks", "docs", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
          "Makefile", "pyproject.toml", "build_engine.py", ".ci")  # fmt: skip
SOURCES = ("logstore", "index", "compaction", "recovery", "spark_io", "tools")


def prepare(root: Path, build: Path, python: Path) -> Path:
    """Build the wheel if its sources changed; the folder to run commands in."""
    folder = build / "compiled"
    key, stamp = _key(root), folder / "built-from"
    if not stamp.exists() or stamp.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        log = build / "compiled.log"
        print("Compiling the engine, about two minutes, once ...", flush=True)
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "wheel", "-v",
                   "--no-build-isolation", "--no-deps", "-w", str(folder), str(root)]  # fmt: skip
        environment = {**os.environ, "LOGSTORE_BUILD_ENGINE": "1"}
        with log.open("wb") as out:
            done = subprocess.run(command, stdout=out, stderr=out, env=environment, check=False)
        if done.returncode:
            print(log.read_text()[-4000:])
            sys.exit(f"The engine could not be compiled ({log.relative_to(root)}).")
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()
        stamp.write_text(key)
    for name in BESIDE:
        source, target = root / name, folder / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)  # what was removed there goes here, too
            # bytecode says where its source was, and tests would look for it there
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=leave)
        else:
            shutil.copy(source, target)
    return folder


def _key(root: Path) -> str:
    found = hashlib.sha256(sys.version.encode())
    for name in ("pyproject.toml", "build_engine.py", "pyspark_logstore.py"):
        found.update((root / name).read_bytes())
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.[p]*")):
            if path.suffix in {".py", ".pyx", ".pxi", ".pyi"} and path.is_file():
                found.update(path.read_bytes())
    return found.hexdigest()
