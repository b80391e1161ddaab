"""`python -m bench.programs.idle_sessions`: what workers that have nothing to do cost the
operator and the database, as a program, see `bench.lines`.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import grpc
import psycopg
import uvloop

from bench.lines import expect, read_spec, say
from bench.meter import usage
from bench.programs.fleet import Operator, operator
from queue_operator.backends.postgres import migrate
from queue_operator.backends.sql import load
from queue_operator.wire.v1 import worker_pb2 as pb
from queue_operator.wire.v1.worker_pb2_grpc import WorkerPlaneStub
from queue_operator.worker.client import CHANNEL_OPTIONS

DEPLOYMENTS: Final = 20
"""The workers are of so many kinds, each of which demands a tag of its own."""
_AT_ONCE: Final = 50
_SETTLE_S: Final = 3.0
_COUNT: Final = load(__package__, "idle_count")
_STATEMENTS: Final = load(__package__, "idle_statements")


class Meter:
    """An operator's processor time and memory, and the statements of its database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def over(self, seconds: float, server: Operator) -> dict[str, float]:
        """What is spent in so many seconds from now."""
        # What connecting sets off is over by then.
        await asyncio.sleep(min(seconds, _SETTLE_S))
        calls, spent, started = await self._calls(), usage(server.pid), time.monotonic()
        await asyncio.sleep(seconds)
        elapsed_s, now = time.monotonic() - started, usage(server.pid)
        # The first of the two questions counts as a statement too.
        asked = await self._calls() - calls - 1
        return {
            "cpu_share": (now.cpu_s - spent.cpu_s) / elapsed_s,
            "rss_mb": now.rss_mb,
            "statements_per_s": asked / elapsed_s,
        }

    async def begin(self) -> None:
        """Statements of connections that are made from now on are counted."""
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            await connection.execute(_COUNT)

    async def _calls(self) -> int:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            row = await (await connection.execute(_STATEMENTS)).fetchone()
        return int(row[0]) if row else 0


async def connect(stack: AsyncExitStack, server: str, number: int) -> None:
    """One session on a connection of its own, as a worker in a pod has it."""
    channel = grpc.aio.insecure_channel(server, options=CHANNEL_OPTIONS)
    await stack.enter_async_context(channel)
    call = WorkerPlaneStub(channel).Session()
    hello = pb.Hello(
        session_id=f"idle-{number}",
        worker_name=f"idle-{number}",
        host="bench",
        namespace="default",
        tags=[f"deployment-{number % DEPLOYMENTS}"],
        capacity=10,
        types=[pb.HandlerType(type="noop")],
        version="1",
    )
    await call.write(pb.WorkerMessage(hello=hello))
    answer = await call.read()
    if not isinstance(answer, pb.ServerMessage) or not answer.HasField("welcome"):
        raise RuntimeError(f"session {number} was not welcome: {answer}")


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    await migrate(spec["dsn"])
    meter = Meter(spec["dsn"])
    await meter.begin()
    async with operator(spec["dsn"]) as server, AsyncExitStack() as stack:
        say("ready")
        await expect("go")
        started = time.perf_counter()
        await connect(stack, server.grpc_address, 0)
        one = await meter.over(spec["seconds"], server)
        for first in range(1, spec["sessions"], _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, spec["sessions"]))
            await asyncio.gather(*(connect(stack, server.grpc_address, n) for n in numbers))
        many = await meter.over(spec["seconds"], server)
        metrics = {f"idle_{name}": value for name, value in many.items()}
        metrics |= {f"one_session_{name}": value for name, value in one.items()}
        elapsed = time.perf_counter() - started
        say("done", elapsed=elapsed, submitted=0, completed=0, **metrics)
        await expect("finish")
    # Whoever has said the last is killed, and its operator would be left.
    say("ledger", submitted=0, stored=0, completed=0, duplicates=0, lost=0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
