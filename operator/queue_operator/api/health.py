"""Probes: alive when the event loop answers, ready when the doors are open."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from queue_operator.domain.errors import QueueError

Check = Callable[[], Awaitable[None]]
"""Returns when fine, raises otherwise. Strangers may ask, so only the kind of what it raises is
shown: the text may name hosts and accounts.
"""

CHECK_TIMEOUT_S: Final = 2.0


def create_health_app(doors: Check, parts: Mapping[str, Check]) -> FastAPI:
    """/healthz; /readyz, which asks the doors alone, so that no fault behind them takes the
    endpoints away; and /readyz/NAME for each of `parts`.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    checks: dict[str, Check] = {"doors": doors, **parts}

    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        return await _answer("doors", doors)

    @app.get("/readyz/{part}")
    async def readyz_of(part: str) -> Response:
        if (check := checks.get(part)) is None:
            return JSONResponse({"status": "not found", "checks": sorted(checks)}, 404)
        return await _answer(part, check)

    return app


_OK: Final = "ok"


async def _answer(part: str, check: Check) -> Response:
    found = await _ask(check)
    ready = found == _OK
    return JSONResponse(
        {"status": _OK if ready else "not ready", "checks": {part: found}}, 200 if ready else 503
    )


async def _ask(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S:g} s"
    except Exception as error:
        # Whatever a check raises, the answer is "not ready", never a failed probe handler.
        return error.code if isinstance(error, QueueError) else type(error).__name__
    return _OK
