"""A QueueJob that comes back from a backup, or is applied again, runs no job twice."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event

Body = dict[str, Any]
Step = Callable[[Stage, Body], Awaitable[None]]


def uid_of(body: Body) -> str:
    return str(body["metadata"]["uid"])


def team_of(body: Body) -> str:
    return str(body["metadata"]["namespace"])


async def shown(stage: Stage, body: Body) -> None:
    await stage.see(body)


async def claimed(stage: Stage, body: Body) -> None:
    await stage.take(team_of(body), 1)


async def ended(stage: Stage, body: Body) -> None:
    await stage.backend.complete_job(uid_of(body), b"", namespace=team_of(body))


async def failed(stage: Stage, body: Body) -> None:
    error = ErrorInfo("no such user", ErrorCategory.PERMANENT)
    outcome = Outcome(uid_of(body), Event.EXHAUST, namespace=team_of(body), error=error)
    [settled] = await stage.backend.settle([outcome])
    assert settled.error is None


async def told(stage: Stage, body: Body) -> None:
    stage.writer.notice()
    await stage.until(lambda: bool(body["status"].get("finished")))


async def deleted(stage: Stage, body: Body) -> None:
    """The job, by retention or by hand, and not its resource."""
    assert await stage.backend.delete_jobs((), [uid_of(body)], namespace=team_of(body)) == 1


async def removed(stage: Stage, body: Body) -> None:
    """The resource."""
    stage.api.objects.pop((team_of(body), "job"), None)
    await stage.see(body, gone=True)


LIVES: dict[str, list[Step]] = {
    "waits": [shown],
    "runs": [shown, claimed],
    "ended": [shown, claimed, ended],
    "failed": [shown, claimed, failed],
    "ended, and says so": [shown, claimed, ended, told],
    "ended, deleted": [shown, claimed, ended, deleted],
    "failed, deleted": [shown, claimed, failed, deleted],
    "ended, says so, deleted": [shown, claimed, ended, told, deleted],
    "removed while it waits": [shown, removed],
    "removed while it runs": [shown, claimed, removed],
    "ended, removed": [shown, claimed, ended, removed],
    "ended, says so, removed": [shown, claimed, ended, told, removed],
    "ended, says so, removed, deleted": [shown, claimed, ended, told, removed, deleted],
    "ended, removed, deleted": [shown, claimed, ended, removed, deleted],
}
CONDITION = {"failed": "Failed", "removed while it waits": "Cancelled"}


async def lived(stage: Stage, team: str, steps: list[Step]) -> tuple[Body, list[Body]]:
    """A QueueJob after these steps, and what a backup held of it before each and at last."""
    body = stage.api.make("job", team)
    backups = []
    for step in steps:
        backups.append(copy.deepcopy(body))
        await step(stage, body)
    return body, [*backups, copy.deepcopy(body)]


async def waiting(stage: Stage, team: str) -> int:
    """How many jobs could be claimed once more."""
    return await stage.stored(team)


def restore(stage: Stage, backup: Body) -> Body:
    """As a snapshot of etcd brings it back: the same uid, and the status of then."""
    body = copy.deepcopy(backup)
    stage.api.objects[team_of(body), "job"] = body
    return body


@pytest.mark.parametrize("life", LIVES)
async def test_one_that_is_restored_runs_no_second_time(
    start: StartStage, team: str, life: str
) -> None:
    stage = await start()
    _, backups = await lived(stage, team, LIVES[life])
    before = await waiting(stage, team)
    for backup in backups:
        again = await start()
        body = restore(again, backup)
        if body["status"].get("finished"):
            continue
        await again.see(body)
        assert await waiting(again, team) == before, backup["status"]


@pytest.mark.parametrize("life", [name for name in LIVES if "deleted" in name])
async def test_one_whose_job_was_deleted_gets_its_end_without_it(
    start: StartStage, team: str, life: str
) -> None:
    stage = await start()
    _, backups = await lived(stage, team, LIVES[life])
    again = await start()
    body = restore(again, backups[0])
    await again.see(body)
    await again.until(lambda: bool(body["status"].get("finished")))
    kind = "Failed" if "failed" in life else "Complete"
    found = {c["type"]: c["status"] for c in body["status"]["conditions"]}
    expected = {"Accepted": "True", kind: "True"}
    assert found == expected | ({"Stalled": "True"} if kind == "Failed" else {})
    assert body["status"]["phase"] == ("FAILED" if kind == "Failed" else "COMPLETED")
    assert "deleted" in body["status"]["message"]
    with pytest.raises(JobNotFound):
        await again.backend.get_job(uid_of(body), namespace=team)


@pytest.mark.parametrize("life", [name for name in LIVES if not name.endswith("deleted")])
async def test_one_that_is_applied_again_under_its_key_shows_the_first_job(
    start: StartStage, team: str, life: str
) -> None:
    """As Velero or GitOps bring it back: another uid, and no status."""
    stage = await start()
    body = stage.api.make("job", team, idempotencyKey="once")
    for step in LIVES[life]:
        await step(stage, body)
    before = await waiting(stage, team)
    again = await start()
    second = again.api.make("again", team, idempotencyKey="once")
    await again.see(second)
    await again.intake.stand_ins.once()
    assert await waiting(again, team) == before
    await again.until(lambda: "jobId" in second["status"])
    assert second["status"]["jobId"] == uid_of(body)
    shown_state = (await again.backend.get_job(uid_of(body), namespace=team)).state
    assert second["status"]["state"] == shown_state
