"""A server whose settings have webhooks off: it takes no callback URL, at no door, and prunes what
others have left behind.
"""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import migrated_database
from tests.integration.serving import Server, free_port
from tests.waiting import until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.webhooks import MessageSearch, MessageState, Told
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job

URL = "https://receiver.example/jobs"
OFF = (
    "must be left out: this server calls no callback URLs; whoever runs it can set webhooks.enabled"
)


@pytest.fixture
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "webhooks_off") as address:
        yield address


def post(port: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def ended(store: PostgresBackend) -> None:
    """A job whose end is still to be told, and one whose end was."""
    await store.enqueue_jobs([Job(id=id, type="t", callback_url=URL) for id in ("told", "waits")])
    await store.cancel_jobs([], ["told"])
    [one] = await store.webhooks.claim("s", limit=9, per_receiver=9, lease_s=5)
    await store.webhooks.settle(
        [Told(id=one.id, claim=one.claim, state=MessageState.DELIVERED, status=204)]
    )
    await store.cancel_jobs([], ["waits"])


async def test_callbacks_are_refused_at_every_door_and_messages_that_ended_are_pruned(
    dsn: str, tmp_path: Path
) -> None:
    store = await PostgresBackend.open(dsn)
    await ended(store)
    rest, grpc = free_port(), free_port()
    settings = {
        "DATABASE__DSN": dsn,
        "REST__PORT": str(rest),
        "GRPC__PORT": str(grpc),
        "WEBHOOKS__ENABLED": "false",
        "WEBHOOKS__KEEP_DELIVERED_S": "0.001",
        "METRICS__LINGER_S": "0",
    }
    server = Server(settings, tmp_path / "server.log")
    try:
        server.await_ready()
        body = {"type": "t", "payload": 1, "callback_url": URL}
        status, told = await asyncio.to_thread(post, rest, "/v1/jobs", body)
        [fault] = told["details"]
        assert (status, fault["field"], fault["message"]) == (400, "callback_url", OFF)
        status, _ = await asyncio.to_thread(post, rest, "/v1/jobs", {"type": "t", "payload": 1})
        assert status == 201
        async with GrpcQueue(f"127.0.0.1:{grpc}") as queue:
            with pytest.raises(InvalidArgument) as refused:
                await queue.enqueue_job(Job(id="new", type="t", callback_url=URL))
            assert (refused.value.field, refused.value.reason) == ("callback_url", OFF)

        async def is_pruned() -> bool:
            page = await store.webhooks.search(MessageSearch())
            return [(one.job_id, one.state) for one in page.messages] == [
                ("waits", MessageState.PENDING)
            ]

        await until(is_pruned)
    finally:
        server.process.kill()
        server.process.wait()
        await store.close()
    assert re.search("Traceback", server.log) is None
