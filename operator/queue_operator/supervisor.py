"""The controller's process: started, watched, ended when it hangs, and started again.

The servers live in the parent process and do not notice: whatever the API server does to the
controller, REST, gRPC and the sessions of workers go on.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import c_double, c_int, c_longlong
from multiprocessing.process import BaseProcess
from typing import Final

from queue_operator.backends.ending import end_tasks
from queue_operator.controller.consumption import consumption, of_ended_children
from queue_operator.controller.figures import Figures
from queue_operator.controller.ownership import NamespaceTaken
from queue_operator.controller.pacing import backoff_s
from queue_operator.controller.vitals import BEAT_S, Standing, Vitals
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.controlling import ControllerFigures
from queue_operator.settings import ControllerSettings

logger = logging.getLogger(__name__)

STOP_S: Final = 8.0
START_S: Final = 60.0
"""How long a process may take until its first sign of life. Each one that was killed without any
leaves the next one twice the time: on a machine that is short of processors none would come up.
"""
LONGEST_START_S: Final = 960.0
STEADY_S: Final = 120.0
"""A controller that ran for so long is started again as if it were the first time."""
_FIRST_PAUSE_S: Final = 1.0
# Spawned, not forked: gRPC does not survive a fork.
SPAWN: Final = multiprocessing.get_context("spawn")

Body = Callable[[Vitals], None]
"""What the process runs. It is pickled."""


def shared_vitals() -> Vitals:
    """In memory that a spawned process shares with this one."""
    return Vitals(
        standing=SPAWN.RawValue(c_int),
        beat_s=SPAWN.RawValue(c_double),
        over_quota=SPAWN.RawValue(c_longlong),
        refused=SPAWN.RawValue(c_longlong),
        figures=SPAWN.RawValue(Figures),
    )


class Supervisor:
    """Runs one controller at a time, for ever."""

    def __init__(self, settings: ControllerSettings, body: Body, clock: Clock) -> None:
        self.enabled = settings.enabled
        self._hung_after_s = settings.hung_after_s
        self._body = body
        self._clock = clock
        self._vitals = shared_vitals()
        self._begun_s = 0.0
        self._start_s = max(settings.hung_after_s, START_S)
        self._pid: int | None = None
        self._others_cpu_s = of_ended_children()
        self._cpu_s = 0.0
        self.restarts = 0

    async def run(self) -> None:
        """Until it is cancelled, which ends the controller too."""
        failures = 0
        while True:
            started = self._clock.monotonic()
            try:
                what = f"ended with exit code {await self._run_once()}"
            except OSError as error:
                what = f"cannot be started: {error}"
            failures = 1 if self._clock.monotonic() - started >= STEADY_S else failures + 1
            pause_s = backoff_s(failures, _FIRST_PAUSE_S)
            logger.error(
                "the controller %s; REST and gRPC go on, and it is started again in %.0f s",
                what,
                pause_s,
            )
            await self._clock.sleep(pause_s)
            self.restarts += 1

    async def _run_once(self) -> int | None:
        """Gives the exit code; a signal is a negative number. Raises OSError."""
        self._vitals.begin()
        self._begun_s = self._vitals.beat_s.value
        process = SPAWN.Process(target=_run, args=(self._body, self._vitals), name="controller")
        process.start()
        self._pid = process.pid
        ended = asyncio.create_task(_sentinel(process))
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=BEAT_S)
                self._end_if_hung(process)
        except asyncio.CancelledError:
            await _stop(process)
            raise
        finally:
            await end_tasks([ended])
            self._pid = None
            self._vitals.figures.begin()
            self._vitals.stand(Standing.STARTING)
        code = process.exitcode
        process.close()
        return code

    def _end_if_hung(self, process: BaseProcess) -> None:
        silent_s = self._vitals.silent_s()
        has_come_up = self._vitals.beat_s.value != self._begun_s
        allowed_s = self._hung_after_s if has_come_up else self._start_s
        if silent_s > allowed_s and process.is_alive():
            if not has_come_up:
                self._start_s = min(2 * self._start_s, max(LONGEST_START_S, self._start_s))
            logger.error("the controller has been silent for %.0f s and is killed", silent_s)
            process.kill()

    async def check(self) -> None:
        """Raises Unavailable while resources are not served as they should be."""
        if not self.enabled:
            return
        standing, refused = self._vitals.standing.value, self._vitals.refused.value
        if standing != Standing.SERVING:
            raise Unavailable(f"the controller does not serve: {Standing(standing).name}")
        if self._vitals.silent_s() > self._hung_after_s:
            raise Unavailable("the controller is silent")
        if refused:
            raise NamespaceTaken(f"{refused} of the namespaces are left alone; the log says why")

    def figures(self) -> ControllerFigures | None:
        """For the metrics, from any thread; None where no controller runs."""
        if not self.enabled:
            return None
        counted = self._vitals.figures
        since_s = counted.status_since_s
        cpu_s, resident_bytes = self._consumption()
        return ControllerFigures(
            up=self._vitals.standing.value == Standing.SERVING,
            restarts=self.restarts,
            over_quota=self._vitals.over_quota.value,
            refused_namespaces=self._vitals.refused.value,
            owned_namespaces=counted.owned_namespaces,
            intake_backlog=counted.intake_backlog,
            status_backlog=counted.status_backlog,
            status_lag_s=max(0.0, time.monotonic() - since_s) if since_s else 0.0,
            status_writes=counted.writes(),
            api_requests=counted.requests(),
            throttled=counted.throttled(),
            watch_restarts=counted.restarts(),
            compared_at_s=counted.compared_at_s or None,
            comparison_s=counted.comparison_s,
            lag_counts=tuple(counted.lag_counts),
            lag_total_s=counted.lag_total_s,
            cpu_s=cpu_s,
            resident_bytes=resident_bytes,
        )

    def _consumption(self) -> tuple[float, int | None]:
        """Of all processes of the controller the time, of the one that runs the memory."""
        ended_s = of_ended_children() - self._others_cpu_s
        running_s, resident_bytes, pid = 0.0, None, self._pid
        if pid is not None:
            with suppress(OSError):
                running_s, resident_bytes = consumption(pid)
        # One that ends between the two looks is in neither, until the next.
        self._cpu_s = max(self._cpu_s, ended_s + running_s)
        return self._cpu_s, resident_bytes


def _run(body: Body, vitals: Vitals) -> None:
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    body(vitals)


def _end_with_parent() -> None:
    """A parent that is killed can tell nobody; without this its controller would go on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        logger.error("the server is gone, and the controller ends with it")
        os.kill(os.getpid(), signal.SIGTERM)


async def _stop(process: BaseProcess) -> None:
    process.terminate()
    await asyncio.to_thread(process.join, STOP_S)
    if process.is_alive():
        logger.warning("the controller did not end in time and is killed")
        process.kill()
        await asyncio.to_thread(process.join)


async def _sentinel(process: BaseProcess) -> None:
    """Returns when the process has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
    process.join()
