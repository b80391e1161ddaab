"""`observedGeneration` follows the edits of QueueJobs, also of those that have ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.backends.ending import end_tasks
from queue_operator.controller.edits import FinishedEdits
from queue_operator.domain.states import JobState


@asynccontextmanager
async def followed(stage: Stage) -> AsyncIterator[None]:
    edits = FinishedEdits(stage.kube, stage.ownership, (), stage.clock, stage.stats)
    following = asyncio.create_task(edits.run())
    try:
        yield
    finally:
        stage.api.happenings.put_nowait(None)
        await end_tasks([following])


def edit(stage: Stage, body: dict[str, Any]) -> None:
    """As `kubectl patch` of something that may change."""
    body["spec"]["cancel"] = True
    body["metadata"]["generation"] += 1
    stage.api.changed(body)


async def completed(stage: Stage, team: str, name: str) -> dict[str, Any]:
    """A QueueJob whose job has ended, and whose status says so."""
    body = stage.api.make(name, team)
    await stage.see(body)
    await stage.take(team, 1)
    await stage.backend.complete_job(body["metadata"]["uid"], b"", namespace=team)
    stage.writer.notice()
    await stage.until(lambda: stage.api.status(name, team).get("finished") is True)
    return body


def generations(stage: Stage, team: str, name: str) -> set[int]:
    status = stage.api.status(name, team)
    return {
        status["observedGeneration"],
        *(condition["observedGeneration"] for condition in status["conditions"]),
    }


async def test_of_one_that_has_ended_and_nothing_else_changes(start: StartStage, team: str) -> None:
    stage = await start()
    body = await completed(stage, team, "job")
    await completed(stage, team, "other")
    before = stage.api.status("job", team)
    async with followed(stage):
        edit(stage, body)
        await stage.until(lambda: stage.stats.edits_observed == 1)
    assert generations(stage, team, "job") == {2}
    after = stage.api.status("job", team)
    changed = {"observedGeneration", "conditions"}
    assert {k: v for k, v in after.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }
    assert [c["type"] for c in after["conditions"]] == ["Accepted", "Complete"]
    # What nobody edited is not even read.
    assert dict(stage.api.reads) == {"job": 1}


async def test_of_one_that_was_edited_while_nobody_looked(start: StartStage, team: str) -> None:
    stage = await start()
    edit(stage, await completed(stage, team, "job"))
    again = await start()
    async with followed(again):
        await again.until(lambda: again.stats.edits_observed == 1)
        # Also where a status that was on its way is written after that.
        await again.until(lambda: generations(again, team, "job") == {2})
        body = again.api.objects[team, "job"]
        body["status"]["observedGeneration"] = 1
        again.api.changed(body)
        await again.until(lambda: again.stats.edits_observed >= 2)
        await again.until(lambda: generations(again, team, "job") == {2})


async def test_of_one_that_still_runs(start: StartStage, team: str) -> None:
    stage = await start()
    body = stage.api.make("job", team)
    await stage.see(body)
    await stage.take(team, 1)
    stage.writer.notice()
    await stage.until(lambda: stage.api.status("job", team).get("state") == JobState.RUNNING)
    # Taken back before anybody saw it: nothing of the job changes.
    body["metadata"]["generation"] = 3
    await stage.see(body)
    await stage.until(lambda: generations(stage, team, "job") == {3})
    assert stage.api.status("job", team)["state"] == JobState.RUNNING
    # Whoever starts anew sees that nothing is left to be told.
    again = await start()
    await again.see(body)
    assert again.backend.shown_looks == 0
