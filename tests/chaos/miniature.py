"""A chaos run in one process and in no time: the real queue on the memory backend, two replicas,
workers that are as honest as the SDK's, and a clock that jumps from one waking to the next.
"""

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.chaos.small_sender import SmallReceiver, SmallSender

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.backends.protocol import CheckpointReport, LogReport, SpawnRequest
from queue_operator.backends.webhooks import MessageSearch, MessageState
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Held, LeaseStatus, heartbeat_interval_s
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff
from queue_operator.domain.running import LogLine
from queue_operator.domain.states import Event, is_terminal
from queue_operator.queue.protocol import Push, Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.history import (
    History,
    Kind,
    Log,
    read_store,
    record_host,
    record_queue,
    record_usage,
    recorded_handler,
)

TTL_S: Final = 3.0
JOBS: Final = 90
WORKERS: Final = 3
CAPACITY: Final = 3
STEPS: Final = 3
CHILDREN: Final = 2
LOST_ANSWERS: Final = 0.2
_TURNS: Final = 60
_SETTLING_S: Final = 40.0
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class JumpingClock:
    """Stands still while anybody has something to do, then jumps to the next waking."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.now_s

    def seconds(self) -> float:
        """For logs: the time that the store sees."""
        return self.date().timestamp()

    def date(self) -> datetime:
        # No two readings are equal, as with a real clock.
        self.now_s += 1e-6
        return _EPOCH + timedelta(seconds=self.now_s)

    async def sleep(self, delay_s: float) -> None:
        self._count += 1
        waking = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + delay_s, self._count, waking))
        await waking

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._sleepers:
                due_s, _, waking = heapq.heappop(self._sleepers)
                if not waking.done():
                    self.now_s = max(self.now_s, due_s)
                    waking.set_result(None)


@dataclass
class Run:
    """A job that a worker has, from its assignment until its outcome is answered."""

    assignment: Assignment
    token: str
    cancelled: bool = False
    fails: bool = False
    handler: asyncio.Task[None] | None = None


@dataclass
class SmallWorker:
    """Does what the SDK does: runs jobs, names what it holds, sends outcomes until they are
    answered, and comes back with what it has after its connection was cut.
    """

    title: str
    replicas: list[QueueService]
    clock: JumpingClock
    log: Log
    rng: random.Random
    runs: dict[str, Run] = field(default_factory=dict)
    unanswered: dict[str, Outcome] = field(default_factory=dict)
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    stream: Stream | None = None
    lives: int = 1
    # In order, so that a seed always cancels them in the same one.
    tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.awake.set()

    async def connect(self, replica: int) -> None:
        old, self.stream = self.stream, None
        if old is not None:
            await old.close()
        spec = StreamSpec(assignee_id=self.name, capacity=CAPACITY, worker_name=self.title)
        held = [Held(run.assignment.job_id, run.token) for run in self.runs.values()]
        self.stream = await self.replicas[replica].open_stream(spec, held)
        self._spawn(self._read(self.stream))
        await self._send()

    @property
    def name(self) -> str:
        """The session's id: each process has its own."""
        return f"{self.title}-{self.lives}"

    async def start(self) -> None:
        await self.connect(self.rng.randrange(len(self.replicas)))
        self._spawn(self._beat())

    async def suffer(self) -> None:
        """Is stopped for a while, or loses its connection, again and again."""
        while True:
            await self.clock.sleep(self.rng.uniform(1.0, 4.0))
            match self.rng.choice(["stops", "stops", "is cut off", "dies"]):
                case "stops":
                    self.awake.clear()
                    await self.clock.sleep(self.rng.uniform(0.5, 3.0) * TTL_S)
                    self.awake.set()
                case "is cut off":
                    await self.connect(self.rng.randrange(len(self.replicas)))
                case "dies":
                    await self._die()

    async def _die(self) -> None:
        """Without a word; a new process takes its place."""
        self.log.write(Kind.KILLED, assignee_id=self.name)
        await self.stop()
        self.runs.clear()
        self.unanswered.clear()
        self.lives += 1
        await self.start()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

    async def _read(self, stream: Stream) -> None:
        while (push := await stream.next()) is not None:
            stream.delivered(push)
            # On its way: lost, if the connection is cut meanwhile.
            await self.clock.sleep(0.01)
            await self.awake.wait()
            if self.stream is stream:
                self._take(push)

    def _take(self, push: Push) -> None:
        for assignment in push.assignments:
            known = self.runs.get(assignment.job_id)
            if known is not None:
                self._adopt(known, assignment.token)
                continue
            run = Run(assignment, assignment.token)
            self.runs[assignment.job_id] = run
            run.handler = self._spawn(self._work(run))
        for request in push.cancels:
            if (asked := self.runs.get(request.job_id)) is not None:
                asked.cancelled = True

    def _adopt(self, run: Run, token: str) -> None:
        """It goes on under the new token; what it has ended with is told under that, too."""
        run.token = token
        if (outcome := self.unanswered.get(run.assignment.job_id)) is not None:
            self.unanswered[outcome.job_id] = outcome._replace(token=token)

    async def _work(self, run: Run) -> None:
        job = run.assignment
        with recorded_handler(self.log, job.job_id, self.name, run.token, job.checkpoint):
            match job.type:
                case "stepping":
                    run.fails = not await self._step(run)
                case "parent":
                    await self._spawn_children(run)
                case _:
                    await self._take_time()
        self.unanswered[job.job_id] = self._outcome(run)
        await self._send()

    async def _take_time(self) -> None:
        await self.clock.sleep(self.rng.uniform(0.05, 2.0))
        await self.awake.wait()

    async def _step(self, run: Run) -> bool:
        """Goes on where the last attempt stored that it was; whether it got through."""
        job_id, last = run.assignment.job_id, run.assignment.checkpoint or b"0"
        for step in range(int(last.split()[0]) + 1, STEPS + 1):
            await self._take_time()
            data = f"{step} of {self.name} under {run.token}".encode()

            async def ask(stream: Stream, step: int = step, data: bytes = data) -> bool:
                report = CheckpointReport(job_id=job_id, token=run.token, number=step, data=data)
                [answer] = await stream.checkpoint([report])
                return answer.error is None

            self._log_line(run, step)
            await self._until_stored(ask)
            if self.rng.random() < 0.2:
                return False
        return True

    def _log_line(self, run: Run, number: int) -> None:
        if self.stream is not None:
            message = f"step {number} of {self.name}"
            line = LogLine(number=number, at=self.clock.date(), level="INFO", message=message)
            told = LogReport(job_id=run.assignment.job_id, token=run.token, lines=(line,))
            self.stream.ship_logs([told])

    async def _spawn_children(self, run: Run) -> None:
        job_id = run.assignment.job_id
        for place in range(CHILDREN):

            async def ask(stream: Stream, place: int = place) -> bool:
                job = Job(id="", type="good", max_attempts=5)
                request = SpawnRequest(parent_id=job_id, token=run.token, key=f"{place}", job=job)
                [answer] = await stream.spawn([request])
                return answer.error is None

            await self._until_stored(ask)
            await self._take_time()

    async def _until_stored(self, ask: Callable[[Stream], Awaitable[bool]]) -> None:
        """Asks again while answers are lost, as the SDK does. One that is refused has its answer:
        the handler will hear from its heartbeat why.
        """
        while True:
            stream = self.stream
            if stream is not None:
                stored = await ask(stream)
                if not stored or self.rng.random() >= LOST_ANSWERS:
                    return
            await self.clock.sleep(0.5)
            await self.awake.wait()

    def _outcome(self, run: Run) -> Outcome:
        job_id, kind, token = run.assignment.job_id, run.assignment.type, run.token
        if run.cancelled:
            return Outcome(job_id, Event.ACK_EXECUTING, token=token, worker_plane=True)
        if kind == "failing" or run.fails:
            error = ErrorInfo("it fails", ErrorCategory.TEMPORARY, "FAILS")
            return Outcome(job_id, Event.FAIL, token=token, error=error, worker_plane=True)
        result = f"{job_id} of {self.name} under {token}".encode()
        return Outcome(job_id, Event.COMPLETE, token=token, result=result, worker_plane=True)

    async def _send(self) -> None:
        stream, sent = self.stream, list(self.unanswered.values())
        if stream is None or not sent:
            return
        answers = await stream.settle(sent)
        if self.rng.random() < LOST_ANSWERS:
            return  # the answer is lost; it is sent again
        for outcome, answer in zip(sent, answers, strict=True):
            if self.unanswered.get(answer.job_id) is outcome:
                del self.unanswered[answer.job_id]
                self.runs.pop(answer.job_id, None)

    async def _beat(self) -> None:
        while True:
            await self.clock.sleep(heartbeat_interval_s(TTL_S))
            await self.awake.wait()
            if self.stream is None or self.stream.end_reason is not None:
                continue
            held = [Held(run.assignment.job_id, run.token) for run in self.runs.values()]
            if held:
                for answer in await self.stream.heartbeat(held):
                    self._learn(answer.job_id, answer.token, answer.status)
                await self._send()

    def _learn(self, job_id: str, token: str, status: LeaseStatus) -> None:
        run = self.runs.get(job_id)
        over = status in (LeaseStatus.TAKEN_OVER, LeaseStatus.ENDED)
        # What has an outcome is still reported, and refused.
        if run is not None and run.token == token and over and job_id not in self.unanswered:
            if run.handler is not None:
                run.handler.cancel()
            del self.runs[job_id]

    async def stop(self) -> None:
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@dataclass
class Miniature:
    """One run. A run of the same seed goes the same way."""

    seed: int
    clock: JumpingClock = field(default_factory=JumpingClock)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)
    log: Log = field(init=False)
    rng: random.Random = field(init=False)
    replicas: list[QueueService] = field(default_factory=list)
    workers: list[SmallWorker] = field(default_factory=list)
    senders: list[SmallSender] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = Log("everybody", clock=self.clock.seconds)
        self.rng = random.Random(self.seed)  # noqa: S311

    def backend(self) -> MemoryBackend:
        return MemoryBackend(
            self.shelf,
            clock=self.clock.date,
            rng=self.rng.random,
            cancel_timeout_s=2 * TTL_S,
            sleep=self.clock.sleep,
        )

    async def run(self) -> History:
        async with self._running():
            suffering = [asyncio.create_task(one.suffer()) for one in self.workers]
            dying = [asyncio.create_task(one.suffer()) for one in self.senders]
            await self._ask()
            for task, worker in zip(suffering, self.workers, strict=True):
                task.cancel()
                worker.awake.set()
                await asyncio.gather(task, return_exceptions=True)
                await worker.connect(0)
            for task in dying:
                task.cancel()
            await asyncio.gather(*dying, return_exceptions=True)
            await self._until_ended()
            for replica in self.replicas:
                record_usage(replica, self.log)
            jobs = await read_store(self.backend())
        # Nothing takes any time, and no two readings of the clock are equal.
        return History(self.log.records, jobs, statement_s=0.0, transaction_s=0.0)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        ticking = asyncio.create_task(self.clock.run())
        for number in range(2):
            settings = QueueSettings(lease_ttl_s=TTL_S)
            queue = QueueService(
                self.backend(),
                settings,
                clock=self.clock,
                rng=self.rng.random,
                replica=f"replica{number}",
            )
            await queue.start()
            self.replicas.append(record_host(record_queue(queue, self.log), self.log))
        for number in range(WORKERS):
            rng = random.Random(f"{self.seed} {number}")  # noqa: S311
            name = f"worker{number}"
            self.workers.append(SmallWorker(name, self.replicas, self.clock, self.log, rng))
            await self.workers[-1].start()
        rng = random.Random(f"{self.seed} receiver")  # noqa: S311
        receiver = SmallReceiver(self.clock, self.log, rng)
        for number in range(2):
            rng = random.Random(f"{self.seed} sender {number}")  # noqa: S311
            sender = SmallSender(self.backend(), receiver, self.clock, self.clock.date, rng)
            self.senders.append(sender)
            sender.start()
        try:
            yield
        finally:
            for worker in self.workers:
                await worker.stop()
            for sender in self.senders:
                await sender.stop()
            for queue in self.replicas:
                await queue.close()
            ticking.cancel()

    async def _ask(self) -> None:
        """Clients submit jobs of every kind, and cancel some of them."""
        for number in range(JOBS):
            queue = self.rng.choice(self.replicas)
            job = Job(
                id=f"job{number:03}",
                type=self.rng.choice(["good", "good", "stepping", "parent", "failing"]),
                max_attempts=self.rng.choice([1, 2, 5]),
                backoff=Backoff(initial_delay_s=0.1, max_delay_s=1.0),
                callback_url="https://receiver.example/hook" if number % 2 else "",
            )
            await queue.enqueue_job(job)
            await self.clock.sleep(self.rng.uniform(0.0, 0.4))
            if self.rng.random() < 0.3:
                asked = f"job{self.rng.randint(max(number - 6, 0), number):03}"
                await self.rng.choice(self.replicas).cancel_jobs([], [asked])

    async def _until_ended(self) -> None:
        """Until no job is left, or for as long as that may take; then a little for the slots."""
        until_s = self.clock.now_s + _SETTLING_S
        while self.clock.now_s < until_s:
            await self.clock.sleep(TTL_S)
            ended = all(is_terminal(one.job.state) for one in self.shelf.jobs.values())
            if ended and await self._is_told():
                break
        await self.clock.sleep(2 * TTL_S)

    async def _is_told(self) -> bool:
        pending = MessageSearch(state=MessageState.PENDING, limit=1)
        return not (await self.backend().webhooks.search(pending)).messages


async def miniature(seed: int) -> History:
    """What everybody saw of one run, in no time."""
    return await Miniature(seed).run()
