"""Where the harness runs handlers: on its one loop, and plain functions in threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from queue_operator.harness.loop import ManualLoop
from queue_operator.worker.context import Cancellation
from queue_operator.worker.handlers import Place
from queue_operator.worker.runner import Ending, Run, Runner, ending_of_task


class Launcher:
    """A `worker.session.Launcher`."""

    def __init__(
        self, loop: ManualLoop, runner: Runner, ended: Callable[[Run, Ending], None]
    ) -> None:
        self._loop = loop
        self._runner = runner
        self._ended = ended
        self._tasks: dict[Run, asyncio.Task[Ending]] = {}
        self.state: object = None

    def start(self, run: Run) -> None:
        run.context = replace(
            run.context, state=self.state, cancelled=ManualCancellation(self._loop)
        )
        task = self._tasks[run] = self._loop.create_task(self._runner.run(run))
        task.add_done_callback(lambda done: self._task_ended(run, done))

    def interrupt(self, run: Run) -> None:
        if run in self._tasks and run.spec.place is Place.LOOP:
            self._tasks[run].cancel()

    def _task_ended(self, run: Run, task: asyncio.Task[Ending]) -> None:
        del self._tasks[run]
        self._ended(run, ending_of_task(task))


class ManualCancellation(Cancellation):
    """One whose waiting takes the time of the loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: ManualLoop) -> None:
        super().__init__()
        self._loop = loop

    def _wait_here(self, timeout_s: float | None) -> bool:
        """The loop is told when it is this thread's turn again, before the thread is."""
        woken = _Alarm(self._loop)
        self._loop.park()
        self.watch(woken.ring)
        if timeout_s is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, timeout_s, woken.ring)
        woken.wait()
        return self.is_set()


class _Alarm:
    def __init__(self, loop: ManualLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._event = threading.Event()

    def ring(self) -> None:
        """Counts once, whoever rings first."""
        with self._lock:
            if not self._event.is_set():
                self._loop.unpark()
                self._event.set()

    def wait(self) -> None:
        self._event.wait()


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(256, thread_name_prefix="handler")
