"""Streams of events over gRPC: whose right is asked for again."""

from typing import Any, cast

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.errors import Forbidden, Unavailable
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub
from queue_operator.rpc import following
from queue_operator.rpc.door import Context
from queue_operator.wire.v1 import queue_pb2 as pb


class Written:
    """What a caller is sent."""

    def __init__(self) -> None:
        self.messages: list[pb.JobEventMessage] = []

    async def write(self, message: pb.JobEventMessage) -> None:
        self.messages.append(message)


async def test_a_right_is_lost_when_somebody_says_so_and_not_while_nobody_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "REVIEW_S", 0.0)
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.01)
    hub, written = EventHub(MemoryBackend().followed), Written()
    answers: list[Exception] = [Unavailable("the cluster is away")] * 2 + [Forbidden("no more")]

    async def review() -> None:
        raise answers.pop(0)

    context = cast(Context, cast(Any, written))
    async with hub.follow(Wish(namespace="default"), caller="a") as follower:
        with pytest.raises(Forbidden):
            await following._tell(hub, follower, context, review)
    assert len(written.messages) == 3
    assert all(one.position for one in written.messages)
    await hub.close()
