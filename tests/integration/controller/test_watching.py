"""kopf, as it is told to watch, before an API server that ends each watch after one event."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.client import Configuration
from tests.integration.controller.conftest import StartStage

from queue_operator.backends.ending import end_tasks
from queue_operator.controller import handlers
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.figures import counting
from queue_operator.controller.kube import API
from queue_operator.crd.names import GROUP, QUEUE_JOB, QUEUE_WORKER, VERSION

TOKEN = "Bearer of-a-test"


class Watched:
    """An API server with our kinds, in which one QueueJob at a time appears."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.shown = 0
        self.strangers = 0
        app = self.app = web.Application(middlewares=[self._known])
        app.router.add_get("/api", self._core)
        app.router.add_get("/api/v1", self._core_resources)
        app.router.add_get("/apis", self._groups)
        app.router.add_get(API, self._resources)
        app.router.add_get(f"{API}/{QUEUE_JOB.plural}", self._jobs)
        app.router.add_get(f"{API}/{QUEUE_WORKER.plural}", self._workers)

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != TOKEN:
            self.strangers += 1
            return web.json_response({}, status=401)
        found: web.StreamResponse = await handler(request)
        return found

    async def _core(self, _: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def _core_resources(self, _: web.Request) -> web.Response:
        return web.json_response({"resources": [_kind("namespaces", "Namespace")]})

    async def _groups(self, _: web.Request) -> web.Response:
        version = {"version": VERSION}
        group = {"name": GROUP, "preferredVersion": version, "versions": [version]}
        return web.json_response({"groups": [group]})

    async def _resources(self, _: web.Request) -> web.Response:
        kinds = [_kind(names.plural, names.kind) for names in (QUEUE_JOB, QUEUE_WORKER)]
        return web.json_response({"resources": kinds})

    async def _workers(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            # It stays open: nothing happens.
            await asyncio.get_running_loop().create_future()
        return _listed()

    async def _jobs(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return _listed()
        self.shown += 1
        name = f"j{self.shown}"
        metadata = {
            "uid": f"{self.namespace}-{name}",
            "name": name,
            "namespace": self.namespace,
            "generation": 1,
            "resourceVersion": str(1 + self.shown),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": QUEUE_JOB.kind,
            "metadata": metadata,
            "spec": {"type": "t", "payload": 1},
        }
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps({"type": "ADDED", "object": body}).encode() + b"\n")
        return response


def _kind(plural: str, kind: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    return {
        "name": plural,
        "singularName": plural[:-1],
        "kind": kind,
        "namespaced": plural != "namespaces",
        "verbs": verbs,
    }


def _listed() -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.fixture
async def watched(team: str) -> AsyncIterator[tuple[Watched, Credentials]]:
    server = Watched(team)
    async with TestServer(server.app) as running:
        configuration = Configuration()
        configuration.host = str(running.make_url(""))
        configuration.api_key["authorization"] = TOKEN
        yield server, Credentials(configuration)


async def test_what_is_watched_is_taken_in_and_each_request_is_counted(
    start: StartStage, team: str, watched: tuple[Watched, Credentials]
) -> None:
    stage = await start()
    server, credentials = watched
    figures, ready = stage.stats.figures, asyncio.Event()
    watching = asyncio.create_task(
        handlers.watch(stage.intake, stage.workers, credentials, (), ready, [counting(figures)])
    )
    try:
        await stage.until(lambda: stage.stats.taken_in >= 3 or watching.done())
    finally:
        await end_tasks([watching])
    assert server.strangers == 0
    assert ready.is_set()
    # The first watch of a kind is no restart, and neither are lists and what is asked before.
    assert figures.restarts()["queuejobs"] >= server.shown - 1 >= 2
    assert figures.restarts()["queueworkers"] == 0
    assert figures.requests()["200"] >= server.shown + 5
