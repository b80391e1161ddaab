"""The sender as a server runs it: beside it, watched, and shown in its metrics."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import migrated_database
from tests.integration.serving import Server, free_port
from tests.integration.webhooks.scene import Scene, scene
from tests.unit.metrics.exposition import key, scraped
from tests.waiting import until

from queue_operator.backends.webhooks import MessageState
from queue_operator.devcluster.processes import ProcessIdentity
from queue_operator.testing.clauses import proves

DELIVERED = key("queueoperator_webhook_deliveries_total", outcome="delivered")


@pytest.fixture
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "webhooks") as address:
        yield address


def sender_of(server: Server) -> ProcessIdentity:
    """The child that is behind all others."""

    def niceness(child: ProcessIdentity) -> int:
        return os.getpriority(os.PRIO_PROCESS, child.pid)

    found = max(server.children(), key=niceness)
    assert niceness(found) > os.getpriority(os.PRIO_PROCESS, server.process.pid)
    return found


async def when(world: Scene, holds: Callable[[], bool]) -> None:
    async def is_so() -> bool:
        await world.store.ping()
        return holds()

    await until(is_so)


@contextmanager
def serving(world: Scene, settings: Mapping[str, str]) -> Iterator[Server]:
    given = {
        name.removeprefix("QUEUE_OPERATOR_"): value for name, value in world.environment().items()
    }
    # What jobs have ended is counted too, and nobody asks for it.
    ends_at_once = {"METRICS__LINGER_S": "0"}
    server = Server({**given, **ends_at_once, **settings}, world.folder / "server.log")
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        return json.load(answer)


async def written(world: Scene) -> None:
    async def is_so() -> bool:
        return {message.state for message in await world.messages()} == {MessageState.DELIVERED}

    await until(is_so)


async def test_a_receiver_is_sent_what_rest_answers(dsn: str, tmp_path: Path) -> None:
    port = free_port()
    async with scene(dsn, tmp_path, total_s=5.0) as world:
        with serving(world, {"REST__PORT": str(port)}) as server:
            server.await_ready()
            [job_id] = await world.end([world.good(1)])
            await when(world, lambda: len(world.told()) == 1)
            asked = f"http://127.0.0.1:{port}/v1/jobs/{job_id}?namespace={world.namespace}"
            status = await asyncio.to_thread(fetched, asked)
        [told], [message] = world.told(), await world.messages()
    assert json.loads(told.body) == {
        "schema_version": 1,
        "type": "job.finished",
        "id": message.id,
        "timestamp": status["completed_at"],
        "data": status,
    }
    assert (told.id, status["state"]) == (message.id, "COMPLETED")


@proves("external-api.JobSubmission.rule.14")
async def test_a_sender_that_is_killed_is_started_again_and_its_counters_go_on(
    dsn: str, tmp_path: Path
) -> None:
    port = free_port()
    async with scene(dsn, tmp_path, total_s=0.5) as world:
        with serving(world, {"METRICS__PORT": str(port)}) as server:
            server.await_ready()
            await world.end([world.good(1)])
            await when(world, lambda: scraped(port).get(DELIVERED) == 1)
            # Else it is told again, by the next sender.
            await written(world)
            killed = sender_of(server)
            os.kill(killed.pid, signal.SIGKILL)
            await when(world, lambda: "the sender of messages ended" in server.log)
            assert scraped(port)[DELIVERED] == 1
            await world.end([world.good(1), world.bad("failing", 0)])
            retried = key("queueoperator_webhook_deliveries_total", outcome="retried")
            await when(world, lambda: scraped(port)[DELIVERED] == 2)
            await when(world, lambda: scraped(port)[retried] >= 1)
            found = scraped(port)
            assert found[key("queueoperator_webhook_sender_restarts_total")] == 1
            assert found[key("queueoperator_webhook_sender_cpu_seconds_total")] > 0
            pending = key("queueoperator_webhook_pending", namespace=world.namespace)
            await when(world, lambda: scraped(port).get(pending) == 1)
            assert {told.job_id for told in world.told()} == world.ended.keys()
            running = sender_of(server)
            assert server.end() == 0
            assert not running.alive()
    assert "Traceback" not in server.log
