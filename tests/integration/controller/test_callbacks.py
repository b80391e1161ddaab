"""QueueJobs with a callback URL, where the settings say that nobody calls any."""

from dataclasses import replace

import pytest
from tests.integration.controller.conftest import StartStage

from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.settings import Settings, WebhookSettings

OFF = Settings(webhooks=WebhookSettings(enabled=False)).to_limits()
URL = "https://receiver.example/jobs"


async def test_a_new_one_is_refused_and_told_which_field_it_is(
    start: StartStage, team: str
) -> None:
    stage = await start(limits=OFF)
    told = stage.api.make("told", team, callbackUrl=URL)
    await stage.see(told, stage.api.make("plain", team))
    await stage.until(lambda: bool(stage.api.status("told", team)))
    status = stage.api.status("told", team)
    [condition] = [one for one in status["conditions"] if one["type"] == "Accepted"]
    assert condition["message"].startswith("spec.callbackUrl: must be left out: ")
    assert "webhooks.enabled" in condition["message"]
    assert status["finished"] is True
    with pytest.raises(JobNotFound):
        await stage.backend.get_job(told["metadata"]["uid"], namespace=team)
    assert await stage.stored(team) == 1


async def test_one_that_was_taken_in_before_goes_on_and_follows_its_edits(
    start: StartStage, team: str
) -> None:
    stage = await start()
    body = stage.api.make("told", team, callbackUrl=URL, suspend=True)
    await stage.see(body)
    # As after a restart with other settings.
    later = await start(limits=replace(OFF, payload_bytes=DEFAULT_LIMITS.payload_bytes))
    body["spec"]["suspend"] = False
    body["metadata"]["generation"] += 1
    await later.see(body)
    assert later.stats.refused == 0
    [job] = await later.backend.dequeue_jobs("w", [], 10, namespace=team)
    assert job.id == body["metadata"]["uid"]
