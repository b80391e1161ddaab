"""A whole worker by the fake clock."""

import asyncio
import threading
from asyncio import sleep as pause  # by the harness's clock: no time passes in these tests
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.harness import JobFailed, JobState, StillBusy, WorkerHarness
from queue_operator.testing.clauses import proves
from queue_operator.worker import (
    Backoff,
    BackoffStrategy,
    CallNext,
    Cancelled,
    Depends,
    JobContext,
    PermanentError,
    Retry,
    Submission,
    Worker,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def harness(worker: Worker) -> Iterator[WorkerHarness]:
    with WorkerHarness(worker, start=START, capacity=3) as running:
        yield running


def states(harness: WorkerHarness) -> list[JobState]:
    return [job.state for job in harness.jobs()]


@proves("external-api.WorkerProcess.expect.10")
def test_jobs_run_when_time_may_pass_and_results_can_be_read(
    worker: Worker, harness: WorkerHarness
) -> None:
    @worker.handler("greet")
    async def greet(ctx: JobContext, payload: dict[str, str]) -> dict[str, str]:
        return {"greeting": f"Hello, {payload['name']}!"}

    @worker.handler("where")
    def where(ctx: JobContext) -> bytes:
        return threading.current_thread().name.encode()

    jobs = [harness.submit("greet", {"name": "Ada"}), harness.submit("where", job_id="w")]
    assert states(harness) == [JobState.INITIAL_PENDING] * 2
    with pytest.raises(JobFailed, match=r"is INITIAL_PENDING .*: call run_until_idle\(\)"):
        harness.result(jobs[0])
    harness.run_until_idle()
    assert harness.result(jobs[0]) == {"greeting": "Hello, Ada!"}
    assert harness.result("w").startswith(b"handler")
    assert harness.now == START
    with pytest.raises(JobNotFound):
        harness.job("absent")
    with pytest.raises(InvalidArgument):
        harness.submit("where", job_id="w")


@proves("external-api.WorkerProcess.expect.10", "external-api.JobContext.rule.3")
def test_retries_wait_by_the_clock(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("flaky", max_attempts=4)
    async def flaky(ctx: JobContext) -> int:
        if ctx.attempt == 1:
            raise ValueError("backoff")
        if ctx.attempt == 2:
            raise Retry("later", after="PT1H")
        return ctx.attempt

    backoff = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay=timedelta(seconds=10))
    job_id = harness.submit("flaky", backoff=backoff)
    harness.run_until_idle()
    assert (harness.job(job_id).state, harness.job(job_id).attempt) == (JobState.FAILED_RETRY, 1)
    harness.advance(9.5)
    assert harness.job(job_id).attempt == 1
    harness.advance(0.5)
    assert harness.job(job_id).attempt == 2
    harness.advance(timedelta(minutes=59))
    assert harness.job(job_id).attempt == 2
    harness.advance("PT1M")
    assert harness.result(job_id) == 3
    assert harness.now == START + timedelta(hours=1, seconds=10)


@proves(
    "external-api.WorkerProcess.expect.10",
    "external-api.JobContext.rule.7",
    "external-api.JobContext.rule.9",
)
def test_delays_timeouts_and_sleeps_take_no_time(worker: Worker, harness: WorkerHarness) -> None:
    began: list[datetime] = []

    @worker.handler("sleeps", timeout="PT2H")
    async def sleeps(ctx: JobContext, payload: float) -> str:
        began.append(harness.now)
        assert ctx.deadline == harness.now + timedelta(hours=2)
        ctx.report_progress(50, "half")
        await pause(payload)
        return "slept"

    short = harness.submit("sleeps", 3600, delay="PT6H")
    long = harness.submit("sleeps", 86_400, max_attempts=1)
    harness.run_until_idle()
    assert [harness.job(job_id).state for job_id in (short, long)] == [
        JobState.INITIAL_PENDING,
        JobState.RUNNING,
    ]
    progress = harness.job(long).progress
    assert progress is not None
    assert (progress.percent, progress.message) == (50, "half")
    harness.advance(7199)
    assert harness.job(long).state is JobState.RUNNING
    harness.advance(1)
    dead = harness.job(long)
    assert (dead.state, dead.error and dead.error.code) == (JobState.DEAD_LETTER, "TIMEOUT")
    harness.run_until_finished()
    assert harness.result(short) == "slept"
    assert began == [START, START + timedelta(hours=6)]
    assert harness.now == START + timedelta(hours=7)


@proves("external-api.WorkerProcess.expect.10", "external-api.JobContext.rule.8")
@pytest.mark.parametrize("kind", ["coroutine", "thread", "polling thread"])
def test_cancels_reach_whatever_waits(worker: Worker, harness: WorkerHarness, kind: str) -> None:
    @worker.handler("coroutine")
    async def coroutine(ctx: JobContext) -> None:
        await ctx.cancelled.wait_async()
        raise Cancelled

    @worker.handler("thread")
    def thread(ctx: JobContext) -> None:
        assert ctx.cancelled.wait()
        raise Cancelled

    @worker.handler("polling thread")
    def polling_thread(ctx: JobContext) -> None:
        while not ctx.cancelled.wait(60):
            ctx.report_progress(1)
        raise Cancelled

    job_id = harness.submit(kind)
    harness.run_until_idle()
    assert harness.job(job_id).state is JobState.RUNNING
    harness.advance(600)
    assert harness.job(job_id).state is JobState.RUNNING
    harness.cancel(job_id)
    harness.run_until_idle()
    assert harness.job(job_id).state is JobState.STOPPED


@proves("external-api.JobContext.expect.4")
def test_a_forced_cancel_interrupts_a_coroutine(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("deaf")
    async def deaf(ctx: JobContext) -> None:
        await pause(3600)

    job_id = harness.submit("deaf")
    harness.run_until_idle()
    harness.cancel(job_id)
    harness.run_until_idle()
    assert harness.job(job_id).state is JobState.CANCELLING
    harness.cancel(job_id, force=True)
    harness.run_until_idle()
    assert harness.job(job_id).state is JobState.STOPPED
    assert harness.now == START


@proves("external-api.WorkerProcess.expect.10")
def test_a_leases_outlives_any_wait(worker: Worker, harness: WorkerHarness) -> None:
    """Heartbeats go by the same clock."""

    @worker.handler("long")
    async def long(ctx: JobContext) -> int:
        await pause(1000)
        return ctx.attempt

    job_id = harness.submit("long")
    harness.advance(1000)
    assert harness.result(job_id) == 1


def test_the_capacity_holds_and_priorities_count(worker: Worker, harness: WorkerHarness) -> None:
    order: list[str] = []

    @worker.handler("work")
    async def work(ctx: JobContext, payload: str) -> None:
        order.append(payload)
        await pause(1)

    for name in ("a", "b", "c"):
        harness.submit("work", name, priority="LOW")
    harness.submit("work", "first", priority="CRITICAL")
    harness.run_until_idle()
    assert order[0] == "first"
    assert len(order) == 3
    harness.run_until_finished()
    assert sorted(order) == ["a", "b", "c", "first"]
    assert harness.now == START + timedelta(seconds=2)


def test_middleware_dependencies_and_lifespan_are_those_of_the_worker() -> None:
    log: list[str] = []

    async def lifespan(worker: Worker) -> AsyncIterator[str]:
        log.append("enter")
        yield "state"
        log.append("leave")

    async def connect() -> AsyncIterator[str]:
        log.append("connect")
        yield "db"
        log.append("disconnect")

    worker = Worker(lifespan=lifespan)

    async def handler(ctx: JobContext, db: Annotated[str, Depends(connect, "worker")]) -> list[str]:
        return [ctx.state, db]

    handler.__annotations__["db"] = Annotated[str, Depends(connect, "worker")]
    worker.handler("t")(handler)

    @worker.middleware
    async def around(ctx: JobContext, call_next: CallNext) -> Any:
        return [*await call_next(ctx), "around"]

    with WorkerHarness(worker) as harness:
        job_id = harness.submit("t")
        harness.run_until_idle()
        assert harness.result(job_id) == ["state", "db", "around"]
    assert log == ["enter", "connect", "disconnect", "leave"]
    with WorkerHarness(worker, state="fake") as harness:
        job_id = harness.submit("t")
        harness.run_until_idle()
        assert harness.result(job_id) == ["fake", "db", "around"]
    assert log == ["enter", "connect", "disconnect", "leave", "connect", "disconnect"]


def test_what_fails_is_shown(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("broken")
    async def broken(ctx: JobContext) -> None:
        raise PermanentError("the disk is full")

    job_id = harness.submit("broken")
    harness.run_until_idle()
    with pytest.raises(JobFailed, match=r"(?s)DEAD_LETTER: the disk is full.*test_harness\.py"):
        harness.result(job_id)


def test_children_of_no_handler_wait_and_are_named(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("parent")
    async def parent(ctx: JobContext) -> object:
        return await ctx.spawn("somebody else's")

    job_id = harness.submit("parent")
    with pytest.raises(AssertionError, match=r"not ended: \S+ \(somebody else's\) is"):
        harness.run_until_finished(within="PT1H")
    assert harness.now == START + timedelta(hours=1)
    assert [job.id for job in harness.unfinished()] == [harness.result(job_id)]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda h: h.submit("sent"), "type: the worker has no handler for 'sent'; its types: send"),
        (lambda h: h.submit("send", delay_s=5), "delay_s: is no option .* did you mean 'delay'?"),
        (lambda h: h.submit("send", colour=5), "colour: is no option of a job; there are: job_id"),
        (lambda h: h.submit("send", state="RUNNING"), "state: is no option of a job"),
        (lambda h: h.submit("send", tags="eu"), "tags: must be a list of texts, not 'eu'"),
        (lambda h: h.submit("send", depends_on=5), "depends_on: must be a list of texts, not 5"),
        (lambda h: h.submit("send", priority="URGENT"), "priority: must be one of CRITICAL"),
        (lambda h: h.submit("send", timeout=0), r"^timeout: must be more than 0 seconds"),
        (lambda h: h.submit("send", job_id="j" * 300), r"^job_id: has 300 characters"),
        (lambda h: h.advance("10 minutes"), "duration: '10 minutes' is no duration: write"),
        (lambda h: h.advance(float("nan")), "duration: must be a duration: seconds"),
        (lambda h: h.advance(-1), "duration: must not be negative"),
        (lambda h: h.run_until_finished("a week"), "within: 'a week' is no duration: write"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(
    worker: Worker, harness: WorkerHarness, call: Callable[[WorkerHarness], object], told: str
) -> None:
    worker.register("send", lambda ctx: None)
    with pytest.raises(InvalidArgument, match=told):
        call(harness)
    assert harness.jobs() == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"timeout": 0}, "timeout: must be more than 0 seconds"),
        (
            {"delay": 5, "scheduled_at": START},
            "delay: give either delay or scheduled_at, not both",
        ),
        (
            {"backoff": Backoff(strategy=BackoffStrategy.CUSTOM)},
            "backoff.delays: belongs to the strategy CUSTOM, and only to it",
        ),
        ({"job_id": "j" * 300}, "job_id: has 300 characters; the limit is 255"),
        ({"job_id": "taken"}, "job_id: already exists: taken"),
    ],
)
def test_what_the_queue_refuses_of_a_child_has_the_name_of_its_option(
    worker: Worker, harness: WorkerHarness, options: dict[str, Any], told: str
) -> None:
    @worker.handler("parent")
    def parent(ctx: JobContext) -> list[str]:
        with pytest.raises(InvalidArgument) as refused:
            ctx.spawn("parent", **options)
        return [refused.value.field, str(refused.value)]

    harness.submit("parent", job_id="taken", delay=timedelta(days=1))
    job_id = harness.submit("parent")
    harness.run_until_idle()
    assert harness.result(job_id) == [told.partition(":")[0], told]


def test_a_whole_submission_says_the_same_as_its_parts(
    worker: Worker, harness: WorkerHarness
) -> None:
    worker.register("t", lambda ctx, payload: payload)
    options: Any = {
        "priority": "HIGH",
        "delay": timedelta(hours=1),
        "timeout": timedelta(minutes=5),
        "max_attempts": 2,
        "tags": {"eu": ""},
        "correlation_id": "order-7",
        "callback_url": "http://example.org/told",
    }
    parts = harness.submit("t", {"a": 1}, **options)
    whole = harness.submit(Submission(type="t", payload={"a": 1}, **options))
    one, other = harness.job(parts), harness.job(whole)
    assert one == replace(other, id=one.id)
    assert other.eligible_at == START + timedelta(hours=1)
    assert (other.timeout_s, other.callback_url) == (300.0, "http://example.org/told")
    harness.run_until_finished()
    assert harness.result(whole) == {"a": 1}


def test_a_checkpoint_survives_the_attempt(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("resumes", max_attempts=2)
    def resumes(ctx: JobContext) -> str:
        if (state := ctx.last_checkpoint()) is not None:
            return state.decode()
        ctx.checkpoint(b"half way")
        raise Retry(after=5)

    job_id = harness.submit("resumes")
    harness.run_until_finished()
    assert harness.result(job_id) == "half way"


def test_a_function_that_works_too_long_is_told_of(worker: Worker) -> None:
    gate = threading.Event()

    @worker.handler("stuck")
    def stuck(ctx: JobContext) -> None:
        gate.wait()

    with WorkerHarness(worker, patience_s=0.05) as harness:
        harness.submit("stuck")
        with pytest.raises(StillBusy, match=r"did not end within 0\.05 s"):
            harness.run_until_idle()
        gate.set()


async def test_it_works_within_a_coroutine(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("reads")
    async def reads(ctx: JobContext) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"over a socket\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    job_id = harness.submit("reads")
    # The test's own loop goes on meanwhile, as the server is on it.
    await asyncio.to_thread(harness.run_until_idle)
    assert harness.result(job_id) == "over a socket"
    server.close()
    await server.wait_closed()


def test_a_worker_that_cannot_start_says_why() -> None:
    async def lifespan(worker: Worker) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        WorkerHarness(Worker(lifespan=lifespan)).__enter__()


def test_children_that_handlers_spawn_run_too(worker: Worker, harness: WorkerHarness) -> None:
    @worker.handler("parent")
    async def parent(ctx: JobContext) -> list[str]:
        return [await ctx.spawn("child", number) for number in (1, 2)]

    @worker.handler("child")
    def child(ctx: JobContext, payload: int) -> str:
        return f"{ctx.correlation_id} {payload}"

    job_id = harness.submit("parent", correlation_id="order")
    harness.run_until_idle()
    assert [harness.result(one) for one in harness.result(job_id)] == ["order 1", "order 2"]
    assert [job.type for job in harness.jobs()] == ["parent", "child", "child"]


def test_a_deaf_handler_is_given_up_on_as_in_a_cluster(
    worker: Worker, harness: WorkerHarness
) -> None:
    gate = asyncio.Event()

    @worker.handler("deaf")
    async def deaf(ctx: JobContext) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    job_id = harness.submit("deaf")
    harness.run_until_idle()
    harness.cancel(job_id, force=True)
    harness.advance("PT2M")
    assert harness.job(job_id).state is JobState.UNKNOWN_STOPPED
    gate.set()


def test_a_worker_may_demand_tags() -> None:
    worker = Worker()
    worker.register("t", lambda ctx: dict(ctx.tags))
    with WorkerHarness(worker, tags=["gpu"], namespace="team") as harness:
        plain, fitting = harness.submit("t"), harness.submit("t", tags=["gpu", "size=8"])
        harness.run_until_idle()
        assert harness.result(fitting) == {"gpu": "", "size": "8"}
        assert harness.job(plain).state is JobState.INITIAL_PENDING
