"""Jobs with a callback that a replica of an older release ends while this one is brought in."""

from collections.abc import Callable, Sequence

import pytest
from tests.contract.store import PostgresStore
from tests.integration.postgres.older import older_release, shipped_before
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.backends.webhooks import Message, MessageSearch, MessageState, Told
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

URL = "https://receiver.example/done"


def job(id: str, url: str = URL) -> Job:
    return Job(id=id, type="mail", namespace="team", callback_url=url, max_attempts=1)


async def submit(backend: PostgresBackend, *ids: str) -> None:
    await backend.enqueue_jobs([job(id) for id in ids])


async def end_in_every_way(backend: PostgresBackend, ids: Sequence[str]) -> None:
    """The first is completed, then also late, the others fail, and the last is cancelled."""
    *running, cancelled = ids
    await backend.cancel_jobs([], [cancelled], namespace="team")
    demand = Demand(assignee_id="w", limit=9, namespace="team")
    tokens = {one.job_id: one.token for one in await backend.claim([demand], lease_ttl_s=60)}
    assert sorted(tokens) == sorted(running)
    done, lost, *failed = running
    events = {done: Event.COMPLETE, lost: Event.MARK_UNKNOWN_STOPPED}
    for events_ in (events | dict.fromkeys(failed, Event.FAIL), {lost: Event.COMPLETE}):
        await backend.settle(
            [
                Outcome(id, event, token=tokens[id], namespace="team")
                for id, event in events_.items()
            ]
        )


async def claimed(backend: PostgresBackend) -> list[Message]:
    return await backend.webhooks.claim("s", limit=100, per_receiver=100, lease_s=60)


def shown(messages: Sequence[Message]) -> list[tuple[str, str, int, str, str, str]]:
    return sorted(
        (one.job_id, one.job_state.value, one.attempt, one.namespace, one.type, one.url)
        for one in messages
    )


async def test_what_an_older_replica_ends_is_told_as_if_it_had_written_it(
    store: PostgresStore,
) -> None:
    ours = await store.open()
    # Submitted by a replica of either release: the older one's row knows no more than the URL.
    await submit(ours, "a-done", "a-lost")
    with older_release():
        await submit(ours, "a-failed", "a-cancelled")
        await ours.enqueue_jobs([Job(id="plain", type="mail", namespace="team")])
        await ours.cancel_jobs([], ["plain"], namespace="team")
        await end_in_every_way(ours, ["a-done", "a-lost", "a-failed", "a-cancelled"])
    found = await claimed(ours)
    jobs = {id: await ours.get_job(id, namespace="team") for id in {m.job_id for m in found}}
    ended = {(one.job_id, one.finalized_at) for one in found}
    assert {(job.id, job.finalized_at) for job in jobs.values()} <= ended
    # This release's own messages about the same.
    await submit(ours, "b-done", "b-lost", "b-failed", "b-cancelled")
    await end_in_every_way(ours, ["b-done", "b-lost", "b-failed", "b-cancelled"])
    expected = shown(await claimed(ours))
    assert len(expected) == 5
    assert [(f"b{id[1:]}", *rest) for id, *rest in shown(found)] == expected
    # Neither are told again, whoever looks, and however often.
    ours.webhooks._lose()
    assert await claimed(ours) == []
    assert await claimed(await store.open()) == []
    assert await store.faults() == []


async def test_what_comes_later_is_found_within_a_minute(store: PostgresStore) -> None:
    ours = await store.open()
    assert await claimed(ours) == []
    await submit(ours, "late")
    with older_release():
        await ours.cancel_jobs([], ["late"], namespace="team")
    assert await claimed(ours) == []
    now_s = ours.webhooks._monotonic()
    ours.webhooks._monotonic = lambda: now_s + 61
    assert [one.job_id for one in await claimed(ours)] == ["late"]


async def test_who_wrote_a_message_and_did_not_say_so_has_it_told_once(
    store: PostgresStore,
) -> None:
    """As the releases between: some messages were told, and some not even unfolded."""
    ours = await store.open()
    await submit(ours, "told", "waits", "untold")
    with older_release(tells=True):
        await ours.cancel_jobs([], ["told"], namespace="team")
        [one] = await claimed(ours)
        await ours.webhooks.settle(
            [Told(id=one.id, claim=one.claim, state=MessageState.DELIVERED, status=204)]
        )
        await ours.cancel_jobs([], ["waits"], namespace="team")
    with older_release():
        await ours.cancel_jobs([], ["untold"], namespace="team")
    ours.webhooks._lose()
    assert sorted(one.job_id for one in await claimed(ours)) == ["untold", "waits"]
    page = await ours.webhooks.search(MessageSearch(namespace="team"))
    assert len(page.messages) == 3


async def test_what_ended_before_the_migration_or_is_deleted_is_not_told(
    new_database: Callable[[], str],
) -> None:
    dsn = new_database()
    shipped = migrations()
    await migrate(dsn, shipped=shipped_before())
    with older_release():
        async with watched(dsn, plans="auto") as (before, _):
            await submit(before, "before", "after", "deleted")
            await before.cancel_jobs([], ["before"], namespace="team")
            await migrate(dsn, shipped=shipped)
            await before.cancel_jobs([], ["after", "deleted"], namespace="team")
            await before.delete_jobs([], ["deleted"], namespace="team")
    async with watched(dsn, plans="auto") as (ours, _):
        assert [one.job_id for one in await claimed(ours)] == ["after"]


@pytest.mark.parametrize("rows", [25])
async def test_a_look_is_bounded_and_costs_nothing_afterwards(
    new_database: Callable[[], str], rows: int
) -> None:
    dsn = new_database()
    await migrate(dsn)
    async with watched(dsn, plans="auto") as (backend, seen):
        with older_release():
            for n in range(rows):
                await submit(backend, f"job-{n}")
                await backend.cancel_jobs([], [f"job-{n}"], namespace="team")
        found = [len(await claimed(backend)) for _ in range(3)]
        assert found == [10, 10, 5]
        seen.clear()
        backend.webhooks._lose()
        assert await claimed(backend) == []
        [look] = [one for one in seen.plans if one.text.startswith("-- Notes what is told of ends")]
        assert look.pages <= 4, seen
