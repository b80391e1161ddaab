"""Where jobs wait in lanes of which nothing is known, or that nobody here asks for."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.taking import claim
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend, claiming, exploring
from queue_operator.backends.postgres.exploring import Explorer
from queue_operator.backends.postgres.fronts import Range
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


ANY = Demand(assignee_id="w", limit=1)


def explorer_of(backend: PostgresBackend) -> Explorer:
    return backend._explorer


async def test_what_one_statement_has_not_the_time_for_is_looked_through_in_pieces(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that knows nothing of a lane, in which more is dead than the timeout allows."""
    await backend.enqueue_jobs([Job(id=f"j{n}", type="t") for n in range(3)])
    wide = "SELECT pg_sleep(9) WHERE {} < now() - interval '300 days' AND {} > now()"
    in_claim = wide.format("g.at", "g.to_at")
    in_glance = "SELECT pg_sleep(9) WHERE g.to_at - g.at > interval '9 h' AND g.to_at > now()"
    lateral = "CROSS JOIN LATERAL ("

    def slow(statement: str, sleep: str) -> str:
        assert lateral in statement
        waits = f"{lateral}SELECT count(*) FROM ({sleep}) s) AS waits\n{lateral}"
        return statement.replace(lateral, waits, 1)

    monkeypatch.setattr(claiming, "_CLAIM", slow(claiming._CLAIM, in_claim))
    monkeypatch.setattr(exploring, "_GLANCE", slow(exploring._GLANCE, in_glance))
    monkeypatch.setattr(exploring, "LONG_S", 0.2)
    monkeypatch.setattr(exploring, "_PIECE_S", 0.2)
    fresh = await PostgresBackend.open(dsn, statement_timeout_s=0.5)
    assert sorted(await claim(fresh)) == ["j0", "j1", "j2"]
    await fresh.close()


async def test_lanes_whose_jobs_others_took_are_forgotten(
    dsn: str, backend: PostgresBackend
) -> None:
    """Nobody of this process asks for them."""
    other = await PostgresBackend.open(dsn)
    await other._arrivals.catch_up()
    jobs = [Job(id=f"{n}", type="t", tags=frozenset({f"n={n}"})) for n in range(500)]
    await backend.enqueue_jobs(jobs)
    await other._arrivals.catch_up(thorough=True)
    kept = await claim(backend, limit=498)
    assert len(other._arrivals.fronts) == 500
    await explorer_of(other).revisit()
    left = other._arrivals.fronts.next_unwanted(500)
    assert {front.lane.key.tags for front in left} == {jobs[498].tags, jobs[499].tags}
    # What comes back to one of them is told of anew.
    await backend.settle([Outcome(kept[0], Event.RELEASE)])
    assert sorted(await claim(other)) == sorted([kept[0], "498", "499"])
    await other.close()


@pytest.mark.parametrize("why", ["many", "a minute later"])
async def test_a_process_that_only_listens_forgets_what_others_emptied(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """It never claims, and sweeps nothing."""
    listener = await PostgresBackend.open(dsn)
    await listener._pulse._turn()
    for n in range(3):
        jobs = [Job(id=f"{n}-{m}", type="t", tags=frozenset({f"{n}-{m}"})) for m in range(1500)]
        await backend.enqueue_jobs(jobs)
        assert len(await claim(backend, limit=1500)) == 1500
    if why == "many":
        monkeypatch.setattr(exploring, "_MANY", 4000)
        # Of so many only some would go in a minute.
        monkeypatch.setattr(exploring, "_REVISITED", 1000)
    else:
        await listener._pulse._turn()
        await listener._explorer.revisiting.settled()
        assert len(listener._arrivals.fronts) == 4500
        listener._explorer._revisit_at_s = float("-inf")
    await listener._pulse._turn()
    await listener._explorer.revisiting.settled()
    assert len(listener._arrivals.fronts) == 0
    await listener.close()


async def test_many_lanes_in_which_jobs_wait_are_looked_into_once_a_minute(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "_MANY", 10)
    listener = await PostgresBackend.open(dsn)
    await listener._pulse._turn()
    await backend.enqueue_jobs(
        [Job(id=f"{n}", type="t", tags=frozenset({f"{n}"})) for n in range(20)]
    )
    looks, look = 0, listener._explorer.first_jobs

    async def counted(*asked: Any) -> dict[int, Any]:
        nonlocal looks
        looks += 1
        return await look(*asked)

    monkeypatch.setattr(listener._explorer, "first_jobs", counted)
    for _ in range(3):
        await listener._pulse._turn()
        await listener._explorer.revisiting.settled()
    assert looks == 1
    await listener.close()


async def test_a_look_that_fails_is_not_tried_again_before_the_minute_is_over(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "_MANY", 10)
    listener = await PostgresBackend.open(dsn)
    await listener._pulse._turn()
    await backend.enqueue_jobs(
        [Job(id=f"{n}", type="t", tags=frozenset({f"{n}"})) for n in range(20)]
    )
    tries = 0

    async def fail(*_: object) -> dict[int, Any]:
        nonlocal tries
        tries += 1
        raise Unavailable("a fault")

    monkeypatch.setattr(listener._explorer, "first_jobs", fail)
    for _ in range(3):
        await listener._pulse._turn()
        await listener._explorer.revisiting.settled()
    assert (tries, len(listener._arrivals.fronts)) == (1, 20)
    await listener.close()


async def test_lanes_that_wait_at_first_are_not_looked_into_at_once(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "_MANY", 100)
    jobs = [Job(id=f"{n}", type="t", tags=frozenset({f"n={n}"})) for n in range(500)]
    await backend.enqueue_jobs(jobs)
    listener = await PostgresBackend.open(dsn)
    looked = list[int]()

    async def look(most: int) -> None:
        looked.append(most)

    monkeypatch.setattr(listener._explorer, "revisit", look)
    await listener._pulse._turn()
    await listener._explorer.revisiting.settled()
    assert (len(listener._arrivals.fronts), looked) == (500, [])
    await listener.close()


async def test_no_lane_is_forgotten_for_what_another_server_has(
    backend: PostgresBackend, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend._arrivals.catch_up()
    assert backend._arrivals._read is not None
    backend._arrivals._read = backend._arrivals._read._replace(history="another")
    await ask("DELETE FROM ready")
    for look in (backend._explorer.revisit, lambda: backend.eligible_for([ANY])):
        backend._arrivals._read_s, backend._arrivals._hinted = float("inf"), False
        with pytest.raises(Unavailable, match="another server by now"):
            await look()
        assert len(backend._arrivals.fronts) == 1


async def test_a_lane_that_was_asked_once_is_forgotten_when_others_took_the_rest(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    await other._arrivals.catch_up()
    await backend.enqueue_jobs([Job(id=f"{n}", type="t") for n in range(3)])
    assert await claim(backend, limit=1) == ["0"]
    assert await claim(other) == ["1", "2"]
    # Asked since the last time, and not since then.
    for left in (1, 0):
        await explorer_of(backend).revisit()
        assert len(backend._arrivals.fronts) == left


async def test_what_is_found_for_one_demand_hides_no_job_of_another(
    backend: PostgresBackend,
) -> None:
    await backend.enqueue_job(Job(id="older", type="a"))
    await backend.enqueue_job(Job(id="younger", type="b"))
    asked = [Demand(assignee_id="w", limit=1, types=frozenset(kind)) for kind in ("b", "a")]
    for _ in range(2):
        assert await backend.eligible_for(asked) == [True, True]
    assert await claim(backend) == ["older", "younger"]


async def test_what_arrives_while_a_lane_is_looked_into_again_is_not_passed_by(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.enqueue_job(Job(id="first", type="t"))
    await backend._arrivals.catch_up()
    explorer = explorer_of(backend)
    look = explorer.first_jobs

    async def look_early(*asked: Any) -> dict[int, Any]:
        found = await look(*asked)
        await backend.enqueue_job(Job(id="second", type="t"))
        await backend._arrivals.catch_up(thorough=True)
        return found

    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute("DELETE FROM queue_operator.ready")
    monkeypatch.setattr(explorer, "first_jobs", look_early)
    await explorer.revisit()
    assert await claim(backend) == ["second"]


async def test_a_claim_passes_by_many_lanes_that_others_emptied(dsn: str) -> None:
    async with watched(dsn, plans="auto") as (behind, seen):
        other = await PostgresBackend.open(dsn)
        await behind._arrivals.catch_up()
        tags = [frozenset({f"n={n}"}) for n in range(5000)]
        await other.enqueue_jobs([Job(id=f"{n}", type="t", tags=t) for n, t in enumerate(tags)])
        await behind._arrivals.catch_up(thorough=True)
        for _ in range(10):
            await claim(other, limit=500)
        await other.enqueue_job(Job(id="last", type="t"))
        await behind._arrivals.catch_up(thorough=True)
        seen.clear()
        assert await claim(behind) == ["last"]
        # Two hundred, then twice as many each time.
        assert len(seen.plans) <= 6, str(seen)
        await other.close()


async def test_what_arrives_while_the_first_job_is_looked_for_is_not_passed_by(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.enqueue_jobs([Job(id=f"{n}", type="t") for n in range(3)])
    assert await claim(backend, limit=1) == ["0"]
    [front] = backend._arrivals.fronts.members(("default", frozenset(), frozenset())).values()
    head = front.head
    assert head is not None
    front.open_whole()
    explorer = explorer_of(backend)
    look = explorer.first_jobs
    earlier = head[0] - timedelta(hours=1), 1

    async def look_late(*asked: Any) -> dict[int, Any]:
        found = await look(*asked)
        backend._arrivals.fronts.note(front.lane.id, Range(earlier, earlier))
        return found

    monkeypatch.setattr(explorer, "first_jobs", look_late)
    await explorer.explore([front])
    assert front.covers(earlier)
    assert not front.is_unknown
