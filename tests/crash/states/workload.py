"""Scripts of operations, each with what it does to the model; and a run of one, recorded."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.options import Sync
from tests.crash.states import model, store_content
from tests.crash.states.disk import Image
from tests.crash.states.recording import STORE, Moment, Recorder, recording
from tests.crash.states.store_content import Content
from tests.model.store import StoreModel
from tests.support.inside import FixedClock

LIMITS: dict[str, int] = {"segment_bytes": 64 * 1024, "node_max_entries": 4}


class Session:
    """A store in use; ``store`` is another one after ``reopen``."""

    store: logstore.Store[bytes]

    def __init__(self, path: Path, sync: Sync) -> None:
        self.path, self.sync, self.clock = path, sync, FixedClock()

    def open(self) -> None:
        """Open it, or make it; without threads of its own, so that every run is alike."""
        options: dict[str, Any] = {"sync": self.sync, "background": False, "clock": self.clock}
        if not (self.path / "STORE").exists():
            options |= LIMITS
        self.store = logstore.open(self.path, **options)

    def reopen(self) -> None:
        """Close and open."""
        self.store.close()
        self.open()

    def content(self) -> Content:
        """All that it holds."""
        return store_content.content(self.store, self.clock)

    def begun(self, found: Content) -> None:
        """It begins with this."""
        self.model = model.begun(store_content.plain(found))

    def agree(self, step: Do, found: Content) -> None:
        """AssertionError if the model says otherwise after a step."""
        step.model(self.model)
        _agree(step.name, store_content.plain(found), model.model_content(self.model))


class Do(NamedTuple):
    """One operation, in one commit at most; ``syncs``: what came before is durable after it."""

    name: str
    do: Callable[[Session], object]
    model: Callable[[StoreModel], object] = lambda model: None
    syncs: bool = False


class Begun(NamedTuple):
    """What was put into a directory before a workload: its content, and what of it is durable."""

    content: Content
    before: Content | None = None  # what it may fall back to, until it was opened
    durable: dict[str, bytes] = {}  # by path below the root  # noqa: RUF012


class Workload(NamedTuple):
    """A script; ``begin`` puts something into the directory of the store before it."""

    name: str
    steps: tuple[Do, ...]
    sync: Sync = "always"
    begin: Callable[[Path], Begun] | None = None
    session: type[Session] = Session


class RecordedWorkload(NamedTuple):
    """A recording: its moments, what the store held after each step, and what it began with."""

    workload: Workload
    moments: list[Moment]
    contents: list[Content]
    begin: Image
    numbers: dict[str, int]
    root: Path
    before: Content | None
    durable: dict[str, bytes]


def record(workload: Workload, scratch: Path) -> RecordedWorkload:
    """Do it once, written down; each step is held against the model."""
    root = Path(tempfile.mkdtemp(dir=scratch))
    begun = Begun({})
    if workload.begin is not None:
        (root / STORE).parent.mkdir()
        begun = workload.begin(root / STORE)
    session = workload.session(root / STORE, workload.sync)
    session.begun(begun.content)
    with recording(root) as recorder:
        session.open()
        contents = [session.content()]
        assert store_content.plain(contents[0]) == store_content.plain(begun.content), (
            "what it began with"
        )
        try:
            for step in workload.steps:
                step.do(session)
                recorder.acknowledged += 1
                if workload.sync == "always" or step.syncs:
                    recorder.durable = recorder.acknowledged
                contents.append(session.content())
                session.agree(step, contents[-1])
        finally:
            with suppress(logstore.Error):
                session.store.close()
        recorder.durable = recorder.acknowledged
        recorder.mark("the end")
    return RecordedWorkload(
        workload, recorder.moments, contents, recorder.begin, recorder.numbers, root,
        begun.before, begun.durable,
    )  # fmt: skip


def _agree(name: str, found: Content, expected: Content) -> None:
    if found == expected:
        return
    for stream in sorted({*found, *expected}):
        left, right = found.get(stream, {}), expected.get(stream, {})
        for key in sorted({*left, *right}):
            if left.get(key) != right.get(key):
                raise AssertionError(
                    f"{name}: {key} of {stream}\n is {left.get(key)}\nnot {right.get(key)}"
                )
    raise AssertionError(f"{name}: {sorted(found)} is not {sorted(expected)}")


def forget(run: RecordedWorkload) -> None:
    """The directory of a recording goes."""
    shutil.rmtree(run.root)


__all__ = ["Do", "RecordedWorkload", "Recorder", "Session", "Workload", "forget", "record"]
