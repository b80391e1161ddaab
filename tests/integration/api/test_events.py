"""Streams of events ask for rights, again and again, and end with the server."""

import pytest
from tests.integration.api.door import READER, SUBMITTER, Door

from queue_operator.api.sse import frames
from queue_operator.domain.errors import Forbidden, Unavailable
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub


@pytest.mark.parametrize(("token", "status"), [(READER, 404), (SUBMITTER, 403), ("none", 401)])
async def test_who_may_not_read_may_not_follow(door: Door, token: str, status: int) -> None:
    answer = await door.http.get(
        "/v1/jobs/no/events",
        params={"namespace": door.namespace},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == status


async def test_a_right_that_is_taken_away_ends_the_stream(door: Door) -> None:
    hub, asked = EventHub(door.backend.followed), list[int]()

    async def review() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise Forbidden("no more")

    async with hub.follow(Wish(namespace=door.namespace), caller="a") as follower:
        told = frames(hub, follower, review, heartbeat_s=0.01, review_s=0.0)
        begun, *heartbeats = [one async for one in told]
    assert begun.startswith(b"retry: 1000\nid: ")
    assert len(heartbeats) == 2
    assert all(one.startswith(b":\nid: ") for one in heartbeats)
    await hub.close()


async def test_a_server_that_stops_ends_its_streams_and_says_no_end(door: Door) -> None:
    hub = EventHub(door.backend.followed)

    async def review() -> None:
        """Everybody may."""

    async with hub.follow(Wish(namespace=door.namespace), caller="a") as follower:
        told = frames(hub, follower, review)
        await anext(told)
        await hub.close()
        assert [one async for one in told] == [b""]
    with pytest.raises(Unavailable):
        async with hub.follow(Wish(namespace=door.namespace), caller="a"):
            pass
