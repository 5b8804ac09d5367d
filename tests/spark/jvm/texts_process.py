"""A process that answers what texts are as types, and which rows entries become, in Java."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.spark.jvm.java_program import classpath

CLASS = "org.logstore.spark.columns.TextsProgram"
PROGRAM = Path(__file__).parent / "texts_program" / f"{CLASS.replace('.', '/')}.java"
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


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


@contextmanager
def started() -> Iterator[TextsProcess]:
    """The process."""
    command = ["java", *OPTIONS, "-cp", classpath(PROGRAM), CLASS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield TextsProcess(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
