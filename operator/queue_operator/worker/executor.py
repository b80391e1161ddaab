"""Where handlers run: coroutines on one loop of their own, functions in threads or processes.

None is the session's thread, so a handler that blocks cannot delay a heartbeat.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any, Final

from queue_operator.worker.figures import LagWatch
from queue_operator.worker.handlers import Place, Registry
from queue_operator.worker.handoff import Handoff
from queue_operator.worker.injection import Provider, Resource, all_of
from queue_operator.worker.processes import Processes
from queue_operator.worker.runner import (
    Around,
    Ending,
    Run,
    Runner,
    Stopped,
    ending_of,
    ending_of_task,
)

logger = logging.getLogger(__name__)

# The server decides how many jobs run here and may raise the capacity while we do, so the
# pool grows with what is assigned; this is only a bound against a runaway.
MAX_THREADS: Final = 10_000


class Executor:
    """`ended` is called on any thread when a handler has ended. Nothing may be started before
    `open` is done.
    """

    def __init__(
        self,
        ended: Callable[[Run, Ending], None],
        registry: Registry,
        provider: Provider | None = None,
        processes: Processes | None = None,
        spans: Around | None = None,
    ) -> None:
        self._ended = ended
        self._registry = registry
        self._provider = provider or Provider()
        self._state: object = None
        self._loop = asyncio.new_event_loop()
        self._starting = Handoff(self._loop, self._spawn)
        self._thread = threading.Thread(target=self._serve, name="async-handlers", daemon=True)
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="handler")
        self._processes = processes or Processes()
        self._runner = Runner(
            registry.middleware, self._provider, self._pool, self._processes, spans
        )
        self._tasks: dict[Run, asyncio.Task[Ending]] = {}
        self._running: set[Run] = set()
        self._lacks_threads = False
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def running(self) -> int:
        """Handlers that have not ended."""
        return len(self._running)

    def watch_lag(self, observe: Callable[[float], None]) -> None:
        """Tells how late timers of the handlers' loop fire, for as long as it runs."""
        self._loop.call_soon_threadsafe(LagWatch(self._loop, observe).start)

    def open(self, lifespan: Resource | None = None) -> "Future[None]":
        """Enters the lifespan, whose value is every job's `ctx.state`, and makes what handlers
        need for as long as the worker lives. The future raises what any of these raises.
        """
        return asyncio.run_coroutine_threadsafe(self._open(lifespan), self._loop)

    async def _open(self, lifespan: Resource | None) -> None:
        if lifespan is not None:
            self._state = await self._provider.enter(lifespan)
        for spec in self._registry.specs():
            if spec.place is not Place.PROCESS:
                await self._provider.prepare(all_of(spec.needs))

    def start(self, run: Run) -> None:
        self._running.add(run)
        if self._state is not None:
            run.context = replace(run.context, state=self._state)
        if self._runner.needs_no_loop(run.spec):
            self._start_in_thread(run)
        else:
            self._starting.put(run)

    def _start_in_thread(self, run: Run) -> None:
        try:
            # A context of its own: threads are used again.
            self._pool.submit(self._run_in_thread, copy_context(), run)
            self._lacks_threads = False
        except RuntimeError as error:
            # The pool keeps it in line for a thread that others leave. If none does, it never
            # began, and the session hands it back.
            if not self._lacks_threads:
                self._lacks_threads = True
                logger.warning(
                    "no thread can be started for a handler: %s; lower QUEUE_OPERATOR_CAPACITY, or "
                    "raise the limit of the process or the pod",
                    error,
                )

    def _run_in_thread(self, context: Context, run: Run) -> None:
        try:
            ending = context.run(self._runner.run_in_thread, run)
        except BaseException as error:
            ending = ending_of(error)
        self._end(run, ending)

    def interrupt(self, run: Run) -> None:
        """Cancels the task of a coroutine and ends the process of a handler that has one. A
        thread cannot be stopped: it has its flag.
        """
        if run.spec.place is Place.PROCESS:
            self._processes.interrupt(run.context.cancelled)
        self._loop.call_soon_threadsafe(self._cancel, run)

    def close(self, timeout_s: float, close_s: float = 0.0) -> int:
        """Stops what can be stopped, for at most `timeout_s`, then closes dependencies and
        lifespan, for at most `close_s`. Returns how many handlers have not ended.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        for run in list(self._running):
            if self._runner.needs_no_loop(run.spec) and run.withdraw():
                self._end(run, Stopped())
        self._processes.close(timeout_s)
        self._wait_for(self._cancel_all(), timeout_s)
        self._wait_for(self._close(close_s), timeout_s + close_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._loop.close()
        return self.running

    def _wait_for(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _cancel_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, close_s: float) -> None:
        try:
            async with asyncio.timeout(close_s):
                await self._provider.close()
        except TimeoutError:
            logger.warning("closing took longer than %g s", close_s)
        except Exception:
            logger.exception("closing failed")
        await self._loop.shutdown_asyncgens()

    def _spawn(self, run: Run) -> None:
        task = self._loop.create_task(self._runner.run(run), name=f"{run.spec.type} {run.job_id}")
        self._tasks[run] = task
        task.add_done_callback(lambda done: self._task_ended(run, done))

    def _cancel(self, run: Run) -> None:
        if run in self._tasks:
            self._tasks[run].cancel()

    def _task_ended(self, run: Run, task: asyncio.Task[Ending]) -> None:
        self._tasks.pop(run, None)
        self._end(run, ending_of_task(task))

    def _end(self, run: Run, ending: Ending) -> None:
        """Once, though a thread may find a run that was given up."""
        try:
            self._running.remove(run)
        except KeyError:
            return
        self._ended(run, ending)
