"""The inbox of the controller holds so many sightings, and so many bytes."""

import asyncio

from queue_operator.controller.inbox import BATCH_BYTES, Inbox
from queue_operator.controller.sighting import OVERHEAD_BYTES, Sighting
from queue_operator.domain.job import Job, ResourceRef


def sighting(uid: str, payload: int = 0) -> Sighting:
    job = Job(id=uid, type="t", payload=b"x" * payload)
    return Sighting(resource=ResourceRef("c", uid, uid), namespace="ns", job=job)


async def test_what_does_not_fit_is_refused_until_something_is_done() -> None:
    inbox = Inbox(most=2)
    assert inbox.offer(sighting("a"))
    assert inbox.offer(sighting("b"))
    assert not inbox.offer(sighting("c"))
    batch = await inbox.batch(1, 0.0)
    assert [one.uid for one in batch] == ["a"]
    # It is in memory until it is stored.
    assert not inbox.offer(sighting("c"))
    inbox.done(batch)
    assert inbox.offer(sighting("c"))


async def test_bytes_count_as_well_and_anything_fits_an_empty_one() -> None:
    inbox = Inbox(most_bytes=3 * OVERHEAD_BYTES)
    assert inbox.offer(sighting("large", 1_000_000))
    assert not inbox.offer(sighting("small"))
    inbox.done(await inbox.batch(10, 0.0))
    assert [inbox.offer(sighting(uid)) for uid in "abcd"] == [True, True, True, False]


async def test_a_batch_is_bounded_too() -> None:
    inbox = Inbox()
    for uid in "abc":
        assert inbox.offer(sighting(uid, BATCH_BYTES // 2))
    assert [one.uid for one in await inbox.batch(10, 1.0)] == ["a", "b"]


async def test_whoever_can_wait_waits_for_room() -> None:
    inbox = Inbox(most=1)
    await inbox.put(sighting("a"))
    putting = asyncio.create_task(inbox.put(sighting("b")))
    emptied = asyncio.create_task(inbox.half_empty())
    batch = await inbox.batch(1, 0.0)
    assert not putting.done()
    assert not emptied.done()
    inbox.done(batch)
    await putting
    drained = asyncio.create_task(inbox.drained())
    batch = await inbox.batch(1, 0.0)
    assert not drained.done()
    inbox.done(batch)
    await drained
    await emptied
