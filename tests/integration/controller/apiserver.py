"""QueueJobs as an API server keeps them: what is read of them and written to them is counted."""

import uuid
from collections import Counter
from typing import Any

from aiohttp import web
from kubernetes.client import Configuration

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import API
from queue_operator.crd.names import QUEUE_JOB

_OBJECTS = f"{API}/namespaces/{{namespace}}/{QUEUE_JOB.plural}/{{name}}"


class ApiServer:
    """Behind `app`; the objects are made by the test, which is also their watch."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.forbidden: set[str] = set()
        """Namespaces in which nothing can be read."""
        self.broken: set[str] = set()
        """Objects that cannot be read."""
        self.cut: set[str] = set()
        """Those whose body ends midway."""
        self.app = web.Application()
        self.app.router.add_get(_OBJECTS, self._get)
        self.app.router.add_patch(f"{_OBJECTS}/status", self._write)
        self.app.router.add_get(f"{API}/{QUEUE_JOB.plural}", self._list)

    def make(
        self, name: str, namespace: str = "team", *, created: str = "", **spec: Any
    ) -> dict[str, Any]:
        body = {
            "metadata": {
                "uid": uuid.uuid4().hex,
                "name": name,
                "namespace": namespace,
                "generation": 1,
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
        return web.json_response(body)

    async def _list(self, request: web.Request) -> web.Response:
        items = [
            body for body in self.objects.values() if not body["status"].get("finished", False)
        ]
        return web.json_response({"items": items, "metadata": {}})


def credentials(url: str) -> Credentials:
    """Of nobody, at `url`."""
    configuration = Configuration()
    configuration.host = url
    return Credentials(configuration)
