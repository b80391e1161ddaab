"""Jobs are told of as they change, and a stream that broke goes on where it was."""

import pytest
from tests.contract_api.api import Api
from tests.following import Told, following, until

from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def submit(
    api: Api, *ids: str, type: str = "mail", tags: frozenset[str] = frozenset()
) -> None:
    await api.queue.enqueue_jobs(
        [Job(id=one, type=type, namespace=api.namespace, tags=tags) for one in ids]
    )


async def run(api: Api, limit: int = 1) -> list[str]:
    """Claims, and completes."""
    demand = Demand(assignee_id="w", limit=limit, namespace=api.namespace)
    claimed = await api.backend.claim([demand], lease_ttl_s=600)
    await api.backend.settle(
        [
            Outcome(
                event=Event.COMPLETE, job_id=one.job_id, namespace=api.namespace, token=one.token
            )
            for one in claimed
        ]
    )
    return [one.job_id for one in claimed]


def statuses(events: list[Told]) -> list[str]:
    return [one.data["status"] for one in events if one.name == "job"]


async def test_a_job_is_followed_to_its_end(api: Api) -> None:
    await submit(api, "a", "b")
    async with following(api.http, "/v1/jobs/a/events", namespace=api.namespace) as events:
        first = await until(events, "job")
        assert first[0].data | {"at": ""} == {
            "job_id": "a",
            "namespace": api.namespace,
            "type": "mail",
            "status": "SCHEDULED",
            "state": "INITIAL_PENDING",
            "event": "CURRENT",
            "attempt": 0,
            "at": "",
        }
        await run(api, 2)
        rest = await until(events, "end")
        assert statuses(rest) == ["RUNNING", "COMPLETED"]
        assert [one async for one in events] == []
    assert len({one.id for one in (*first, *rest[:-1])}) == 3


async def test_a_stream_goes_on_after_each_of_its_events(api: Api) -> None:
    names = [f"j{n}" for n in range(5)]
    async with following(api.http, "/v1/events", namespace=api.namespace) as events:
        start = await anext(events)
        await submit(api, *names)
        await run(api, 3)
        await run(api, 2)
        all_of_it = await until(events, "job", event="COMPLETE", job_id="j4")
    assert len(all_of_it) == 15
    assert len({one.id for one in all_of_it}) == 15
    for place, last in enumerate([start, *all_of_it[:-1]]):
        async with following(
            api.http, "/v1/events", after=last.id, namespace=api.namespace
        ) as events:
            rest = await until(events, "job", event="COMPLETE", job_id="j4")
        assert [one.data for one in rest] == [one.data for one in all_of_it[place:]]


async def test_only_what_is_asked_for_is_told(api: Api) -> None:
    query = {"type": "mail", "tag": "team=a", "status": "COMPLETED"}
    async with following(api.http, "/v1/events", namespace=api.namespace, **query) as events:
        await anext(events)
        await submit(api, "other-type", type="sms", tags=frozenset({"team=a"}))
        await submit(api, "other-tag", tags=frozenset({"team=b"}))
        await submit(api, "mine", tags=frozenset({"team=a", "more"}))
        await run(api, 3)
        found = await until(events, "job")
    assert [one.data["job_id"] for one in found] == ["mine"]


async def test_a_job_that_has_ended_is_told_once(api: Api) -> None:
    await submit(api, "a")
    await run(api)
    async with following(api.http, "/v1/jobs/a/events", namespace=api.namespace) as events:
        found = await until(events, "end")
    assert statuses(found) == ["COMPLETED"]
    async with following(
        api.http, "/v1/jobs/a/events", after=found[0].id, namespace=api.namespace
    ) as events:
        assert statuses(await until(events, "end")) == []


async def test_a_stream_may_go_on_after_the_end(api: Api) -> None:
    await submit(api, "a")
    await api.queue.cancel_jobs([], ["a"], namespace=api.namespace)
    async with following(
        api.http, "/v1/jobs/a/events", namespace=api.namespace, follow="true"
    ) as events:
        assert statuses(await until(events, "job")) == ["CANCELLED"]
        await api.queue.delete_jobs([], ["a"], namespace=api.namespace)
        assert statuses(await until(events, "end")) == []


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/a/events"])
async def test_a_position_that_is_none_is_refused_by_name(api: Api, path: str) -> None:
    await submit(api, "a")
    for wrong in ("x", "0.0.0", "12345678.1.1." + "1" * 20_000, "12345678.1.1.2"):
        answer = await api.http.get(
            path, params={"namespace": api.namespace}, headers={"Last-Event-ID": wrong}
        )
        assert answer.status_code == 400
        assert answer.json()["details"][0]["field"] == "Last-Event-ID"


async def test_a_position_of_another_database_has_expired(api: Api) -> None:
    answer = await api.http.get(
        "/v1/events",
        params={"namespace": api.namespace},
        headers={"Last-Event-ID": "12345678.1.1."},
    )
    assert (answer.status_code, answer.json()["code"]) == (410, "POSITION_EXPIRED")
    assert "begin anew" in answer.json()["message"]


async def test_a_job_that_does_not_exist_is_not_found(api: Api) -> None:
    answer = await api.http.get("/v1/jobs/no/events", params={"namespace": api.namespace})
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
