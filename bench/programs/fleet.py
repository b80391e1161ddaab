"""One operator and some workers, each a process of its own, as they run in a cluster; and what
an operator is compared with.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from bench.programs.noop import STAMPED
from bench.server import free_port

Process = asyncio.subprocess.Process

_START_TIMEOUT_S: Final = 60.0
_PR_SET_PDEATHSIG: Final = 1
_PROBE_S: Final = 0.02
_LINE_BYTES: Final = 64 * 1024 * 1024
_NOISE: Final = {"GRPC_VERBOSITY": "NONE"}


@dataclass(frozen=True, slots=True)
class RestProcess:
    """A process that answers over HTTP."""

    process: Process
    rest_port: int

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Operator(RestProcess):
    """A running `queue-operator serve` without a cluster."""

    grpc_address: str


@asynccontextmanager
async def operator(dsn: str, **settings: str) -> AsyncIterator[Operator]:
    """`settings` are those of the server, as `QUEUE__CLAIM_BATCH="250"`."""
    grpc_port, health_port, rest_port = free_port(), free_port(), free_port()
    given = {
        "DATABASE__DSN": dsn,
        "AUTH__MODE": "none",
        "CONTROLLER__ENABLED": "false",
        "WEBHOOKS__ENABLED": "false",
        "REST__PORT": str(rest_port),
        "METRICS__PORT": "0",
        "GRPC__PORT": str(grpc_port),
        "HEALTH__PORT": str(health_port),
        **settings,
    }
    environment = {f"QUEUE_OPERATOR_{key}": value for key, value in given.items()}
    process = await _start("queue_operator.cli.main", "serve", environment=environment)
    try:
        await _ready(process, f"http://127.0.0.1:{health_port}/readyz")
        yield Operator(process, rest_port, f"127.0.0.1:{grpc_port}")
    finally:
        await _end(process)


@asynccontextmanager
async def empty_endpoint() -> AsyncIterator[RestProcess]:
    """`bench.programs.empty_endpoint`."""
    port = free_port()
    process = await _start("bench.programs.empty_endpoint", str(port))
    try:
        await _ready(process, f"http://127.0.0.1:{port}/readyz")
        yield RestProcess(process, port)
    finally:
        await _end(process)


@dataclass(slots=True)
class NoopWorker:
    """One `bench.programs.noop_worker` and what it has said."""

    process: Process
    runs: int = 0
    picked_up_ms: Sequence[float] = ()
    _reading: asyncio.Task[None] | None = field(default=None, repr=False)

    def go(self) -> None:
        """Connects from now on."""
        self._say("go")
        self._reading = asyncio.create_task(self._read())

    async def drain(self) -> None:
        """Ends it as a rollout does, and has its last word."""
        self.process.terminate()
        if self._reading is not None:
            await self._reading

    def _say(self, line: str) -> None:
        if self.process.stdin is None:
            raise RuntimeError("the worker cannot be talked to")
        self.process.stdin.write(f"{line}\n".encode())

    async def _read(self) -> None:
        while event := await self._event():
            self.runs = event["runs"]
            self.picked_up_ms = event.get("ms", ())

    async def _event(self) -> dict[str, Any]:
        if self.process.stdout is None:
            raise RuntimeError("the worker cannot be heard")
        line = await self.process.stdout.readline()
        event: dict[str, Any] = json.loads(line) if line else {}
        return event

    async def prepare(self) -> None:
        """Returns once all is imported."""
        if (await self._event()).get("event") != "ready":
            raise RuntimeError("a worker ended before it was ready")


@asynccontextmanager
async def workers(
    server: str, count: int, *, capacity: int, stamped: bool
) -> AsyncIterator[list[NoopWorker]]:
    """Workers that wait for their word to connect."""
    async with AsyncExitStack() as stack:
        fleet = []
        for number in range(count):
            environment = {
                "QUEUE_OPERATOR_SERVER": server,
                "QUEUE_OPERATOR_WORKER_NAME": f"bench-{number}",
                "QUEUE_OPERATOR_CAPACITY": str(capacity),
                "QUEUE_OPERATOR_HEALTH_PORT": "0",
                **({STAMPED: "yes"} if stamped else {}),
            }
            process = await _start("bench.programs.noop_worker", environment=environment, talk=True)
            stack.push_async_callback(_end, process)
            worker = NoopWorker(process)
            await worker.prepare()
            fleet.append(worker)
        yield fleet


async def _start(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, talk: bool = False
) -> Process:
    pipe = asyncio.subprocess.PIPE if talk else asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=pipe,
        stdout=pipe,
        env={**os.environ, **_NOISE, **(environment or {})},
        limit=_LINE_BYTES,
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """A benchmark that is killed leaves nothing behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(15.0):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _ready(process: Process, url: str) -> None:
    async with asyncio.timeout(_START_TIMEOUT_S):
        while not await asyncio.to_thread(_answers, url):
            if process.returncode is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            await asyncio.sleep(_PROBE_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310  (our own address)
            return bool(answer.status == 200)
    except OSError:
        return False
