"""Pausing, and why a job does not run."""

from contextlib import AsyncExitStack

import pytest
from tests.contract_api.api import Api

from queue_operator.domain.states import Event
from queue_operator.queue.protocol import HandlerType, StreamSpec
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")


@proves("external-api.Steering.expect.1")
async def test_nothing_paused_is_claimed(api: Api) -> None:
    first = await api.submitted(type="mail")
    run = await api.start()
    await api.call("PUT", "/pauses", {"type": "mail", "reason": "smtp is down"})
    mail, sms = await api.submitted(type="mail"), await api.submitted(type="sms")
    assert [one.job_id for one in await api.claim(9)] == [sms]
    await api.settle(run, Event.COMPLETE, result=b"1")
    assert await api.state(first) == "COMPLETED"
    await api.call("PUT", "/pauses", {"reason": "maintenance"})
    await api.submit(type="sms")
    assert (await api.call("DELETE", "/pauses", type="mail"))["resumed"] is True
    assert await api.claim(9) == []
    assert (await api.call("DELETE", "/pauses"))["resumed"] is True
    assert mail in {one.job_id for one in await api.claim(9)}


@proves("external-api.Steering.expect.2")
async def test_pauses_are_listed(api: Api) -> None:
    assert await api.get("/pauses") == {"pauses": []}
    paused = await api.call("PUT", "/pauses", {"type": "mail", "reason": "smtp is down"})
    again = await api.call("PUT", "/pauses", {"type": "mail", "reason": "still"})
    assert again["since"] == paused["since"]
    assert (await api.get("/pauses"))["pauses"] == [again]
    assert (again["namespace"], again["type"]) == (api.namespace, "mail")
    assert (again["reason"], bool(again["by"]), bool(again["since"])) == ("still", True, True)
    for _ in range(2):
        resumed = (await api.call("DELETE", "/pauses", type="mail"))["resumed"]
    assert resumed is False
    assert list(await api.faults("PUT", "/pauses", {"type": ""})) == ["type"]


async def why(api: Api, job_id: str) -> str:
    found = await api.get(f"/jobs/{job_id}/why")
    assert found["message"]
    return str(found["reason"])


@proves("external-api.Steering.expect.3")
async def test_a_job_says_what_it_waits_for(api: Api) -> None:
    parent = await api.submitted(type="mail")
    child = await api.submitted(type="mail", depends_on=[parent])
    found = await api.get(f"/jobs/{child}/why")
    assert (found["reason"], found["position"]) == ("DEPENDENCIES", None)
    assert found["depends_on"] == [{"job_id": parent, "state": None}]
    assert await why(api, await api.submitted(delay=60)) == "DELAYED"
    assert await why(api, parent) == "NO_WORKER"
    async with AsyncExitStack() as stack:
        await api.call("PUT", "/pauses", {"type": "mail", "reason": "smtp is down"})
        spec = StreamSpec(
            assignee_id=f"session-{api.namespace}",
            capacity=1,
            namespace=api.namespace,
            types=(HandlerType(type="mail"),),
            worker_name="w",
        )
        stream = await api.queue.open_stream(spec)
        stack.push_async_callback(stream.close)
        found = await api.get(f"/jobs/{parent}/why")
        assert (found["reason"], found["workers"], found["free_slots"]) == ("PAUSED", 1, 1)
        assert "smtp is down" in found["message"]
        await api.call("DELETE", "/pauses", type="mail")
        push = await stream.next()
        assert push is not None
        assert await why(api, parent) == "EXECUTING"
        assert await why(api, await api.submitted(type="mail")) == "NO_FREE_SLOT"
    await api.get("/jobs/missing/why", status=404)


@proves("external-api.Steering.expect.4")
async def test_a_job_knows_its_place_in_line(api: Api) -> None:
    jobs = [await api.submitted() for _ in range(3)]
    await api.submit(type="other")
    urgent = await api.submitted(priority="CRITICAL")
    found = [await api.get(f"/jobs/{one}/why") for one in (urgent, *jobs)]
    assert [one["position"] for one in found] == [0, 1, 2, 3]
    assert all(one["position_is_exact"] for one in found)
    await api.claim(2, types=["t"])
    assert (await api.get(f"/jobs/{jobs[2]}/why"))["position"] == 1
    ended = await api.submitted()
    await api.post(f"/jobs/{ended}/cancel")
    found = [await api.get(f"/jobs/{ended}/why")]
    assert (found[0]["reason"], found[0]["position"]) == ("ENDED", None)


async def test_a_suspended_job_waits_until_it_is_resumed(api: Api) -> None:
    held, free = await api.submitted(suspended=True), await api.submitted()
    assert [one.job_id for one in await api.claim(9)] == [free]
    shown = await api.get(f"/jobs/{held}")
    assert (shown["suspended"], shown["state"]) == (True, "SCHEDULED")
    found = await api.get(f"/jobs/{held}/why")
    assert (found["reason"], found["position"]) == ("SUSPENDED", None)
    assert f"/v1/jobs/{held}/resume" in found["message"]
    resumed = await api.post(f"/jobs/{held}/resume")
    assert (resumed["job_id"], resumed["suspended"]) == (held, False)
    assert [one.job_id for one in await api.claim(9)] == [held]
    [stored, started] = (await api.status(held, include_history="true"))["history"]
    assert (stored["to_state"], started["from_state"]) == ("SCHEDULED", "SCHEDULED")
    # Of one that runs the attempt goes on, and the next waits.
    running = await api.post(f"/jobs/{held}/suspend")
    assert (running["state"], running["suspended"]) == ("RUNNING", True)
    assert "goes on" in running["message"]
    assert await why(api, held) == "EXECUTING"


async def test_what_cannot_be_suspended_says_why(api: Api) -> None:
    await api.call("POST", "/jobs/none/suspend", status=404)
    ended = await api.submitted()
    await api.post(f"/jobs/{ended}/cancel")
    for change in ("suspend", "resume"):
        asked = {"on": True, "reason": "later"}
        faults = await api.faults("POST", f"/jobs/none/{change}", asked)
        assert sorted(faults) == ["on", "reason"]
        error = await api.call("POST", f"/jobs/{ended}/{change}", status=409)
        assert error["message"] == f"job '{ended}' is CANCELLED: it has ended"
    assert list(await api.faults("POST", "/jobs", {"type": "t", "payload": 1, "suspended": 1})) == [
        "suspended"
    ]


async def test_so_many_types_may_be_paused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_operator.queue.operations.MOST_PAUSES", 2)
    for name in ("a", "b", "a"):
        await api.call("PUT", "/pauses", {"type": name})
    assert list(await api.faults("PUT", "/pauses", {"type": "c"})) == ["type"]
    assert [one["type"] for one in (await api.get("/pauses"))["pauses"]] == ["a", "b"]
