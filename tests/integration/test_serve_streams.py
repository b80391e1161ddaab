"""Streams of events outlive the server: whoever comes back with its last id is told each thing
once, however often the server is killed.
"""

import asyncio
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.conftest import migrated_database
from tests.integration.serving import Server, free_port
from tests.waiting import DEADLINE_S, STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
STREAMS: Final = int(os.environ.get("QUEUE_OPERATOR_TEST_STREAMS", "2000" if FULL else "60"))
KILLS: Final = int(os.environ.get("QUEUE_OPERATOR_TEST_KILLS", "10" if FULL else "2"))
TYPES: Final = 10
JOBS: Final = 10
"""Of a round, when the server is killed and again while it is away."""
PATIENCE_S: Final = DEADLINE_S * (5 if FULL else 1)
TOLD: Final = ("SUBMIT", "CLAIM", "COMPLETE")
LAST: Final = "last"


@pytest.fixture
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "streams") as address:
        yield address


@dataclass
class Reader:
    """One who follows the jobs of a type, and comes back when the stream breaks and the server is
    `there`.
    """

    port: int
    type: str
    there: asyncio.Event
    last_id: str = ""
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)
    breaks: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until it is told that the last job has ended."""
        while not self.told[f"{self.type}-{LAST}", "COMPLETE"]:
            try:
                async with aclosing(self._lines()) as lines:
                    async for line in lines:
                        self._read(line)
                        if self.told[f"{self.type}-{LAST}", "COMPLETE"]:
                            return
            except OSError:
                pass
            self.breaks += 1
            await self.there.wait()

    def _read(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self.last_id = value
            self.begun.set()
        elif name == "data" and value != "{}":
            data = json.loads(value)
            self.told[data["job_id"], data["event"]] += 1
            self.ids[self.last_id] += 1

    async def _lines(self) -> AsyncGenerator[str, None]:
        """Of one stream, to its end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            after = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
            request = f"GET /v1/events?type={self.type} HTTP/1.0\r\nHost: q\r\n{after}\r\n"
            writer.write(request.encode())
            status = await reader.readline()
            if b" 200 " not in status:
                assert b" 503 " in status or not status, status
                return
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    # Cut off within a line, of which nothing counts.
                    return
                yield line.decode().rstrip("\r\n")
        finally:
            writer.close()


async def jobs_live(backend: PostgresBackend, ids: list[str]) -> None:
    """Submitted, claimed, completed: of each type the same."""
    types = [f"t{n}" for n in range(TYPES)]
    jobs = [Job(id=f"{kind}-{one}", type=kind) for one in ids for kind in types]
    for first in range(0, len(jobs), 100):
        await backend.enqueue_jobs(jobs[first : first + 100])
        demand = Demand(assignee_id="w", limit=100)
        claimed = await backend.claim([demand], lease_ttl_s=600.0)
        outcomes = [
            Outcome(event=Event.COMPLETE, job_id=one.job_id, namespace="default", token=one.token)
            for one in claimed
        ]
        await backend.settle(outcomes)


def served(dsn: str, port: int, log: Path) -> Server:
    server = Server({"DATABASE__DSN": dsn, "REST__PORT": str(port)}, log)
    server.await_ready()
    return server


async def test_streams_over_kills_of_the_server_miss_nothing_and_repeat_nothing(
    dsn: str, tmp_path: Path
) -> None:
    port, done, began = free_port(), list[str](), time.monotonic()
    backend = await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S)
    server = await asyncio.to_thread(served, dsn, port, tmp_path / "0.log")
    there = asyncio.Event()
    there.set()
    readers = [Reader(port, f"t{n % TYPES}", there) for n in range(STREAMS)]
    tasks = [asyncio.create_task(one.run()) for one in readers]

    async def live() -> None:
        done.extend(uuid.uuid4().hex for _ in range(JOBS))
        await jobs_live(backend, done[-JOBS:])

    try:
        await asyncio.gather(*(asyncio.wait_for(one.begun.wait(), DEADLINE_S) for one in readers))
        for kill in range(1, KILLS + 1):
            before = heard(readers)
            living = asyncio.create_task(live())
            await while_told(backend, lambda: heard(readers) > before + STREAMS)  # noqa: B023
            there.clear()
            await asyncio.to_thread(end, server)
            await living
            await live()
            server = await asyncio.to_thread(served, dsn, port, tmp_path / f"{kill}.log")
            there.set()
        await live()
        await jobs_live(backend, [LAST])
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(end, server)
        await backend.close()
    breaks = sum(one.breaks for one in readers)
    took_s = time.monotonic() - began
    print(f"{STREAMS} streams, {KILLS} kills: {heard(readers)} events, {breaks} breaks", end=" ")
    print(f"in {took_s:.1f} s")
    for one in readers:
        assert one.told == {(f"{one.type}-{i}", event): 1 for i in (*done, LAST) for event in TOLD}
        assert set(one.ids.values()) == {1}
        assert one.breaks >= KILLS


def heard(readers: list[Reader]) -> int:
    """How many events all of them were told."""
    return sum(one.told.total() for one in readers)


async def while_told(backend: PostgresBackend, begun: Callable[[], bool]) -> None:
    """Much of what goes on was told, and much will be."""
    async with asyncio.timeout(PATIENCE_S):
        while not begun():
            await backend.ping()


def end(server: Server) -> None:
    """At once, as nobody expects it."""
    server.process.kill()
    server.process.wait()
