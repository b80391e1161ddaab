"""One process under supervision, whatever it does."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, TypeVar

from queue_operator.backends.ending import end_tasks
from queue_operator.controller.pacing import backoff_s
from queue_operator.domain.clock import Clock
from queue_operator.observing.signs import BEAT_S, Signs
from queue_operator.supervisor.consumption import consumption

logger = logging.getLogger(__name__)

STOP_S: Final = 8.0
START_S: Final = 60.0
"""How long a process may take until its first sign of life. Each one that was killed without any
leaves the next one twice the time: on a machine that is short of processors none would come up.
"""
LONGEST_START_S: Final = 960.0
STEADY_S: Final = 120.0
"""A process that ran for so long is started again as if it were the first time."""
_FIRST_PAUSE_S: Final = 1.0
# Spawned, not forked: gRPC does not survive a fork.
SPAWN: Final = multiprocessing.get_context("spawn")

S = TypeVar("S", bound=Signs)


class Child(Generic[S]):
    """Runs one process at a time, for ever: `body` of the `signs` that it shares with this one.
    Both are pickled. `what` it is called in the log, where `unharmed` says how all else does.
    """

    def __init__(
        self,
        what: str,
        body: Callable[[S], None],
        signs: S,
        clock: Clock,
        *,
        hung_after_s: float,
        unharmed: str,
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        self._what = what
        self._body = body
        self._signs = signs
        self._clock = clock
        self._hung_after_s = hung_after_s
        self._unharmed = unharmed
        self._begun_s = 0.0
        self._start_s = max(hung_after_s, START_S)
        self._pid: int | None = None
        self._ended_cpu_s = self._running_cpu_s = self._shown_cpu_s = 0.0
        self.restarts = 0

    async def run(self) -> None:
        """Until it is cancelled, which ends the process too."""
        failures = 0
        while True:
            started = self._clock.monotonic()
            try:
                end = f"ended with exit code {await self._run_once()}"
            except OSError as error:
                end = f"cannot be started: {error}"
            failures = 1 if self._clock.monotonic() - started >= STEADY_S else failures + 1
            pause_s = backoff_s(failures, _FIRST_PAUSE_S)
            logger.error(
                "%s %s; %s, and it is started again in %.0f s",
                self._what,
                end,
                self._unharmed,
                pause_s,
            )
            await self._clock.sleep(pause_s)
            self.restarts += 1

    async def _run_once(self) -> int | None:
        """Gives the exit code; a signal is a negative number. Raises OSError."""
        self._signs.begin()
        self._begun_s = self._signs.beat_s.value
        name = self._what.removeprefix("the ")
        process = SPAWN.Process(target=_run, args=(self._body, self._signs, self._what), name=name)
        process.start()
        self._pid = process.pid
        ended = asyncio.create_task(_sentinel(process, self._note_usage))
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=BEAT_S)
                self._end_if_hung(process)
        except asyncio.CancelledError:
            await _through(_stop(process, self._what))
            raise
        finally:
            await end_tasks([ended])
            self._pid = None
            self._ended_cpu_s += self._running_cpu_s
            self._running_cpu_s = 0.0
            self._signs.end()
        code = process.exitcode
        process.close()
        return code

    def _end_if_hung(self, process: BaseProcess) -> None:
        self._note_usage()
        silent_s = self._signs.silent_s()
        has_come_up = self._signs.beat_s.value != self._begun_s
        allowed_s = self._hung_after_s if has_come_up else self._start_s
        if silent_s > allowed_s and process.is_alive():
            if not has_come_up:
                self._start_s = min(2 * self._start_s, max(LONGEST_START_S, self._start_s))
            logger.error("%s has been silent for %.0f s and is killed", self._what, silent_s)
            process.kill()

    def _note_usage(self) -> None:
        """Also of one that has ended, until somebody has asked for its exit code."""
        pid = self._pid
        with suppress(OSError):
            if pid is not None:
                self._running_cpu_s, _ = consumption(pid)

    def usage(self) -> tuple[float, int | None]:
        """Seconds of the processor that all its processes took, and the memory of the one that
        runs. From any thread.
        """
        running_s, resident_bytes, pid = self._running_cpu_s, None, self._pid
        if pid is not None:
            with suppress(OSError):
                running_s, resident_bytes = consumption(pid)
        # One that ends between the two looks is in neither, until the next.
        self._shown_cpu_s = max(self._shown_cpu_s, self._ended_cpu_s + running_s)
        return self._shown_cpu_s, resident_bytes


def _run(body: Callable[[S], None], signs: S, what: str) -> None:
    threading.Thread(
        target=_end_with_parent, args=(what,), name="parent watch", daemon=True
    ).start()
    body(signs)


def _end_with_parent(what: str) -> None:
    """A parent that is killed can tell nobody; without this its child would go on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        logger.error("the server is gone, and %s ends with it", what)
        os.kill(os.getpid(), signal.SIGTERM)


async def _through(work: Coroutine[Any, Any, None]) -> None:
    """To its end, however often whoever waits for it is cancelled: a process that is left behind
    holds up the end of this one.
    """
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def _stop(process: BaseProcess, what: str) -> None:
    process.terminate()
    await asyncio.to_thread(process.join, STOP_S)
    if process.is_alive():
        logger.warning("%s did not end in time and is killed", what)
        process.kill()
        await asyncio.to_thread(process.join)


async def _sentinel(process: BaseProcess, before: Callable[[], object]) -> None:
    """Returns when the process has ended. `before` its exit code is asked for, the kernel still
    knows what it took.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
    before()
    process.join()


class Children:
    """Those of one server that are wanted."""

    def __init__(self, *children: Child[Any]) -> None:
        self._children = [child for child in children if child.enabled]
        self._running: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Starts them."""
        self._running = [
            asyncio.create_task(child.run(), name="supervisor") for child in self._children
        ]

    def end(self) -> None:
        """Tells them to end."""
        for running in self._running:
            running.cancel()

    async def ended(self) -> None:
        """Once their processes are gone."""
        await end_tasks(self._running)
