"""A process that is killed while it counts, at each of its moments: whoever counts next, nothing is
counted twice, and nothing is left out that the dead one had not finished counting.
"""

import asyncio
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from prometheus_client import CollectorRegistry
from tests.integration.metrics.fleet import COUNTERS, Totals, stored
from tests.unit.metrics import exposition
from tests.waiting import DEADLINE_S, STATEMENT_S

from queue_operator.backends.figures import Naming
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.line import Line
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.metrics.job_counters import BUCKETS, JobCounters

NAMING: Final = Naming(max_pairs=10, max_namespaces=10, unused_s=3600.0)
TURN_S: Final = 0.2
MOST_MOMENTS: Final = 60


class Fatal:
    """Kills its process at the moment of that number. Each word with the server has two: before it
    is said, and after it was answered.
    """

    def __init__(self, moment: int) -> None:
        self._left = moment

    def watch(self) -> None:
        wait = Line.wait

        async def watched(line: Line, *arguments: Any, **options: Any) -> Any:
            self._pass()
            answer = await wait(line, *arguments, **options)
            self._pass()
            return answer

        Line.wait = watched  # type: ignore[method-assign,assignment]

    def _pass(self) -> None:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


async def count(store: PostgresBackend, holder: str, counters: JobCounters) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await store.figures.lead(holder, TURN_S):
            pass
    counters.keep((await store.figures.stock(NAMING)).names)
    counters.add(await store.figures.count(holder, NAMING, BUCKETS))


async def killed(dsn: str, moment: int) -> None:
    store = await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S)
    Fatal(moment).watch()
    await count(store, f"killed-{moment}", JobCounters(lambda: True))


def dies(dsn: str, moment: int) -> bool:
    """Whether a process that counts has such a moment."""
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(killed(dsn, moment))
            os._exit(0)
        finally:
            os._exit(1)
    end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert end in (0, -signal.SIGKILL), end
    return end != 0


@contextmanager
def rounds(dsn: str) -> Iterator["Rounds"]:
    with asyncio.Runner() as runner:
        one = Rounds(dsn, runner)
        try:
            yield one
        finally:
            runner.run(one.store.close())


class Rounds:
    """Jobs that run between the counts, and a process that goes on where another was killed."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self._dsn = dsn
        self._runner = runner
        self._registry = CollectorRegistry()
        self._counters = JobCounters(lambda: True)
        self._registry.register(self._counters)
        self.store = runner.run(PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S))

    def happen(self) -> None:
        """Two jobs, of which one fails once before it completes."""
        self._runner.run(self._happen())

    async def _happen(self) -> None:
        jobs = [Job(id=str(uuid.uuid4()), type="mail", namespace="team") for _ in range(2)]
        await self.store.enqueue_jobs(jobs)
        for ends in ((Event.FAIL, Event.COMPLETE), (Event.COMPLETE,)):
            demand = Demand(assignee_id="w", limit=len(ends), namespace="team")
            taken = await self.store.claim([demand], lease_ttl_s=600.0)
            outcomes = [
                Outcome(
                    one.job_id,
                    end,
                    "team",
                    one.token,
                    error=ErrorInfo("no") if end is Event.FAIL else None,
                    retry_after_s=0.0 if end is Event.FAIL else None,
                    result=b"" if end is Event.COMPLETE else None,
                )
                for one, end in zip(taken, ends, strict=True)
            ]
            assert all(answer.error is None for answer in await self.store.settle(outcomes))

    def count(self) -> None:
        """And leaves the turn to the next, who takes it with its first word."""
        self._runner.run(count(self.store, "follower", self._counters))
        self._runner.run(self.store.figures.resign("follower"))

    def told(self) -> Totals:
        exposition.of(self._registry)
        totals: Totals = Counter()
        for (name, labels), value in exposition.of(self._registry).items():
            if name in COUNTERS and value:
                told = dict(labels)
                totals[name, *(told[label] for label in COUNTERS[name])] += int(value)
        return totals


def counted_until(dsn: str) -> int:
    """Rises with each count that was committed."""
    with psycopg.connect(dsn) as connection:
        [(version,)] = connection.execute("SELECT version FROM queue_operator.figure_progress")
    return int(version)


def test_a_count_that_was_not_finished_is_made_by_the_next(database: str) -> None:
    """What a killed process had finished counting, and nobody had scraped, is gone with it; see the
    record of metrics that add up.
    """
    gone: Totals = Counter()
    finished: list[bool] = []
    with rounds(database) as one:
        for moment in range(MOST_MOMENTS):
            before = stored(database)
            one.happen()
            version = counted_until(database)
            was_killed = dies(database, moment)
            finished.append(counted_until(database) != version)
            if finished[-1]:
                gone += stored(database) - before
            one.count()
            assert one.told() + gone == stored(database), moment
            if not was_killed:
                break
        assert not was_killed
    # Up to the last one, which is after the answer to its COMMIT.
    assert finished == sorted(finished)
    assert finished.count(False) > 10
    assert finished.count(True) == 2
