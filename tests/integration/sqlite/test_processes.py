"""Several processes on one file, and some that die."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.forks import forked_with_a_loop
from tests.integration.sqlite.conftest import Ask
from tests.integration.sqlite.processes import running
from tests.programs import finish, kill, line

from queue_operator.backends.forks import WrongProcess
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import TTL_S

DRAIN = """
async def main():
    backend = await SqliteBackend.open(PATH, busy_timeout_s=60.0)
    demand = Demand(assignee_id=ME, limit=3)
    taken = await backend.claim([demand], lease_ttl_s=600.0)
    say("ready")
    wait()
    while taken:
        done = [Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in taken]
        for answer in await backend.settle(done):
            assert answer.error is None, answer
            say(answer.job_id)
        taken = await backend.claim([demand], lease_ttl_s=600.0)
    await backend.close()

asyncio.run(main())
"""
SUBMIT = """
async def main():
    say("ready")
    wait()
    backend = await SqliteBackend.open(PATH, busy_timeout_s=60.0)
    for n in range(40):
        await backend.enqueue_jobs(
            [Job(id=f"{sys.argv[2]}-{n}-{k}", type="t", tags=frozenset({"a", "b"})) for k in (1, 2)]
        )
    shared = [Job(id=f"shared-{n}", type="t", idempotency_key=f"key-{n}") for n in range(20)]
    for answer in await backend.submit(shared):
        say("repeat" if answer.duplicate else "first")
    await backend.close()

asyncio.run(main())
"""
CLAIM_AND_DIE_IN_A_TRANSACTION = """
from queue_operator.backends.sqlite.shelf import SqliteShelf

def flush(shelf, original=SqliteShelf.flush):
    original(shelf)
    if shelf._connection.total_changes > 1000:
        say("in the transaction")
        wait()

SqliteShelf.flush = flush

async def main():
    backend = await SqliteBackend.open(PATH)
    taken = await backend.claim([Demand(assignee_id=ME, limit=5)], lease_ttl_s=60.0)
    say(" ".join(sorted(one.job_id for one in taken)))
    # More than fits into memory, so that some of it is in the file when the process dies.
    await backend.enqueue_jobs([Job(id=f"never-{n}", type="t", payload=bytes(4096))
                                for n in range(2000)])

asyncio.run(main())
"""
SUBMIT_AND_DIE = """
async def main():
    backend = await SqliteBackend.open(PATH)
    say(await backend.enqueue_job(Job(id="told", type="t", payload=b"x" * 10_000)))
    wait()

asyncio.run(main())
"""
READ = """
async def main():
    backend = await SqliteBackend.open(PATH)
    job = await backend.get_job("tagged")
    assert len(job.tags) == 6
    await backend.get_job_stats(["a"])
    await backend.close()

asyncio.run(main())
"""


@proves(
    "backend-api.DequeueJobs.must.9",
    "backend-api.ImplementationGuidelines.must.10",
    "backend-api.ImplementationGuidelines.must.11",
)
async def test_claimers_never_share_a_job(
    path: Path, backend: SqliteBackend, store: SqliteStore
) -> None:
    names = [f"job-{n}" for n in range(150)]
    await backend.enqueue_jobs([Job(id=name, type="t") for name in names])
    # The claimers go by the real time, which is later than that of the jobs.
    async with AsyncExitStack() as stack:
        claimers = [await stack.enter_async_context(running(path, DRAIN)) for _ in range(4)]
        assert {await line(claimer) for claimer in claimers} == {"ready"}
        shares = [said.split() for said in await asyncio.gather(*map(finish, claimers))]
    assert Counter(name for share in shares for name in share) == Counter(names)
    assert all(shares)
    jobs = await backend._get("default", names)
    assert {(job.state, job.attempt) for job in jobs.values()} == {(JobState.COMPLETED, 1)}
    assert await store.faults() == []


async def test_processes_submit_at_once_to_a_file_that_none_has_made(
    path: Path, store: SqliteStore
) -> None:
    async with AsyncExitStack() as stack:
        submitters = [
            await stack.enter_async_context(running(path, SUBMIT, f"by-{n}")) for n in range(4)
        ]
        assert {await line(submitter) for submitter in submitters} == {"ready"}
        answers = [said.split() for said in await asyncio.gather(*map(finish, submitters))]
    # Each key made one job, whoever came first with it.
    assert Counter(one for said in answers for one in said) == {"first": 20, "repeat": 60}
    backend = await store.open()
    assert (await backend.get_job_stats([])).total_jobs == 4 * 80 + 20
    assert (await backend.get_job_stats(["a", "b"])).total_jobs == 4 * 80
    assert await store.faults() == []


async def test_a_process_killed_in_a_transaction_leaves_the_file_whole(
    path: Path, backend: SqliteBackend, store: SqliteStore, ask: Ask
) -> None:
    names = [f"job-{n}" for n in range(8)]
    await backend.enqueue_jobs([Job(id=name, type="t", max_attempts=3) for name in names])
    async with running(path, CLAIM_AND_DIE_IN_A_TRANSACTION) as process:
        taken = (await line(process)).split()
        assert taken == names[:5]
        assert await line(process) == "in the transaction"
        await kill(process)
    assert ask("PRAGMA integrity_check") == [("ok",)]
    assert (await backend.get_job_stats([])).total_jobs == len(names)
    assert await store.faults() == []
    # Nobody has to wait for the dead, and what it had comes back once its leases ran out.
    assert await _claim(backend) == names[5:]
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    await store.age(2 * TTL_S)
    lost = await backend.expire_leases(lease_ttl_s=TTL_S)
    assert sorted(one.job_id for one in lost) == names
    assert sorted(await _claim(backend)) == names
    assert (await backend.get_job(names[0])).attempt == 2


async def test_what_was_answered_outlives_a_killed_process(path: Path, store: SqliteStore) -> None:
    async with running(path, SUBMIT_AND_DIE) as process:
        assert await line(process) == "told"
        await kill(process)
    backend = await store.open()
    assert (await backend.get_job("told")).payload == b"x" * 10_000


async def test_reading_writes_nothing_whatever_order_a_process_gives_to_sets(
    path: Path, backend: SqliteBackend, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="tagged", type="t", tags=frozenset("abcdef")))
    before = ask("SELECT record FROM job")
    for seed in ("1", "2", "3"):
        async with running(path, READ, PYTHONHASHSEED=seed) as process:
            assert await finish(process) == ""
    assert ask("SELECT record FROM job") == before


async def _claim(backend: SqliteBackend) -> list[str]:
    demand = Demand(assignee_id="survivor", limit=100)
    return [one.job_id for one in await backend.claim([demand], lease_ttl_s=TTL_S)]


async def test_one_claim_with_two_filters_gives_a_job_once(backend: SqliteBackend) -> None:
    await backend.enqueue_jobs([Job(id=name, type="t") for name in ("a", "b")])
    # The second look must see what the first one changed, although nothing is committed yet.
    demands = [
        Demand(assignee_id="all", limit=1),
        Demand(assignee_id="some", limit=2, types=frozenset({"t"})),
    ]
    taken = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert [(one.job_id, one.assignee_id) for one in taken] == [("a", "all"), ("b", "some")]
    assert (await backend.get_job("a")).attempt == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
async def test_a_fork_is_refused_by_name_and_opens_one_of_its_own(tmp_path: Path) -> None:
    (told := tmp_path / "told").mkdir()
    path = tmp_path / "jobs.db"
    backend = await SqliteBackend.open(path, busy_timeout_s=30.0)
    await backend.enqueue_job(Job(id="before", type="t"))

    async def use(number: int) -> None:
        for call in (backend.get_job("before"), backend.enqueue_job(Job(id="x", type="t"))):
            with pytest.raises(WrongProcess, match=r"jobs\.db was made in another process"):
                await call
        await backend.close()
        mine = await SqliteBackend.open(path, busy_timeout_s=30.0)
        await mine.enqueue_job(Job(id=f"child-{number}", type="t"))
        await mine.close()

    with forked_with_a_loop(use, told):
        await backend.enqueue_job(Job(id="beside", type="t"))
    taken = {job.id for job in await backend.dequeue_jobs("w", [], 10)}
    assert taken == {"before", "beside", *(f"child-{n}" for n in range(4))}
    await backend.close()
