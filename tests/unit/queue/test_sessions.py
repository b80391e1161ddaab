"""The row of a session while one connection goes and the next one comes."""

from collections.abc import Collection

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.lease import Leased
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.sessions import Opening


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
