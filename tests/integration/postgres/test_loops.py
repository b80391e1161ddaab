"""A Postgres backend belongs to the event loop that it was opened on: whoever calls it from
another is told so at once.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.forks import forked_with_a_loop
from tests.integration.postgres.every_call import EVERY, a_job

from queue_operator.backends.forks import WrongProcess
from queue_operator.backends.postgres import PostgresBackend, WrongLoop
from queue_operator.backends.protocol import Backend
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState

_T = TypeVar("_T")
# Far below any time limit of the store, and far above what it takes to say no.
_AT_ONCE_S: Final = 1.0


async def elsewhere(call: Callable[[], Awaitable[_T]]) -> _T:
    """On a loop of its own, in a thread of its own."""

    async def begin() -> _T:
        return await call()

    return await asyncio.to_thread(lambda: asyncio.run(begin()))


async def _refused(call: Callable[[], Awaitable[object]]) -> None:
    before = time.monotonic()
    with pytest.raises(WrongLoop, match="opened on another event loop") as refused:
        await elsewhere(call)
    assert time.monotonic() - before < _AT_ONCE_S
    assert not refused.value.retryable


async def _close(backend: PostgresBackend, _: str) -> None:
    await backend.close()


@pytest.mark.parametrize("name", [*EVERY, "close"])
async def test_a_call_from_another_loop_is_refused_at_once(
    backend: PostgresBackend, name: str
) -> None:
    call = EVERY.get(name, _close)
    await _refused(lambda: call(backend, f"other-{name}"))
    # Nothing of it happened, and the backend is as good as before.
    await backend.ping()
    assert await backend.look_up([f"other-{name}"]) == {}


async def test_listening_on_another_loop_is_refused_at_once(backend: PostgresBackend) -> None:
    await _refused(lambda: anext(aiter(backend.listen())))
    mine = aiter(backend.listen())
    assert await anext(mine)


async def test_a_call_is_refused_while_the_own_loop_is_busy_with_others(
    backend: PostgresBackend,
) -> None:
    """What waits for a connection, or to go with another's batch, waits on its own loop."""
    busy = [asyncio.create_task(backend.enqueue_job(a_job(f"busy-{n}"))) for n in range(100)]
    await _refused(lambda: backend.enqueue_job(a_job("other")))
    assert await asyncio.gather(*busy) == [f"busy-{n}" for n in range(100)]


def test_a_backend_outlives_its_loop_only_to_refuse(dsn: str) -> None:
    async def use(backend: PostgresBackend) -> Job:
        return await backend.get_job("any")

    async def opened() -> PostgresBackend:
        return await PostgresBackend.open(dsn)

    with asyncio.Runner() as own:
        backend = own.run(opened())
        with pytest.raises(WrongLoop, match="open one there"):
            asyncio.run(use(backend))
        own.run(backend.close())
    with pytest.raises(WrongLoop, match="open one there"):
        asyncio.run(use(backend))


def test_a_backend_whose_loop_has_ended_can_be_closed_on_another(dsn: str) -> None:
    name = "a loop that has ended"
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"

    async def opened() -> PostgresBackend:
        backend = await PostgresBackend.open(make_conninfo(dsn, application_name=name))
        await backend.enqueue_job(a_job("ended"))
        return backend

    backend = asyncio.run(opened())
    with pytest.raises(WrongLoop, match=r"only close\(\) works"):
        asyncio.run(backend.ping())
    asyncio.run(backend.close())
    asyncio.run(backend.close())
    with psycopg.connect(dsn, autocommit=True) as admin:
        while admin.execute(count, [name]).fetchone() != (0,):
            pass


async def test_each_loop_opens_its_own_on_one_database(
    backend: PostgresBackend, dsn: str, namespace: str
) -> None:
    await backend.enqueue_jobs([Job(id=f"j-{n}", type="t", namespace=namespace) for n in range(60)])

    async def claim_all(assignee_id: str) -> list[str]:
        mine: list[str] = []
        own = await PostgresBackend.open(dsn, pool_size=1)
        while jobs := await own.dequeue_jobs(assignee_id, [], 3, namespace=namespace):
            mine += [job.id for job in jobs]
        await own.close()
        return mine

    workers = [partial(claim_all, f"w-{n}") for n in range(3)]
    claimed = await asyncio.gather(*map(elsewhere, workers))
    assert sorted(job_id for mine in claimed for job_id in mine) == sorted(
        f"j-{n}" for n in range(60)
    )
    stats = await backend.get_job_stats([], namespace=namespace)
    assert (stats.running_jobs, stats.total_jobs) == (60, 60)
    assert (await backend.get_job("j-0", namespace=namespace)).state is JobState.RUNNING


def test_the_methods_are_what_they_were() -> None:
    """For whoever looks at them: metrics do, by their arguments' names."""

    def shown(kind: type[object], name: str) -> Any:
        return inspect.signature(getattr(kind, name)).parameters.keys()

    for name in ("claim", "settle", "enqueue_jobs", "expire_leases"):
        assert inspect.iscoroutinefunction(getattr(PostgresBackend, name))
        assert shown(PostgresBackend, name) == shown(Backend, name)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
async def test_a_fork_is_refused_by_name_and_ends_nothing_of_its_parent(
    backend: PostgresBackend, namespace: str, tmp_path: Path
) -> None:
    await backend.enqueue_job(Job(id="before", type="t", namespace=namespace))
    loop = asyncio.get_running_loop()

    async def use(same_loop: bool) -> None:
        if same_loop:
            asyncio.events._set_running_loop(loop)
        for call in (backend.get_job("before"), backend.enqueue_job(Job(id="x", type="t"))):
            with pytest.raises(WrongProcess, match="the Postgres backend was made in another"):
                await call
        await backend.close()

    with forked_with_a_loop(lambda number: use(number % 2 == 0), tmp_path):
        await backend.enqueue_job(Job(id="beside", type="t", namespace=namespace))
    taken = {job.id for job in await backend.dequeue_jobs("w", [], 10, namespace=namespace)}
    assert taken == {"before", "beside"}
