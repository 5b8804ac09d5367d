"""The Java of spark_io/jvm, compiled for tests, and programs of it that serve many cases."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SOURCES = ROOT / "spark_io" / "jvm" / "src"
BUILT = ROOT / "build" / "jvm"
# What Spark's own launcher opens is not needed here; the first compiler alone starts soonest.
OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def _missing(what: str) -> None:
    """Skip, or fail where the tests of the JVM must run."""
    reason = f"the reader in the JVM is not tested: there is no {what}"
    if os.environ.get("LOGSTORE_REQUIRE_JVM") == "1":
        pytest.fail(f"{reason}, and LOGSTORE_REQUIRE_JVM=1")
    pytest.skip(reason)


def _jars() -> str:
    try:
        import pyspark
    except ImportError:
        _missing("pyspark: make test installs it")
    return str(Path(pyspark.__file__).parent / "jars" / "*")


def classpath(program: Path) -> str:
    """The classes of a Java program of the tests and of what it uses, and Spark's jars.

    Compiled once for the same sources.
    """
    jars = _jars()
    if shutil.which("javac") is None or shutil.which("java") is None:
        _missing("JDK (javac)")
    sources = [*sorted(SOURCES.rglob("*.java")), program]
    digest = hashlib.sha256(jars.encode())
    for each in sources:
        digest.update(each.read_bytes())
    built = BUILT / f"{program.stem}-{digest.hexdigest()[:16]}"
    if not built.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        for old in BUILT.glob(f"{program.stem}-*"):
            shutil.rmtree(old, ignore_errors=True)
        half = built.with_suffix(f".{os.getpid()}")
        options = ["--release", "17", "-Xlint:all,-path", "-Werror", "-implicit:class"]
        places = ["-cp", jars, "-sourcepath", str(SOURCES), "-d", str(half)]
        done = subprocess.run(
            ["javac", *options, *places, str(program)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        try:
            half.rename(built)
        except OSError:  # another process of the tests was faster
            shutil.rmtree(half)
    return f"{built}{os.pathsep}{jars}"


class JavaProgram:
    """A program that answers a line of JSON for each that it is given."""

    def __init__(self, source: Path) -> None:
        self._process = subprocess.Popen(
            ["java", *OPTIONS, "-cp", classpath(source), source.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        """The answer to a request."""
        sent, answered = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answered is not None
        sent.write(json.dumps(request) + "\n")
        sent.flush()
        line = answered.readline()
        assert line, "the program ended"
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        sent, answered = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answered is not None
        sent.close()
        self._process.wait(timeout=30)
        answered.close()
