"""Prevents jobs that are lost, done twice in the store, retried too soon or for ever, and results
that are another job's."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import EntryTypeError, JobFailedError, JobNotDoneError, OptionError
from logstore.api.worker import process_ended, process_name
from logstore.jobs import Job, Jobs
from logstore.jobs import gone as gone_workers
from logstore.jobs import job_worker as worker
from tests.support.processes import Forked


@pytest.fixture(params=["utf-8", None, "latin-1"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jobs]:
    """A queue in a store of each kind of encoding."""
    with logstore.open(tmp_path / "s", encoding=request.param, sync="os") as store:
        yield Jobs(store, backoff=0.05)


@pytest.fixture
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers fetch as many jobs as they may, however long those take."""
    monkeypatch.setattr(worker.Worker, "_pace", lambda _worker: 1000)


def test_results_and_errors_are_their_own_jobs(jobs: Jobs) -> None:
    """Whatever the order; a plain call is a plain call; values are those of the codec."""

    @jobs.task
    def twice(value: Any, *, by: int = 2) -> Any:
        if value is None:
            raise ValueError("nothing to double – ☃")
        return [value] * by

    assert twice("a") == ["a", "a"]
    given = [twice.delay(n, by=n) for n in range(5)]
    bad = twice.delay(None)
    when = twice.delay(datetime(2031, 1, 1, tzinfo=UTC), by=1)
    assert not given[0].done()
    with pytest.raises(JobNotDoneError, match="worker"):
        given[0].result(timeout=0.01)
    assert jobs.info().waiting == 7
    assert jobs.work(timeout=0) == 7
    assert [job.result(0) for job in given] == [[n] * n for n in range(5)]
    assert jobs.job(given[3].id).result() == [3, 3, 3]
    assert len(jobs.stream) == 1  # what ended is dropped, but for the last one
    assert when.result(0) == [datetime(2031, 1, 1, tzinfo=UTC)]
    with pytest.raises(JobFailedError, match="☃") as caught:
        bad.result(timeout=5)
    assert (caught.value.job, caught.value.error) == (
        bad.id,
        "ValueError: nothing to double – ☃",
    )
    info = jobs.info()
    assert (info.dead, info.finished, info.waiting, info.running) == (1, 7, 0, 0)


def test_a_job_is_retried_later_and_then_given_up(jobs: Jobs) -> None:
    """Each time twice as late; given back, it has its retries again."""
    tried: list[float] = []

    @jobs.task(retries=2, backoff=0.1)
    def fails() -> str:
        tried.append(time.monotonic())
        if len(tried) != 5:
            raise RuntimeError("again")
        return "at last"

    job = fails.delay()
    jobs.work(timeout=0.5)
    assert len(tried) == 3
    assert tried[1] - tried[0] >= 0.1
    assert tried[2] - tried[1] >= 0.2
    with pytest.raises(JobFailedError, match="again"):
        job.result(0)
    assert len(jobs.store.requeue(jobs.dead.name)) == 1
    jobs.work(timeout=0.5)
    assert len(tried) == 5
    assert [entry.get("error") is None for entry in jobs.results] == [False, True]


def test_a_transactional_task_commits_with_its_end(jobs: Jobs) -> None:
    """Also where it fails: then nothing of it is there."""

    @jobs.task(transaction=True)
    def into(tx: Any, n: int) -> int:
        tx.stream("out").add({"n": n})
        if n == 2:
            raise ValueError("no 2")
        return n

    with jobs.store.transaction() as tx:
        first = into.submit((1,), tx=tx)
        into.submit((2,), tx=tx)
        assert "out" not in jobs.store
    assert jobs.work(timeout=0) == 2
    assert first.result(0) == 1
    assert [entry["n"] for entry in jobs.store.stream("out")] in (["1"], [b"1"])


def test_options_count_also_where_the_function_is_given_at_once(jobs: Jobs) -> None:
    """They were passed over, without a word, where the decorator was called as a function."""

    def kept(tx: Any, n: int) -> int:
        tx.stream("kept").add({"n": n})
        return n

    task = jobs.task(kept, name="kept", retries=2, result=False, transaction=True)
    assert (task.retries, task.keeps_result, task.in_transaction) == (2, False, True)
    task.delay(1)
    jobs.work(timeout=0)
    assert [int(entry["n"]) for entry in jobs.store.stream("kept")] == [1]
    with pytest.raises(OptionError):
        jobs.task(lambda: None, name="never", cron="0 0 31 2 *")


def test_later_and_not_for_longer(jobs: Jobs) -> None:
    """A job of a time comes then; one that waited for too long is dead, and not done."""
    done: list[int] = []

    @jobs.task
    def note(n: int) -> None:
        done.append(n)

    far = note.submit((9,), after=3600)
    note.submit((1,), after=0.2)
    note.submit((2,), at=datetime.now(UTC) - timedelta(seconds=1))
    note.submit((3,), ttl=0.05)
    assert jobs.info().scheduled >= 1  # on a busy machine the others have come already
    assert far
    time.sleep(0.3)  # nobody works meanwhile: what is over by then is over
    while jobs.info().dead == 0:  # the background sees to it; the test's own limit ends this
        time.sleep(0.01)
    jobs.work(timeout=0.5)
    assert sorted(done) == [1, 2]
    with pytest.raises(OptionError, match="ttl"):
        note.submit((4,), after=1, ttl=1)


def test_coroutines_and_time_limits(tmp_path: Path) -> None:
    """A worker awaits what a coroutine function gives; a call that takes too long is told so."""
    with Jobs(tmp_path / "s") as jobs:

        @jobs.task
        async def later(n: int) -> int:
            await asyncio.sleep(0.001)
            return n

        @jobs.task(timeout=0.05)
        def slow() -> None:
            time.sleep(5)

        @jobs.task(result=False)
        def quiet() -> None:
            return

        kept, late, silent = later.delay(7), slow.delay(), quiet.delay()
        assert jobs.work(timeout=0) == 3
        assert kept.result(0) == 7
        with pytest.raises(JobFailedError, match=r"took over 0\.05 s"):
            late.result(0)
        with pytest.raises(JobNotDoneError):
            silent.result(0)


class _Local:
    """Something that a call has, and that is freed when it has returned."""


def test_a_job_that_has_finished_is_not_failed_by_its_alarm(tmp_path: Path) -> None:
    """Prevents a job that is done twice: the alarm comes between its return and the next step.

    The system sends it as the variables of the call are freed, so that Python sees it only then.
    """
    raise_c = getattr(ctypes.CDLL(None), "raise")
    raise_c.argtypes = [ctypes.c_int, ctypes.py_object]  # it is called with the reference, too
    alarm = functools.partial(raise_c, int(signal.SIGALRM))
    kept: list[object] = []
    before = signal.getsignal(signal.SIGALRM)
    with Jobs(tmp_path / "s", retries=0) as jobs:

        @jobs.task(timeout=3600)
        def quick() -> str:
            local = _Local()
            kept.append(weakref.ref(local, alarm))
            return "done"

        @jobs.task(timeout=3600)
        async def awaited() -> str:
            local = _Local()
            kept.append(weakref.ref(local, alarm))
            return "done"

        @jobs.task(timeout=3600)
        def late() -> str:
            signal.raise_signal(signal.SIGALRM)
            return "done"

        for task in (quick, awaited):
            given = task.delay()
            assert jobs.work(timeout=0) == 1
            assert given.result(0) == "done"
        failed = late.delay()
        assert jobs.work(timeout=0) == 1
        with pytest.raises(JobFailedError, match="took over 3600"):
            failed.result(0)
        assert len(kept) == 2
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.usefixtures("whole_batches")
def test_a_waiting_caller_gets_the_result_of_another_thread(tmp_path: Path) -> None:
    """And a stop ends the worker after its running job, giving the rest of its batch back."""
    with Jobs(tmp_path / "s") as jobs:
        stop, begun, goes_on = threading.Event(), threading.Event(), threading.Event()

        @jobs.task
        def slow(n: int) -> int:
            begun.set()
            assert goes_on.wait(60)
            return n

        given = [slow.delay(n) for n in range(3)]
        thread = threading.Thread(target=jobs.work, kwargs={"stop": stop})
        thread.start()
        assert begun.wait(60)
        stop.set()
        goes_on.set()
        assert given[0].result(timeout=30) == 0
        thread.join()
        assert jobs.info().running == 0
        assert jobs.work(timeout=0) == 2
        assert [job.result(0) for job in given] == [0, 1, 2]


def test_jobs_of_a_worker_that_is_gone_go_to_another_and_of_one_that_lives_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its process; a task that kills worker after worker ends as a dead job."""
    monkeypatch.setattr(gone_workers, "CLAIM_IDLE", timedelta(0))
    with Jobs(tmp_path / "s") as jobs:

        @jobs.task
        def note() -> str:
            return "done"

        held, living = note.delay(), note.delay()
        gone = (
            worker.Worker(jobs, jobs.tasks).name.rsplit(":", 3)[0] + ":1:1:1"
        )  # pid 1 did not start then
        assert process_ended(gone)
        here = worker.Worker(jobs, jobs.tasks).name
        assert not process_ended(here)
        assert not process_ended("elsewhere" + here)
        assert not process_ended("somebody")
        jobs.group.read(gone, count=1)
        jobs.group.read(here, count=1)
        assert jobs.work(timeout=0) == 1
        assert held.result(0) == "done"
        assert not living.done()
        monkeypatch.setattr(gone_workers, "FORGET_AFTER", timedelta(0))
        jobs.work(timeout=0)
        assert gone not in [each.name for each in jobs.group.consumers()]
        assert here in [each.name for each in jobs.group.consumers()]


def test_a_dead_job_that_was_requeued_gives_its_new_result(tmp_path: Path) -> None:
    """And what runs is told meanwhile, with its task and worker."""
    with Jobs(tmp_path / "s") as jobs:
        broken = [True]
        seen: list[Any] = []

        @jobs.task
        def mended() -> str:
            seen.append(jobs.running())
            if broken:
                raise ValueError("broken")
            return "well"

        job = mended.delay()
        assert jobs.running() == []
        jobs.work(timeout=0)
        with pytest.raises(JobFailedError, match="broken"):
            job.result(0)
        broken.clear()
        assert len(jobs.store.requeue("jobs:dead")) == 1
        with pytest.raises(JobFailedError, match="broken"):
            job.result(0)
        jobs.work(timeout=0)
        assert job.result(0) == "well"
        ((one,), (other,)) = seen
        assert (one.id, one.task, other.id) == (job.id, mended.name, job.id)
        assert process_name() in one.worker
        assert jobs.info().dead == 0


REFUSED = {
    "a path": (lambda jobs: Jobs(5), "path"),
    "a codec": (lambda jobs: Jobs("x", codec="yaml"), "codec"),
    "retries": (lambda jobs: Jobs("x", retries=-1), "retries"),
    "a backoff": (lambda jobs: Jobs("x", backoff="soon"), "backoff"),
    "a class of no function": (lambda jobs: jobs.task(5), "function"),
    "a generator": (lambda jobs: jobs.task(generator), "yield"),
    "the name of another task": (lambda jobs: [jobs.task(plain), jobs.task(plain)], "already"),
    "arguments that it does not take": (lambda jobs: jobs.task(plain).delay(1), "cannot be called"),
    "arguments outside a tuple": (lambda jobs: jobs.task(plain).submit(5), r"such as \(1,\)"),
    "a text for them": (lambda jobs: jobs.task(anything).submit("url"), r"such as \(1,\)"),
    "an ID that is none": (lambda jobs: jobs.job("5"), "id of a Job"),
    "the ID of a dead letter": (lambda jobs: jobs.job("17-0"), "field 'job' of a dead letter"),
    "a transaction for a coroutine": (lambda jobs: jobs.task(transaction=True)(awaited), "plain"),
    "a flag": (lambda jobs: jobs.task(result="no")(plain), "result"),
}


def plain() -> None:
    """A function."""


def anything(*_given: str) -> None:
    """One that takes whatever it is given."""


def generator() -> Iterator[int]:
    """One with a yield."""
    yield 1


async def awaited() -> None:
    """A coroutine function."""


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_before_anything_is_stored(tmp_path: Path, what: str) -> None:
    """In words that say what to do."""
    call, told = REFUSED[what]
    jobs = Jobs(tmp_path / "s")
    with pytest.raises(OptionError, match=told):
        call(jobs)
    assert not (tmp_path / "s").exists()


def test_values_that_the_codec_cannot_hold(tmp_path: Path) -> None:
    """As arguments at the call, as a result in the worker, as bytes of another codec there too."""
    with Jobs(tmp_path / "s") as jobs:

        @jobs.task
        def give(*_args: Any) -> object:
            return object()

        with pytest.raises(EntryTypeError, match="arguments"):
            give.delay(object())
        assert not (tmp_path / "s").exists()
        job = give.delay()
        jobs.stream.add({"job": "1-2", "task": give.name, "args": b"\xff no JSON"})
        jobs.stream.add({"job": "1-3", "task": "unknown", "args": "[[],{}]"})
        jobs.stream.add({"nothing": "of a job"})
        jobs.work(timeout=0)
        with pytest.raises(JobFailedError, match="returned"):
            job.result(0)
        told = {entry["origin_error"].split(":")[0] for entry in jobs.dead}
        assert told == {"EntryTypeError", "UsageError"}
        assert jobs.info().retrying == 2  # a newer worker may know the task
        assert Job(jobs, job.id) == job


def test_jobs_claimed_by_an_ending_worker_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process lives, and nobody reads under its name: the job would wait for an hour."""
    monkeypatch.setattr(gone_workers, "CLAIM_IDLE", timedelta(0))
    monkeypatch.setattr(gone_workers, "LOOK_S", 0.001)
    consume = worker.consume
    with Jobs(tmp_path / "s") as jobs:

        @jobs.task
        def note() -> str:
            return "done"

        jobs.ready()
        gone = (
            worker.Worker(jobs, jobs.tasks).name.rsplit(":", 3)[0] + ":1:1:1"
        )  # pid 1 did not start then
        held: list[Any] = []

        def and_one_more(group: Any, name: str, work: Any) -> int:
            done = consume(group, name, work)
            held.append(note.delay())
            assert len(group.read(gone, count=1)) == 1
            while [*map(gone_workers.text, group.pending().consumers)] != [name]:
                time.sleep(0.001)  # the test's own limit ends this
            return done

        with monkeypatch.context() as patch:
            patch.setattr(worker, "consume", and_one_more)
            assert jobs.work(timeout=0) == 0
        assert jobs.info().running == 0
        assert jobs.work(timeout=0) == 1
        assert held[0].result(0) == "done"


def test_a_task_repeats_once_each_time_with_four_workers(tmp_path: Path) -> None:
    """Its schedule is there once, is changed by the program, and ends with the program's wish."""
    path = tmp_path / "s"

    def program(**times: Any) -> Jobs:
        jobs = Jobs(path)

        @jobs.task(transaction=True, name="tick", **times)
        def tick(tx: Any) -> int:
            tx.stream("ticks").add({"by": 1})
            return 1

        return jobs

    def work() -> None:
        program(every=0.02).work()

    workers = [Forked(work) for _ in range(4)]
    try:
        with program() as jobs:
            jobs.ready()
            ticks = jobs.store.stream("ticks")
            while len(ticks) < 20:  # the test's own limit ends this
                ticks.read("$", timeout=1)
    finally:
        for worker in workers:
            worker.kill()
    with program(cron="0 0 1 1 *", tz="Europe/Berlin") as jobs:
        jobs.work(timeout=0)
        [left] = jobs.stream.scheduled()
        assert (left.name, left.cron, left.tz) == ("tick", "0 0 1 1 *", "Europe/Berlin")
        fired = jobs.stream.info().entries_added
        assert fired >= 20
        while jobs.info().finished < fired:  # what a killed worker held comes back
            jobs.work(timeout=1)
        assert len(jobs.store.stream("ticks")) == fired
        results = [entry["job"] for entry in jobs.results]
        assert len(set(results)) == len(results) == fired
        assert jobs.job(results[0]).result(0) == 1
    with program() as jobs:
        jobs.work(timeout=0)
        assert jobs.info().scheduled == 0


def test_a_task_that_cannot_repeat_is_refused(tmp_path: Path) -> None:
    """When it is made, not when a worker starts."""
    jobs = Jobs(tmp_path / "s")
    for times, told in (
        ({"every": 0}, "every must be"),
        ({"cron": "0 0 31 2 *"}, "day"),
        ({"cron": "* * * * *", "tz": "No/Where"}, "unknown"),
        ({"tz": "UTC"}, "either every= or cron="),
        ({"every": 1}, "missing a required argument"),
    ):
        options: dict[str, Any] = times
        with pytest.raises(OptionError, match=told):

            @jobs.task(**options)
            def needs(n: int) -> int:
                return n

    assert jobs.tasks == {}
    assert not (tmp_path / "s").exists()


def test_a_worker_holds_no_jobs_that_others_could_begin(tmp_path: Path) -> None:
    """One where jobs take long, or where it has done none; a batch where they are quick."""
    with Jobs(tmp_path / "s") as jobs:
        held: list[int] = []

        @jobs.task
        def look(length_s: float) -> None:
            held.append(jobs.group.pending().count)
            time.sleep(length_s)

        jobs.ready()
        for length_s in [0.0] * 100 + [2 * worker.AHEAD_S] * 6:
            look.delay(length_s)
        assert jobs.work(timeout=0) == 106
        assert held[0] == 1
        assert max(held[:100]) == 4
        assert held[-2:] == [1, 1]


@pytest.mark.usefixtures("whole_batches")
def test_ends_of_quick_jobs_are_one_commit_and_do_not_wait_for_a_long_one(tmp_path: Path) -> None:
    """A result is there while the next job of the batch runs; the rest end together."""
    with Jobs(tmp_path / "s") as jobs:
        go_on = threading.Event()

        @jobs.task
        def quick(n: int) -> int:
            return n

        @jobs.task
        def long() -> bool:
            return go_on.wait(30)

        jobs.ready()
        given = [quick.delay(n) for n in range(50)]
        before = jobs.store.metrics()["commits"]
        with monkeyed_length(30.0):
            assert jobs.work(batch=50, timeout=0) == 50
        assert jobs.store.metrics()["commits"] - before < 25  # of 51, were each its own
        assert [job.result(0) for job in given] == list(range(50))
        first, second = quick.delay(1), long.delay()
        thread = threading.Thread(target=jobs.work, kwargs={"timeout": 0})
        thread.start()
        assert first.result(timeout=30) == 1
        assert not second.done()
        go_on.set()
        thread.join()
        assert second.result(0) is True


@pytest.mark.usefixtures("whole_batches")
def test_an_end_that_was_lost_to_another_worker_takes_no_other_along(tmp_path: Path) -> None:
    """The others of its commit end; of it there is the result of one worker, the other one's."""
    with Jobs(tmp_path / "s") as jobs:

        @jobs.task
        def quick(n: int) -> int:
            if n == 2:  # while the ends of the first two are kept: the first is claimed
                jobs.group.claim("another", jobs.stream.first.id, min_idle=0)
            return n

        given = [quick.delay(n) for n in range(4)]
        jobs.ready()
        with monkeyed_length(30.0):
            jobs.work(timeout=0)
        assert [job.done() for job in given] == [False, True, True, True]
        assert jobs.info().running == 1  # with the other worker


@contextmanager
def monkeyed_length(length_s: float) -> Iterator[None]:
    """Ends are kept for so long."""
    before, worker.KEPT_S = worker.KEPT_S, length_s
    try:
        yield
    finally:
        worker.KEPT_S = before
