"""`spec.suspend` of QueueJobs, at their creation and as it is edited."""

from typing import Any

from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.domain.states import JobState
from queue_operator.settings import Quota, QuotaSettings

ONE = Quota(pending_jobs=1)


def edit(body: dict[str, Any], suspend: bool | None) -> dict[str, Any]:
    """As `kubectl patch`; None takes the field away."""
    body["spec"].pop("suspend", None)
    if suspend is not None:
        body["spec"]["suspend"] = suspend
    body["metadata"]["generation"] += 1
    return body


async def claimed(stage: Stage, team: str) -> list[str]:
    return [job.id for job in await stage.backend.dequeue_jobs("w", [], 10, namespace=team)]


def suspended(stage: Stage, team: str, name: str = "job") -> dict[str, Any]:
    """The condition, without what other tests are about; empty where there is none."""
    status = stage.api.status(name, team)
    for condition in status.get("conditions", ()):
        if condition["type"] == "Suspended":
            told = {key: condition[key] for key in ("status", "reason", "observedGeneration")}
            return told | {"of_all": status["observedGeneration"], "why": status["reason"]}
    return {}


def held(generation: int, why: str = "Suspended") -> dict[str, Any]:
    told = {"status": "True", "reason": "JobSuspended", "observedGeneration": generation}
    return told | {"of_all": generation, "why": why}


def resumed(generation: int) -> dict[str, Any]:
    told = {"status": "False", "reason": "JobResumed", "observedGeneration": generation}
    return told | {"of_all": generation, "why": "Waiting"}


async def test_one_that_is_created_suspended_waits_until_it_is_resumed(
    start: StartStage, team: str
) -> None:
    stage = await start()
    body = stage.api.make("job", team, suspend=True)
    await stage.see(body)
    assert await claimed(stage, team) == []
    await stage.until(lambda: suspended(stage, team) == held(1))
    assert stage.api.status("job", team)["state"] == JobState.INITIAL_PENDING
    await stage.see(edit(body, False))
    await stage.until(lambda: suspended(stage, team) == resumed(2))
    assert await claimed(stage, team) == [body["metadata"]["uid"]]


async def test_it_may_change_at_any_time_in_both_directions(start: StartStage, team: str) -> None:
    stage = await start()
    body = stage.api.make("job", team)
    await stage.see(body)
    await stage.see(edit(body, True))
    assert await claimed(stage, team) == []
    await stage.until(lambda: suspended(stage, team) == held(2))
    # Without the field it is not suspended.
    await stage.see(edit(body, None))
    await stage.until(lambda: suspended(stage, team) == resumed(3))
    await stage.see(edit(body, True))
    await stage.until(lambda: suspended(stage, team) == held(4))
    await stage.see(edit(body, False))
    assert await claimed(stage, team) == [body["metadata"]["uid"]]


async def test_what_was_never_suspended_says_nothing_of_it(start: StartStage, team: str) -> None:
    stage = await start()
    await stage.see(stage.api.make("job", team, suspend=False))
    await stage.until(lambda: stage.api.status("job", team).get("reason") == "Waiting")
    assert suspended(stage, team) == {}


async def test_one_that_runs_goes_on_and_says_so(start: StartStage, team: str) -> None:
    stage = await start()
    body = stage.api.make("job", team)
    uid = body["metadata"]["uid"]
    await stage.see(body)
    assert await claimed(stage, team) == [uid]
    await stage.see(edit(body, True))
    await stage.until(lambda: suspended(stage, team) == held(2, "Running"))
    await stage.backend.complete_job(uid, b"", namespace=team)
    stage.writer.notice()
    await stage.until(lambda: stage.api.status("job", team).get("finished") is True)
    types = [one["type"] for one in stage.api.status("job", team)["conditions"]]
    assert types == ["Accepted", "Complete"]


async def test_what_was_edited_while_the_operator_was_down_is_made_up_for(
    start: StartStage, team: str
) -> None:
    stage = await start()
    halted, freed = stage.api.make("halted", team), stage.api.make("freed", team, suspend=True)
    await stage.see(halted, freed)
    edit(halted, True)
    edit(freed, False)
    again = await start()
    await again.see(halted, freed)
    await again.until(lambda: suspended(again, team, "halted") == held(2))
    await again.until(lambda: suspended(again, team, "freed") == resumed(2))
    assert await claimed(again, team) == [freed["metadata"]["uid"]]


async def test_one_over_its_quota_is_taken_in_as_it_is_by_then(
    start: StartStage, team: str
) -> None:
    stage = await start(QuotaSettings(namespaces={team: ONE}))
    first, second = stage.api.make("first", team, suspend=True), stage.api.make("second", team)
    await stage.see(first)
    # One that is suspended counts as one that waits.
    await stage.see(second)
    assert len(stage.deferred) == 1
    await stage.see(edit(second, True))
    await stage.see(edit(first, False))
    assert await claimed(stage, team) == [first["metadata"]["uid"]]
    await stage.later()
    assert await stage.stored(team) == 1
    assert await claimed(stage, team) == []
    await stage.until(lambda: suspended(stage, team, "second") == held(2))


async def test_a_suspended_one_is_cancelled_as_any(start: StartStage, team: str) -> None:
    stage = await start()
    body = stage.api.make("job", team, suspend=True)
    await stage.see(body)
    body["spec"]["cancel"] = True
    body["metadata"]["generation"] += 1
    await stage.see(body)
    stage.writer.notice()
    await stage.until(lambda: stage.api.status("job", team).get("finished") is True)
    assert stage.api.status("job", team)["state"] == JobState.UNSCHEDULED
    assert suspended(stage, team) == {}
