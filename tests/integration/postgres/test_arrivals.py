"""What becomes claimable is told of by whoever makes it so: late, open, undone, or by others."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.taking import claim
from tests.integration.postgres.watching import watched
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend, arrivals
from queue_operator.backends.postgres.pulse import Pulse
from queue_operator.backends.protocol import Pause
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

QUERIES = files("queue_operator.backends.postgres") / "queries"
# Waits in a transaction of its own, as if it had been stored by that: with all that is told of it.
_APPEAR: LiteralString = """
WITH appeared AS (
    UPDATE ready SET due = true, order_time = order_time - make_interval(secs => %(older_s)s)
    FROM job WHERE job.job_no = ready.job_no AND job.id = ANY (%(ids)s)
    RETURNING ready.job_no, ready.lane_id, ready.order_time
)
INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos)
SELECT array_agg(lane_id), array_agg(order_time), array_agg(job_no), array_agg(order_time),
       array_agg(job_no)
FROM appeared HAVING count(*) > 0
"""


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


def test_every_statement_that_makes_jobs_claimable_tells_of_them() -> None:
    """Where rows come into `ready`, or become due there."""
    writers = re.compile(
        r"INSERT INTO ready\b|COPY ready\b|UPDATE ready\s+SET (?:blocked|due)\b", re.MULTILINE
    )
    tells = re.compile(r"INSERT INTO arrival\b|\{\{arrived\}\}")
    found = {
        path.name: tells.search(path.read_text()) is not None
        for path in Path(str(QUERIES)).glob("*.sql")
        if writers.search(path.read_text())
    }
    assert found == {
        "submit.sql": True,
        # Told by the statement that follows in the same transaction.
        "copy_ready.sql": False,
        "move_to_ready.sql": True,
        "dependency_settle.sql": True,
        "stage_due.sql": True,
        "suspension_set.sql": True,
    }
    for name in ("submit_told.sql", "arrival_tell.sql"):
        assert "INSERT INTO arrival" in (QUERIES / name).read_text()


async def submit(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="j", type="t"))


async def submit_many(backend: PostgresBackend) -> None:
    await backend.enqueue_jobs([Job(id="j" * (n + 1), type="t") for n in range(60)])
    await backend.cancel_jobs([], ["j" * (n + 1) for n in range(1, 60)])


async def submit_delayed(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="j", type="t", delay_s=0.001))
    await asyncio.to_thread(lambda: None)
    while not await backend._staging.stage():
        pass


async def fail(backend: PostgresBackend) -> None:
    await submit(backend)
    [one] = await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600)
    failure = Outcome("j", Event.FAIL, token=one.token, error=ErrorInfo("no"))
    assert [s.state for s in await backend.settle([failure])] == [JobState.FAILED_RETRY]


async def release(backend: PostgresBackend) -> None:
    await submit(backend)
    [one] = await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600)
    await backend.settle([Outcome("j", Event.RELEASE, token=one.token)])


async def lose(backend: PostgresBackend) -> None:
    await submit(backend)
    await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600)
    await backend.reset_running_jobs()


async def retry(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="j", type="t", max_attempts=1))
    [one] = await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600)
    failure = Outcome("j", Event.FAIL, token=one.token, error=ErrorInfo("no"))
    assert [s.state for s in await backend.settle([failure])] == [JobState.DEAD_LETTER]
    await backend.settle([Outcome("j", Event.RETRY_NOW)])


async def let_go(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="p", type="t"))
    child = Job(id="j", type="t", depends_on=("p",), dependency_mode=DependencyMode.AFTER)
    await backend.enqueue_job(child)
    [one] = await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600)
    await backend.settle([Outcome("p", Event.COMPLETE, token=one.token)])


WAYS = [submit, submit_many, submit_delayed, fail, release, lose, retry, let_go]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_another_process_finds_what_became_claimable(
    dsn: str, backend: PostgresBackend, way: Callable[[PostgresBackend], Awaitable[None]]
) -> None:
    other = await PostgresBackend.open(dsn)
    await backend.enqueue_job(Job(id="first", type="t"))
    assert await claim(other) == ["first"]
    await backend.stop_job("first", "")
    await way(backend)
    other._arrivals.hint()
    assert await claim(other) == ["j"]
    await other.close()


@pytest.mark.parametrize(
    ("beats", "more"),
    [
        (True, []),
        # Nobody else makes delayed jobs due.
        (False, ["-- Makes jobs due whose delay or backoff is over and that have an attempt left"]),
    ],
)
async def test_a_claim_that_takes_nothing_asks_nothing(
    dsn: str, monkeypatch: pytest.MonkeyPatch, *, beats: bool, more: list[str]
) -> None:
    monkeypatch.setattr(Pulse, "beats", beats)
    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_job(Job(id="a", type="t"))
        assert await claim(backend) == ["a"]
        assert await claim(backend) == []
        seen.clear()
        backend._arrivals.hint()
        assert await claim(backend) == []
        titles = [re.split("[:;]", plan.text)[0] for plan in seen.plans]
        assert [title for title in titles if "topics" not in title] == [
            "-- What arrived since an earlier snapshot",
            *more,
        ]


async def test_a_server_that_started_anew_is_asked_from_the_beginning(
    dsn: str, backend: PostgresBackend
) -> None:
    """And so is any that is another than before: what was read of it says nothing."""
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await claim(backend) == ["a"]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        # As after a failover that lost what had been told: the job waits, and nobody says so.
        await connection.execute("DELETE FROM queue_operator.arrival")
        await connection.execute("SET search_path = queue_operator")
        await backend.enqueue_job(Job(id="b", type="t"))
        await connection.execute("DELETE FROM arrival")
    backend._arrivals.hint()
    assert await claim(backend) == []
    last = backend._arrivals._read
    assert last is not None
    backend._arrivals._read = last._replace(history="of another server")
    backend._arrivals.hint()
    assert await claim(backend) == ["b"]


async def test_what_everybody_has_read_is_forgotten(dsn: str, backend: PostgresBackend) -> None:
    arrivals = backend._arrivals
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await claim(backend) == ["a"]
    await arrivals.prune()
    assert await told(dsn) == 1
    # A transaction of anybody on the server that is still open keeps what came after it.
    async with asyncio.timeout(DEADLINE_S):
        while (last := arrivals._read) is None or last.horizon.open_xids:
            await arrivals.catch_up(thorough=True)
    # Read eleven minutes ago, and now.
    arrivals._past._reads = [last._replace(at=last.at.replace(year=last.at.year - 1))]
    await backend.enqueue_job(Job(id="b", type="t"))
    await arrivals.prune()
    assert await told(dsn) == 1
    assert await claim(backend) == ["b"]


async def test_what_may_still_be_committed_is_not_forgotten(
    dsn: str, backend: PostgresBackend, other: PostgresBackend
) -> None:
    """By a transaction that was open at the last look that everybody goes by, and still is."""
    known = backend._arrivals
    await backend.enqueue_job(Job(id="late", type="t", delay_s=86_400))
    async with await psycopg.AsyncConnection.connect(
        dsn, options="-c search_path=queue_operator"
    ) as slow:
        await slow.execute(_APPEAR, {"ids": ["late"], "older_s": 0})
        await backend.enqueue_job(Job(id="first", type="t"))
        assert await claim(backend) == ["first"]
        assert await claim(other) == []
        last = known._read
        assert last is not None
        known._past._reads = [last._replace(at=last.at.replace(year=last.at.year - 1))]
        await slow.commit()
    await known.prune()
    other._arrivals.hint()
    assert await claim(other) == ["late"]


async def test_who_asks_while_a_read_is_under_way_reads_what_that_did_not_see(
    backend: PostgresBackend, other: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = backend._arrivals
    await known.catch_up()
    take, reading, may_go_on = known.take, asyncio.Event(), asyncio.Event()

    async def take_late(*rows: Any) -> bool:
        reading.set()
        await may_go_on.wait()
        return await take(*rows)

    monkeypatch.setattr(known, "take", take_late)
    before = asyncio.create_task(known.catch_up(thorough=True))
    await reading.wait()
    await other.enqueue_job(Job(id="a", type="t"))
    asking = asyncio.create_task(backend.dequeue_jobs("w", [], 1))
    # Until it waits for the other read.
    await asyncio.sleep(0)
    may_go_on.set()
    await before
    assert [job.id for job in await asking] == ["a"]


async def test_a_lane_that_a_claim_forgets_while_another_is_looked_up_is_noted(
    dsn: str, backend: PostgresBackend, other: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await other.enqueue_job(Job(id="first", type="a"))
    assert await backend.eligible_for([Demand(assignee_id="w", limit=1)]) == [True]
    fetched, looking, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    fetch, find = backend._returns.fetch, backend._lanes.find

    async def hold_back(claim: Any) -> Any:
        rows = await fetch(claim)
        fetched.set()
        await looking.wait()
        return rows

    async def wait(*asked: Any) -> Any:
        looking.set()
        await left.wait()
        return await find(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(backend._returns, "fetch", hold_back)
        patched.setattr(backend._lanes, "find", wait)
        claiming = asyncio.create_task(claim(backend))
        await fetched.wait()
        await other.enqueue_job(Job(id="of the same lane", type="a"))
        await other.enqueue_job(Job(id="of another", type="b"))
        reading = asyncio.create_task(backend._arrivals.catch_up(thorough=True))
        assert await claiming == ["first"]
        left.set()
        await reading
    assert sorted(await claim(backend)) == ["of another", "of the same lane"]


async def test_who_has_more_to_read_than_is_read_begins_anew(
    dsn: str, backend: PostgresBackend, other: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_MOST_ROWS", 10)
    for more in range(-1, 2):
        assert await claim(backend) == []
        for n in range(10 + more):
            await other.enqueue_job(Job(id=f"{more}-{n}", type=f"t{n}"))
        await backend._arrivals.catch_up(thorough=True)
        assert len(await claim(backend)) == 10 + more


async def test_a_restored_copy_does_not_read_what_the_original_told(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    ahead = "UPDATE queue_operator.arrival SET xid = (xid::text::bigint + 1000000)::text::xid8"
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(ahead)
    since = backend._arrivals.since() | {"first_xid": "0"}
    async with await psycopg.AsyncConnection.connect(
        dsn, options="-c search_path=queue_operator"
    ) as connection:
        rows = await (await connection.execute(arrivals._READ, since)).fetchall()
    assert [row[4] for row in rows] == [None]
    copy = await PostgresBackend.open(dsn)
    assert await told(dsn) == 0
    assert await claim(copy) == ["a"]
    await copy.close()


async def test_a_staging_that_was_undone_is_done_again(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a pooler a call is committed when its connection goes back."""
    backend = await PostgresBackend.open(dsn, pooler=True)
    await backend.enqueue_job(Job(id="a", type="t", delay_s=0.001))
    whole = psycopg.AsyncConnection.transaction

    @asynccontextmanager
    async def breaks(self: Any, *given: Any, **named: Any) -> AsyncIterator[Any]:
        async with whole(self, *given, **named) as transaction:
            yield transaction
            raise psycopg.OperationalError("the line is cut")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.AsyncConnection, "transaction", breaks)
        with pytest.raises(Unavailable):
            await backend._staging.stage()
    # What failed is looked through in pieces.
    staged = [lane for _ in range(30) for lane in await backend._staging.stage()]
    assert len(staged) == 1
    await backend.close()


async def test_what_an_old_snapshot_kept_is_forgotten_a_part_at_a_time(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_BATCH", 2)
    monkeypatch.setattr(arrivals, "_MOST_BATCHES", 2)
    known = backend._arrivals
    for n in range(7):
        await backend.enqueue_job(Job(id=f"{n}", type="t"))
    async with asyncio.timeout(DEADLINE_S):
        while (last := known._read) is None or last.horizon.open_xids:
            await known.catch_up(thorough=True)
    known._past._reads = [last._replace(at=last.at.replace(year=last.at.year - 1))]
    left = []
    for _ in range(3):
        await known.prune()
        left.append(await told(dsn))
    assert left == [3, 0, 0]


async def told(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("SELECT count(*) FROM queue_operator.arrival")
        row = await cursor.fetchone()
        return row[0] if row else -1


async def test_who_has_not_read_for_long_begins_anew(dsn: str, backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await claim(backend) == ["a"]
    other = await PostgresBackend.open(dsn)
    await other.enqueue_job(Job(id="b", type="t"))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("DELETE FROM queue_operator.arrival")
    last = backend._arrivals._read
    assert last is not None
    backend._arrivals._read = last._replace(at=last.at.replace(year=last.at.year - 1))
    backend._arrivals.hint()
    assert await claim(backend) == ["b"]
    await other.close()


async def test_a_read_that_fails_is_made_up_for(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    arrivals = backend._arrivals
    with monkeypatch.context() as patched:

        async def breaks(*_: object) -> None:
            raise Unavailable("the line is cut")

        patched.setattr(arrivals, "take", breaks)
        patched.setattr(arrivals, "_begin", breaks)
        with pytest.raises(Unavailable):
            await claim(backend)
    assert await claim(backend) == ["a"]


class _Crowd:
    """Jobs that appear in transactions which stay open, are undone, or hold a savepoint, at new
    places and at old ones; and claimers that take them and give some back.
    """

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self.chance = random.Random(seed)  # noqa: S311
        self.taken: Counter[str] = Counter()
        self.committed: set[str] = set()
        self.over = asyncio.Event()

    async def appear(self, ids: list[str]) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._dsn, options="-c search_path=queue_operator"
        ) as connection:
            for some in (ids[n : n + 3] for n in range(0, len(ids), 3)):
                if await self._appear(connection, some) or await self._appear(connection, some):
                    self.committed.update(some)

    async def _appear(self, connection: psycopg.AsyncConnection[Any], some: list[str]) -> bool:
        undone = self.chance.random() < 0.3
        given = {"ids": some, "older_s": self.chance.choice([0, 0, 5, 900])}
        async with connection.transaction(force_rollback=undone):
            async with connection.transaction():
                await connection.execute(_APPEAR, given)
            for _ in range(self.chance.randrange(3)):
                await told(self._dsn)
        return not undone

    async def take(self, claimer: PostgresBackend) -> None:
        while not self.over.is_set():
            demand = Demand(assignee_id="w", limit=self.chance.randrange(1, 9))
            found = await claimer.claim([demand], lease_ttl_s=600)
            if self.chance.random() < 0.2:
                back = [Outcome(one.job_id, Event.RELEASE, token=one.token) for one in found]
                await claimer.settle(back)
            else:
                self.taken.update(one.job_id for one in found)
            if self.chance.random() < 0.05:
                claimer._arrivals.lose()


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_stays_behind_whoever_commits_when(dsn: str, seed: int) -> None:
    crowd = _Crowd(dsn, seed)
    filler = await PostgresBackend.open(dsn)
    ids = [f"j{n}" for n in range(240)]
    await filler.enqueue_jobs([Job(id=n, type=f"t{len(n)}", delay_s=86_400) for n in ids])
    claimers = [await PostgresBackend.open(dsn, pool_size=2) for _ in range(3)]
    takers = [asyncio.create_task(crowd.take(one)) for one in claimers]
    await asyncio.gather(*(crowd.appear(ids[n::4]) for n in range(4)))
    crowd.over.set()
    await asyncio.gather(*takers)
    claimers[0]._arrivals.hint()
    while more := await claim(claimers[0]):
        crowd.taken.update(more)
    assert set(crowd.taken) == crowd.committed
    assert set(crowd.taken.values()) <= {1}
    for one in [filler, *claimers]:
        await one.close()


async def test_a_notification_has_the_next_claim_look(dsn: str, backend: PostgresBackend) -> None:
    other = await PostgresBackend.open(dsn)
    news = backend.listen()
    async with asyncio.timeout(DEADLINE_S):
        await anext(news)
        assert await claim(backend) == []
        await other.enqueue_job(Job(id="a", type="t"))
        await anext(news)
        assert await claim(backend) == ["a"]
    await other.close()


async def test_a_pause_counts_though_something_else_is_resumed_meanwhile(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read while this process changes pauses itself does not count."""
    other = await PostgresBackend.open(dsn)
    await other.pause(Pause(namespace="elsewhere"))
    await backend.enqueue_job(Job(id="paused", type="t"))
    await backend._arrivals.catch_up(thorough=True)
    await other.pause(Pause(namespace="default"))
    take, turns = backend._arrivals.take, 0

    async def take_late(*rows: Any) -> bool:
        nonlocal turns
        turns += 1
        if turns == 1:
            await backend.resume("elsewhere")
        return await take(*rows)

    monkeypatch.setattr(backend._arrivals, "take", take_late)
    assert await claim(backend) == []
    assert turns == 2
    await other.resume("default")
    await other.close()


async def test_a_claim_sees_what_another_process_committed_20_ms_before_it(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    """Also where it did not hear of it."""
    assert await claim(backend) == []
    await other.enqueue_job(Job(id="a", type="t"))
    backend._arrivals._hinted = False
    backend._arrivals._read_s = float("inf")
    assert await claim(backend) == []
    backend._arrivals._read_s = time.monotonic() - 0.02
    assert await claim(backend) == ["a"]


async def test_what_is_made_due_here_is_claimed_at_once(
    backend: PostgresBackend, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "FRESH_S", 3600.0)
    await backend.enqueue_job(Job(id="a", type="t", delay_s=60.0))
    await backend._pulse._turn()
    assert await claim(backend) == []
    await ask("UPDATE ready SET eligible_at = now()")
    backend._staging.look_everywhere()
    await backend._pulse._turn()
    assert await claim(backend) == ["a"]


async def test_a_lane_without_a_name_stops_nobody(
    dsn: str, backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody removed the namespace by hand."""
    await backend.enqueue_job(Job(id="nameless", type="t", namespace="gone"))
    await backend.enqueue_job(Job(id="named", type="t"))
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("DELETE FROM queue_operator.namespace WHERE name = 'gone'")
    fresh = await PostgresBackend.open(dsn)
    assert await claim(fresh) == ["named"]
    assert any("restore the rows of namespace" in record.message for record in caplog.records)
    await fresh.close()


async def test_a_claim_does_not_wait_for_staging_that_is_behind(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging, held = backend._staging, list[tuple[bool, bool]]()
    staging.leave(staging.ask(), None)
    assert staging.is_behind
    stage = staging.stage

    async def watch() -> list[int]:
        locks = backend._arrivals.lock, backend._announcer.versions_lock
        held.append((locks[0].locked(), locks[1].locked()))
        return await stage()

    monkeypatch.setattr(staging, "stage", watch)
    # A few pieces are enough: each is twice as long as the one before.
    for _ in range(100):
        if staging.is_behind:
            await backend._pulse._turn()
    assert not staging.is_behind
    assert set(held) == {(False, False)}
    turns = len(held)
    await backend._pulse._turn()
    assert len(held) == turns


async def test_a_beat_that_fails_has_nobody_begin_anew(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under an old snapshot that would be a walk by all that is dead."""
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await claim(backend) == ["a"]

    async def breaks(*_: object) -> None:
        raise Unavailable("no connection is free")

    with monkeypatch.context() as patched:
        patched.setattr(backend._pulse, "_read", breaks)
        await backend._pulse._turn()
    assert backend._arrivals.has_begun
