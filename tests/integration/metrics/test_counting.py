"""Each event of the log is counted once, whatever becomes of those who count."""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from queue_operator.backends.figures import Counted, Naming
from queue_operator.backends.postgres import PostgresBackend, figures
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.metrics.job_counters import BUCKETS

NAMING = Naming(max_pairs=10, max_namespaces=10, unused_s=3600.0)
MAIL = ("team", "mail")


@pytest.fixture(autouse=True)
async def our_turn(store: PostgresBackend) -> None:
    await store.figures.lead("us", 600.0)


async def count(store: PostgresBackend, holder: str = "us") -> Counted:
    return await store.figures.count(holder, NAMING, BUCKETS)


async def submit(store: PostgresBackend, *ids: str) -> None:
    await store.enqueue_jobs([Job(id=each, type="mail", namespace="team") for each in ids])


async def test_only_whose_turn_it_is_counts(store: PostgresBackend) -> None:
    await submit(store, "a")
    assert (await count(store, "them")).submitted == {}
    assert await store.figures.lag_s() > 0
    assert (await count(store)).submitted == {MAIL: 1}
    assert await store.figures.lag_s() == 0
    assert (await count(store)).submitted == {}


async def test_what_commits_late_is_counted_once(store: PostgresBackend, database: str) -> None:
    """Its row has a lower number, and its transaction began before what is counted already."""
    async with await AsyncConnection.connect(database) as slow:
        await slow.execute("SET search_path = queue_operator")
        await slow.execute("SELECT pg_current_xact_id()")
        await submit(store, "a")
        copied = """
            INSERT INTO job_event (event, to_state, job_nos, lane_of, lanes, lane_ids)
            SELECT event, to_state, job_nos, lane_of, lanes, lane_ids FROM job_event
        """
        await slow.execute(copied)
        assert (await count(store)).submitted == {MAIL: 1}
        await submit(store, "b")
        assert (await count(store)).submitted == {MAIL: 1}
        await slow.commit()
    assert (await count(store)).submitted == {MAIL: 1}
    assert (await count(store)).submitted == {}


async def test_a_late_outcome_is_no_other_attempt(store: PostgresBackend) -> None:
    await submit(store, "a")
    [job] = await store.dequeue_jobs("w", [], 1, namespace="team", lease_ttl_s=600.0)
    lost = Outcome("a", Event.LOSE, "team", job.token)
    late = Outcome("a", Event.COMPLETE, "team", job.token, b"")
    for answer in [*await store.settle([lost]), *await store.settle([late])]:
        assert answer.error is None
    counted = await count(store)
    assert counted.attempts == {(*MAIL, "LOSE", "SYSTEM"): 1} or counted.attempts == {
        (*MAIL, "LOSE", ""): 1
    }
    assert counted.finished == {(*MAIL, "COMPLETED"): 1}
    assert sum(counted.runs[MAIL].counts) == 1
    assert sum(counted.waits[MAIL].counts) == 1


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch, happens: bool, is_told: bool
) -> None:
    """The line breaks after the COMMIT was done, or before; and the driver says so, or does not."""
    await submit(store, "a", "b")
    execute = AsyncConnection.execute
    lines: list[object] = []

    async def breaking(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        cursor = await execute(self, query, *rest, **options)
        if query == figures._ADVANCE and not lines:
            lines.append(self)
            await execute(self, "COMMIT" if happens else "ROLLBACK")
            if is_told:
                with socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
                    line.shutdown(socket.SHUT_RDWR)
            else:
                self.pgconn.finish()
        return cursor

    monkeypatch.setattr(AsyncConnection, "execute", breaking)
    found = 0
    for _ in range(3):
        with suppress(QueueError):
            found += (await count(store)).submitted.get(MAIL, 0)
    assert lines
    assert found == 2


async def test_what_was_counted_before_a_failure_is_not_lost(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log is counted in steps, of which one fails."""
    for each in "abc":
        await submit(store, each)
    monkeypatch.setattr(figures, "_STEP_ROWS", 1)
    steps = iter(range(9))
    counted = figures._counted

    async def failing(*arguments: Any) -> Counted:
        if next(steps) == 1:
            raise Unavailable("away")
        return await counted(*arguments)

    monkeypatch.setattr(figures, "_counted", failing)
    with pytest.raises(Unavailable, match="away"):
        await count(store)
    assert (await count(store)).submitted == {MAIL: 3}


async def test_in_a_restored_copy_counting_begins_anew(
    store: PostgresBackend, database: str
) -> None:
    """There rows name transactions of another server; a copy's own are counted."""
    await submit(store, "a")
    await count(store)
    await submit(store, "b")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "UPDATE queue_operator.figure_progress SET snapshot = '1000000:1000000:'"
        )
    assert (await count(store)).submitted == {}
    await submit(store, "c")
    assert (await count(store)).submitted == {MAIL: 1}


async def test_several_count_together_no_more_than_happened(store: PostgresBackend) -> None:
    for number in range(5):
        await submit(store, *(f"{number}-{n}" for n in range(10)))
        counts = await asyncio.gather(*(count(store) for _ in range(4)))
        rest = await count(store)
        found = [each.submitted.get(MAIL, 0) for each in (*counts, rest)]
        assert sum(found) == 10
