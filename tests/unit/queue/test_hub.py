"""A hub has room for so many, and those it has room for no more find it again."""

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import JobNotFound, QuotaExceeded
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub

ALL = Wish(namespace="default")


async def test_only_so_many_may_follow() -> None:
    hub = EventHub(MemoryBackend().followed, streams=3, each=2)
    async with hub.follow(ALL, caller="a"), hub.follow(ALL, caller="a"):
        with pytest.raises(QuotaExceeded, match="one caller"):
            async with hub.follow(ALL, caller="a"):
                pass
        async with hub.follow(ALL, caller="b"):
            with pytest.raises(QuotaExceeded, match="this server"):
                async with hub.follow(ALL, caller="c"):
                    pass
    assert hub.streams == 0
    with pytest.raises(JobNotFound):
        async with hub.follow(Wish(namespace="default", job_ids=frozenset({"no"})), caller="a"):
            pass
    assert hub.streams == 0
    await hub.close()
