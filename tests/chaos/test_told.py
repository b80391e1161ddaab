"""Each end is told: real servers that are killed, a Postgres that is started again, and receivers
that are slow, fail, answer endlessly and close; then the proof by history.
"""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Final

from tests.chaos.doors import NAMESPACE
from tests.chaos.processes import Program
from tests.chaos.proxy import waited
from tests.chaos.telling import Tell, surprises
from tests.chaos.troupe import Troupe, served
from tests.waiting import DEADLINE_S, together

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.errors import DuplicateJob, QueueError
from queue_operator.domain.job import Job
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.testing.history import (
    History,
    Kind,
    Log,
    Record,
    check,
    read_logs,
    read_store,
    record_queue,
    summarise,
)

FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
ENDS: Final = 10_000 if FULL else 300
KILLS: Final = 10 if FULL else 2
RESTARTS: Final = 3 if FULL else 1
WORKERS: Final = 2
BATCH: Final = 50 if FULL else 20
AHEAD: Final = 1500 if FULL else 150
"""So many jobs may have been submitted of whose end nobody has heard."""
QUIET_S: Final = 900.0 if FULL else DEADLINE_S
_RETRY_S: Final = 0.2
_SHOWN: Final = 5
_AT_ONCE: Final = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay_s=0.0)
OPERATORS_HAVE: Final = {"CONTROLLER__ENABLED": "false"}
WORKERS_HAVE: Final = {"CAPACITY": "50"}


class Heard:
    """The messages that receivers have read, as their log says so far."""

    def __init__(self, log: Path) -> None:
        self._log, self._at = log, 0
        self.ids: set[str] = set()

    def look(self) -> int:
        """How many there are."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            lines = file.read().split(b"\n")
        # The last is empty, or is still being written.
        self._at += sum(len(line) + 1 for line in lines[:-1])
        records = (json.loads(line) for line in lines[:-1])
        self.ids |= {one["said"]["id"] for one in records if one["kind"] == Kind.MESSAGE_READ}
        return len(self.ids)


@dataclass
class Submitter:
    """Submits jobs of every fate, each with a callback, and asks until each batch is stored."""

    troupe: Troupe
    heard: Heard
    log: Log
    submitted: int = 0
    queue: GrpcQueue = field(init=False)

    def __post_init__(self) -> None:
        address = f"127.0.0.1:{self.troupe.grpc_line.port}"
        self.queue = record_queue(GrpcQueue(address, timeout_s=5.0), self.log)

    async def run(self) -> None:
        try:
            for first in range(0, ENDS, BATCH):
                jobs = [self._job(number) for number in range(first, min(first + BATCH, ENDS))]
                await self._store(jobs)
                self.submitted += len(jobs)
                await self._cancel([job.id for job in jobs if job.delay_s])
                await self.troupe.until(lambda: self.submitted - self.heard.look() < AHEAD, QUIET_S)
        finally:
            await self.queue.close()

    def _job(self, number: int) -> Job:
        """Of fifty one fails for good, and one waits until it is cancelled."""
        return Job(
            id=f"{NAMESPACE}-{number}",
            type="broken" if number % 50 == 7 else "task",
            payload=b"{}",
            content_type="application/json",
            namespace=NAMESPACE,
            max_attempts=20,
            backoff=_AT_ONCE,
            delay_s=3600.0 if number % 50 == 13 else None,
            callback_url=self.troupe.callbacks.url(number),
        )

    async def _store(self, jobs: Sequence[Job]) -> None:
        while True:
            try:
                await self.queue.enqueue_jobs(jobs)
            except DuplicateJob:
                # An earlier try was stored, all of it, and its answer was lost.
                for job in jobs:
                    self.log.write(Kind.SUBMIT_ACKNOWLEDGED, job.id, answer="stored before")
            except QueueError:
                await waited(asyncio.Event(), _RETRY_S)
                continue
            return

    async def _cancel(self, job_ids: Sequence[str]) -> None:
        while job_ids:
            with suppress(QueueError):
                await self.queue.cancel_jobs([], job_ids, namespace=NAMESPACE)
                return
            await waited(asyncio.Event(), _RETRY_S)


async def test_a_receiver_reads_of_each_end_whatever_is_killed(tell: Tell) -> None:
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-told-"))
    tell(f"{ENDS} ends, {KILLS} kills, {RESTARTS} restarts of Postgres, logs in {folder}")
    began = time.monotonic()
    async with playing(folder) as troupe:
        heard = Heard(folder / "receivers-1.jsonl")
        submitter = Submitter(troupe, heard, Log("client", folder / "client.jsonl"))
        await together([submitter.run(), strikes(troupe, heard, tell)])
        tell("no more strikes; waiting for the last ends and messages")
        await troupe.until(lambda: heard.look() == ENDS, QUIET_S)
        all_read_s = time.monotonic() - began
        await troupe.until(lambda: troupe.unfinished() + troupe.untold() == 0, QUIET_S)
        took_s = time.monotonic() - began
        wrong = await troupe.end()
        tell("reading what everybody saw")
        history = await history_of(troupe)
    wrong += [str(violation) for violation in check(history)] + surprises(folder)
    reads = list(history.of(Kind.MESSAGE_READ))
    tell(f"all read after {all_read_s:.1f} s, all told after {took_s:.1f} s")
    tell("\n".join(figures(reads)))
    text = "\n".join(wrong[:_SHOWN])
    assert not wrong, f"{len(wrong)} broken promises, logs in {folder}\n{text}"
    ended = summarise(history)
    assert (ended.submitted, ended.unended, ended.lost) == (ENDS, 0, 0)
    assert (ended.cancelled, sum(ended.dead.values())) == (ENDS // 50, ENDS // 50)
    assert {record.job_id for record in reads} == history.jobs.keys()
    ways = Counter(str(record.said["way"]) for record in reads)
    assert set(ways) == WAYS
    shutil.rmtree(folder)


WAYS: Final = {"good", "slow", "failing", "crowded", "never", "closing", "endless", "endless-head"}


@asynccontextmanager
async def playing(folder: Path) -> AsyncIterator[Troupe]:
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(served(folder))
        troupe = Troupe(folder, postgres, WORKERS)
        stack.callback(troupe.kill_all)
        for line in troupe.lines:
            await stack.enter_async_context(line)
        troupe.make_programs(OPERATORS_HAVE, WORKERS_HAVE)
        await troupe.start()
        yield troupe


async def strikes(troupe: Troupe, heard: Heard, tell: Tell) -> None:
    """Each while jobs end and messages are sent: after an equal part of all has been read."""
    operators = cycle(troupe.operators)
    for number, strike in enumerate(order(), 1):
        part = number * ENDS // (KILLS + RESTARTS + 1)
        reached = await troupe.until(lambda: heard.look() >= part, QUIET_S)  # noqa: B023
        assert reached, f"receivers have read {heard.look()} messages only; see {troupe.folder}"
        tell(f"{heard.look()} messages read: {strike}")
        if strike == "restart":
            await troupe.restart_postgres()
        else:
            await killed(troupe, next(operators))


def order() -> Iterator[str]:
    """The restarts between the kills."""
    for number in range(KILLS):
        yield "kill"
        if (number + 1) * RESTARTS // KILLS > number * RESTARTS // KILLS:
            yield "restart"


async def killed(troupe: Troupe, operator: Program) -> None:
    """The server and its sender at once; then it starts again."""
    operator.kill_whole()
    operator.start()
    up = await troupe.until(lambda: operator.doors() is not None, QUIET_S)
    assert up, f"an operator does not come back; see {troupe.folder}"


async def history_of(troupe: Troupe) -> History:
    records = await asyncio.to_thread(read_logs, troupe.folder.glob("*.jsonl"))
    store = await PostgresBackend.open(troupe.postgres.dsn)
    try:
        jobs = await read_store(store, namespace=NAMESPACE, logged=())
    finally:
        await store.close()
    return History(records, jobs)


def figures(reads: Sequence[Record]) -> Iterator[str]:
    """What receivers read, by how they behaved."""
    ids = {str(record.said["id"]) for record in reads}
    size = sum(len(str(record.said["body"])) for record in reads)
    yield f"{len(reads)} requests of {len(ids)} messages, {size} bytes of bodies"
    for way in sorted(WAYS):
        mine = [str(one.said["id"]) for one in reads if one.said["way"] == way]
        yield f"  {way}: {len(mine)} requests, {len(set(mine))} messages"
    times = Counter(Counter(str(record.said["id"]) for record in reads).values())
    yield f"messages by how often they were read: {dict(sorted(times.items()))}"
