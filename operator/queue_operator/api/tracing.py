"""Gives every request an id, and every surprise an answer that carries it."""

import logging
import re
import uuid
from typing import Final

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queue_operator.api.answering import respond
from queue_operator.api.errors import INTERNAL_ERROR, OURS

log = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = "x-request-id"
_ACCEPTED_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestTracing:
    """Outermost layer: takes over the caller's `x-request-id` or makes one, sends it back,
    and turns an unexpected exception into a 500 that shows no more than that id.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request_id = _request_id(request)
        scope["request_id"] = request_id
        # As it was sent, with its escapes: an id may hold slashes.
        scope["path"] = scope.get("raw_path", b"").decode("ascii", "replace") or scope["path"]
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s: %s %s failed", request_id, request.method, request.url.path)
            if started:
                raise
            answer = respond(request, 500, INTERNAL_ERROR, OURS[500])
            await answer(scope, receive, send_with_id)


def _request_id(request: Request) -> str:
    given = request.headers.get(REQUEST_ID_HEADER, "")
    return given if _ACCEPTED_ID.fullmatch(given) else uuid.uuid4().hex
