"""Records what a queue does for its callers, and for the workers on its streams."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from queue_operator.backends.protocol import (
    CheckpointAnswer,
    CheckpointReport,
    LogReport,
    SpawnRequest,
)
from queue_operator.domain.job import Cancelled, Job, Submitted
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.queue.protocol import Push, Queue, Stream, StreamHost, StreamSpec
from queue_operator.testing.history.calls import (
    CANCEL,
    SUBMIT,
    Called,
    checkpoint_digest,
    digest,
    stand_before,
    text_digest,
)
from queue_operator.testing.history.records import Kind, Log

Q = TypeVar("Q", bound=Queue)
H = TypeVar("H", bound=StreamHost)
S = TypeVar("S", bound=Stream)


def record_queue(queue: Q, log: Log) -> Q:
    """What callers ask of a queue, in process or over gRPC: submissions and cancels."""
    recorder = _QueueRecorder(queue, log)
    stand_before(queue, recorder, "enqueue_job", "enqueue_jobs", "cancel_jobs")
    return queue


def record_host(host: H, log: Log) -> H:
    """Every stream that is opened from now on."""
    stand_before(host, _HostRecorder(host, log), "open_stream")
    return host


def record_stream(stream: S, log: Log) -> S:
    """What one stream hands out, and what comes back through it."""
    recorder = _StreamRecorder(stream, log)
    stand_before(stream, recorder, "delivered", "settle", "heartbeat", "close")
    stand_before(stream, recorder, "checkpoint", "spawn", "ship_logs")
    return stream


def record_usage(host: StreamHost, log: Log) -> None:
    """How many slots each open stream counts as taken now."""
    for usage in host.usage():
        name, capacity = usage.spec.assignee_id, usage.spec.capacity
        log.write(Kind.STREAM_USAGE, assignee_id=name, busy=usage.busy, capacity=capacity)


class _QueueRecorder:
    def __init__(self, queue: Queue, log: Log) -> None:
        self._enqueue, self._enqueue_all = queue.enqueue_job, queue.enqueue_jobs
        self._cancel = queue.cancel_jobs
        self._log = log

    async def enqueue_job(self, job: Job) -> str:
        with Called(self._log, SUBMIT, [job.id]) as call:
            job_id = await self._enqueue(job)
            call.acknowledge([job_id])
        return job_id

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        with Called(self._log, SUBMIT, [job.id for job in jobs]) as call:
            job_ids = await self._enqueue_all(jobs)
            call.acknowledge(job_ids)
        return job_ids

    async def cancel_jobs(
        self, tags: Collection[str], job_ids: Collection[str], **options: Any
    ) -> Cancelled:
        with Called(self._log, CANCEL, job_ids) as call:
            answer = await self._cancel(tags, job_ids, **options)
            call.acknowledge(answer.cancelled_job_ids)
        return answer


class _HostRecorder:
    def __init__(self, host: StreamHost, log: Log) -> None:
        self._open = host.open_stream
        self._log = log

    async def open_stream(self, spec: StreamSpec, held: Sequence[Held] = ()) -> Stream:
        return record_stream(await self._open(spec, held), self._log)


class _StreamRecorder:
    def __init__(self, stream: Stream, log: Log) -> None:
        self._stream, self._log = stream, log
        self._delivered, self._settle = stream.delivered, stream.settle
        self._heartbeat, self._close = stream.heartbeat, stream.close
        self._checkpoint, self._spawn = stream.checkpoint, stream.spawn
        self._ship_logs = stream.ship_logs
        self._name = stream.spec.assignee_id
        capacity, worker = stream.spec.capacity, stream.spec.worker_name
        log.write(
            Kind.STREAM_OPENED,
            assignee_id=self._name,
            capacity=capacity,
            worker=worker,
            adopted=len(stream.adopted),
        )

    def delivered(self, push: Push) -> None:
        self._delivered(push)
        for job in push.assignments:
            self._log.write(
                Kind.ASSIGNED,
                job.job_id,
                job.token,
                assignee_id=self._name,
                attempt=job.attempt,
                checkpoint=checkpoint_digest(job.checkpoint),
            )

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        for outcome in outcomes:
            self._sent(outcome)
        answers = await self._settle(outcomes)
        for outcome, settled in zip(outcomes, answers, strict=True):
            self._settled(outcome, settled)
        return answers

    def _sent(self, outcome: Outcome) -> None:
        self._log.write(
            Kind.OUTCOME_SENT,
            outcome.job_id,
            outcome.token or "",
            assignee_id=self._name,
            outcome=outcome.event,
            result=digest(outcome.result),
            code=outcome.error.code if outcome.error else "",
        )

    def _settled(self, outcome: Outcome, settled: Settled) -> None:
        refused = settled.error is not None
        self._log.write(
            Kind.OUTCOME_REFUSED if refused else Kind.OUTCOME_ACKNOWLEDGED,
            outcome.job_id,
            outcome.token or "",
            assignee_id=self._name,
            outcome=outcome.event,
            state=settled.state or "",
            error=settled.error.code if settled.error else "",
        )

    async def heartbeat(self, held: Sequence[Held]) -> list[LeaseAnswer]:
        asked_at = self._log.clock()
        answers = await self._heartbeat(held)
        for one in answers:
            self._log.write(
                Kind.LEASE_ANSWERED,
                one.job_id,
                one.token,
                assignee_id=self._name,
                status=one.status,
                asked_at=asked_at,
            )
        return answers

    async def checkpoint(self, reports: Sequence[CheckpointReport]) -> list[CheckpointAnswer]:
        for one in reports:
            self._log.write(
                Kind.CHECKPOINT_SENT,
                one.job_id,
                one.token,
                number=one.number,
                state=digest(one.data),
            )
        answers = await self._checkpoint(reports)
        for one, answer in zip(reports, answers, strict=True):
            if answer.error is None:
                state = digest(one.data)
                self._log.write(Kind.CHECKPOINT_ACKNOWLEDGED, one.job_id, one.token, state=state)
        return answers

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        for one in requests:
            self._log.write(Kind.SPAWN_SENT, one.parent_id, one.token, key=one.key)
        answers = await self._spawn(requests)
        for one, answer in zip(requests, answers, strict=True):
            if answer.error is None:
                self._log.write(
                    Kind.SPAWN_ACKNOWLEDGED,
                    one.parent_id,
                    one.token,
                    key=one.key,
                    child=answer.job_id,
                )
        return answers

    def ship_logs(self, reports: Sequence[LogReport]) -> None:
        for report in reports:
            for line in report.lines:
                self._log.write(
                    Kind.LINE_SENT,
                    report.job_id,
                    report.token,
                    number=line.number,
                    text=text_digest(line.message),
                )
        self._ship_logs(reports)

    async def close(self, *reason: Any) -> None:
        await self._close(*reason)
        why = str(self._stream.end_reason)
        self._log.write(Kind.STREAM_CLOSED, assignee_id=self._name, reason=why)
