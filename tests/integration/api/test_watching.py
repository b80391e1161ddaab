"""The verdict, and what the page shows beside it, over REST."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.api.door import MANAGER, READER, SUBMITTER, Door

from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.protocol import WorkerSession
from queue_operator.backends.webhooks import MessageState, Told
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.situation import Level
from queue_operator.domain.states import Event
from queue_operator.queue.explaining import utc_now
from queue_operator.queue.protocol import HandlerType, StreamSpec
from queue_operator.queue.watching import MOST_READ, Watch


def a_stream(door: Door, **fields: Any) -> StreamSpec:
    given = {"types": (HandlerType(type="mail"),), "worker_name": "mailer-1", "capacity": 3}
    name = f"session-{door.namespace}"
    return StreamSpec(assignee_id=name, namespace=door.namespace, **{**given, **fields})


async def aged(door: Door, seconds: int) -> None:
    """All that waits in the namespace has waited for so long."""
    async with door.backend._pool.connection() as connection:
        await connection.execute(
            "UPDATE ready SET eligible_at = eligible_at - make_interval(secs => %s) "
            "WHERE lane_id IN (SELECT id FROM lane WHERE namespace_id = "
            "(SELECT id FROM namespace WHERE name = %s))",
            (seconds, door.namespace),
        )


async def test_an_empty_namespace_is_healthy(door: Door) -> None:
    told = await door.told("GET", "/v1/verdict")
    assert (told["level"], told["causes"], told["due"]) == ("HEALTHY", [], 0)
    assert told["sentence"] == "Healthy: nothing runs, and nothing could."
    assert await door.told("GET", "/v1/workers") == {"workers": [], "lost": []}
    assert await door.told("GET", "/v1/waiting") == {"waiting": []}
    assert (await door.told("GET", "/v1/failures/clusters"))["types"] == []


async def test_jobs_that_no_worker_takes_make_it_stuck(door: Door) -> None:
    job_id = await door.submitted(type="mail")
    await door.submitted(type="later", delay="PT1H")
    assert (await door.told("GET", "/v1/verdict"))["level"] == "HEALTHY"
    await aged(door, 90)
    told = await door.told("GET", "/v1/verdict")
    assert told["sentence"].startswith(
        "Stuck: no worker is connected for mail, and 1 job waits, for 1 min 3"
    )
    assert (told["due"], told["later"], told["workers"]) == (1, 1, 0)
    [cause] = told["causes"]
    assert (cause["code"], cause["types"]) == ("NO_WORKER", ["mail"])
    assert cause["evidence"]["oldest_s"] >= 90
    other = await door.told("GET", "/v1/verdict", type="sms")
    assert (other["type"], other["level"]) == ("sms", "HEALTHY")
    assert (await door.told("GET", "/v1/verdict", type="mail"))["level"] == "STUCK"
    [waiting] = (await door.told("GET", "/v1/waiting"))["waiting"]
    assert (waiting["job"]["job_id"], waiting["why"]["reason"]) == (job_id, "NO_WORKER")


async def test_a_worker_that_died_is_told_of(door: Door) -> None:
    session_id = f"dead-{door.namespace}"
    await door.backend.open_session(
        WorkerSession(
            session_id=session_id,
            namespace=door.namespace,
            worker_name="mailer-7",
            types=frozenset({"mail"}),
            capacity=4,
        )
    )
    await door.backend.lose_sessions([Loss(session_id=session_id, jobs=3, ago_s=120.0)])
    told = await door.told("GET", "/v1/verdict")
    assert told["sentence"].startswith("Degraded: worker mailer-7 died 2 min")
    assert (told["causes"][0]["code"], told["workers"]) == ("LOST_WORKERS", 0)
    assert (await door.told("GET", "/v1/verdict", type="sms"))["level"] == "HEALTHY"
    found = await door.told("GET", "/v1/workers")
    [lost] = found["lost"]
    assert found["workers"] == []
    assert (lost["state"], lost["name"], lost["jobs"]) == ("LOST", "mailer-7", 3)


async def test_workers_that_died_with_their_replica_are_told_of(door: Door) -> None:
    """Nobody saw their connections break: they are silent, and their leases are over."""
    mine = [
        WorkerSession(
            session_id=f"{name}-{door.namespace}",
            namespace=door.namespace,
            worker_name=name,
            replica=f"dead-{door.namespace}",
            types=frozenset({"mail"}),
            busy=busy,
            draining=name == "drained",
        )
        for name, busy in (("mailer", 3), ("drained", 0), ("returned", 1))
    ]
    for one in mine:
        await door.backend.open_session(one)
    async with door.backend._pool.connection() as connection:
        await connection.execute(
            "UPDATE worker_session SET connected_at = now() - interval '90 seconds'"
            " WHERE namespace = %s",
            (door.namespace,),
        )
    # A new process of the same name, on another replica.
    again = replace(mine[2], session_id=f"again-{door.namespace}", replica="here", busy=0)
    await door.backend.open_session(again)
    told = await door.told("GET", "/v1/verdict")
    assert told["sentence"].startswith("Degraded: worker mailer died 1 min")
    assert "with 3 jobs" in told["sentence"]
    assert (told["causes"][0]["code"], told["workers"]) == ("LOST_WORKERS", 1)
    found = await door.told("GET", "/v1/workers")
    assert [one["name"] for one in found["workers"]] == ["returned"]
    assert [(one["name"], one["jobs"]) for one in found["lost"]] == [("mailer", 3)]
    # It was its replica that was cut off.
    await door.backend.touch_sessions(mine[:1])
    found = await door.told("GET", "/v1/workers")
    assert [one["name"] for one in found["workers"]] == ["mailer", "returned"]
    assert found["lost"] == []


async def test_a_retry_whose_time_has_come_is_found_behind_those_in_backoff(door: Door) -> None:
    for n in range(25):
        await door.submitted(type="mail", job_id=f"job-{n:02}")
    demand = Demand(assignee_id="w", limit=25, namespace=door.namespace)
    claimed = await door.backend.claim([demand], lease_ttl_s=60.0)
    outcomes = [
        Outcome(one.job_id, Event.FAIL, door.namespace, token=one.token, error=ErrorInfo("no"))
        for one in claimed
    ]
    await door.backend.settle(outcomes)
    async with door.backend._pool.connection() as connection:
        await connection.execute(
            "UPDATE ready SET eligible_at = now() + CASE WHEN job_no IN (SELECT job_no FROM job "
            "WHERE id = 'job-24') THEN interval '-1 minute' ELSE interval '1 hour' END "
            "WHERE lane_id IN (SELECT id FROM lane WHERE namespace_id = "
            "(SELECT id FROM namespace WHERE name = %s))",
            (door.namespace,),
        )
    [waiting] = (await door.told("GET", "/v1/waiting"))["waiting"]
    assert waiting["job"]["job_id"] == "job-24"


async def test_the_first_of_a_type_is_told_who_else_waits_for_its_workers(door: Door) -> None:
    await door.backend.open_session(
        WorkerSession(
            session_id=f"elsewhere-{door.namespace}",
            namespace=door.namespace,
            worker_name="w",
            types=frozenset({"mail", "sms"}),
            capacity=3,
        )
    )
    for kind in ("sms", "sms", "mail", "fax"):
        await door.submitted(type=kind)
    why = {
        one["job"]["type"]: one["why"]
        for one in reversed((await door.told("GET", "/v1/waiting"))["waiting"])
    }
    assert why["mail"]["message"] == (
        "it is the first of its type; 2 jobs of other types wait for the same workers, the oldest "
        "first"
    )
    assert "1 job of another type waits" in why["sms"]["message"]


async def test_a_pause_is_told_with_who_and_why(door: Door) -> None:
    await door.submitted(type="mail")
    await door.told("PUT", "/v1/pauses", {"type": "mail", "reason": "deploy"})
    told = await door.told("GET", "/v1/verdict")
    assert told["sentence"] == "Stuck: mail is paused by tests (deploy), and 1 job waits."
    [cause] = told["causes"]
    assert cause["command"] == f"queue-operator resume mail --namespace {door.namespace}"


async def test_workers_and_their_slots(door: Door) -> None:
    stream = await door.queue.open_stream(a_stream(door))
    await door.backend.open_session(
        WorkerSession(
            session_id=f"elsewhere-{door.namespace}",
            namespace=door.namespace,
            worker_name="other-1",
            replica="another",
            tags=frozenset({"eu"}),
            capacity=5,
            busy=4,
        )
    )
    job_ids = [await door.submitted(type="mail") for _ in range(4)]
    pushed = 0
    while pushed < 3:
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
        pushed += len(push.assignments)
    mine, other = sorted(
        (await door.told("GET", "/v1/workers"))["workers"], key=lambda one: one["name"]
    )
    assert (mine["name"], mine["busy"], mine["capacity"]) == ("mailer-1", 3, 3)
    assert (mine["types"], mine["draining"]) == (["mail"], False)
    assert (other["tags"], other["busy"], other["replica"]) == (["eu"], 4, "another")
    told = await door.told("GET", "/v1/verdict", type="mail")
    assert (told["workers"], told["slots"], told["busy"]) == (2, 8, 7)
    assert {one["job"]["job_id"] for one in (await door.told("GET", "/v1/waiting"))["waiting"]} < {
        *job_ids
    }
    await stream.close()


async def test_failures_are_put_into_clusters(door: Door) -> None:
    for n in range(6):
        await door.failed(ErrorInfo(f"host {n} is away", code="AWAY"), type="mail")
    await door.failed(ErrorInfo("no <b>user</b>", code="NONE"), type="sms")
    told = await door.told("GET", "/v1/failures/clusters", time_range="PT5M")
    assert (told["read"], told["is_complete"]) == (7, True)
    mail, sms = told["types"]
    assert (mail["type"], mail["attempts_failed"], mail["completed"]) == ("mail", 6, 0)
    [cluster] = mail["clusters"]
    assert (cluster["shape"], cluster["count"]) == ("host <n> is away", 6)
    assert cluster["message"] == "host 5 is away"
    assert sms["clusters"][0]["shape"] == "no <b>user</b>"
    only = await door.told("GET", "/v1/failures/clusters", type="sms")
    assert [one["type"] for one in only["types"]] == ["sms"]
    verdict = await door.told("GET", "/v1/verdict")
    assert verdict["sentence"] == ("Degraded: mail fails: 6 of 6 attempts in 5 min, mostly AWAY.")


async def test_no_more_failures_are_read_than_the_bound(door: Door) -> None:
    jobs = [{"type": "mail", "payload": 1} for _ in range(MOST_READ + 5)]
    await door.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    claimed = await door.backend.dequeue_jobs("w", (), len(jobs), namespace=door.namespace)
    for job in claimed:
        await door.settled(job.id, Event.EXHAUST, ErrorInfo("x"))
    told = await door.told("GET", "/v1/failures/clusters")
    assert (told["read"], told["is_complete"]) == (MOST_READ, False)
    assert told["types"][0]["attempts_failed"] == len(jobs)


async def test_a_search_that_takes_too_long_takes_no_verdict_away(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> None:
        raise InvalidArgument("failed_after", "this search reads too many jobs for 5 s")

    for _ in range(6):
        await door.failed(ErrorInfo("away", code="AWAY"), type="mail")
    monkeypatch.setattr(type(door.backend), "search_failures", refused)
    verdict = await door.told("GET", "/v1/verdict")
    assert verdict["sentence"] == "Degraded: mail fails: 6 of 6 attempts in 5 min."
    told = await door.told("GET", "/v1/failures/clusters")
    assert (told["read"], told["is_complete"]) == (0, False)
    assert told["types"][0]["attempts_failed"] == 6


async def test_a_series_has_what_happened(door: Door) -> None:
    job_id = await door.submitted()
    await door.claimed(job_id)
    await door.settled(job_id, Event.COMPLETE)
    told = await door.told("GET", "/v1/stats/series", time_range="PT10M")
    assert told["step"] == "PT1M"
    assert sum(one["submitted"] for one in told["points"]) == 1
    [done] = [one for one in told["points"] if one["completed"]]
    assert done["execution_time"]["p50"] is not None
    wrong = await door.call("GET", "/v1/stats/series", time_range="PT0S")
    assert wrong.status_code == 400


async def test_what_a_caller_may_do_is_told(door: Door) -> None:
    def may(told: Any) -> set[str]:
        return {verb for verb, is_so in told["jobs"].items() if is_so}

    for token, verbs in (
        (READER, {"get", "list"}),
        (SUBMITTER, {"create"}),
        (MANAGER, {"update", "delete"}),
    ):
        told = (await door.call_as(token, "GET", "/v1/access")).json()
        assert (may(told), told["workers"]) == (verbs, {"patch": False})
    everything = await door.told("GET", "/v1/access")
    assert (everything["name"], everything["namespace"]) == ("tests", door.namespace)
    assert len(may(everything)) == 5
    assert everything["workers"]["patch"]
    assert (await door.call_as("unknown", "GET", "/v1/access")).status_code == 401


async def test_a_worker_that_drains_takes_none(door: Door) -> None:
    stream = await door.queue.open_stream(a_stream(door))
    stream.drain()
    await door.submitted(type="mail")
    await aged(door, 30)
    told = await door.told("GET", "/v1/verdict")
    assert told["sentence"].startswith("Stuck: every worker that handles mail drains, and 1 job")
    assert (await door.told("GET", "/v1/workers"))["workers"][0]["draining"]
    await stream.close()


async def test_a_wrong_clock_makes_no_worker_silent(door: Door) -> None:
    await door.backend.open_session(
        WorkerSession(
            session_id=f"elsewhere-{door.namespace}",
            namespace=door.namespace,
            worker_name="other-1",
            capacity=5,
        )
    )
    await door.submitted(type="mail")
    await aged(door, 30)
    watch = Watch(door.queue, lambda: utc_now() + timedelta(minutes=2))
    verdict, situation = await watch.verdict(door.namespace)
    assert (verdict.level, verdict.causes, situation.slots) == (Level.HEALTHY, (), 5)


async def test_other_namespaces_are_not_looked_at(door: Door) -> None:
    other = replace(door, namespace=f"{door.namespace}-other")
    await other.submitted(type="mail")
    await aged(other, 90)
    assert (await door.told("GET", "/v1/verdict"))["level"] == "HEALTHY"
    assert (await other.told("GET", "/v1/verdict"))["level"] == "STUCK"


async def test_messages_that_fail_are_told_of_where_verdicts_are(door: Door) -> None:
    hook = "https://receiver.example/jobs"
    for _ in range(5):
        job_id = await door.submitted(callback_url=hook, type="mail")
        await door.told("POST", f"/v1/jobs/{job_id}/cancel", {})
    store = door.backend.webhooks
    found = await store.claim("sender", limit=1000, per_receiver=1000, lease_s=60.0)
    mine = [one for one in found if one.namespace == door.namespace]
    state, error = MessageState.FAILED, "answered 410"
    await store.settle([Told(id=one.id, claim=one.claim, state=state, error=error) for one in mine])
    told = await door.told("GET", "/v1/verdict")
    sentence = "5 messages to callback URLs were given up, mostly https://receiver.example:443"
    assert (told["level"], told["sentence"]) == (
        "DEGRADED",
        f"Degraded: {sentence}: answered 410.",
    )
    [cause] = told["causes"]
    assert cause["code"] == "MESSAGES_FAIL"
    assert cause["runbook"] == "docs/runbooks/README.md#queueoperatorwebhooksfail"
    assert (await door.told("GET", "/v1/verdict", type="mail"))["level"] == "DEGRADED"
    assert (await door.told("GET", "/v1/verdict", type="other"))["causes"] == []
