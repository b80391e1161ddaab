"""Pauses, reasons and statistics."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import HandlerType, StreamSpec
from queue_operator.testing.clauses import proves


async def claimable(door: Door) -> int:
    return len(await door.backend.dequeue_jobs("worker", (), 10, namespace=door.namespace))


@proves("external-api.Steering.expect.1", "external-api.Steering.expect.2")
@pytest.mark.parametrize("of_type", ["a", None])
async def test_what_is_paused_does_not_start(door: Door, of_type: str | None) -> None:
    await door.submitted(type="a")
    named = {} if of_type is None else {"type": of_type}
    paused = await door.told("PUT", "/v1/pauses", {**named, "reason": "mail is down"})
    assert datetime.fromisoformat(paused["since"]).tzinfo is not None
    since = paused["since"]
    assert paused == {
        "namespace": door.namespace,
        "type": of_type or "",
        "reason": "mail is down",
        "by": "tests",
        "since": since,
    }
    assert await door.told("GET", "/v1/pauses") == {"pauses": [paused]}
    assert await claimable(door) == 0
    again = await door.told("PUT", "/v1/pauses", {**named, "reason": "still"})
    assert (again["since"], again["reason"]) == (since, "still")
    assert await door.told("DELETE", "/v1/pauses", **named) == {"resumed": True}
    assert await door.told("DELETE", "/v1/pauses", **named) == {"resumed": False}
    assert await door.told("GET", "/v1/pauses") == {"pauses": []}
    assert await claimable(door) == 1


async def test_the_pause_of_a_type_holds_back_no_other(door: Door) -> None:
    await door.told("PUT", "/v1/pauses", {"type": "a"})
    await door.submitted(type="b")
    assert await claimable(door) == 1
    assert await door.told("DELETE", "/v1/pauses") == {"resumed": False}
    elsewhere = await door.told("GET", "/v1/pauses", namespace=f"{door.namespace}-2")
    assert elsewhere == {"pauses": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"type": ""}, "type"),
        ({"type": "a\x00"}, "type"),
        ({"type": "x" * 256}, "type"),
        ({"reason": "x" * 1025}, "reason"),
        ({"reason": 5}, "reason"),
        ({"until": "tomorrow"}, "until"),
    ],
)
async def test_a_malformed_pause_pauses_nothing(
    door: Door, body: dict[str, Any], field: str
) -> None:
    error = check_error(await door.call("PUT", "/v1/pauses", body), 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]
    assert await door.told("GET", "/v1/pauses") == {"pauses": []}


async def reason(door: Door, job_id: str) -> str:
    return str((await door.told("GET", f"/v1/jobs/{job_id}/why"))["reason"])


@proves("external-api.Steering.expect.3", "external-api.Steering.expect.4")
async def test_why_names_the_first_thing_that_a_job_waits_for(door: Door) -> None:
    first = await door.submitted(type="a")
    job_id = await door.submitted(type="a")
    why = await door.told("GET", f"/v1/jobs/{job_id}/why")
    assert (why["reason"], why["position"], why["position_is_exact"]) == ("NO_WORKER", 1, True)
    assert (why["workers"], why["free_slots"], why["paused"]) == (0, 0, [])
    paused = await door.told("PUT", "/v1/pauses", {"type": "a"})
    why = await door.told("GET", f"/v1/jobs/{job_id}/why")
    assert (why["reason"], why["paused"]) == ("PAUSED", [paused])
    spec = StreamSpec(
        assignee_id=f"{door.namespace}/w",
        capacity=1,
        namespace=door.namespace,
        types=(HandlerType(type="a"),),
        worker_name=f"{door.namespace}-w",
    )
    stream = await door.queue.open_stream(spec)
    await door.told("DELETE", "/v1/pauses", type="a")
    push = await stream.next()
    assert push is not None
    assert [one.job_id for one in push.assignments] == [first]
    stream.delivered(push)
    why = await door.told("GET", f"/v1/jobs/{job_id}/why")
    assert (why["reason"], why["position"]) == ("NO_FREE_SLOT", 0)
    assert (why["workers"], why["free_slots"]) == (1, 0)
    assert await reason(door, first) == "EXECUTING"
    await door.told("POST", f"/v1/jobs/{first}/cancel")
    assert await reason(door, first) == "STOPPING"
    await stream.close()
    other = await door.submitted(type="b", delay=60)
    assert await reason(door, other) == "DELAYED"
    await door.told("POST", f"/v1/jobs/{other}/cancel")
    ended = await door.told("GET", f"/v1/jobs/{other}/why")
    assert (ended["reason"], ended["state"], ended["position"]) == ("ENDED", "CANCELLED", None)


@proves("external-api.QueueStats.expect.1", "external-api.QueueStats.expect.2")
async def test_statistics_tell_of_now_and_of_a_window(door: Door) -> None:
    await door.failed(ErrorInfo("x", ErrorCategory.PERMANENT), type="a")
    await door.failed(ErrorInfo("x"), type="a")
    done = await door.submitted(type="b", priority="HIGH")
    await door.claimed(done)
    await door.settled(done, Event.COMPLETE)
    running = await door.submitted(type="b")
    await door.claimed(running)
    await door.submitted(type="b")
    await door.submitted(type="c", delay=60)
    await door.submitted(type="c", depends_on=[running])
    asked = {"breakdown_by": ["TYPE", "PRIORITY", "STATE"], "time_range": "PT5M"}
    stats = await door.told("GET", "/v1/stats", **asked)
    counted = {name: stats[name] for name in ("pending", "scheduled", "running", "delayed")}
    assert counted == {"pending": 1, "scheduled": 1, "running": 1, "delayed": 1}
    assert (stats["completed"], stats["failed"], stats["dead_letter"]) == (1, 1, 1)
    since, until = (datetime.fromisoformat(stats[name]) for name in ("since", "until"))
    assert (since.second, since.microsecond) == (0, 0)
    assert timedelta(minutes=5) <= until - since <= timedelta(minutes=6)
    seconds = (until - since).total_seconds()
    assert stats["submission_rate"] * seconds == pytest.approx(7)
    assert stats["completion_rate"] * seconds == pytest.approx(1)
    assert stats["failure_rate"] * seconds == pytest.approx(2)
    none = dict.fromkeys(stats["by_type"]["a"], 0)
    assert stats["by_type"]["a"] == {**none, "failed": 1, "dead_letter": 1}
    assert stats["by_type"]["b"] == {**none, "pending": 1, "running": 1, "completed": 1}
    assert stats["by_priority"]["HIGH"]["completed"] == 1
    assert stats["by_state"]["RUNNING"]["running"] == 1
    for latency in ("queue_latency", "execution_time"):
        assert stats[latency]["p50"].startswith("PT")
        assert set(stats[latency]) == {"p50", "p90", "p99", "max"}
    plain = await door.told("GET", "/v1/stats")
    assert not {"by_type", "by_priority", "by_state"} & set(plain)
    assert plain["total"] == 7


async def test_statistics_of_nothing(door: Door) -> None:
    stats = await door.told("GET", "/v1/stats", time_range="60", breakdown_by="TYPE")
    assert (stats["total"], stats["submission_rate"], stats["by_type"]) == (0, 0.0, {})
    assert stats["queue_latency"] == {"p50": None, "p90": None, "p99": None, "max": None}


@proves("external-api.StatsQuery.rule.1", "external-api.StatsQuery.rule.2")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"time_range": "0"}, "time_range"),
        ({"time_range": "-5"}, "time_range"),
        ({"time_range": "PT0S"}, "time_range"),
        ({"time_range": "P9Y"}, "time_range"),
        ({"time_range": "1 h"}, "time_range"),
        ({"time_range": "1e99"}, "time_range"),
        ({"time_range": "nan"}, "time_range"),
        ({"time_range": "399.1e5"}, "time_range"),
        ({"time_range": "9" * 400}, "time_range"),
        ({"breakdown_by": "WORKER"}, "breakdown_by[0]"),
        ({"breakdown": "TYPE"}, "breakdown"),
        ({"tag": ""}, "tag[0]"),
    ],
)
async def test_a_faulty_question_is_named(door: Door, params: dict[str, str], field: str) -> None:
    error = check_error(await door.call("GET", "/v1/stats", **params), 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]
