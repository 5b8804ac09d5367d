"""Prevents messages of taskiq that are lost, done twice, or wait for a worker that is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from taskiq import AckableMessage
from taskiq.api import run_receiver_task
from taskiq.exceptions import ResultGetError

from logstore.errors import OptionError, UsageError
from logstore.jobs import taskiq as of_taskiq
from logstore.jobs.task import DELIVERIES_MAX
from logstore.jobs.taskiq import StoreBroker
from tests.support.processes import Forked


async def add_one(value: int) -> int:
    """The task of taskiq's own first example."""
    return value + 1


async def fails() -> None:
    """Never well."""
    raise ValueError("no")


def test_taskiqs_first_example(tmp_path: Path) -> None:
    """Results, errors and delays, with a worker and a client that are brokers of their own."""

    async def main() -> None:
        client, worker = (StoreBroker(tmp_path / "s", sync="os") for _ in range(2))
        with pytest.raises(UsageError, match="startup"):
            assert client.store
        for broker in (client, worker):
            broker.register_task(add_one, "add_one")
            broker.register_task(fails, "fails")
            await broker.startup()
        working = asyncio.create_task(run_receiver_task(worker))
        adds = client.find_task("add_one")
        fail = client.find_task("fails")
        assert adds is not None
        assert fail is not None
        given = [await adds.kiq(n) for n in range(20)]
        results = [await each.wait_result(timeout=30) for each in given]
        assert [each.return_value for each in results] == list(range(1, 21))
        failed = await (await fail.kiq()).wait_result(timeout=30)
        assert failed.is_err
        assert isinstance(failed.error, ValueError)
        begun = time.time()
        later = await adds.kicker().with_labels(delay=0.3).kiq(1)
        assert (await later.wait_result(timeout=30)).return_value == 2
        assert time.time() - begun >= 0.3
        with pytest.raises(ResultGetError):
            await client.result_backend.get_result("none")
        while await client.store.stream("taskiq").count():  # the ack of the last one
            await asyncio.sleep(0.01)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        for broker in (client, worker):
            await broker.shutdown()

    asyncio.run(main())


def test_a_message_of_a_worker_that_was_killed_goes_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that a living worker holds does not."""
    monkeypatch.setattr(of_taskiq, "CLAIM_IDLE", timedelta(0))
    monkeypatch.setattr(of_taskiq, "LOOK_S", 0.1)
    taken = tmp_path / "taken"

    async def take() -> None:
        broker = StoreBroker(tmp_path / "s")
        await broker.startup()
        async for _ in broker.listen():
            taken.touch()

    async def main() -> None:
        broker = StoreBroker(tmp_path / "s")
        broker.register_task(add_one, "add_one")
        await broker.startup()
        task = broker.find_task("add_one")
        assert task is not None
        await task.kiq(1)
        holder = Forked(lambda: asyncio.run(take()))
        try:
            while not taken.exists():  # the test's own limit ends this
                await asyncio.sleep(0.01)
            messages = broker.listen()
            first = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.3)
            assert not first.done()
        finally:
            holder.kill()
        message = await first
        assert isinstance(message, AckableMessage)
        ack = message.ack()
        assert ack is not None
        await ack
        await messages.aclose()
        await broker.shutdown()

    asyncio.run(main())


def test_a_message_that_kills_its_workers_is_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents one that is given to worker after worker for ever; it can be given back."""
    monkeypatch.setattr(of_taskiq, "CLAIM_IDLE", timedelta(0))
    monkeypatch.setattr(of_taskiq, "LOOK_S", 0.05)

    async def dies() -> None:
        broker = StoreBroker(tmp_path / "s", max_deliveries=2)
        await broker.startup()
        async for _ in broker.listen():
            os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        broker = StoreBroker(tmp_path / "s", max_deliveries=2)
        broker.register_task(add_one, "add_one")
        await broker.startup()
        task = broker.find_task("add_one")
        assert task is not None
        given = await task.kiq(1)
        for _ in range(2):
            worker = Forked(lambda: asyncio.run(dies()))
            assert await asyncio.to_thread(worker.exit_code) == -signal.SIGKILL
        messages = broker.listen()
        first = asyncio.ensure_future(anext(messages))
        dead = broker.store.stream("taskiq:dead")
        while not await dead.count():
            assert not first.done()
            await asyncio.sleep(0.01)
        async for entry in dead.range():
            assert entry["id"] == given.task_id.encode()
            assert b"2 workers ended" in entry["origin_error"]
        assert len(await broker.store.requeue("taskiq:dead")) == 1
        assert isinstance(await first, AckableMessage)
        await messages.aclose()
        await broker.shutdown()

    asyncio.run(main())


def test_a_message_is_not_given_for_ever_whatever_is_asked_for(tmp_path: Path) -> None:
    """Prevents a broker without options that has no end of it, and a limit that is none."""

    async def main() -> None:
        broker = StoreBroker(tmp_path / "s")
        await broker.startup()
        group = await broker.store.stream("taskiq").group(of_taskiq.GROUP)
        settings = await group.settings()
        assert (settings.max_deliveries, settings.dead_letter) == (DELIVERIES_MAX, b"taskiq:dead")
        await broker.shutdown()
        with pytest.raises(OptionError, match="max_deliveries"):
            await StoreBroker(tmp_path / "t", max_deliveries=0).startup()

    asyncio.run(main())
