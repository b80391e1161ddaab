"""Two operators with databases of their own in one cluster: one queue per namespace."""

import pytest
from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.controller.ownership import (
    DURATION_S,
    IDLE_S,
    LEASE,
    REMIND_S,
    RENEW_S,
    SURE_S,
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
    ours, theirs = await start(queue_uid=OURS), await start(queue_uid=THEIRS)
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
