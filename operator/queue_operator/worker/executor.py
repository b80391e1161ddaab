"""Where handlers run: coroutines on one loop of their own, functions in threads.

Neither is the session's thread, so a handler that blocks cannot delay a heartbeat.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from queue_operator.worker.runner import Ending, Run, Stopped, ending_of, run_async, run_sync

# The server decides how many jobs run here and may raise the capacity while we do, so the
# pool grows with what is assigned; this is only a bound against a runaway.
MAX_THREADS: Final = 10_000


class Executor:
    """`ended` is called on any thread when a handler has ended."""

    def __init__(self, ended: Callable[[Run, Ending], None]) -> None:
        self._ended = ended
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="async-handlers", daemon=True)
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="handler")
        self._tasks: dict[Run, asyncio.Task[Ending]] = {}
        self._running: set[Run] = set()
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def running(self) -> int:
        """Handlers that have not ended."""
        return len(self._running)

    def start(self, run: Run) -> None:
        self._running.add(run)
        if run.spec.is_async:
            self._loop.call_soon_threadsafe(self._spawn, run)
        else:
            future = self._pool.submit(run_sync, run)
            future.add_done_callback(lambda done: self._end(run, done))

    def interrupt(self, run: Run) -> None:
        """Cancels the task of a coroutine. A thread cannot be stopped: it has its flag."""
        if run.spec.is_async:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def close(self, timeout_s: float) -> int:
        """Stops what can be stopped and returns how many handlers have not ended."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        winding_down = asyncio.run_coroutine_threadsafe(self._wind_down(), self._loop)
        winding_down.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._loop.close()
        return self.running

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _wind_down(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _spawn(self, run: Run) -> None:
        task = self._loop.create_task(run_async(run), name=f"{run.spec.type} {run.job_id}")
        self._tasks[run] = task
        task.add_done_callback(lambda done: self._task_ended(run, done))

    def _cancel(self, run: Run) -> None:
        if run in self._tasks:
            self._tasks[run].cancel()

    def _task_ended(self, run: Run, task: asyncio.Task[Ending]) -> None:
        self._tasks.pop(run, None)
        self._running.discard(run)
        self._ended(run, Stopped() if task.cancelled() else task.result())

    def _end(self, run: Run, future: Future[Ending]) -> None:
        self._running.discard(run)
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            self._ended(run, Stopped())
        else:
            self._ended(run, ending_of(error) if error is not None else future.result())
