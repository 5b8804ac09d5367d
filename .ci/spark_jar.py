#!/usr/bin/env python3
"""Makes spark_io/jvm/logstore-spark.jar, the reader in the JVM, if its sources have changed.

`make jar` runs it with the older pyspark, against which it is compiled: LOGSTORE_OLDER_PYSPARK says
where that is. Invariant: equal sources give equal bytes, whenever and by whomever they are made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from logstore import __version__
from logstore.format import FORMAT_VERSION

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "spark_io" / "jvm"
JAR = HOME / "logstore-spark.jar"
RELEASE = "17"
MANIFEST = "META-INF/MANIFEST.MF"
MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say


def main() -> int:
    """Make the jar, unless the one that is there was made of these sources."""
    javac = shutil.which("javac")
    if javac is None:
        print("There is no javac: apt install openjdk-17-jdk-headless", file=sys.stderr)
        return 1
    spark = os.environ.get("LOGSTORE_OLDER_PYSPARK")
    if not spark:
        print("LOGSTORE_OLDER_PYSPARK names no pyspark: use `make jar`", file=sys.stderr)
        return 1
    manifest = made_of()
    if JAR.exists() and manifest_of(JAR) == manifest:
        return 0
    with tempfile.TemporaryDirectory(dir=HOME, prefix=".classes-") as folder:
        classes = Path(folder)
        compiled = compile_to(classes, javac, Path(spark) / "pyspark" / "jars")
        if compiled:
            return compiled
        pack(classes, manifest)
    print(f"Made {JAR.relative_to(ROOT)}", file=sys.stderr)
    return 0


def sources() -> list[Path]:
    """What the jar is made of."""
    return sorted(path for name in ("src", "resources") for path in (HOME / name).rglob("*.*"))


def made_of() -> bytes:
    """The manifest: versions, and a digest of the sources."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(HOME)}\0".encode() + path.read_bytes() + b"\0")
    lines = (
        "Manifest-Version: 1.0",
        "Implementation-Title: logstore-spark",
        f"Implementation-Version: {__version__}",
        f"Specification-Version: {FORMAT_VERSION}",
        f"Sources: {digest.hexdigest()[:56]}",  # a line has at most 72 bytes
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def manifest_of(path: Path) -> bytes:
    """The manifest of a jar; empty if it is none."""
    try:
        with zipfile.ZipFile(path) as found:
            return found.read(MANIFEST)
    except (OSError, KeyError, zipfile.BadZipFile):
        return b""


def compile_to(classes: Path, javac: str, jars: Path) -> int:
    """Compile all sources; the code of javac."""
    command = [javac, "--release", RELEASE, "-Xlint:all,-path,-processing"]
    command += ["-encoding", "UTF-8", "-proc:none", "-cp", f"{jars}/*", "-d", str(classes)]
    command += [str(path) for path in sources() if path.suffix == ".java"]
    return subprocess.run(command, check=False).returncode


def pack(classes: Path, manifest: bytes) -> None:
    """Write the jar whole, in place of an older one."""
    entries = {str(path.relative_to(classes)): path for path in classes.rglob("*.class")}
    resources = HOME / "resources"
    entries |= {
        str(path.relative_to(resources)): path for path in resources.rglob("*") if path.is_file()
    }
    part = JAR.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(part, "w") as made:
        put(made, MANIFEST, manifest)
        for name, path in sorted(entries.items()):
            put(made, name, path.read_bytes())
    part.replace(JAR)


def put(made: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Write one entry, which says nothing of when and where."""
    entry = zipfile.ZipInfo(name, MOMENT)
    entry.create_system = 3  # Unix, wherever it is made
    entry.external_attr = 0o644 << 16
    made.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    sys.exit(main())
