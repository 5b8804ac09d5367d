#!/usr/bin/env python3
"""Tries an installed logstore, with nothing but Python: a wheel that lacks a part fails here.

``smoke.py`` prints a line, and ends with 1 if something is not as it should be; ``--pure`` permits
that nothing was compiled. It runs in an empty folder, so that no checkout is met.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

IMPORT_MOST_S = 0.060
HERE = Path(__file__).resolve().parent.parent


def main() -> int:
    """All of it, in a temporary folder."""
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != HERE / ".ci"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        started = time.process_time()
        import logstore

        took_s = time.process_time() - started
        assert Path(sysconfig.get_path("platlib")) in Path(logstore.__file__).parents, (
            "met a checkout"
        )
        assert took_s < IMPORT_MOST_S, f"import logstore took {took_s * 1000:.0f} ms"
        if "--pure" not in sys.argv:
            compiled()
        python(Path(folder, "store"))
        asyncio.run(awaited(Path(folder, "store")))
        commands(Path(folder, "store"))
        print(
            f"logstore {logstore.__version__} works: Python {sys.version.split()[0]}, "
            f"{sysconfig.get_platform()}, import {took_s * 1000:.0f} ms"
        )
        os.chdir("/")
    return 0


def compiled() -> None:
    """A wheel without a compiled module would be slower in silence."""
    import logstore.codec.native
    import logstore.engine.lane.native
    import logstore.engine.reading.native
    import logstore.mapped.native  # noqa: F401


def python(path: Path) -> None:
    """A stream, a group, a schema, a reopening."""
    import logstore

    with logstore.open(path) as store:
        stream = store.stream("readings")
        ids = [stream.add({"temp": str(each)}) for each in range(300)]
        assert stream.get(ids[7])["temp"] == b"7"
        group = stream.group("means", "0")
        for delivery in group.read("one", count=100):
            delivery.ack()
        typed = store.stream("typed")
        typed.configure(schema="n long")
        typed.add({"n": 3})
    with logstore.open(path) as store:
        assert len(store.stream("readings")) == 300
        assert [each["n"] for each in store.stream("typed")] == [3]
        assert store.stream("readings").group("means").read("two", count=1)[0]["temp"] == b"100"


async def awaited(path: Path) -> None:
    """The same face, awaited."""
    from logstore import aio

    async with aio.open(path) as store:
        await store.stream("readings").add({"temp": "late"})
        assert await store.stream("readings").len() == 301


def commands(path: Path) -> None:
    """The command line, as an installation has it."""
    command = Path(sysconfig.get_path("scripts"), "logstore")
    for words in (["add", path, "readings", "temp=1"], ["info", path], ["check", path]):
        done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    sys.exit(main())
