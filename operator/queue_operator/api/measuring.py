"""Counts each request when its answer has ended, by the template of its path: no path, id or query
is a label.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queue_operator.metrics.doors import UNMATCHED, HttpFigures

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "other"
_NO_ANSWER: Final = "none"


class Measured:
    """Around the whole application, whose routes it knows, so that nothing of an answer comes
    later.
    """

    def __init__(
        self,
        app: ASGIApp,
        figures: HttpFigures,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._figures = figures
        self._monotonic = monotonic
        self._templates = _Templates(getattr(app, "routes", ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        code = _NO_ANSWER

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        started_s = self._monotonic()
        self._figures.began()
        try:
            await self._app(scope, receive, noting)
        finally:
            method = scope["method"]
            self._figures.ended(
                method if method in _METHODS else _OTHER,
                self._templates.of(scope),
                code,
                self._monotonic() - started_s,
            )


class _Templates:
    """Of the paths that an application serves."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._plain: set[str] = set()
        self._by_endpoint: dict[Any, str] = {}
        for route in routes:
            template = getattr(route, "path_format", "") or getattr(route, "path", "")
            endpoint = getattr(route, "endpoint", None) or getattr(route, "app", None)
            if "{" not in template:
                self._plain.add(template)
            self._by_endpoint.setdefault(endpoint, template)

    def of(self, scope: Scope) -> str:
        """By the endpoint, which the router has put there by now. The router of FastAPI does not
        say which route it took.
        """
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return UNMATCHED
        path: str = scope["path"]
        return path if path in self._plain else self._by_endpoint.get(endpoint, UNMATCHED)
