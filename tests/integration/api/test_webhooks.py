"""Messages to those who are told of the ends of jobs, at the REST door."""

from typing import Any

import pytest
from tests.integration.api.door import READER, Door, check_error

from queue_operator.api.routes import webhooks as routes
from queue_operator.backends.webhooks import Message, MessageState, Told

HOOK = "https://receiver.example/jobs"


async def ended(door: Door, **fields: Any) -> str:
    """A job that was cancelled, and of which somebody is told."""
    job_id = await door.submitted(callback_url=HOOK, **fields)
    await door.told("POST", f"/v1/jobs/{job_id}/cancel", {})
    return job_id


async def tried(door: Door, **told: Any) -> list[Message]:
    """All messages of the namespace that are due, after a try."""
    store = door.backend.webhooks
    found = await store.claim("sender", limit=1000, per_receiver=1000, lease_s=60.0)
    mine = [one for one in found if one.namespace == door.namespace]
    await store.settle([Told(id=one.id, claim=one.claim, **told) for one in mine])
    return mine


async def listed(door: Door, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await door.told("GET", "/v1/webhooks", **params))["messages"]
    return found


async def test_a_message_is_shown_as_it_stands(door: Door) -> None:
    job_id = await ended(door)
    assert (await door.status(job_id))["callback_url"] == HOOK
    [shown] = await listed(door)
    assert {name: shown[name] for name in ("namespace", "job_id", "type", "url", "job_state")} == {
        "namespace": door.namespace,
        "job_id": job_id,
        "type": "t",
        "url": HOOK,
        "job_state": "CANCELLED",
    }
    assert (shown["state"], shown["tries"], shown["last_at"]) == ("PENDING", 0, None)
    await tried(door, state=MessageState.FAILED, status=503, error="is away")
    again = await door.told("GET", f"/v1/webhooks/{shown['id']}")
    assert (again["state"], again["tries"], again["next_at"]) == ("FAILED", 1, None)
    assert (again["last_status"], again["last_error"]) == (503, "is away")
    assert again["finalized_at"] == (await door.status(job_id))["completed_at"]


async def test_messages_are_found_by_state_and_job_page_by_page(door: Door) -> None:
    first = await ended(door)
    await tried(door, state=MessageState.DELIVERED, status=204)
    others = [await ended(door) for _ in range(3)]
    assert [one["job_id"] for one in await listed(door)] == [*reversed(others), first]
    assert [one["job_id"] for one in await listed(door, state="DELIVERED")] == [first]
    assert [one["job_id"] for one in await listed(door, job_id=others[1])] == [others[1]]
    page = await door.told("GET", "/v1/webhooks", state="PENDING", limit=2)
    assert page["has_more"]
    rest = await door.told(
        "GET", "/v1/webhooks", state="PENDING", limit=2, cursor=page["next_cursor"]
    )
    assert [one["job_id"] for one in rest["messages"]] == [others[0]]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)
    strange = await door.call("GET", "/v1/webhooks", limit=2, cursor=page["next_cursor"])
    assert check_error(strange, 400, "INVALID_REQUEST")["details"][0]["field"] == "cursor"


async def test_what_failed_is_told_once_more(door: Door) -> None:
    for _ in range(3):
        await ended(door)
    messages = await tried(door, state=MessageState.FAILED, status=500)
    rehearsal = {"state": "FAILED", "dry_run": True}
    rehearsed = await door.told("POST", "/v1/webhooks/redeliver", rehearsal)
    assert rehearsed == {"redelivered": 3, "dry_run": True, "has_more": False}
    one, *_ = [message.id for message in messages]
    body = {"ids": [one, "missing"]}
    rehearsed = await door.told("POST", "/v1/webhooks/redeliver", {**body, "dry_run": True})
    assert rehearsed["redelivered"] == 1
    assert len(await listed(door, state="FAILED")) == 3
    told = await door.told("POST", "/v1/webhooks/redeliver", body)
    assert told == {"redelivered": 1, "dry_run": False, "has_more": False}
    assert (await door.told("POST", "/v1/webhooks/redeliver", body))["redelivered"] == 0
    told = await door.told("POST", "/v1/webhooks/redeliver", {"state": "FAILED"})
    assert told["redelivered"] == 2
    assert sorted(one["id"] for one in await listed(door, state="PENDING")) == sorted(
        message.id for message in messages
    )


async def test_what_is_purged_is_gone(door: Door) -> None:
    await ended(door)
    await ended(door)
    first, _ = await listed(door)
    rehearsed = await door.told("POST", "/v1/webhooks/purge", {"state": "PENDING", "dry_run": True})
    assert rehearsed["purged"] == 2
    told = await door.told("POST", "/v1/webhooks/purge", {"ids": [first["id"]]})
    assert told == {"purged": 1, "dry_run": False, "has_more": False}
    missing = await door.call("GET", f"/v1/webhooks/{first['id']}")
    assert first["id"] in check_error(missing, 404, "NOT_FOUND")["message"]
    assert (await door.told("POST", "/v1/webhooks/purge", {"state": "PENDING"}))["purged"] == 1
    assert await listed(door) == []


async def test_of_more_than_a_request_may_have_the_rest_is_left(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_MESSAGES", 2)
    for _ in range(3):
        await ended(door)
    told = await door.told("POST", "/v1/webhooks/purge", {"state": "PENDING"})
    assert told == {"purged": 2, "dry_run": False, "has_more": True}
    told = await door.told("POST", "/v1/webhooks/purge", {"state": "PENDING"})
    assert (told["purged"], told["has_more"]) == (1, False)


async def test_messages_of_other_namespaces_are_not_there(door: Door) -> None:
    await ended(door)
    [shown] = await listed(door)
    there = {"namespace": f"{door.namespace}-2"}
    assert await listed(door, **there) == []
    check_error(await door.call("GET", f"/v1/webhooks/{shown['id']}", **there), 404, "NOT_FOUND")
    told = await door.told("POST", "/v1/webhooks/purge", {"ids": [shown["id"]]}, **there)
    assert told["purged"] == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "state"),
        ({"ids": ["m"], "state": "FAILED"}, "state"),
        ({"ids": []}, "ids"),
        ({"ids": ["m", ""]}, "ids[1]"),
        ({"ids": ["m\x00"]}, "ids[0]"),
        ({"ids": ["m"] * 1001}, "ids"),
        ({"state": "LOST"}, "state"),
        ({"ids": ["m"], "dry_run": "yes"}, "dry_run"),
    ],
)
@pytest.mark.parametrize("change", ["redeliver", "purge"])
async def test_what_cannot_be_meant(
    door: Door, change: str, body: dict[str, Any], field: str
) -> None:
    answer = await door.call("POST", f"/v1/webhooks/{change}", body)
    assert check_error(answer, 400, "INVALID_REQUEST")["details"][0]["field"] == field


async def test_what_is_pending_is_told_anyway(door: Door) -> None:
    answer = await door.call("POST", "/v1/webhooks/redeliver", {"state": "PENDING"})
    assert check_error(answer, 400, "INVALID_REQUEST")["details"][0]["field"] == "state"


async def test_who_may_only_read_changes_nothing(door: Door) -> None:
    await ended(door)
    for change in "redeliver", "purge":
        answer = await door.call_as(READER, "POST", f"/v1/webhooks/{change}", {"state": "FAILED"})
        check_error(answer, 403, "FORBIDDEN")
    assert len(await listed(door)) == 1
