"""Two operators with databases of their own in one cluster: one queue per namespace."""

import asyncio

import pytest
from tests.integration.controller.conftest import Stage, StartStage
from tests.waiting import DEADLINE_S

from queue_operator.controller.ownership import (
    DURATION_S,
    FAILING_S,
    IDLE_S,
    LEASE,
    REMIND_S,
    RENEW_S,
    SURE_S,
    Ownership,
)
from queue_operator.domain.errors import Unavailable

OURS, THEIRS = "queue-ours", "queue-theirs"


def holder(stage: Stage, namespace: str) -> str:
    return str(stage.api.leases[namespace]["spec"]["holderIdentity"])


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]


async def test_the_second_leaves_the_namespace_alone_and_says_so_once(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = await start(queue_uid=OURS), await start(queue_uid=THEIRS)
    bodies = [ours.api.make(f"j{n}", team) for n in range(3)]
    await ours.see(*bodies[:2])
    await theirs.see(*bodies)
    assert await ours.stored(team) == 2
    assert (ours.stats.taken_in, theirs.stats.taken_in) == (2, 0)
    assert holder(ours, team) == OURS
    assert (ours.stats.refused_namespaces.value, theirs.stats.refused_namespaces.value) == (0, 1)
    for _ in range(int(REMIND_S / RENEW_S) - 1):
        theirs.clock.now_s += RENEW_S
        await ours.ownership.once()
        await theirs.ownership.once()
        await theirs.resync.once()
    [said] = complaints(caplog)
    assert team in said
    assert OURS in said
    assert "two-operators-in-one-cluster" in said
    assert theirs.stats.taken_in == 0
    assert holder(ours, team) == OURS


async def test_other_namespaces_are_served(start: StartStage, team: str) -> None:
    ours, theirs = await start(queue_uid=OURS), await start(queue_uid=THEIRS)
    await ours.see(ours.api.make("a", team))
    await theirs.see(ours.api.make("b", team), ours.api.make("c", f"{team}-other"))
    assert await ours.stored(team) == 1
    assert await ours.stored(f"{team}-other") == 1
    assert holder(ours, f"{team}-other") == THEIRS


async def test_a_replica_on_the_same_database_may_serve_it_too(
    start: StartStage, team: str
) -> None:
    first, second = await start(queue_uid=OURS), await start(queue_uid=OURS)
    await first.see(first.api.make("a", team))
    await second.see(first.api.make("b", team))
    assert await first.stored(team) == 2
    for stage in (first, second, first):
        await stage.ownership.once()
        assert stage.ownership.owns(team)


async def test_what_is_not_renewed_is_taken_over_and_what_was_left_alone_is_served(
    start: StartStage, team: str
) -> None:
    ours, theirs = await start(queue_uid=OURS), await start(queue_uid=THEIRS, named={team})
    await ours.ownership.serve({team})
    await theirs.see(theirs.api.make("a", team))
    theirs.clock.now_s += DURATION_S
    await ours.ownership.once()
    await theirs.ownership.once()
    theirs.clock.now_s += DURATION_S
    await theirs.ownership.once()
    assert not theirs.ownership.owns(team)
    theirs.clock.now_s += 1
    await theirs.ownership.once()
    assert theirs.ownership.owns(team)
    assert holder(ours, team) == THEIRS
    await theirs.resync.once()
    await theirs.intake.caught_up()
    assert await theirs.stored(team) == 1
    # Whoever had it finds that out, and gives it up.
    await ours.ownership.once()
    assert not ours.ownership.owns(team)


async def test_who_serves_all_namespaces_takes_none_from_a_queue_that_is_down(
    start: StartStage, team: str
) -> None:
    """It would run all again that the other has not finished."""
    ours, theirs = await start(queue_uid=OURS), await start(queue_uid=THEIRS)
    await ours.ownership.serve({team})
    await theirs.see(theirs.api.make("a", team))
    for _ in range(3):
        theirs.clock.now_s += DURATION_S + 1
        await theirs.resync.once()
        await theirs.ownership.once()
    assert not theirs.ownership.owns(team)
    assert await theirs.stored(team) == 0
    # Whoever knows that it is gone for good says so.
    del theirs.api.leases[team]
    await theirs.ownership.once()
    assert theirs.ownership.owns(team)


async def test_who_cannot_renew_it_stops_before_another_may_take_it(
    start: StartStage, team: str
) -> None:
    stage = await start(queue_uid=OURS)
    assert await stage.ownership.serve({team}) == {team}
    stage.api.away = True
    stage.clock.now_s += SURE_S - 1
    with pytest.raises(Unavailable):
        await stage.ownership.once()
    assert stage.ownership.owns(team)
    stage.clock.now_s += 1
    assert SURE_S < DURATION_S
    assert not stage.ownership.owns(team)
    with pytest.raises(Unavailable):
        await stage.ownership.serve({team})
    stage.api.away = False
    assert await stage.ownership.serve({team}) == {team}


async def test_a_missing_right_is_named(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(queue_uid=OURS)
    stage.api.forbidden.add(team)
    assert await stage.ownership.serve({team}) == frozenset()
    [said] = complaints(caplog)
    assert f"Lease {LEASE}" in said
    assert "grant `get`, `create` and `update` on leases.coordination.k8s.io" in said
    stage.api.forbidden.clear()
    await stage.ownership.once()
    assert stage.ownership.owns(team)
    assert stage.stats.refused_namespaces.value == 0


async def test_a_namespace_that_is_not_there_is_asked_for_once_a_minute(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(queue_uid=OURS)
    stage.api.absent.add(team)
    for _ in range(5):
        assert await stage.ownership.serve({team}) == frozenset()
    assert stage.api.lease_writes[team] == 1
    assert complaints(caplog) == []
    stage.api.absent.clear()
    stage.clock.now_s += RENEW_S
    assert await stage.ownership.serve({team}) == {team}


async def test_a_lease_costs_a_write_a_minute_while_somebody_needs_it(
    start: StartStage, team: str
) -> None:
    stage = await start(queue_uid=OURS)
    for _ in range(3):
        assert await stage.ownership.serve({team}) == {team}
    assert stage.api.lease_writes[team] == 1
    minutes = int(IDLE_S / RENEW_S)
    for _ in range(2 * minutes):
        stage.clock.now_s += RENEW_S
        await stage.ownership.once()
    assert stage.api.lease_writes[team] == 1 + minutes


async def test_what_is_compared_rarely_is_not_given_up_between(
    start: StartStage, team: str
) -> None:
    stage = await start(queue_uid=OURS)
    ownership = Ownership(stage.kube, OURS, (), stage.clock, stage.stats, resync_s=3600.0)
    assert await ownership.serve({team}) == {team}
    for _ in range(60):
        stage.clock.now_s += RENEW_S
        await ownership.once()
    assert ownership.owns(team)


async def test_a_namespace_in_which_no_lease_can_be_written_holds_up_no_other(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage, broken = await start(queue_uid=OURS), f"{team}-broken"
    stage.api.hooked.add(broken)
    stage.intake.see(stage.api.make("a", broken), gone=False)
    stage.intake.see(stage.api.make("b", team), gone=False)
    await stage.until(lambda: stage.stats.store_retries == 1)
    stage.clock.now_s += FAILING_S
    await stage.ownership.once()
    async with asyncio.timeout(DEADLINE_S):
        await stage.clock.skip()
        await stage.intake.caught_up()
    assert await stage.stored(team) == 1
    assert await stage.stored(broken) == 0
    [said] = complaints(caplog)
    assert broken in said
    assert "500: failed calling webhook" in said
    assert "mend what keeps the Lease" in said
    assert stage.stats.refused_namespaces.value == 1
    stage.api.hooked.clear()
    await stage.ownership.once()
    await stage.resync.once()
    await stage.intake.caught_up()
    assert await stage.stored(broken) == 1
    assert stage.stats.refused_namespaces.value == 0


async def test_a_lease_that_can_no_longer_be_renewed_counts_for_as_long_as_others_respect_it(
    start: StartStage, team: str
) -> None:
    stage, broken = await start(queue_uid=OURS), f"{team}-broken"
    assert await stage.ownership.serve({team, broken}) == {team, broken}
    stage.api.hooked.add(broken)
    for _ in range(2):
        stage.clock.now_s += RENEW_S
        with pytest.raises(Unavailable):
            await stage.ownership.once()
        assert stage.ownership.owns(broken)
    stage.clock.now_s += SURE_S - 2 * RENEW_S
    assert await stage.ownership.serve({team, broken}) == {team}


async def test_a_failure_of_long_ago_makes_nobody_give_up_at_the_next_one(
    start: StartStage, team: str
) -> None:
    stage, broken = await start(queue_uid=OURS), f"{team}-broken"
    for _ in range(2):
        stage.api.hooked.add(broken)
        with pytest.raises(Unavailable):
            await stage.ownership.serve({broken})
        stage.api.hooked.clear()
        for _ in range(3):
            stage.clock.now_s += RENEW_S
            assert await stage.ownership.serve({team}) == {team}
            await stage.ownership.once()


async def test_an_api_server_that_takes_no_lease_at_all_is_waited_for(
    start: StartStage, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(queue_uid=OURS)
    assert await stage.ownership.serve({team}) == {team}
    stage.api.away = True
    for _ in range(5):
        stage.clock.now_s += FAILING_S
        with pytest.raises(Unavailable):
            await stage.ownership.serve({f"{team}-new"})
    assert complaints(caplog) == []
    assert stage.stats.refused_namespaces.value == 0


def taken_over(stage: Stage, namespace: str, holder: str) -> None:
    """As another queue, or a user, would have left the Lease."""
    lease = stage.api.leases[namespace]
    lease["spec"]["holderIdentity"] = holder
    lease["metadata"]["resourceVersion"] += "0"


async def all_told(stage: Stage, namespace: str) -> None:
    """Returns when the feed has nothing more of the namespace."""
    stage.writer.notice()
    async with asyncio.timeout(DEADLINE_S):
        while namespace in {one.job.namespace for one in await stage.backend.pending_mirrors()}:
            pass


async def test_where_another_has_taken_over_statuses_tell_no_more_of_our_jobs(
    start: StartStage, team: str
) -> None:
    stage = await start(queue_uid=OURS)
    await stage.see(stage.api.make("a", team))
    taken_over(stage, team, THEIRS)
    await stage.ownership.once()
    assert not stage.ownership.owns(team)
    [job] = await stage.backend.dequeue_jobs("w", [], 1, namespace=team)
    await stage.backend.complete_job(job.id, b"1", namespace=team, token=job.token)
    await all_told(stage, team)
    assert stage.api.status("a", team) == {}
    # It is given back, and how the job ended was not forgotten.
    taken_over(stage, team, "")
    await stage.ownership.once()
    for _ in range(3):
        await stage.resync.once()
        await stage.intake.caught_up()
    await stage.until(lambda: bool(stage.api.status("a", team).get("finished")))
    assert stage.api.status("a", team)["state"] == "COMPLETED"
