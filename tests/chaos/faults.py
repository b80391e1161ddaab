"""Carries out the strikes of a plan."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

import psycopg
from tests.chaos.plan import API, Fault, Strike
from tests.chaos.processes import Program
from tests.chaos.proxy import waited
from tests.chaos.stage import Stage

from queue_operator.testing.history import Kind, Log

_TERMINATED_OF: Final = 3
Act = Callable[[Strike], Awaitable[None]]


class Striker:
    """Strikes when the plan says so; what lasts goes on beside the next strikes."""

    def __init__(self, stage: Stage, log: Log, tell: Callable[[str], None]) -> None:
        self._stage, self._log, self._tell = stage, log, tell
        self._lasting: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._acts: dict[Fault, Act] = {
            Fault.KILL_WORKER: self._kill_worker,
            Fault.FREEZE_WORKER: self._freeze_worker,
            Fault.DRAIN_WORKER: self._drain_worker,
            Fault.KILL_OPERATOR: self._kill_operator,
            Fault.FREEZE_OPERATOR: self._freeze_operator,
            Fault.CUT_WORKER: self._cut_worker,
            Fault.DELAY_WORKER: self._delay_worker,
            Fault.HALF_OPEN_WORKER: self._half_open_worker,
            Fault.CUT_CLIENTS: self._cut_clients,
            Fault.CUT_STORE: self._cut_store,
            Fault.DELAY_STORE: self._delay_store,
            Fault.HALF_OPEN_STORE: self._half_open_store,
            Fault.TERMINATE_BACKENDS: self._terminate_backends,
            Fault.RESTART_POSTGRES: self._restart_postgres,
            **dict.fromkeys(API, self._fail_api),
        }

    async def carry_out(self, strikes: list[Strike], seconds: float) -> None:
        """Returns when the time of the plan is over, and everything is whole again."""
        began = time.monotonic()
        for strike in strikes:
            await waited(self._over, max(strike.at_s - (time.monotonic() - began), 0.0))
            self._stage.keep_alive()
            self._tell(str(strike))
            self._begin(strike)
        await waited(self._over, max(seconds - (time.monotonic() - began), 0.0))
        self._over.set()
        await asyncio.gather(*self._lasting)
        self._stage.heal()

    def _begin(self, strike: Strike) -> None:
        task = asyncio.create_task(self._strike(strike))
        self._lasting.add(task)

    async def _strike(self, strike: Strike) -> None:
        since = time.time()
        await self._acts[strike.fault](strike)
        self._log.write(
            Kind.FAULT,
            fault=strike.fault.name,
            target=strike.target,
            since=since,
            until=time.time(),
        )

    def _worker(self, strike: Strike) -> Program:
        return self._stage.workers[strike.target % len(self._stage.workers)]

    def _operator(self, strike: Strike) -> Program:
        return self._stage.operators[strike.target % len(self._stage.operators)]

    async def _kill_worker(self, strike: Strike) -> None:
        program = self._worker(strike)
        program.kill()
        self._log.write(Kind.KILLED, killed=program.title)
        program.start()

    async def _freeze(self, program: Program, seconds: float) -> None:
        number = program.number
        program.freeze()
        await waited(self._over, seconds)
        if program.number == number:
            program.thaw()

    async def _freeze_worker(self, strike: Strike) -> None:
        await self._freeze(self._worker(strike), strike.lasts_s)

    async def _drain_worker(self, strike: Strike) -> None:
        program = self._worker(strike)
        await asyncio.to_thread(program.end, 10.0)
        # Another strike may have replaced it meanwhile.
        if not program.running:
            program.start()

    async def _kill_operator(self, strike: Strike) -> None:
        program = self._operator(strike)
        program.kill()
        program.start()
        await self._stage.until(lambda: program.doors() is not None, 10.0)

    async def _freeze_operator(self, strike: Strike) -> None:
        await self._freeze(self._operator(strike), strike.lasts_s)

    async def _cut_worker(self, strike: Strike) -> None:
        await self._stage.worker_lines[strike.target % len(self._stage.worker_lines)].cut()

    async def _delay_worker(self, strike: Strike) -> None:
        line = self._stage.worker_lines[strike.target % len(self._stage.worker_lines)]
        line.slow_down(strike.slowness_s)
        await waited(self._over, strike.lasts_s)
        line.slow_down(0.0)

    async def _half_open_worker(self, strike: Strike) -> None:
        self._stage.worker_lines[strike.target % len(self._stage.worker_lines)].half_open()

    async def _cut_clients(self, strike: Strike) -> None:
        await asyncio.gather(self._stage.rest_line.cut(), self._stage.grpc_line.cut())

    async def _cut_store(self, strike: Strike) -> None:
        await self._stage.store_lines[strike.target % len(self._stage.store_lines)].cut()

    async def _delay_store(self, strike: Strike) -> None:
        line = self._stage.store_lines[strike.target % len(self._stage.store_lines)]
        line.slow_down(strike.slowness_s)
        await waited(self._over, strike.lasts_s)
        line.slow_down(0.0)

    async def _fail_api(self, strike: Strike) -> None:
        self._stage.api.fail(strike.fault)
        await waited(self._over, strike.lasts_s)
        self._stage.api.heal()

    async def _half_open_store(self, strike: Strike) -> None:
        self._stage.store_lines[strike.target % len(self._stage.store_lines)].half_open()

    async def _terminate_backends(self, strike: Strike) -> None:
        # It may be down at the moment, which ends connections as well.
        with contextlib.suppress(psycopg.OperationalError):
            await asyncio.to_thread(self._stage.terminate_backends, _TERMINATED_OF)

    async def _restart_postgres(self, strike: Strike) -> None:
        await self._stage.restart_postgres()
