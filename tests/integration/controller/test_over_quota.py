"""QueueJobs of a namespace that is over its quota: refused for now, and tried again."""

from typing import Any

import pytest
from tests.integration.controller.conftest import StartStage

from queue_operator.domain.errors import JobNotFound, Unavailable
from queue_operator.domain.states import JobState
from queue_operator.settings import Quota, QuotaSettings

OVER = "False QuotaExceeded"


def quotas(namespace: str, **quota: Any) -> QuotaSettings:
    return QuotaSettings(namespaces={namespace: Quota(**quota)})


async def test_what_has_no_room_is_told_so_and_is_neither_stored_nor_finished(
    start: StartStage, team: str
) -> None:
    stage = await start(quotas(team, pending_jobs=2))
    bodies = [stage.api.make(f"j{n}", team) for n in range(4)]
    await stage.see(*bodies)
    await stage.until(lambda: stage.api.accepted("j3", team) == OVER)
    assert await stage.stored(team) == 2
    with pytest.raises(JobNotFound):
        await stage.backend.get_job(bodies[2]["metadata"]["uid"], namespace=team)
    status = stage.api.status("j2", team)
    assert status["finished"] is False
    assert status["reason"] == "QuotaExceeded"
    assert status["observedGeneration"] == 1
    [condition] = status["conditions"]
    assert condition["type"] == "Accepted"
    told = condition["message"]
    assert "pending_jobs: 2 of 2 used" in told
    assert "tried again" in told
    assert stage.stats.over_quota.value == 2


async def test_it_is_taken_in_once_there_is_room_the_first_to_come_first(
    start: StartStage, team: str
) -> None:
    stage = await start(quotas(team, pending_jobs=2))
    bodies = [stage.api.make(f"j{n}", team) for n in range(5)]
    await stage.see(*bodies)
    await stage.take(team, 1)
    # Somebody new stands behind those that wait, also where there is room by now.
    stage.clock.now_s += 0.5
    await stage.see(stage.api.make("new", team))
    assert await stage.stored(team) == 1
    await stage.later()
    uids = [body["metadata"]["uid"] for body in bodies]
    assert (await stage.backend.get_job(uids[2], namespace=team)).resource is not None
    assert await stage.stored(team) == 2
    assert list(stage.api.reads) == ["j2"]
    await stage.take(team, 2)
    await stage.later()
    assert list(stage.api.reads) == ["j2", "j3", "j4"]
    await stage.take(team, 2)
    await stage.later()
    assert list(stage.api.reads) == ["j2", "j3", "j4", "new"]
    assert len(stage.deferred) == 0
    await stage.backend.complete_job(uids[2], b"", namespace=team)
    stage.writer.notice()
    await stage.until(lambda: stage.api.accepted("j2", team) == "True Accepted")


async def test_waiting_costs_one_question_for_all_no_read_and_no_write(
    start: StartStage, team: str
) -> None:
    namespaces = [f"{team}-{n}" for n in range(20)]
    full = Quota(pending_jobs=1)
    stage = await start(QuotaSettings(namespaces=dict.fromkeys(namespaces, full)))
    bodies = [stage.api.make(f"j{n}", name) for n in range(30) for name in namespaces]
    await stage.see(*bodies)
    assert await stage.stored(*namespaces) == 20
    # In two or three batches.
    assert stage.backend.usage_looks <= 3
    assert stage.backend.uid_looks <= 3
    assert stage.stats.over_quota.value == 580

    def refusals_written() -> int:
        return stage.api.writes.total() - stage.api.writes["j0"]

    await stage.until(lambda: refusals_written() == 580)
    looks = stage.backend.usage_looks
    for n in range(10):
        await stage.later()
        assert stage.backend.usage_looks == looks + n + 1
    assert stage.api.reads.total() == 0
    assert refusals_written() == 580
    # What is seen again, such as the status that was written, is nothing new.
    await stage.see(*bodies)
    assert stage.backend.usage_looks == looks + 10
    assert refusals_written() == 580


async def test_nothing_is_asked_before_it_is_due(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(3)))
    await stage.take(team, 1)
    looks = stage.backend.usage_looks
    await stage.later(0.9)
    assert stage.backend.usage_looks == looks
    await stage.later(0.1)
    assert stage.api.reads.total() == 1


async def test_others_are_taken_in_as_ever(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    mixed = [stage.api.make(f"j{n}", name) for n in range(5) for name in (team, f"{team}-other")]
    await stage.see(*mixed)
    assert await stage.stored(f"{team}-other") == 5
    assert await stage.stored(team) == 1


async def test_where_no_quota_is_set_nothing_is_asked(start: StartStage, team: str) -> None:
    stage = await start(QuotaSettings(default=Quota(running_jobs=1)))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(5)))
    assert await stage.stored(team) == 5
    assert (stage.backend.usage_looks, stage.backend.uid_looks) == (0, 0)


async def test_after_a_restart_they_wait_again_and_nothing_is_written_again(
    start: StartStage, team: str
) -> None:
    stage = await start(quotas(team, pending_jobs=2))
    bodies = [stage.api.make(f"j{n}", team) for n in range(4)]
    await stage.see(*bodies)
    await stage.until(lambda: stage.api.accepted("j3", team) == OVER)
    await stage.take(team, 1)
    before = stage.api.writes.copy()
    again = await start(quotas(team, pending_jobs=2))
    # What is stored is neither refused nor counted, in whatever order it is listed.
    await again.see(*reversed(bodies))
    assert again.stats.taken_in == 1
    assert len(again.deferred) == 1
    assert bodies[0]["metadata"]["uid"] not in again.deferred
    await again.take(team, 2)
    await again.later()
    assert len(again.deferred) == 0
    for name in ("j2", "j3"):
        assert stage.api.writes[name] == before[name]


async def test_after_a_restart_the_oldest_goes_first(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    await stage.see(stage.api.make("first", team))
    # Listed by name.
    times = {"a": "2026-01-03", "b": "2026-01-01", "c": "2026-01-02"}
    bodies = [stage.api.make(n, team, created=f"{day}T00:00:00Z") for n, day in times.items()]
    await stage.see(*bodies)
    for read in (["b"], ["b", "c"], ["b", "c", "a"]):
        await stage.take(team, 1)
        await stage.later()
        assert list(stage.api.reads) == read


async def test_one_that_is_deleted_is_not_tried_again(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    bodies = [stage.api.make(f"j{n}", team) for n in range(5)]
    await stage.see(*bodies)
    # With an event, without one, on its way out, and replaced by another of the name.
    del stage.api.objects[team, "j1"]
    await stage.see(bodies[1], gone=True)
    del stage.api.objects[team, "j2"]
    bodies[3]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stage.api.make("j4", team)
    await stage.take(team, 1)
    await stage.later()
    assert dict(stage.api.reads) == {"j2": 1, "j3": 1, "j4": 1}
    assert len(stage.deferred) == 0
    assert await stage.stored(team) == 0
    # It may have gone between being read and being stored.
    assert await stage.intake.try_again([bodies[1]]) == {}
    assert await stage.stored(team) == 0
    await stage.later()
    assert stage.api.reads.total() == 3


async def test_one_that_is_to_be_cancelled_has_not_to_wait(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    bodies = [stage.api.make(f"j{n}", team) for n in range(3)]
    await stage.see(*bodies)
    bodies[2]["spec"]["cancel"] = True
    bodies[2]["metadata"]["generation"] = 2
    await stage.see(bodies[2])
    job = await stage.backend.get_job(bodies[2]["metadata"]["uid"], namespace=team)
    assert job.state is JobState.UNSCHEDULED
    assert len(stage.deferred) == 1
    stage.writer.notice()
    await stage.until(lambda: stage.api.status("j2", team).get("finished") is True)


async def test_a_rate_of_submissions_holds_for_them(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, submissions_per_s=0.01, submissions_burst=3))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(10)))
    assert await stage.stored(team) == 3
    await stage.until(lambda: stage.api.accepted("j9", team) == OVER)
    assert "submissions_per_s" in stage.api.status("j9", team)["message"]
    # The quota tells when to come again: not each second.
    await stage.later(14.0)
    assert stage.api.reads.total() == 0
    await stage.later(1.0)
    assert dict(stage.api.reads) == {"j3": 1}
    assert await stage.stored(team) == 3
    terms = {"rate_per_s": 0.01, "burst": 3.0}
    await stage.backend.return_tokens(f"submissions_per_s {team}", 2.0, **terms)
    await stage.later(15.0)
    assert await stage.stored(team) == 5
    # No more are read in vain than went in.
    assert stage.api.reads.total() <= 1 + 2 * 2 + 1


async def test_bytes_of_payload_count(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, payload_bytes_per_s=0.01, payload_bytes_burst=100))
    large = [stage.api.make(f"j{n}", team, payload="x" * 40) for n in range(4)]
    await stage.see(*large)
    assert await stage.stored(team) == 2
    await stage.until(lambda: stage.api.accepted("j3", team) == OVER)
    assert "payload_bytes_per_s" in stage.api.status("j2", team)["message"]


async def test_a_namespace_that_cannot_be_read_holds_up_no_other(
    start: StartStage, team: str
) -> None:
    closed = f"{team}-closed"
    both = dict.fromkeys([team, closed], Quota(pending_jobs=1))
    stage = await start(QuotaSettings(namespaces=both))
    await stage.see(*(stage.api.make(f"j{n}", name) for n in range(3) for name in both))
    stage.api.forbidden.add(closed)
    for name in both:
        await stage.take(name, 1)
    await stage.later()
    assert await stage.stored(team) == 1
    assert await stage.stored(closed) == 0
    stage.api.forbidden.clear()
    await stage.later()
    assert await stage.stored(closed) == 1


async def test_an_object_that_cannot_be_read_holds_up_none_of_its_namespace(
    start: StartStage, team: str
) -> None:
    stage = await start(quotas(team, pending_jobs=3))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(8)))
    stage.api.broken.add("j3")
    stage.api.cut.add("j5")
    await stage.take(team, 3)
    # Alone in front, it is put off; then those behind it come in until there is no more room.
    await stage.later()
    await stage.later()
    assert await stage.stored(team) == 3
    assert dict(stage.api.reads) == {"j3": 1, "j4": 1, "j5": 1, "j6": 1, "j7": 1}
    await stage.take(team, 3)
    stage.api.broken.clear()
    stage.api.cut.clear()
    await stage.later()
    assert await stage.stored(team) == 2
    assert len(stage.deferred) == 0


async def test_a_database_that_is_away_loses_nothing(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(3)))
    await stage.take(team, 1)
    with monkeypatch.context() as away:

        async def fail(*_: object, **__: object) -> None:
            raise Unavailable("away")

        away.setattr(stage.backend, "take_in", fail)
        with pytest.raises(Unavailable):
            await stage.later()
    await stage.later()
    assert await stage.stored(team) == 1
    assert len(stage.deferred) == 1


async def test_the_comparison_leaves_them_alone_and_forgets_those_that_are_gone(
    start: StartStage, team: str
) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    await stage.see(*(stage.api.make(f"j{n}", team) for n in range(4)))
    for _ in range(3):
        await stage.resync.once()
    assert stage.api.reads.total() == 0
    assert len(stage.deferred) == 3
    del stage.api.objects[team, "j1"]
    await stage.resync.once()
    assert len(stage.deferred) == 2


async def test_a_wrong_one_among_them_is_refused_for_good(start: StartStage, team: str) -> None:
    stage = await start(quotas(team, pending_jobs=1))
    bodies = [stage.api.make(f"j{n}", team) for n in range(3)]
    await stage.see(*bodies)
    bodies[1]["spec"]["payloadText"] = "both"
    await stage.take(team, 1)
    await stage.later()
    await stage.until(lambda: stage.api.status("j1", team).get("finished") is True)
    assert stage.api.accepted("j1", team) == "False InvalidRequest"
    # It takes no room.
    assert len(stage.deferred) == 0
    assert await stage.stored(team) == 1
