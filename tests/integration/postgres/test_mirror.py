import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import psycopg
import pytest

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.mirror import MirrorStore
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.states import JobState
from queue_operator.testing.walking import walk
from queue_operator.testing.wrong import IDS, LIMITS, UNSTORABLE

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Submit = Callable[..., Awaitable[str]]


@pytest.fixture(autouse=True)
async def no_changes(ask: Ask) -> None:
    await ask("DELETE FROM mirror_outbox")


@pytest.fixture
def mirror(pool: Pool) -> MirrorStore:
    return MirrorStore(pool)


@pytest.fixture
def submit(backend: PostgresBackend, namespace: str) -> Submit:
    """Stores the job of a custom resource and gives its id, which is the resource's uid."""

    async def submit_one(tag: str = "", cluster_uid: str = "cluster-1") -> str:
        uid = str(uuid.uuid4())
        await backend.enqueue_job(
            Job(
                id=uid,
                type="mail",
                namespace=namespace,
                tags=frozenset({tag} - {""}),
                resource=ResourceRef(cluster_uid, uid, f"mail-{uid[:4]}"),
            )
        )
        return uid

    return submit_one


async def test_a_change_shows_the_whole_job(mirror: MirrorStore, submit: Submit) -> None:
    uid = await submit()
    [entry] = await mirror.pending_mirrors()
    assert (entry.job.id, entry.job.state) == (uid, JobState.INITIAL_PENDING)
    assert entry.job.resource == ResourceRef("cluster-1", uid, f"mail-{uid[:4]}")


async def test_jobs_without_a_resource_are_not_mirrored(
    mirror: MirrorStore, backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="plain", type="mail", namespace=namespace))
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    await backend.complete_job("plain", b"", namespace=namespace)
    assert await mirror.pending_mirrors() == []


async def test_changes_of_one_job_are_one_entry(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    uid = await submit()
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    await backend.complete_job(uid, b"done", namespace=namespace)
    [entry] = await mirror.pending_mirrors()
    assert (entry.job.state, entry.job.result_head) == (JobState.COMPLETED, b"done")
    await mirror.acknowledge_mirrors([entry.sequence])
    assert await mirror.pending_mirrors() == []


async def test_unacknowledged_changes_come_again(mirror: MirrorStore, submit: Submit) -> None:
    await submit()
    await submit()
    first = await mirror.pending_mirrors()
    assert await mirror.pending_mirrors() == first
    await mirror.acknowledge_mirrors([first[1].sequence])
    assert await mirror.pending_mirrors() == first[:1]


async def test_a_change_after_the_read_outlives_the_acknowledgement(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    await submit()
    [read] = await mirror.pending_mirrors()
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    await mirror.acknowledge_mirrors([read.sequence])
    [later] = await mirror.pending_mirrors()
    assert later.sequence > read.sequence
    assert later.job.state is JobState.RUNNING


async def test_the_job_that_waits_longest_is_first(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    first, second = await submit("a"), await submit("b")
    await backend.dequeue_jobs("worker", ["a"], 1, namespace=namespace)
    assert [entry.job.id for entry in await mirror.pending_mirrors()] == [first, second]


async def test_overtaken_changes_do_not_hide_other_jobs(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    restless = await submit("a")
    await backend.dequeue_jobs("worker", ["a"], 1, namespace=namespace)
    await backend.complete_job(restless, b"", namespace=namespace)
    quiet = await submit("b")
    assert [entry.job.id for entry in await mirror.pending_mirrors(limit=3)] == [restless]
    assert {entry.job.id for entry in await mirror.pending_mirrors(limit=3)} == {restless, quiet}


async def test_an_earlier_sequence_that_commits_late_is_not_lost(
    mirror: MirrorStore, submit: Submit, dsn: str, ask: Ask
) -> None:
    uid = await submit()
    [[job_no]] = await ask("SELECT job_no FROM job WHERE id = %s", uid)
    change = "INSERT INTO queue_operator.mirror_outbox (job_no) VALUES (%s) RETURNING sequence"
    async with await psycopg.AsyncConnection.connect(dsn) as late:
        cursor = await late.execute(change, (job_no,))
        [[earlier]] = await cursor.fetchall()
        await ask(change, job_no)
        [read] = await mirror.pending_mirrors()
        assert read.sequence > earlier
        await late.commit()
    await mirror.acknowledge_mirrors([read.sequence])
    assert [entry.sequence for entry in await mirror.pending_mirrors()] == [earlier]


async def test_deleted_jobs_leave_the_feed(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    uid = await submit()
    await backend.cancel_jobs([], [uid], namespace=namespace)
    await backend.delete_jobs([], [uid], namespace=namespace)
    assert await mirror.pending_mirrors() == []
    assert await ask("SELECT job_no FROM mirror_outbox") == []


async def test_jobs_whose_resource_is_gone_leave_the_feed(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, ask: Ask
) -> None:
    gone, stays = await submit(), await submit()
    await backend.detach([gone])
    assert [entry.job.id for entry in await mirror.pending_mirrors()] == [stays]
    assert len(await ask("SELECT job_no FROM mirror_outbox")) == 1


async def test_taken_in_are_those_that_are_stored_finished_or_not(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    ended, waiting = await submit(), await submit()
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    await backend.complete_job(ended, b"", namespace=namespace)
    # An id of the kind that no resource has.
    await backend.enqueue_job(Job(id="plain", type="mail", namespace=namespace))
    found = await mirror.taken_in([ended, waiting, "plain", str(uuid.uuid4())])
    assert found == {ended, waiting}
    assert await mirror.taken_in([]) == set()


async def test_attached_are_the_unfinished_jobs_of_the_cluster(
    mirror: MirrorStore, submit: Submit, backend: PostgresBackend, namespace: str
) -> None:
    cluster = str(uuid.uuid4())
    waiting, running, finished, gone = [await submit(tag, cluster) for tag in "wrfg"]
    await submit("o", "another-cluster")
    await backend.dequeue_jobs("worker", ["r"], 1, namespace=namespace)
    await backend.dequeue_jobs("worker", ["f"], 1, namespace=namespace)
    await backend.complete_job(finished, b"", namespace=namespace)
    await backend.detach([gone])
    assert set(await mirror.attached(cluster)) == {(namespace, waiting), (namespace, running)}


@pytest.mark.parametrize(
    ("call", "field", "values"),
    [
        ("detach", "uids", IDS),
        ("taken_in", "uids", IDS),
        ("attached", "cluster_uid", UNSTORABLE),
        ("pending_mirrors", "limit", LIMITS),
        ("acknowledge_mirrors", "sequences", (None, "1", ["1"], [-1], [2**63], [True], [1.5])),
        ("take_in", "jobs", (None, "x", 7)),
    ],
)
async def test_a_wrong_argument_is_named(
    backend: PostgresBackend, call: str, field: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        with pytest.raises(InvalidArgument) as refused:
            await getattr(backend, call)(value)
        assert refused.value.field == field, value


async def test_a_cancelled_taking_in_is_found_by_a_repeat(
    mirror: MirrorStore, backend: PostgresBackend, namespace: str
) -> None:
    async def bring() -> list[Job]:
        uids = [str(uuid.uuid4()) for _ in range(3)]
        return [
            Job(id=uid, type="mail", namespace=namespace, resource=ResourceRef("c", uid, uid))
            for uid in uids
        ]

    async def call(jobs: list[Job]) -> Collection[str]:
        return (await backend.take_in(jobs)).new

    async for one in walk(bring, call):
        uids = {job.id for job in one.subject}
        again = set(await call(one.subject))
        assert again in (uids, set()), one
        assert one.cancelled or (set(one.answers[0]) == uids and not again), one
        assert await backend.taken_in(uids) == uids, one
        entries = await mirror.pending_mirrors()
        assert {entry.job.id for entry in entries} == uids, one
        await mirror.acknowledge_mirrors([entry.sequence for entry in entries])


async def test_a_cancelled_detaching_is_found_by_a_repeat(
    backend: PostgresBackend, submit: Submit, namespace: str
) -> None:
    cluster = str(uuid.uuid4())

    async def call(uid: str) -> None:
        await backend.detach([uid])

    async for one in walk(lambda: submit("", cluster), call):
        await call(one.subject)
        job = await backend.get_job(one.subject, namespace=namespace)
        assert job.state is JobState.UNSCHEDULED, one
        assert await backend.attached(cluster) == [], one
        history = await backend.get_history(one.subject, namespace=namespace)
        assert len(history.transitions) == 2, one
