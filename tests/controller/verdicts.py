"""The ways in which an API server fails, as answers of the proxy before a real one."""

import json
from typing import Final

from aiohttp import web
from tests.controller.proxy import Away, Verdict


def refuse(status: int, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": status, "message": message}
    return web.json_response(body, status=status, headers=headers)


def fine(request: web.Request) -> web.Response | None:
    return None


def unavailable(request: web.Request) -> web.Response | None:
    return refuse(503, "apiserver is shutting down")


def overloaded(request: web.Request) -> web.Response | None:
    return refuse(429, "too many requests", **{"Retry-After": "1"})


def leader_changed(request: web.Request) -> web.Response | None:
    return refuse(500, "etcdserver: leader changed")


def away(request: web.Request) -> web.Response | None:
    raise Away


def expired_lists(request: web.Request) -> web.Response | None:
    """Lists begin, and cannot go on."""
    gone = "continue" in request.query
    return refuse(410, "The provided continue parameter is too old") if gone else None


def broken_watches(status: int) -> Verdict:
    """Watches are opened, and hold an error."""

    def verdict(request: web.Request) -> web.Response | None:
        if "watch" not in request.query:
            return None
        status_body = {"kind": "Status", "code": status, "message": "it went wrong"}
        event = json.dumps({"type": "ERROR", "object": status_body})
        return web.Response(text=event + "\n", content_type="application/json")

    return verdict


VERDICTS: Final[dict[str, Verdict]] = {
    "503": unavailable,
    "429": overloaded,
    "leader change": leader_changed,
    "absence": away,
    "410 on a continue token": expired_lists,
    "a watch with 500": broken_watches(500),
    "a watch with 429": broken_watches(429),
    "a watch with 410": broken_watches(410),
    "cut watches": fine,
}
