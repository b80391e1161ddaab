"""QueueJobs, QueueWorkers and Leases as an API server keeps them: what is read of them and written
to them is counted.
"""

import asyncio
import json
import uuid
from collections import Counter
from typing import Any

from aiohttp import web
from kubernetes.client import Configuration

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import API
from queue_operator.crd.names import FINISHED_SELECTOR, QUEUE_JOB, QUEUE_WORKER

_OBJECTS = f"{API}/namespaces/{{namespace}}/{QUEUE_JOB.plural}/{{name}}"
_WORKERS = f"{API}/namespaces/{{namespace}}/{QUEUE_WORKER.plural}"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class ApiServer:
    """Behind `app`; the objects are made by the test, which is also their watch."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.forbidden: set[str] = set()
        """Namespaces in which nothing can be read."""
        self.absent: set[str] = set()
        """Namespaces that are not there."""
        self.hooked: set[str] = set()
        """Namespaces in which a webhook fails whatever Lease is written."""
        self.broken: set[str] = set()
        """Objects that cannot be read."""
        self.cut: set[str] = set()
        """Those whose body ends midway."""
        self.rejected: set[str] = set()
        """QueueWorkers whose status is refused."""
        self.leases: dict[str, dict[str, Any]] = {}
        """By namespace."""
        self.lease_writes: Counter[str] = Counter()
        self.workers: dict[tuple[str, str], dict[str, Any]] = {}
        self.worker_lists = 0
        self.deletes = asyncio.Event()
        """Set, unless whoever deletes one is to wait; `deletions` is set when somebody does."""
        self.deletes.set()
        self.deletions = asyncio.Event()
        self.worker_writes: Counter[str] = Counter()
        self.pages = 0
        self.happenings: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        """What the next watch is told, until None ends it."""
        self.away = False
        """Answers 503 to everything."""
        self._version = 0
        self.app = web.Application(middlewares=[self._if_there])
        router = self.app.router
        router.add_get(_OBJECTS, self._get)
        router.add_patch(f"{_OBJECTS}/status", self._write)
        router.add_get(f"{API}/{QUEUE_JOB.plural}", self._list)
        router.add_get(f"{_LEASES}/{{name}}", self._get_lease)
        router.add_post(_LEASES, self._create_lease)
        router.add_put(f"{_LEASES}/{{name}}", self._replace_lease)
        router.add_get(f"{API}/{QUEUE_WORKER.plural}", self._list_workers)
        router.add_get(f"{_WORKERS}/{{name}}", self._get_worker)
        router.add_post(_WORKERS, self._create_worker)
        router.add_delete(f"{_WORKERS}/{{name}}", self._delete_worker)
        router.add_patch(f"{_WORKERS}/{{name}}/status", self._write_worker)

    def make(
        self, name: str, namespace: str = "team", *, created: str = "", **spec: Any
    ) -> dict[str, Any]:
        body = {
            "metadata": {
                "uid": uuid.uuid4().hex,
                "name": name,
                "namespace": namespace,
                "generation": 1,
                "resourceVersion": self._next_version(),
                "creationTimestamp": created or "2026-01-01T00:00:00Z",
            },
            "spec": {"type": "t", "payload": 1, **spec},
            "status": {},
        }
        self.objects[namespace, name] = body
        return body

    def status(self, name: str, namespace: str = "team") -> dict[str, Any]:
        status: dict[str, Any] = self.objects[namespace, name]["status"]
        return status

    def accepted(self, name: str, namespace: str = "team") -> str:
        """Whether it is, and why."""
        [found] = [
            condition
            for condition in self.status(name, namespace).get("conditions", ())
            if condition["type"] == "Accepted"
        ] or [{"status": "Unknown", "reason": "Pending"}]
        return f"{found['status']} {found['reason']}"

    async def _get(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        self.reads[name] += 1
        if namespace in self.forbidden:
            return web.json_response({"message": "forbidden"}, status=403)
        if name in self.broken:
            return web.json_response({"message": "cannot be converted"}, status=500)
        if name in self.cut:
            return web.Response(text='{"metadata": ', content_type="application/json")
        body = self.objects.get((namespace, name))
        if body is None:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response(body)

    async def _write(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        test, change = await request.json()
        body = self.objects.get((namespace, name))
        if body is None or body["metadata"]["uid"] != test["value"]:
            return web.json_response({"message": "not found"}, status=404)
        body["status"] = change["value"]
        self.writes[name] += 1
        self.changed(body)
        return web.json_response(body)

    def changed(self, body: dict[str, Any]) -> None:
        """An object was: it is another version, and the watch is told if the job has ended."""
        body["metadata"]["resourceVersion"] = self._next_version()
        if body["status"].get("finished"):
            metadata = dict(body["metadata"])
            self.happenings.put_nowait({"type": "MODIFIED", "object": {"metadata": metadata}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        while (event := await self.happenings.get()) is not None:
            # What a list has shown already is not told again.
            if int(event["object"]["metadata"]["resourceVersion"]) > since:
                await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._watch(request)
        self.pages += 1
        finished = request.query.get("fieldSelector") == FINISHED_SELECTOR
        items = [
            body
            for body in self.objects.values()
            if body["status"].get("finished", False) == finished
        ]
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        metadata = {"resourceVersion": str(self._version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return web.json_response({"items": items[start : start + limit], "metadata": metadata})

    # Leases

    async def _get_lease(self, request: web.Request) -> web.Response:
        lease = self.leases.get(request.match_info["namespace"])
        return _not_found() if lease is None else web.json_response(lease)

    async def _create_lease(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        if namespace in self.leases:
            return web.json_response({"message": "already exists"}, status=409)
        return self._store_lease(namespace, await request.json())

    async def _replace_lease(self, request: web.Request) -> web.Response:
        namespace, body = request.match_info["namespace"], await request.json()
        stored = self.leases[namespace]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != stored:
            return web.json_response({"message": "the object has been modified"}, status=409)
        return self._store_lease(namespace, body)

    def _store_lease(self, namespace: str, body: dict[str, Any]) -> web.Response:
        if namespace in self.absent:
            self.lease_writes[namespace] += 1
            return _not_found()
        if namespace in self.forbidden:
            return web.json_response({"message": "leases is forbidden"}, status=403)
        if namespace in self.hooked:
            return web.json_response({"message": "failed calling webhook"}, status=500)
        body["metadata"]["resourceVersion"] = self._next_version()
        self.leases[namespace] = body
        self.lease_writes[namespace] += 1
        return web.json_response(body)

    # QueueWorkers

    async def _list_workers(self, request: web.Request) -> web.Response:
        self.worker_lists += 1
        return web.json_response({"items": list(self.workers.values()), "metadata": {}})

    async def _get_worker(self, request: web.Request) -> web.Response:
        body = self.workers.get(_key(request))
        return _not_found() if body is None else web.json_response(body)

    async def _create_worker(self, request: web.Request) -> web.Response:
        body = await request.json()
        metadata = body["metadata"]
        key = metadata["namespace"], metadata["name"]
        if key in self.workers:
            return web.json_response({"message": "already exists"}, status=409)
        metadata |= {"uid": uuid.uuid4().hex, "generation": 1}
        metadata["resourceVersion"] = self._next_version()
        self.workers[key] = body
        return web.json_response(body, status=201)

    async def _delete_worker(self, request: web.Request) -> web.Response:
        self.deletions.set()
        await self.deletes.wait()
        wanted = (await request.json())["preconditions"]
        body = self.workers.get(_key(request))
        if body is None:
            return _not_found()
        if any(body["metadata"][field] != value for field, value in wanted.items()):
            return web.json_response({"message": "the object has been modified"}, status=409)
        return web.json_response(self.workers.pop(_key(request)))

    async def _write_worker(self, request: web.Request) -> web.Response:
        body = self.workers.get(_key(request))
        test, change = await request.json()
        if body is None or body["metadata"]["uid"] != test["value"]:
            return _not_found()
        if body["metadata"]["name"] in self.rejected:
            return web.json_response({"message": "invalid"}, status=422)
        body["status"] = change["value"]
        body["metadata"]["resourceVersion"] = self._next_version()
        self.worker_writes[_key(request)[1]] += 1
        return web.json_response(body)

    @web.middleware
    async def _if_there(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.away:
            return web.json_response({"message": "the server is shutting down"}, status=503)
        answer: web.StreamResponse = await handler(request)
        return answer

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


def _key(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


def _not_found() -> web.Response:
    return web.json_response({"message": "not found"}, status=404)


def credentials(url: str) -> Credentials:
    """Of nobody, at `url`."""
    configuration = Configuration()
    configuration.host = url
    return Credentials(configuration)
