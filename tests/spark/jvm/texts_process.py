"""A process that answers what texts are as types, and which rows entries become, in Java.

It compiles the reader and ``texts_program/`` once a session, under build/.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SOURCES = (ROOT / "spark_io" / "jvm" / "src", Path(__file__).parent / "texts_program")
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
JAVAC = ("-J-XX:TieredStopAtLevel=1", "-proc:none", "-nowarn", "--release", "17")
PROGRAM = "org.logstore.spark.columns.TextsProgram"


class TextsProcess:
    """Asks the process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def texts(self, ddl: str, texts: Sequence[bytes]) -> list[str]:
        """Of each text 0 if it is null, 1 and its value, or 2 if it is malformed."""
        name = ddl.encode()
        parts = [b"T", struct.pack(">H", len(name)), name, struct.pack(">i", len(texts))]
        for text in texts:
            parts += (struct.pack(">i", len(text)), text)
        found: list[str] = self._asked(b"".join(parts))
        return found

    def rows(self, asked: Mapping[str, Any]) -> Any:
        """The batches, and the error if there is one."""
        text = json.dumps(asked).encode()
        return self._asked(b"R" + struct.pack(">i", len(text)) + text)

    def _asked(self, request: bytes) -> Any:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        to.write(request)
        to.flush()
        (size,) = struct.unpack(">i", back.read(4))
        return json.loads(back.read(size))


def jars() -> str:
    """The class path of the pyspark that is installed; skips the test if it cannot be compiled
    against, unless LOGSTORE_REQUIRE_JVM says that it must."""
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("javac") is None:
        reason = "there is no javac: install a JDK 17 or newer"
        (pytest.fail if os.environ.get("LOGSTORE_REQUIRE_JVM") else pytest.skip)(reason)
    return str(Path(pyspark.__file__).parent / "jars" / "*")


@contextmanager
def started(classes: Path) -> Iterator[TextsProcess]:
    """A process of classes that are compiled into a directory."""
    path = jars()
    files = [str(file) for folder in SOURCES for file in sorted(folder.rglob("*.java"))]
    compiled = ["javac", *JAVAC, "-cp", path, "-d", str(classes), *files]
    subprocess.run(compiled, check=True)
    command = ["java", *JAVA, "-cp", f"{classes}{os.pathsep}{path}", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield TextsProcess(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
