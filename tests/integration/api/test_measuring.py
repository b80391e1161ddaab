"""Requests by rate, errors and duration, as a real server counts them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pytest_asyncio import fixture
from tests.integration.api.door import TOKEN, Door
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key
from tests.waiting import until

from queue_operator.api.app import create_app
from queue_operator.api.measuring import Measured
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.domain.errors import QueueError
from queue_operator.metrics.doors import HttpFigures
from queue_operator.settings import Settings

REQUESTS = "queueoperator_http_requests_total"
SECONDS = "queueoperator_http_request_seconds"
IN_FLIGHT = key("queueoperator_http_requests_in_flight")
JOBS = "/v1/jobs"


@dataclass
class Counted:
    http: httpx.AsyncClient
    registry: CollectorRegistry

    def requests(self) -> dict[tuple[str, str, str], float]:
        """By method, route and code."""
        return {
            (labels["method"], labels["route"], labels["code"]): value
            for (name, given), value in exposition.of(self.registry).items()
            if name == REQUESTS and (labels := dict(given))
        }

    def in_flight(self) -> float:
        return exposition.of(self.registry)[IN_FLIGHT]


@fixture(loop_scope="session")
async def counted(house: Door, settings: Settings) -> AsyncIterator[Counted]:
    registry = CollectorRegistry()
    app = create_app(house.queue, *build(settings.auth), settings)
    server = RestServer(Measured(app, HttpFigures(registry)), settings.rest)
    await server.start()
    async with httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
    ) as http:
        yield Counted(http, registry)
    await server.stop()


async def test_each_request_is_counted_under_the_template_of_its_path(
    counted: Counted, door: Door
) -> None:
    http, where = counted.http, {"namespace": door.namespace}
    for _ in range(2):
        job = {"type": "mail", "payload": 1}
        answer = await http.post(JOBS, params=where, json=job)
        assert answer.status_code == 201, answer.text
    job_id = answer.json()["job_id"]
    await http.get(f"{JOBS}/{job_id}", params=where)
    await http.get(f"{JOBS}/absent%2Fid", params=where)
    await http.get(f"{JOBS}/{job_id}", params=where, headers={"Authorization": "Bearer x"})
    assert counted.requests() == {
        ("POST", JOBS, "201"): 2,
        ("GET", f"{JOBS}/{{job_id}}", "200"): 1,
        ("GET", f"{JOBS}/{{job_id}}", "404"): 1,
        ("GET", f"{JOBS}/{{job_id}}", "401"): 1,
    }
    found = exposition.of(counted.registry)
    assert found[key(f"{SECONDS}_count", method="POST", route=JOBS)] == 2
    assert 0 < found[key(f"{SECONDS}_sum", method="POST", route=JOBS)] < 60
    assert counted.in_flight() == 0


async def test_nothing_that_a_caller_made_up_is_a_label(counted: Counted, door: Door) -> None:
    http = counted.http
    await http.get("/v1/secret-path/4711", params={"secret": "query"})
    await http.get("/")
    await http.request("PROPFIND", JOBS)
    await http.delete(JOBS)
    await http.get("/v1/openapi.json")
    assert counted.requests() == {
        ("GET", "unmatched", "404"): 2,
        ("other", JOBS, "405"): 1,
        ("DELETE", JOBS, "405"): 1,
        ("GET", "/v1/openapi.json", "200"): 1,
    }
    assert "secret" not in str(exposition.of(counted.registry))


async def test_a_request_is_in_flight_until_its_answer_has_ended() -> None:
    """A stream counts when it ends, and by then with its code and all its time."""
    registry, now_s = CollectorRegistry(), [0.0]
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stream(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        begun.set()
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"x"})  # type: ignore[operator]

    measured = Measured(stream, HttpFigures(registry), lambda: now_s[-1])
    server = RestServer(measured, Settings(rest={"host": "127.0.0.1", "port": 0}).rest)
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as http:
        answering = asyncio.create_task(http.get("/"))
        await begun.wait()
        under_way = exposition.of(registry)
        assert under_way[IN_FLIGHT] == 1
        assert not [name for name, _ in under_way if name == REQUESTS]
        now_s.append(7.0)
        go_on.set()
        assert (await answering).content == b"x"
    await server.stop()
    found = exposition.of(registry)
    assert found[IN_FLIGHT] == 0
    assert found[key(REQUESTS, method="GET", route="unmatched", code="200")] == 1
    assert found[key(f"{SECONDS}_sum", method="GET", route="unmatched")] == 7


@pytest.mark.parametrize("broken", [ValueError("a fault"), asyncio.CancelledError()])
async def test_a_request_without_an_answer_is_counted_too(broken: BaseException) -> None:
    registry = CollectorRegistry()

    async def fail(*_: object) -> None:
        raise broken

    with pytest.raises(type(broken)):
        await Measured(fail, HttpFigures(registry))(
            {"type": "http", "method": "GET"},
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
        )
    found = exposition.of(registry)
    assert found[key(REQUESTS, method="GET", route="unmatched", code="none")] == 1
    assert found[IN_FLIGHT] == 0


async def test_a_fault_of_the_server_is_counted_as_such(counted: Counted, door: Door) -> None:
    """It is told to the caller by a layer of the application: what is counted is outside of it."""
    with door.outage():
        answer = await counted.http.get(f"{JOBS}/x", params={"namespace": door.namespace})
    assert answer.status_code == 503
    assert counted.requests() == {("GET", f"{JOBS}/{{job_id}}", "503"): 1}
    await until(partial(_is_back, door))


async def _is_back(door: Door) -> bool:
    try:
        await door.queue.ping()
    except QueueError:
        return False
    return True
