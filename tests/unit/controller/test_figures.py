"""What the controller's process counts of itself."""

import math
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from queue_operator.controller.figures import CODES, Figures, counting
from queue_operator.controller.vitals import Vitals
from queue_operator.crd.names import FINISHED_SELECTOR, UNFINISHED_SELECTOR
from queue_operator.metrics.replica_table import LAG_BUCKETS_S


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def respond(request: web.Request) -> web.Response:
        return web.Response(status=int(request.query.get("code", 200)))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    running = TestServer(app)
    async with running:
        yield running


@pytest.fixture
def figures() -> Figures:
    return Figures()


@pytest.fixture
async def client(server: TestServer, figures: Figures) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        base_url=server.make_url("/"), trace_configs=[counting(figures)]
    ) as session:
        yield session


async def test_requests_are_counted_by_what_was_answered(
    client: aiohttp.ClientSession, figures: Figures
) -> None:
    for code in ("200", "200", "404", "429", "418"):
        async with client.get("/x", params={"code": code}):
            pass
    assert figures.requests() == {"200": 2, "404": 1, "429": 1, "other": 1}
    assert figures.throttled() == 1
    assert len(set(CODES)) == len(CODES)


async def test_no_answer_is_counted_too(figures: Figures) -> None:
    async with aiohttp.ClientSession(trace_configs=[counting(figures)]) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get("http://127.0.0.1:1/x")
    assert figures.requests() == {"none": 1}


async def test_a_watch_that_begins_again_is_counted_under_what_it_watches(
    client: aiohttp.ClientSession, figures: Figures
) -> None:
    async def watch(path: str, selector: str = "") -> None:
        async with client.get(path, params={"watch": "true", "fieldSelector": selector}):
            pass

    await watch("/apis/g/v1/queuejobs", UNFINISHED_SELECTOR)
    await watch("/apis/g/v1/queuejobs", FINISHED_SELECTOR)
    await watch("/apis/g/v1/namespaces/a/queueworkers")
    await watch("/apis/g/v1/namespaces/b/queueworkers")
    async with client.get("/apis/g/v1/queuejobs"):
        pass
    assert set(figures.restarts().values()) == {0}
    await watch("/apis/g/v1/queuejobs", UNFINISHED_SELECTOR)
    await watch("/apis/g/v1/queuejobs", FINISHED_SELECTOR)
    await watch("/apis/g/v1/queuejobs", FINISHED_SELECTOR)
    await watch("/apis/g/v1/namespaces/b/queueworkers")
    for _ in range(2):
        await watch("/api/v1/namespaces")
    assert figures.restarts() == {
        "queuejobs": 1,
        "finished_queuejobs": 2,
        "queueworkers": 1,
        "other": 1,
    }


def test_a_new_process_goes_on_counting_and_knows_nothing_of_now() -> None:
    vitals = Vitals()
    figures = vitals.figures
    figures.status_written = 3
    figures.asked("200")
    figures.watched_again("queuejobs")
    figures.observe_lag(0.5)
    figures.compared(1.5)
    figures.status_backlog = figures.intake_backlog = figures.owned_namespaces = 4
    figures.status_since_s = 5.0
    vitals.begin()
    assert (figures.status_backlog, figures.intake_backlog, figures.owned_namespaces) == (0, 0, 0)
    assert figures.status_since_s == 0
    assert figures.writes()["written"] == 3
    assert figures.requests() == {"200": 1}
    assert figures.restarts()["queuejobs"] == 1
    assert sum(figures.lag_counts) == 1
    assert figures.comparison_s == 1.5
    assert figures.compared_at_s > 1.7e9


@pytest.mark.parametrize("at", range(len(LAG_BUCKETS_S)))
def test_a_bucket_includes_its_bound(figures: Figures, at: int) -> None:
    figures.observe_lag(LAG_BUCKETS_S[at])
    figures.observe_lag(math.nextafter(LAG_BUCKETS_S[at], math.inf))
    assert (figures.lag_counts[at], figures.lag_counts[at + 1]) == (1, 1)
    assert figures.lag_total_s == pytest.approx(2 * LAG_BUCKETS_S[at])
