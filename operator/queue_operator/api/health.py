"""Probes: alive when the event loop answers, ready when everything behind it does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from queue_operator.domain.errors import QueueError

Check = Callable[[], Awaitable[None]]
"""Returns when fine, raises otherwise. Strangers may ask, so only the kind of what it raises is
shown: the text may name hosts and accounts.
"""

CHECK_TIMEOUT_S: Final = 2.0


class Store(Protocol):
    """What readiness asks first: `ping` raises when the store does not answer."""

    async def ping(self) -> None: ...


def create_health_app(store: Store, checks: Mapping[str, Check] | None = None) -> FastAPI:
    """/healthz and /readyz. Readiness asks the store and every one of `checks`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    all_checks: dict[str, Check] = {"store": store.ping, **(checks or {})}

    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        answers = await asyncio.gather(*(_ask(check) for check in all_checks.values()))
        found = dict(zip(all_checks, answers, strict=True))
        ready = all(answer == _OK for answer in answers)
        return JSONResponse(
            {"status": _OK if ready else "not ready", "checks": found}, 200 if ready else 503
        )

    return app


_OK: Final = "ok"


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
