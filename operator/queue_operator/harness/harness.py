"""The harness: what a test submits and reads, and the clock that it moves."""

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from queue_operator.auth.open import AdministratorsOnly, OpenAuthenticator
from queue_operator.auth.protocol import Identity
from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.client.requests import Submission
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import DEFAULT_NAMESPACE, Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.states import TERMINAL, JobState
from queue_operator.domain.units import in_submission, respelled
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.harness import arguments
from queue_operator.harness.call import ServerEnd, connected
from queue_operator.harness.launcher import Launcher, threads
from queue_operator.harness.loop import ManualLoop
from queue_operator.queue.service import QueueService
from queue_operator.rpc.door import Door
from queue_operator.rpc.servicer import WorkerPlaneServicer
from queue_operator.settings import QueueSettings, Settings
from queue_operator.worker.client import Client
from queue_operator.worker.context import WorkerIdentity
from queue_operator.worker.durations import Duration, length_of
from queue_operator.worker.injection import Provider, all_of
from queue_operator.worker.runner import Runner
from queue_operator.worker.session import Session
from queue_operator.worker.settings import WorkerSettings
from queue_operator.worker.spawning import ChildOptions
from queue_operator.worker.values import decode_result
from queue_operator.worker.worker import Worker

_T = TypeVar("_T")

NAME: Final = "harness"
LEASE_TTL_S: Final = 60.0
IDLE_POLL_S: Final = 3600.0
"""The harness tells the queue of every change, so it need not look by itself."""
DAY_S: Final = 86_400.0


class JobFailed(AssertionError):
    """A result was asked for of a job that has none."""


class _Clock:
    """A `domain.clock.Clock`, and the date and time, of a loop."""

    def __init__(self, loop: ManualLoop, start: datetime) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def seconds_at(self, time: datetime) -> float:
        return (time - self._start).total_seconds()


class _Store(MemoryBackend):
    """Gives jobs out only while the test lets things happen."""

    giving = False

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        if not self.giving:
            return []
        return await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)


class WorkerHarness:
    """Runs a worker on a queue in memory. Use it as a context manager, in plain tests and in
    coroutines alike: its own thread does the work, and only during a call of it.

    `capacity` (10) is how many jobs the worker runs at once, `tags` are what it demands,
    `namespace` is whose jobs it takes ("default"). `start` is the first time of the clock (now,
    in whole seconds). `rng` gives the jitter of backoffs, from 0 to below 1 (always 0.5).
    `state` stands in for what the worker's lifespan gives; without it the lifespan is entered.
    `patience_s` is for how long, in real seconds, a plain function may work (10).

    Coroutines run on the clock's loop. Plain functions run in threads, those registered for a
    process too; `ctx.cancelled.wait(s)` takes the clock's time there, `time.sleep(s)` takes real
    time.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        capacity: int = 10,
        tags: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
        start: datetime | None = None,
        rng: Callable[[], float] = lambda: 0.5,
        state: object = None,
        patience_s: float = 10.0,
    ) -> None:
        self.worker = worker
        self._namespace = namespace
        self._state = state
        self._loop = ManualLoop(patience_s)
        self._clock = _Clock(self._loop, start or datetime.now(UTC).replace(microsecond=0))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker-harness")
        self._threads = threads()
        self._provider = Provider(worker.overrides)
        self._running: asyncio.Task[None] | None = None
        self._make_queue(rng)
        self._make_worker(capacity, frozenset(tags))

    def _make_queue(self, rng: Callable[[], float]) -> None:
        self._shelf = MemoryShelf()
        self._look = asyncio.Event()
        self._seen: object = None
        self._backend = _Store(
            self._shelf, clock=self._clock.now, rng=rng, sleep=self._until_asked_to_look
        )
        settings = QueueSettings(lease_ttl_s=LEASE_TTL_S, idle_poll_s=IDLE_POLL_S)
        self._queue = QueueService(self._backend, settings, clock=self._clock, rng=rng)
        door = Door(OpenAuthenticator(), AdministratorsOnly(), DEFAULT_LIMITS.id_characters)
        self._plane = WorkerPlaneServicer(self._queue, door, Settings(queue=settings))

    def _make_worker(self, capacity: int, tags: frozenset[str]) -> None:
        settings = WorkerSettings(
            capacity=capacity,
            tags=tags,
            namespace=self._namespace,
            worker_name=NAME,
            host=NAME,
            health_port=0,
            metrics_port=0,
            grace_s=0.0,
        )
        self._launcher = Launcher(
            self._loop,
            Runner(self.worker.registry.middleware, self._provider, self._threads),
            lambda run, ending: self._session.finished(run, ending),
        )
        self._session = Session(
            settings,
            WorkerIdentity(str(uuid.uuid4()), NAME, self._namespace, NAME, tags),
            self.worker.registry,
            self._launcher,
            schedule=self._loop.call_later,
            post=self._loop.call_soon_threadsafe,
            wake=lambda: self._client.wake(),
            done=lambda: self._client.done(),
            now=self._clock.now,
        )
        self._client = Client(
            settings, self._session, connect=lambda: connected(self._serve), coalesce_s=0.0
        )

    # Life

    def __enter__(self) -> Self:
        """Enters the lifespan, makes what lives as long as the worker, and connects. Raises
        what any of these raises.
        """
        try:
            self._do(self._open())
            self.run_until_idle()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops as on SIGTERM without a grace, and leaves the lifespan."""
        # What the test itself says is wrong comes first.
        with suppress(*([] if error is None else [Exception])):
            self._close()

    async def _open(self) -> None:
        await self._queue.start()
        resource = self.worker.resource() if self._state is None else None
        entered = None if resource is None else await self._provider.enter(resource)
        self._launcher.state = self._state if resource is None else entered
        for spec in self.worker.registry.specs():
            await self._provider.prepare(all_of(spec.needs))
        self.worker.registry.watch(self._announce)
        self._running = asyncio.create_task(self._client.run())

    def _announce(self, _spec: object) -> None:
        self._loop.call_soon_threadsafe(self._session.announce)

    async def _serve(self, end: ServerEnd) -> None:
        identity = Identity(name=NAME, namespace=self._namespace, admin=True)
        await self._plane.serve(end, identity)

    def _close(self) -> None:
        try:
            self._do(self._shut_down(), self._next_timer)
        finally:
            self._thread.submit(self._loop.close).result()
            self._thread.shutdown()
            self._threads.shutdown(wait=False)

    async def _shut_down(self) -> None:
        if self._running is not None:
            self.worker.registry.unwatch(self._announce)
            self._client.stop()
            await self._running
        try:
            await self._provider.close()
        finally:
            self._look.set()
            await self._queue.close()
            await self._loop.shutdown_asyncgens()

    # What a test does

    def submit(
        self,
        type: str | Submission,
        payload: object = None,
        **options: Unpack[ChildOptions],
    ) -> str:
        """Submits a job and gives its id; it runs with the next call that lets time pass.

        It is called as `ctx.spawn` is: `payload` is bytes, a pydantic model or a JSON value,
        `options` are those of a submission (`job_id`, `tags`, `priority`, `delay`, `timeout`,
        `max_attempts`, `backoff`, `depends_on`, …), and a whole `Submission` will do. What is
        left out is the handler's to say, else the queue's.

        Raises InvalidArgument for what the queue would refuse, for what is no option, and for a
        type that the worker does not handle.
        """
        self.worker.registry.known(type.type if isinstance(type, Submission) else type)
        job = arguments.job(type, payload, options, self._namespace)
        try:
            return self._do(self._backend.enqueue_job(job))
        except InvalidArgument as error:
            raise respelled(error, in_submission) from None

    def cancel(self, *job_ids: str, force: bool = False, reason: str = "") -> None:
        """Asks to cancel the jobs; `force` interrupts a coroutine where it waits."""
        namespace = self._namespace
        self._do(
            self._queue.cancel_jobs((), job_ids, namespace=namespace, force=force, reason=reason)
        )

    def run_until_idle(self) -> None:
        """Runs all that can run now. The clock stands still: what waits for a retry, a delay or
        a sleep goes on waiting.

        Raises StillBusy when a plain function works for longer than `patience_s`.
        """
        self._run(self._look_again)

    def advance(self, duration: Duration) -> None:
        """Lets that much time pass (seconds, a `timedelta`, or text such as "5m" or "PT5M"),
        with all that happens meanwhile, each at its time.
        """
        until_s = self._loop.time() + length_of("duration", duration)
        self._run(lambda: self._look_again() or self._move(until_s))

    def run_until_finished(self, within: Duration = 7 * DAY_S) -> None:
        """Lets time pass until every job has ended, through delays, retries and timeouts.

        Raises AssertionError naming those that have not ended by then (by default a week).
        """
        until_s = self._loop.time() + length_of("within", within)
        self._run(lambda: self._look_again() or (bool(self.unfinished()) and self._move(until_s)))
        if left := self.unfinished():
            jobs = ", ".join(f"{job.id} ({job.type}) is {job.state}" for job in left)
            raise AssertionError(f"not ended: {jobs}")

    @property
    def now(self) -> datetime:
        """The clock's time."""
        return self._clock.now()

    def job(self, job_id: str) -> Job:
        """Raises JobNotFound."""
        return self._do(self._queue.get_job(job_id, namespace=self._namespace))

    def jobs(self) -> list[Job]:
        """All jobs, those that handlers spawned too, in order of submission."""
        return [one.job for one in self._shelf.jobs.values()]

    def unfinished(self) -> list[Job]:
        """Those that have not ended."""
        return [job for job in self.jobs() if job.state not in TERMINAL]

    def result(self, job_id: str) -> Any:
        """What the job's handler returned, as its JSON value or bytes.

        Raises JobFailed, with the error and its trace, for a job that is not COMPLETED.
        """
        job = self.job(job_id)
        if job.state not in TERMINAL:
            raise JobFailed(
                f"job {job_id} is {job.state} and has not ended: call run_until_idle(), or "
                "advance(…) if it waits for its time"
            )
        if job.state is not JobState.COMPLETED:
            trace = f"\n{job.error.stack_trace}" if job.error else ""
            raise JobFailed(f"job {job_id} is {job.state}: {job.error_message}{trace}")
        return decode_result(job.result or b"", job.result_content_type if job.result else "")

    # The loop

    def _do(self, work: Coroutine[Any, Any, _T], step: Callable[[], bool] | None = None) -> _T:
        return self._thread.submit(self._loop.complete, work, step or (lambda: False)).result()

    def _run(self, step: Callable[[], bool]) -> None:
        self._seen = None
        self._backend.giving = True
        self._loop.call_soon_threadsafe(self._queue.dispatcher.wake_all)
        try:
            self._thread.submit(self._loop.run, step).result()
        finally:
            self._backend.giving = False
        if self._running is not None and self._running.done():
            self._running.result()

    def _look_again(self) -> bool:
        """Lets the queue look at the store, if that has changed since it last did."""
        seen = (
            self._loop.time(),
            [(one.job.state, len(one.transitions)) for one in self._stored()],
        )
        if seen == self._seen:
            return False
        self._seen = seen
        self._look.set()
        return True

    def _stored(self) -> Iterable[Any]:
        return self._shelf.jobs.values()

    def _move(self, until_s: float) -> bool:
        """To the next time at which something happens, at most to that one."""
        if self._loop.time() >= until_s:
            return False
        self._loop.move_to(min([until_s, *self._due()]))
        return True

    def _next_timer(self) -> bool:
        timer_s = self._loop.next_timer()
        if timer_s is not None:
            self._loop.move_to(timer_s)
        return timer_s is not None

    def _due(self) -> list[float]:
        """The times of timers, and of jobs that wait for theirs."""
        timer_s = self._loop.next_timer()
        jobs = [
            self._clock.seconds_at(job.eligible_at)
            for job in self.unfinished()
            if job.eligible_at is not None and job.eligible_at > self.now
        ]
        return jobs if timer_s is None else [*jobs, timer_s]

    async def _until_asked_to_look(self, _delay_s: float) -> None:
        await self._look.wait()
        self._look.clear()
