"""The load generator reads answers as any client does."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import FastAPI, Request, Response

from bench.programs.empty_endpoint import PATH, create_app
from bench.programs.http_caller import Callers, ConnectionLost, request
from queue_operator.api.server import RestServer
from queue_operator.settings import RestSettings


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app: FastAPI = create_app()

    @app.post("/echo")
    async def echo(asked: Request) -> Response:
        return Response(await asked.body(), 202)

    @app.post("/close")
    async def close() -> Response:
        return Response(status_code=204, headers={"connection": "close"})

    server = RestServer(app, RestSettings(host="127.0.0.1", port=0))
    await server.start()
    yield server.port
    await server.stop()


async def test_answers_come_whole_and_in_turn(port: int) -> None:
    large = b"x" * 3_000_000
    async with Callers(port, 2) as callers:
        one, other = callers.all
        both = [one.call(request("POST", "/echo", body)) for body in (large,)]
        both.append(other.call(request("POST", "/echo", b"small")))
        assert await asyncio.gather(*both) == [(202, large), (202, b"small")]
        assert await one.call(request("POST", PATH)) == (201, b'{"status":"ACCEPTED"}')


async def test_a_connection_that_is_closed_is_told(port: int) -> None:
    async with Callers(port, 1) as callers:
        [caller] = callers.all
        assert await caller.call(request("POST", "/close")) == (204, b"")
        with pytest.raises(ConnectionLost):
            await caller.call(request("POST", "/echo", b"again"))
