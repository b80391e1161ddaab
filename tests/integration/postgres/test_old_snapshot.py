"""A transaction that was forgotten keeps every dead row from being removed.

Nothing is timed here: what a call reads is counted by the server, in pages.
"""

import uuid
from collections.abc import AsyncIterator, Callable
from typing import LiteralString

import psycopg
import pytest
from tests.integration.postgres.watching import Watched, watched
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.webhooks import WebhookStore
from queue_operator.backends.webhooks import Message, MessageState, Told
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.testing.store import half

JOBS = 20_000
BATCH = 1000
NEW = 500
LIMIT = 50
# A claim of fifty from an empty queue reads and writes some 420. To pass by the dead rows would
# be a page for each: as their ids, they lie in the table in any order.
PAGES = 1000
DEMAND = Demand(assignee_id="w", limit=LIMIT)


@pytest.fixture
async def pinned(new_database: Callable[[], str]) -> AsyncIterator[str]:
    """The address of a database in which an old snapshot is held."""
    dsn = new_database()
    await migrate(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as forgotten:
        await forgotten.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await forgotten.execute("SELECT FROM queue_operator.ready")
        yield dsn
        await forgotten.rollback()


async def work_off(backend: PostgresBackend, jobs: int) -> None:
    """So many jobs come and go, and leave their dead rows behind."""
    for _ in range(0, jobs, BATCH):
        await backend.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t") for _ in range(BATCH)])
        demand = Demand(assignee_id="w", limit=BATCH)
        claimed = await backend.claim([demand], lease_ttl_s=600)
        await backend.settle(
            [Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in claimed]
        )


async def claim(backend: PostgresBackend, seen: Watched) -> int:
    """How many pages a claim reads that gets all it asks for."""
    seen.clear()
    assert len(await backend.claim([DEMAND], lease_ttl_s=600)) == LIMIT
    return seen.pages


async def dead_rows(dsn: str) -> int:
    """Of `ready`, that even a vacuum has to leave."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin:
        told: list[str] = []
        admin.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        await admin.execute("VACUUM (VERBOSE, INDEX_CLEANUP off) queue_operator.ready")
    # The table's, then that of its long values.
    [line, *_] = [
        line for text in told for line in text.splitlines() if "not yet removable" in line
    ]
    return int(line.split(" are dead")[0].split()[-1])


async def test_a_claim_reads_no_more_for_all_the_rows_that_cannot_be_removed(pinned: str) -> None:
    async with watched(pinned, plans="auto") as (backend, seen):
        await work_off(backend, JOBS)
        assert await dead_rows(pinned) >= JOBS
        await backend.enqueue_jobs([Job(id=f"new-{n}", type="t") for n in range(NEW)])
        for _ in range(5):
            pages = await claim(backend, seen)
            assert pages <= PAGES, f"{pages} pages\n{seen}"


async def test_a_new_process_passes_by_the_dead_rows_once(pinned: str) -> None:
    """It knows nothing of where the queue begins; from its second claim on it does."""
    async with watched(pinned, plans="auto") as (backend, _):
        await work_off(backend, JOBS)
        await backend.enqueue_jobs([Job(id=f"new-{n}", type="t") for n in range(NEW)])
    async with watched(pinned, plans="auto") as (backend, seen):
        first = await claim(backend, seen)
        for _ in range(5):
            pages = await claim(backend, seen)
            assert pages <= PAGES, f"{pages} pages after {first}\n{seen}"
        assert first > JOBS / 2


NOTED = 3000
# What one look into the outbox reads from where it has got to.
LOOK_PAGES = 30
NOTE: LiteralString = """
INSERT INTO queue_operator.webhook_batch (
    job_state, receivers, attempts, namespaces, job_ids, types, urls
) SELECT 'COMPLETED', ARRAY[n %% 7], '{1}', '{default}', ARRAY['job-' || n], '{t}', '{https://a.b/}'
FROM generate_series(1, %s::int) n
"""


LOOKS = {
    "folded": "-- Whether there is something to unfold",
    "due": "-- Makes messages due",
    "prune": "-- Deletes messages that were delivered",
}


def read(seen: Watched) -> dict[str, int]:
    """How many pages each look into the outbox has read."""
    return {
        name: one.pages
        for one in seen.plans
        for name, title in LOOKS.items()
        if one.text.startswith(title)
    }


async def test_a_look_into_the_outbox_passes_by_dead_rows_once(pinned: str) -> None:
    """What ends leave behind, what a sender held, and what was pruned."""
    clock = ManualClock()
    async with watched(pinned, plans="auto") as (backend, seen):
        box = WebhookStore(backend._pool, DEFAULT_LIMITS, half, clock.monotonic)

        async def claim() -> list[Message]:
            seen.clear()
            return await box.claim("s", limit=500, per_receiver=100, lease_s=0.001)

        async with backend._pool.connection() as line:
            await line.execute(NOTE, [NOTED])
        told = 0
        while told < NOTED:
            claimed = await claim()
            told += len(claimed)
            await box.settle(
                [Told(id=one.id, claim=one.claim, state=MessageState.DELIVERED) for one in claimed]
            )
        assert await box.prune(delivered_s=0, failed_s=0, limit=NOTED) == NOTED
        seen.clear()
        await box.prune(delivered_s=0, failed_s=0, limit=NOTED)
        await claim()
        for _ in range(3):
            clock.now_s += 100
            await claim()
            await box.prune(delivered_s=0, failed_s=0, limit=NOTED)
        assert await claim() == []
        looks = read(seen)
        seen.clear()
        await box.prune(delivered_s=0, failed_s=0, limit=NOTED)
        looks |= read(seen)
        assert looks.keys() == LOOKS.keys()
        assert max(looks.values()) <= LOOK_PAGES, looks
        # Another process knows nothing, and looks at all of it once.
        box = WebhookStore(backend._pool, DEFAULT_LIMITS, half, clock.monotonic)
        assert await claim() == []
        assert min(read(seen).values()) > LOOK_PAGES
        # Nor is anything missed that comes now, or came late.
        async with backend._pool.connection() as line:
            await line.execute(NOTE, [3])
        assert len(await claim()) == 3
