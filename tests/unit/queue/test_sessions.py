"""The row of a session while one connection goes and the next one comes."""

from collections.abc import Collection

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import DEFAULT_NAMESPACE, Job
from queue_operator.domain.lease import Leased
from queue_operator.queue.protocol import EndReason, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.sessions import Opening
from queue_operator.queue.stream import JobStream


def test_several_may_open_at_once() -> None:
    opening = Opening()
    with opening.of("w"):
        with opening.of("w"):
            assert "w" in opening
        assert "w" in opening
        assert "v" not in opening
    assert "w" not in opening


async def test_an_old_connection_that_ends_late_leaves_the_row_to_the_new_one() -> None:
    backend = MemoryBackend()
    queue = QueueService(backend, replica="here")
    await queue.start()
    old = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    with queue._opening.of("w"):
        await old.close()
        assert [session.session_id for session in await backend.list_sessions()] == ["w"]
    again = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    await again.close()
    assert await backend.list_sessions() == []
    await queue.close()


class Away(MemoryBackend):
    """Does not say who holds what, for as long as it is told not to."""

    away = True

    async def leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        if self.away:
            raise Unavailable("away")
        return await super().leased(assignee_ids)


async def test_a_stream_that_cannot_be_opened_after_all_leaves_no_row() -> None:
    backend = Away()
    queue = QueueService(backend, replica="here")
    await queue.start()
    spec = StreamSpec(assignee_id="w", capacity=1)
    with pytest.raises(Unavailable, match="away"):
        await queue.open_stream(spec)
    assert await backend.list_sessions() == []
    with queue._opening.of("w"), pytest.raises(Unavailable, match="away"):
        await queue.open_stream(spec)
    # The row is that of the connection which is being opened beside it.
    assert [session.session_id for session in await backend.list_sessions()] == ["w"]
    backend.away = False
    stream = await queue.open_stream(spec)
    assert queue.usage()[0].spec == stream.spec
    await queue.close()


async def lost(backend: MemoryBackend) -> list[tuple[str, int]]:
    found = await backend.lost_workers(DEFAULT_NAMESPACE)
    return [(one.session_id, one.jobs) for one in found]


async def test_a_worker_whose_connection_breaks_is_lost_until_it_is_back() -> None:
    backend = MemoryBackend()
    queue = QueueService(backend, replica="here")
    await queue.start()
    for reason, expected in (
        (EndReason.BROKEN, [("w", 0)]),
        (EndReason.CLOSED, []),
        (EndReason.BROKEN, [("w", 0)]),
    ):
        stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
        assert await lost(backend) == []
        await stream.close(reason)
        assert await lost(backend) == expected
    draining = await queue.open_stream(StreamSpec(assignee_id="w", capacity=1))
    draining.drain()
    await draining.close(EndReason.BROKEN)
    assert await lost(backend) == []
    await queue.close()


async def test_what_was_taken_before_the_break_was_heard_of_counts() -> None:
    """A machine that vanishes says nothing: its leases end first, and then its connection."""
    backend = MemoryBackend()
    queue = QueueService(backend, replica="here")
    await queue.start()
    stream = await queue.open_stream(StreamSpec(assignee_id="w", capacity=2))
    assert isinstance(stream, JobStream)
    await queue.enqueue_jobs([Job(id=name, type="t") for name in "ab"])
    while stream.slots.busy < 2:
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
    await queue.mark_worker_unresponsive("w")
    assert stream.slots.busy == 0
    await stream.close(EndReason.BROKEN)
    assert await lost(backend) == [("w", 2)]
    await queue.close()
