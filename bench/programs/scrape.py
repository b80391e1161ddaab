"""`python -m bench.programs.scrape`: how long Prometheus waits for the figures of an operator when
many jobs are stored and many workers are connected, as a program, see `bench.lines`.
"""

import asyncio
import time
import urllib.request
from contextlib import AsyncExitStack
from typing import Any, Final

import uvloop

from bench.lines import expect, read_spec, say
from bench.meter import usage
from bench.programs.fleet import operator
from bench.programs.idle_sessions import connect
from bench.programs.many_jobs import timed
from bench.programs.sample import build
from bench.server import free_port
from queue_operator.backends.postgres import PostgresBackend, migrate

_AT_ONCE: Final = 50
_CALLS: Final = 50
_FIRST_S: Final = 120.0
_TIMEOUT_S: Final = 30


class Endpoint:
    """The metrics of the operator, asked over HTTP as Prometheus does."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self.samples = 0

    async def scrape(self) -> str:
        text = await asyncio.to_thread(self._read)
        self.samples = sum(not line.startswith("#") for line in text.splitlines())
        return text

    async def await_stock(self) -> None:
        """Until the stored jobs are shown, which the first look at the store tells."""
        async with asyncio.timeout(_FIRST_S):
            while "queueoperator_jobs{" not in await self.scrape():
                pass

    def _read(self) -> str:
        with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (ours)
            text: str = answer.read().decode()
        return text


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"])

    def progress(jobs: int) -> None:
        say("tick", at=0.0, submitted=jobs, completed=0)

    await build(spec["dsn"], backend, spec["jobs"], spec["payload"], progress)
    await backend.close()
    port = free_port()
    async with operator(spec["dsn"], METRICS__PORT=str(port)) as server, AsyncExitStack() as stack:
        for first in range(0, spec["sessions"], _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, spec["sessions"]))
            await asyncio.gather(*(connect(stack, server.grpc_address, n) for n in numbers))
        endpoint = Endpoint(port)
        await endpoint.await_stock()
        say("ready")
        await expect("go")
        started = time.perf_counter()
        p50, _, worst = await timed(endpoint.scrape, _CALLS)
        say(
            "done",
            elapsed=time.perf_counter() - started,
            submitted=0,
            completed=0,
            scrape_p50_ms=p50,
            scrape_max_ms=worst,
            scrape_samples=float(endpoint.samples),
            scrape_rss_mb=usage(server.pid).rss_mb,
        )
        await expect("finish")
    # Whoever has said the last is killed, and its operator would be left.
    say("ledger", submitted=0, stored=0, completed=0, duplicates=0, lost=0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
