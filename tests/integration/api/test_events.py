"""Jobs are told of as they change, and a stream that broke goes on where it was."""

import pytest
from tests.following import Told, following, until
from tests.integration.api.door import READER, SUBMITTER, Door

from queue_operator.api.sse import frames
from queue_operator.domain.errors import Forbidden, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub


async def submit(
    door: Door, *ids: str, type: str = "mail", tags: frozenset[str] = frozenset()
) -> None:
    await door.queue.enqueue_jobs(
        [Job(id=one, type=type, namespace=door.namespace, tags=tags) for one in ids]
    )


async def run(door: Door, limit: int = 1) -> list[str]:
    """Claims, and completes."""
    demand = Demand(assignee_id="w", limit=limit, namespace=door.namespace)
    claimed = await door.backend.claim([demand], lease_ttl_s=600)
    await door.backend.settle(
        [
            Outcome(
                event=Event.COMPLETE, job_id=one.job_id, namespace=door.namespace, token=one.token
            )
            for one in claimed
        ]
    )
    return [one.job_id for one in claimed]


def statuses(events: list[Told]) -> list[str]:
    return [one.data["status"] for one in events if one.name == "job"]


async def test_a_job_is_followed_to_its_end(door: Door) -> None:
    await submit(door, "a", "b")
    async with following(door.http, "/v1/jobs/a/events", namespace=door.namespace) as events:
        first = await until(events, "job")
        assert first[0].data | {"at": ""} == {
            "job_id": "a",
            "namespace": door.namespace,
            "type": "mail",
            "status": "SCHEDULED",
            "state": "INITIAL_PENDING",
            "event": "CURRENT",
            "attempt": 0,
            "at": "",
        }
        await run(door, 2)
        rest = await until(events, "end")
        assert statuses(rest) == ["RUNNING", "COMPLETED"]
        assert [one async for one in events] == []
    assert len({one.id for one in (*first, *rest[:-1])}) == 3


async def test_a_stream_goes_on_after_each_of_its_events(door: Door) -> None:
    names = [f"j{n}" for n in range(5)]
    async with following(door.http, "/v1/events", namespace=door.namespace) as events:
        start = await anext(events)
        await submit(door, *names)
        await run(door, 3)
        await run(door, 2)
        all_of_it = await until(events, "job", event="COMPLETE", job_id="j4")
    assert len(all_of_it) == 15
    assert len({one.id for one in all_of_it}) == 15
    for place, last in enumerate([start, *all_of_it[:-1]]):
        async with following(
            door.http, "/v1/events", after=last.id, namespace=door.namespace
        ) as events:
            rest = await until(events, "job", event="COMPLETE", job_id="j4")
        assert [one.data for one in rest] == [one.data for one in all_of_it[place:]]


async def test_only_what_is_asked_for_is_told(door: Door) -> None:
    query = {"type": "mail", "tag": "team=a", "status": "COMPLETED"}
    async with following(door.http, "/v1/events", namespace=door.namespace, **query) as events:
        await anext(events)
        await submit(door, "other-type", type="sms", tags=frozenset({"team=a"}))
        await submit(door, "other-tag", tags=frozenset({"team=b"}))
        await submit(door, "mine", tags=frozenset({"team=a", "more"}))
        await run(door, 3)
        found = await until(events, "job")
    assert [one.data["job_id"] for one in found] == ["mine"]


async def test_a_job_that_has_ended_is_told_once(door: Door) -> None:
    await submit(door, "a")
    await run(door)
    async with following(door.http, "/v1/jobs/a/events", namespace=door.namespace) as events:
        found = await until(events, "end")
    assert statuses(found) == ["COMPLETED"]
    async with following(
        door.http, "/v1/jobs/a/events", after=found[0].id, namespace=door.namespace
    ) as events:
        assert statuses(await until(events, "end")) == []


async def test_a_stream_may_go_on_after_the_end(door: Door) -> None:
    await submit(door, "a")
    await door.queue.cancel_jobs([], ["a"], namespace=door.namespace)
    async with following(
        door.http, "/v1/jobs/a/events", namespace=door.namespace, follow="true"
    ) as events:
        assert statuses(await until(events, "job")) == ["CANCELLED"]
        await door.queue.delete_jobs([], ["a"], namespace=door.namespace)
        assert statuses(await until(events, "end")) == []


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/a/events"])
async def test_a_position_that_is_none_is_refused_by_name(door: Door, path: str) -> None:
    await submit(door, "a")
    for wrong in ("x", "0.0.0", "12345678.1.1." + "1" * 20_000, "12345678.1.1.2"):
        answer = await door.http.get(
            path, params={"namespace": door.namespace}, headers={"Last-Event-ID": wrong}
        )
        assert answer.status_code == 400
        assert answer.json()["details"][0]["field"] == "Last-Event-ID"


async def test_a_position_of_another_database_has_expired(door: Door) -> None:
    answer = await door.http.get(
        "/v1/events",
        params={"namespace": door.namespace},
        headers={"Last-Event-ID": "12345678.1.1."},
    )
    assert (answer.status_code, answer.json()["code"]) == (410, "POSITION_EXPIRED")
    assert "begin anew" in answer.json()["message"]


async def test_a_job_that_does_not_exist_is_not_found(door: Door) -> None:
    answer = await door.http.get("/v1/jobs/no/events", params={"namespace": door.namespace})
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


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
