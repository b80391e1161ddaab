"""`spec.priority` is live: an edit moves the job that waits, whoever is there to see it."""

from typing import Any

from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.domain.job import Assignment, Demand
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event


def prioritise(body: dict[str, Any], priority: str) -> dict[str, Any]:
    """As `kubectl patch` does it."""
    body["spec"]["priority"] = priority
    body["metadata"]["generation"] += 1
    return body


async def next_of(stage: Stage, team: str) -> Assignment:
    demand = Demand(assignee_id="w", limit=1, namespace=team)
    [assignment] = await stage.backend.claim([demand], lease_ttl_s=60.0)
    return assignment


async def test_one_that_waits_goes_before_older_ones(start: StartStage, team: str) -> None:
    stage = await start()
    first, second = stage.api.make("first", team), stage.api.make("second", team)
    await stage.see(first, second)
    await stage.see(prioritise(second, "HIGH"))
    await stage.intake.priorities.once()
    assert len(stage.intake.priorities) == 0
    assert (await next_of(stage, team)).job_id == second["metadata"]["uid"]
    # And back.
    third = stage.api.make("third", team)
    await stage.see(third, prioritise(first, "LOW"))
    await stage.intake.priorities.once()
    assert (await next_of(stage, team)).job_id == third["metadata"]["uid"]


async def test_one_that_was_edited_while_nobody_looked(start: StartStage, team: str) -> None:
    stage = await start()
    first, second = stage.api.make("first", team), stage.api.make("second", team)
    await stage.see(first, second)
    prioritise(second, "HIGH")
    again = await start()
    await again.see(first, second)
    await again.intake.priorities.once()
    assert (await next_of(again, team)).job_id == second["metadata"]["uid"]


async def test_one_that_runs_has_it_once_it_waits_again(start: StartStage, team: str) -> None:
    stage = await start()
    running = stage.api.make("running", team)
    await stage.see(running)
    attempt = await next_of(stage, team)
    await stage.see(stage.api.make("older", team), prioritise(running, "CRITICAL"))
    await stage.intake.priorities.once()
    # Nothing of the attempt changes, and it is asked again.
    assert len(stage.intake.priorities) == 1
    back = Outcome(attempt.job_id, Event.HAND_BACK, namespace=team, token=attempt.token)
    [answer] = await stage.backend.settle([back])
    assert answer.error is None
    await stage.intake.priorities.once()
    assert len(stage.intake.priorities) == 0
    assert (await next_of(stage, team)).job_id == attempt.job_id
