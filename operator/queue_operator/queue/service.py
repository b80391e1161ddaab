"""The queue: streams, capacity and wake-ups on top of any backend."""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from queue_operator.backends.protocol import Backend
from queue_operator.backends.worker_sessions import is_of
from queue_operator.domain.batch import moved_to, unplaced
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Forbidden, QueueError, Unavailable
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Cancelled,
    Demand,
    Job,
    JobStats,
    Submitted,
)
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_capacity,
    check_tags,
)
from queue_operator.queue.asks import WorkerAsks
from queue_operator.queue.bookkeeper import Bookkeeper
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.coalescer import Coalescer
from queue_operator.queue.completer import Completer, undelivered
from queue_operator.queue.demand import Group
from queue_operator.queue.dispatcher import Dispatcher
from queue_operator.queue.hints import WorkerHints
from queue_operator.queue.keeper import Keeper
from queue_operator.queue.library import LibraryStream
from queue_operator.queue.notifier import Notifier
from queue_operator.queue.protocol import EndReason, StreamSpec, StreamUsage
from queue_operator.queue.quotas import Admission, Quotas
from queue_operator.queue.registry import StreamRegistry
from queue_operator.queue.rescuer import Rescuer
from queue_operator.queue.sessions import Opening, SessionRows, loss_of
from queue_operator.queue.spec import check_spec
from queue_operator.queue.stream import JobStream, StreamParts
from queue_operator.queue.suspects import Isolation
from queue_operator.queue.suspending import set_suspended
from queue_operator.queue.whole import Unfinished, whole
from queue_operator.settings import QueueSettings, QuotaSettings

logger = logging.getLogger(__name__)

_WORKER: Final = ("namespace", "worker_name", "pod_uid")
"""What makes two connections one worker's."""


class QueueService:
    """A `queue.protocol.HostedQueue`. `start` before opening streams; `close` ends the backend too,
    `stop` leaves it to its owner.

    `replica` names this process in the rows of worker sessions.
    """

    def __init__(
        self,
        backend: Backend,
        settings: QueueSettings | None = None,
        *,
        clock: Clock | None = None,
        rng: Callable[[], float] = random.random,
        quotas: QuotaSettings | None = None,
        replica: str = "",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        settings = settings or QueueSettings()
        clock = clock or SystemClock()
        self.backend = backend
        self.lease_ttl_s = settings.lease_ttl_s
        self._limits = limits
        self._process = f"{replica or 'queue'}/{uuid.uuid4().hex[:8]}"
        self._streams = StreamRegistry(clock)
        self._completer = Completer(
            backend, self._on_settled, max_batch=settings.settle_batch, clock=clock, rng=rng
        )
        self._leases = _renewals(backend, settings, clock, rng)
        self._quotas = Quotas(backend, quotas or QuotaSettings(), clock, limits)
        self._asks = WorkerAsks(
            backend, self._quotas, lambda jobs: self.dispatcher.submitted(jobs), clock, rng
        )
        self.unfinished = Unfinished()
        self._hints = WorkerHints(backend, settings.settle_batch, clock, rng)
        self.dispatcher = Dispatcher(
            backend, self._streams, settings, clock, rng, self._quotas.within
        )
        ttl_s = settings.lease_ttl_s
        self._sessions = SessionRows(backend, replica, self._disconnected)
        self.rescuer = Rescuer(backend, self._streams, self.dispatcher, ttl_s, clock, rng)
        self.notifier = Notifier(
            backend,
            self._streams,
            self.dispatcher,
            lambda: self.keeper.sessions_changed(),
            clock,
            rng,
        )
        self.keeper = Keeper(
            backend,
            self._streams,
            self._completer,
            self._leases,
            self.dispatcher,
            self._sessions,
            ttl_s,
            clock,
            rng,
        )
        self._parts = self._shared_parts(clock)
        # In order of start; stopped in reverse, so that what streams give back is stored.
        self._services = (
            self._completer,
            self._leases,
            self._hints,
            self._asks,
            self.dispatcher,
            self.rescuer,
            self.notifier,
            self.keeper,
            Bookkeeper(backend, clock, rng),
        )
        self._opening = Opening()
        self._closed = False
        self._stopping: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def _shared_parts(self, clock: Clock) -> StreamParts:
        return StreamParts(
            completer=self._completer,
            leases=self._leases,
            hints=self._hints,
            asks=self._asks,
            clock=clock,
            next_order=self._streams.next_order,
            freed=self.dispatcher.freed,
            retyped=self._retyped,
            claimed=self.dispatcher.claimed,
            isolation=Isolation(lambda: len(self._streams.all())),
            closed=self._streams.remove,
            ended=self._close_row,
        )

    # Life

    async def start(self) -> None:
        for service in self._services:
            await service.start()

    async def stop(self) -> None:
        """Ends all streams, gives undelivered jobs back and stops every loop. Whoever calls it
        again waits for the same.

        While the store is away this takes a lease TTL, and what the call takes that is under way:
        then those jobs go back by themselves, which the log says.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._closed = True
        closing = [
            asyncio.ensure_future(stream.close(EndReason.QUEUE_CLOSED))
            for stream in self._streams.all()
        ]
        if closing:
            await asyncio.wait(closing, timeout=self.lease_ttl_s)
        async with AsyncExitStack() as services:
            # Each is stopped, whatever happens to another.
            for service in self._services:
                services.push_async_callback(service.stop)
        await asyncio.gather(*closing)
        await self.unfinished.finished()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self.stop()
        finally:
            await self.backend.close()

    async def ping(self) -> None:
        await self._store.ping()

    def usage(self) -> list[StreamUsage]:
        return [stream.usage() for stream in self._streams.all()]

    # Submission

    async def enqueue_job(self, job: Job) -> str:
        async with self._quotas.admitting([job]) as admission:
            if not _is_repeatable(job, admission):
                job_id = await self._store.enqueue_job(job)
            else:
                [answer] = await self._store.submit([job], atomic=False)
                admission.answered([answer])
                if answer.error is not None:
                    raise unplaced(answer.error)
                job_id = answer.job_id
        self.dispatcher.submitted([job])
        return job_id

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        async with self._quotas.admitting(jobs) as admission:
            if not any(_is_repeatable(job, admission) for job in jobs):
                job_ids = await self._store.enqueue_jobs(jobs)
            else:
                answers = await self._store.submit(jobs)
                admission.answered(answers)
                job_ids = [answer.job_id for answer in answers]
        self.dispatcher.submitted(jobs)
        return job_ids

    async def submit(
        self, jobs: Sequence[Job], *, atomic: bool = True, patient: bool = True
    ) -> list[Submitted]:
        async with self._quotas.admitting(jobs, whole=atomic) as admission:
            if atomic:
                answers = await self._store.submit(jobs)
            else:
                answers = await self._submit_but(jobs, admission.refused, patient)
            admission.answered(answers)
        self.dispatcher.submitted(
            [
                job
                for job, answer in zip(jobs, answers, strict=True)
                if answer.error is None and not answer.duplicate
            ]
        )
        return answers

    async def _submit_but(
        self, jobs: Sequence[Job], refused: Mapping[int, QueueError], patient: bool
    ) -> list[Submitted]:
        """An answer for each, also for those that are refused."""
        if not refused:
            return await self._store.submit(jobs, atomic=False, patient=patient)
        kept = [n for n in range(len(jobs)) if n not in refused]
        stored = await self._store.submit([jobs[n] for n in kept], atomic=False, patient=patient)
        answers = {n: Submitted(job_id=jobs[n].id, error=error) for n, error in refused.items()}
        for n, answer in zip(kept, stored, strict=True):
            error = answer.error
            answers[n] = answer if error is None else replace(answer, error=moved_to(n, error))
        return [answers[n] for n in range(len(jobs))]

    async def may_run(self, namespace: str) -> bool:
        one = Demand(assignee_id="any", limit=1, namespace=namespace)
        return bool(await self._quotas.within([one]))

    # Streams

    def stream_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        max_assigned_jobs: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> LibraryStream:
        """Leases are renewed while the iterator is open: close it (`async with`) to give
        undelivered jobs back at once.
        """
        check_capacity("max_assigned_jobs", max_assigned_jobs)
        check_tags("tags", tags, self._limits)
        spec = StreamSpec(
            assignee_id=assignee_id,
            capacity=max_assigned_jobs,
            namespace=namespace,
            tags=frozenset(tags),
            host=self._process,
        )
        stream = self._open(spec, renewed_by_queue=True)
        return LibraryStream(stream, self._register, self.lease_ttl_s)

    async def open_stream(self, spec: StreamSpec, held: Sequence[Held] = ()) -> JobStream:
        stream = self._open(spec, renewed_by_queue=False)
        async with AsyncExitStack() as undo:
            with self._opening.of(spec.assignee_id):
                await self._end_older(spec)
                previous = await self._sessions.open(stream)
                undo.push_async_callback(self._forget_row, stream)
                await self._set_up(stream, held, previous)
            undo.pop_all()
        return stream

    async def _set_up(self, stream: JobStream, held: Sequence[Held], previous: str) -> None:
        spec = stream.spec
        stored = await self._store.leased([spec.assignee_id])
        self._streams.unpark(spec)
        mine = [one for one in stored if one.namespace == spec.namespace]
        await stream.adopt(held, mine, same_process=is_of(spec.process, previous))
        # Another one may have been opened meanwhile; nothing may come between this and the
        # registration.
        await self._end_older(spec)
        self._register(stream)

    async def _end_older(self, spec: StreamSpec) -> None:
        while older := [s for s in self._streams.of(spec.assignee_id) if not s.renewed_by_queue]:
            _check_same_worker(older[0].spec, spec)
            await older[0].close(EndReason.REPLACED)

    async def _close_row(self, stream: JobStream) -> None:
        """The row of a worker that holds nothing goes at once, else with its leases."""
        assignee_id = stream.spec.assignee_id
        if stream.renewed_by_queue or stream.end_reason is EndReason.REPLACED:
            return
        # One that is being opened has written to the row, and is in no list yet.
        wanted = self._streams.of(assignee_id) or assignee_id in self._opening
        if not wanted and not self._streams.is_parked(stream.spec):
            loss = loss_of(stream)
            await (self._sessions.lose([loss]) if loss else self._sessions.close([assignee_id]))

    async def _forget_row(self, stream: JobStream) -> None:
        """Of a stream that was not opened after all; why is said already."""
        with suppress(QueueError):
            await self._close_row(stream)

    def _open(self, spec: StreamSpec, *, renewed_by_queue: bool) -> JobStream:
        self._check_open()
        check_spec(spec, self._limits)
        return JobStream(spec, self._parts, renewed_by_queue=renewed_by_queue)

    def _disconnected(self, assignee_id: str) -> None:
        logger.warning("session %s was disconnected: its QueueWorker is gone", assignee_id)
        self._may_be_ready()

    @property
    def _store(self) -> Backend:
        self._check_open()
        return self.backend

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the queue is shutting down; connect to another replica")

    def _retyped(self, stream: JobStream, before: Sequence[Group]) -> None:
        self._streams.refilter(stream, before)
        self.dispatcher.wake(group.filter for group in stream.groups)

    async def give_back(self, held: Sequence[Held]) -> None:
        """Jobs that came through a stream and that nobody began go back to the queue."""
        await self._completer.submit(
            [undelivered(job.job_id, job.namespace, job.token) for job in held]
        )

    def _register(self, stream: JobStream) -> None:
        self._check_open()
        self._streams.add(stream)
        self.dispatcher.wake(group.filter for group in stream.groups)

    # Lifecycle

    @whole
    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        call = self._store.complete_job(job_id, result, namespace=namespace, token=token)
        await self._end_attempt(call, namespace, job_id)

    @whole
    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        call = self._store.fail_job(job_id, error_msg, namespace=namespace, token=token)
        await self._end_attempt(call, namespace, job_id)
        self._may_be_ready()

    @whole
    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        call = self._store.stop_job(job_id, error_msg, namespace=namespace, token=token)
        await self._end_attempt(call, namespace, job_id)

    @whole
    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        call = self._store.stop_job_with_retry(job_id, error_msg, namespace=namespace, token=token)
        await self._end_attempt(call, namespace, job_id)

    @whole
    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        call = self._store.mark_job_unknown_stopped(
            job_id, error_msg, namespace=namespace, token=token
        )
        await self._end_attempt(call, namespace, job_id)

    async def _end_attempt(
        self, call: Awaitable[Iterable[str]], namespace: str, job_id: str
    ) -> None:
        before = self._streams.last_order
        assignee_ids = await call
        self._streams.freed(assignee_ids, (namespace, job_id), before)
        self.dispatcher.freed()

    # Cancellation

    @whole
    async def cancel_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        force: bool = False,
        reason: str = "",
    ) -> Cancelled:
        cancelled = await self._store.cancel_jobs(
            tags, job_ids, namespace=namespace, force=force, reason=reason
        )
        self._streams.cancel(cancelled.requests)
        return cancelled

    @whole
    async def suspend_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        return await set_suspended(self._store, job_ids, namespace, True, self._limits)

    @whole
    async def resume_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        left = await set_suspended(self._store, job_ids, namespace, False, self._limits)
        self._may_be_ready()
        return left

    @whole
    async def retry_jobs(self, retries: Sequence[Outcome]) -> list[Settled]:
        answers = await self._store.settle(retries)
        self._may_be_ready()
        return answers

    @whole
    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        before = self._streams.last_order
        await self._store.acknowledge_cancellation(
            job_id, was_executing, namespace=namespace, token=token
        )
        key = (namespace, job_id)
        for stream in self._streams.all():
            if was_executing:
                stream.lose(key, before=before)
            else:
                # No slot is freed by this; the next comparison with the store finds it.
                stream.slots.doubt(key)
        self.dispatcher.freed()

    # Workers

    @whole
    async def mark_worker_unresponsive(self, assignee_id: str) -> None:
        before = self._streams.last_order
        freed = await self._store.mark_worker_unresponsive(assignee_id)
        self._streams.lost_all({*freed, assignee_id}, before)
        self._may_be_ready()

    @whole
    async def reset_running_jobs(self, *, namespace: str | None = None) -> None:
        before = self._streams.last_order
        await self._store.reset_running_jobs(namespace=namespace)
        for stream in self._streams.all():
            stream.lose_all(namespace, before=before)
        self._may_be_ready()

    # Queries and maintenance

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
        return await self._store.get_job(job_id, namespace=namespace)

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats:
        return await self._store.get_job_stats(tags, namespace=namespace)

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int:
        return await self._store.cleanup_expired_jobs(ttl_s, namespace=namespace)

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        return await self._store.delete_jobs(tags, job_ids, namespace=namespace)

    # News

    def _on_settled(self, outcomes: Sequence[Outcome], answers: Sequence[Settled]) -> None:
        if self._streams.settled(outcomes, answers):
            self._may_be_ready()
        self.dispatcher.freed()

    def look(self) -> None:
        self._may_be_ready()

    def _may_be_ready(self) -> None:
        self.dispatcher.may_be_ready()
        self.dispatcher.freed()


def _is_repeatable(job: Job, admission: Admission) -> bool:
    """Whether only the store's whole answer tells that nothing was used of a quota."""
    return bool(admission.charged and isinstance(job, Job) and job.idempotency_key)


def _renewals(
    backend: Backend, settings: QueueSettings, clock: Clock, rng: Callable[[], float]
) -> Coalescer[Held, LeaseAnswer]:
    return Coalescer(
        "renewing leases",
        partial(backend.extend_leases, lease_ttl_s=settings.lease_ttl_s),
        _not_renewed,
        max_batch=settings.settle_batch,
        clock=clock,
        rng=rng,
    )


def _not_renewed(held: Held, error: Exception) -> LeaseAnswer:
    """The worker goes on and reports; its token decides."""
    return LeaseAnswer(held.job_id, held.token, held.namespace, LeaseStatus.LOST)


def _check_same_worker(older: StreamSpec, newer: StreamSpec) -> None:
    if any(getattr(older, name) != getattr(newer, name) for name in _WORKER):
        raise Forbidden(
            f"session id {newer.assignee_id!r} belongs to worker {older.worker_name!r}; "
            "make a new id for each process"
        )
