"""What the controller's loops count for the metrics, as they do their work."""

import asyncio

import pytest
from tests.integration.controller.conftest import StartStage

from queue_operator.controller.figures import counting
from queue_operator.controller.kube import ApiError, KubeClient
from queue_operator.domain.errors import Unavailable


async def test_statuses_are_counted_by_what_became_of_them(start: StartStage, team: str) -> None:
    stage = await start()
    figures = stage.stats.figures
    wrong = stage.api.make("wrong", team, backoffPolicy={"type": "NONE", "delay": "x"})
    gone = stage.api.make("gone", team, backoffPolicy={"type": "NONE", "delay": "x"})
    stage.api.objects.pop((team, "gone"))
    await stage.see(wrong, gone)
    await stage.until(lambda: figures.status_written + figures.status_gone == 2)
    writes = figures.writes()
    assert writes == {"written": 1, "superseded": 0, "gone": 1, "refused": 0}
    # Shown as the writer comes to rest, which is a moment after it counted.
    await stage.until(lambda: figures.status_backlog == 0)
    assert figures.status_since_s == 0


async def test_a_status_that_cannot_be_written_waits_and_is_seen_to(
    start: StartStage, team: str
) -> None:
    stage = await start()
    figures = stage.stats.figures
    await stage.ownership.serve({team})
    before_s = asyncio.get_running_loop().time()
    stage.api.away = True
    await stage.see(stage.api.make("later", team, backoffPolicy={"type": "NONE", "delay": "x"}))
    await stage.until(lambda: stage.stats.status_retried > 0)
    assert figures.status_backlog == 1
    assert before_s <= figures.status_since_s <= asyncio.get_running_loop().time()
    stage.api.away = False
    await stage.until(lambda: figures.status_written == 1)
    await stage.until(lambda: figures.status_backlog == 0)


async def test_what_was_seen_is_behind_until_it_is_stored(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start()

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as outage:
        outage.setattr(stage.backend, "take_in", fail)
        for n in range(3):
            stage.intake.see(stage.api.make(f"j{n}", team), gone=False)
        assert stage.stats.figures.intake_backlog == 3
        await stage.until(lambda: stage.stats.store_retries > 0)
        assert stage.stats.figures.intake_backlog == 3
    waking = asyncio.create_task(stage.clock.skip())
    await stage.intake.caught_up()
    waking.cancel()
    await stage.until(lambda: stage.stats.figures.intake_backlog == 0)


async def test_leases_and_comparisons_are_told_of(start: StartStage, team: str) -> None:
    stage = await start()
    figures = stage.stats.figures
    await stage.ownership.serve({team, f"{team}-2"})
    assert figures.owned_namespaces == 2
    assert figures.compared_at_s == 0
    await stage.resync.once()
    assert figures.compared_at_s > 1.7e9
    assert figures.comparison_s == 0.0
    earlier = figures.compared_at_s
    stage.api.away = True
    with pytest.raises(ApiError, match="503"):
        await stage.resync.once()
    assert figures.compared_at_s == earlier


async def test_requests_of_the_controllers_own_client_are_counted(
    start: StartStage, team: str
) -> None:
    stage = await start()
    figures = stage.stats.figures
    async with KubeClient(stage.kube._credentials, traces=[counting(figures)]) as kube:
        with pytest.raises(ApiError):
            await kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{team}/leases/absent")
    assert figures.requests() == {"404": 1}
