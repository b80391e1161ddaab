"""`python -m bench.programs.rest_submit`: submissions over REST, alone or in batches, to an
operator or to an empty endpoint, each a process of its own, as a program, see `bench.lines`.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.meter import Usage, usage
from bench.programs.fleet import RestProcess, empty_endpoint, operator
from bench.programs.http_caller import Caller, Callers, request
from bench.programs.product import audit
from bench.programs.stores import JOB_TYPE, TAGS, Stored
from queue_operator.backends.postgres import migrate
from queue_operator.domain.tags import to_map

CREATED: Final = 201
_WARMING_JOBS: Final = 10_000


class Load:
    """The same request again and again, from some callers at once."""

    def __init__(self, spec: Spec, server: RestProcess) -> None:
        self._jobs = spec["jobs"]
        self._size = spec["submit_batch"]
        self._server = server
        self._request = submission(spec["payload"], self._size)
        self._begun = 0
        self.submitted = 0
        self.half_rss_mb = 0.0

    def counts(self) -> dict[str, int]:
        return {"submitted": self.submitted, "completed": 0}

    async def warm(self, callers: Callers) -> None:
        """What a server does only once is no part of what is measured."""
        jobs, self._jobs = self._jobs, min(self._jobs // 10, _WARMING_JOBS)
        await self.run(callers)
        self._jobs = self._begun + jobs

    async def run(self, callers: Callers) -> None:
        await asyncio.gather(*(self._submit(caller) for caller in callers.all))

    async def _submit(self, caller: Caller) -> None:
        while self._begun < self._jobs:
            self._begun += self._size
            status, body = await caller.call(self._request)
            if status != CREATED:
                raise RuntimeError(f"a submission was answered {status}: {body[:500]!r}")
            self.submitted += self._size
            if not self.half_rss_mb and self.submitted * 2 >= self._jobs:
                self.half_rss_mb = usage(self._server.pid).rss_mb


def submission(payload: int, size: int) -> bytes:
    """One job, or a batch of them; the server names them."""
    job = {"type": JOB_TYPE, "payload": "x" * (payload - 2), "tags": to_map(TAGS)}
    if size == 1:
        return request("POST", "/v1/jobs", json.dumps(job).encode())
    return request("POST", "/v1/jobs/batch", json.dumps({"jobs": [job] * size}).encode())


@asynccontextmanager
async def _server(spec: Spec) -> AsyncIterator[RestProcess]:
    if spec["store"] == "empty":
        async with empty_endpoint() as endpoint:
            yield endpoint
    else:
        await migrate(spec["dsn"])
        async with operator(spec["dsn"]) as server:
            yield server


def _costs(load: Load, jobs: int, before: Usage, after: Usage) -> dict[str, float]:
    """Processor time per job of the server that answers, and its memory."""
    return {
        "operator_cpu_s_per_1000": (after.cpu_s - before.cpu_s) / jobs * 1000,
        "operator_rss_before_mb": before.rss_mb,
        "operator_rss_half_mb": load.half_rss_mb,
        "operator_rss_mb": after.rss_mb,
        "rss_growth_share": after.rss_mb / load.half_rss_mb - 1,
    }


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    async with _server(spec) as server, Callers(server.rest_port, spec["callers"]) as callers:
        load = Load(spec, server)
        await load.warm(callers)
        warmed, load.half_rss_mb = load.submitted, 0.0
        say("ready")
        await expect("go")
        before, started = usage(server.pid), time.perf_counter()
        ticks = asyncio.create_task(tick(load.counts, started))
        await load.run(callers)
        elapsed = time.perf_counter() - started
        ticks.cancel()
        jobs = load.submitted - warmed
        costs = _costs(load, jobs, before, usage(server.pid))
        say("done", elapsed=elapsed, submitted=jobs, completed=0, **costs)
        await expect("finish")
    stored = Stored(load.submitted, 0)
    if spec["store"] != "empty":
        stored = await audit(spec["dsn"])
    say(
        "ledger",
        submitted=load.submitted,
        stored=stored.jobs,
        completed=stored.completed,
        duplicates=stored.repeated,
        lost=load.submitted - stored.jobs,
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
