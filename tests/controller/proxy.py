"""A proxy before the real API server that now and then says no, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from queue_operator.controller.credentials import Credentials

Verdict = Callable[[web.Request], web.Response | None]
"""The answer to give instead of the API server's, None to pass the request on. May raise Away."""


class Away(Exception):
    """Nobody answers: the connection ends."""


_HOP = {"transfer-encoding", "content-encoding", "content-length", "connection"}


class Proxy:
    """Use as a context manager; `kubeconfig` leads through it."""

    def __init__(self, kubeconfig: Path, folder: Path, verdict: Verdict) -> None:
        self._credentials = Credentials.load(str(kubeconfig))
        self.verdict = verdict
        self._open: dict[int, web.Request] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.kubeconfig = folder / "proxied.yaml"
        self._started = threading.Event()
        self._stop: Callable[[], Any] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10), "the proxy did not start"
        return self

    def __exit__(self, *exc: object) -> None:
        if self._stop is not None:
            self._stop()
        self._thread.join(10)

    def cut(self) -> None:
        """Every request under way ends, watches among them."""

        def abort() -> None:
            for request in self._open.values():
                if request.transport is not None:
                    request.transport.abort()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(abort)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        loop = self._loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        connector = aiohttp.TCPConnector(ssl=self._credentials.ssl_context())
        async with aiohttp.ClientSession(
            base_url=self._credentials.server, connector=connector, auto_decompress=False
        ) as session:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", partial(self._answer, session))
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._write_kubeconfig(runner.addresses[0][1])
            self._started.set()
            await stop.wait()
            await runner.cleanup()

    def _write_kubeconfig(self, port: int) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "p", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "p", "user": {}}],
            "contexts": [{"name": "p", "context": {"cluster": "p", "user": "p"}}],
            "current-context": "p",
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))

    async def _answer(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        try:
            refusal = self.verdict(request)
        except Away:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if refusal is not None:
            return refusal
        self._open[id(request)] = request
        try:
            return await self._pass_on(session, request)
        except ConnectionResetError:
            # It was cut off.
            return web.Response()
        finally:
            del self._open[id(request)]

    async def _pass_on(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        kept = {"Accept", "Content-Type"}
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        # Bytes are passed on as they come.
        headers["Accept-Encoding"] = "identity"
        async with session.request(
            request.method, request.rel_url, headers=headers, data=await request.read() or None
        ) as upstream:
            passed = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP}
            response = web.StreamResponse(status=upstream.status, headers=passed)
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
