"""One open stream: what waits to be pushed, what the worker has, how it ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from queue_operator.backends.owners import S as Said
from queue_operator.backends.owners import said_by
from queue_operator.backends.protocol import (
    CheckpointAnswer,
    CheckpointReport,
    LogReport,
    ProgressReport,
    SessionOrder,
    SpawnRequest,
)
from queue_operator.backends.worker_sessions import connection_of
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import JobNotFound, QueueError, StaleLease, Unavailable
from queue_operator.domain.job import Assignment, CancelRequest, Submitted
from queue_operator.domain.lease import (
    HEARTBEATS_PER_TTL,
    Held,
    LeaseAnswer,
    Leased,
    LeaseStatus,
    heartbeat_interval_s,
)
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import KEEPS_SLOT
from queue_operator.queue.asks import WorkerAsks
from queue_operator.queue.capacity import UNKNOWN_TYPE, JobKey, Slots
from queue_operator.queue.coalescer import Coalescer
from queue_operator.queue.completer import (
    Completer,
    cancelled_undelivered,
    lost,
    undelivered,
    unseen,
)
from queue_operator.queue.demand import Filter, Group, defaults_of, groups_of, type_limits
from queue_operator.queue.hints import WorkerHints
from queue_operator.queue.protocol import EndReason, HandlerType, Push, StreamSpec, StreamUsage
from queue_operator.queue.suspects import PAUSE_S, Apart, Isolation

logger = logging.getLogger(__name__)

_NAMED: Final = 5
"""Of jobs that a line of the log is about."""

_HEARTBEATS_MISSED: Final = 2 / HEARTBEATS_PER_TTL
"""Of a TTL: what a worker that holds a job may be silent for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts:
    """What streams share. `freed` is called when slots came back; `closed` when a stream ends,
    `ended` once its undelivered jobs are back in the store, or were refused. `claimed` waits for
    the claim under way.
    """

    completer: Completer
    leases: Coalescer[Held, LeaseAnswer]
    hints: WorkerHints
    asks: WorkerAsks
    clock: Clock
    next_order: Callable[[], int]
    freed: Callable[[], None]
    retyped: Callable[["JobStream", Sequence[Group]], None]
    claimed: Callable[[], Awaitable[None]]
    isolation: Isolation
    closed: Callable[["JobStream"], None]
    ended: Callable[["JobStream"], Awaitable[None]]


class JobStream:
    """A `queue.protocol.Stream`. `renewed_by_queue`: nobody sends heartbeats for its jobs."""

    def __init__(
        self, spec: StreamSpec, parts: StreamParts, *, renewed_by_queue: bool = False
    ) -> None:
        self.declared = self._spec = spec
        self._order = SessionOrder()
        self.followed = 0
        self.connection = connection_of(spec.process)
        self._parts = parts
        self.renewed_by_queue = renewed_by_queue
        self.slots = Slots(spec.capacity)
        self._ask_for_types()
        self._leaving = False
        self.stalled = False
        self.silent = False
        self._spoke_s: float | None = None
        self._interval_s = 0.0
        self.in_doubt = False
        self.end_reason: EndReason | None = None
        self.error: QueueError | None = None
        self.adopted: tuple[LeaseAnswer, ...] = ()
        self._apart = Apart(parts.isolation, self.slots, parts.clock)
        self._buffer: dict[str, Assignment] = {}
        self._handed: dict[str, Assignment] = {}
        self._cancels: dict[str, CancelRequest] = {}
        self._told: dict[str, bool] = {}
        self._strays: set[str] = set()
        self._named: frozenset[str] = frozenset()
        self._going_on: set[str] = set()
        self._heard_s = parts.clock.monotonic()
        self._owes_word_since_s: float | None = None
        self._changed = asyncio.Event()
        self._closing: asyncio.Future[None] | None = None
        self._going_back: set[asyncio.Future[list[Settled]]] = set()

    def _ask_for_types(self) -> None:
        self.slots.limit(type_limits(self._spec))
        self.groups = groups_of(self._spec)
        self.defaults = defaults_of(self._spec)
        self._filters = {group.limited: group.filter for group in self.groups if group.limited}
        self._rest = self.groups[-1].filter

    @property
    def spec(self) -> StreamSpec:
        return self._spec

    @property
    def draining(self) -> bool:
        return self._leaving or bool(self._order.drain)

    @property
    def accepting(self) -> bool:
        return self._may_start and not self._apart.holds_back()

    @property
    def _may_start(self) -> bool:
        withheld = self.draining or self.stalled or self.silent or self.in_doubt
        return not withheld and self.end_reason is None

    @property
    def at_rest(self) -> bool:
        """The worker has nothing and owes no word, and nobody doubts what it has."""
        owes = self.silent or self._owes_word_since_s is not None
        return not (self.slots.busy or owes or self.in_doubt)

    def usage(self) -> StreamUsage:
        return StreamUsage(
            spec=self._spec,
            busy=self.slots.busy,
            draining=self.draining,
            defaults=self.defaults,
        )

    # The worker's side

    async def next(self) -> Push | None:
        while self.end_reason is None:
            if self._buffer or self._cancels:
                return self._take_push()
            self._changed.clear()
            await self._changed.wait()
        if self.error is not None:
            raise self.error
        return None

    def _take_push(self) -> Push:
        push = Push(assignments=tuple(self._buffer.values()), cancels=tuple(self._cancels.values()))
        self.stalled = False
        self._handed.update(self._buffer)
        self._buffer.clear()
        self._cancels.clear()
        return push

    def delivered(self, push: Push) -> None:
        self.stalled = False
        if push.assignments and self._owes_word_since_s is None:
            self._owes_word_since_s = self._parts.clock.monotonic()
        for assignment in push.assignments:
            self._handed.pop(assignment.token, None)

    def _heard(self) -> None:
        self._heard_s, self.slots.taken = self._parts.clock.monotonic(), 0
        self._owes_word_since_s = None
        if self.silent and self._spoke_s is None:
            self._spoke_s = self._heard_s

    def _trust(self) -> None:
        """How much room the worker has is known again."""
        if self.silent:
            self.silent, self._spoke_s = False, None
            self._parts.freed()

    def _has_said_all(self) -> bool:
        """Its first word after a silence may come before it has read what waited for it."""
        since_s = self._heard_s if self._spoke_s is None else self._spoke_s
        return not self._strays and self._heard_s - since_s > self._interval_s / 2

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        self._heard()
        answers = await self._parts.completer.submit(self._mine(outcomes))
        for outcome, settled in zip(outcomes, answers, strict=True):
            self._told.pop(outcome.token or "", None)
            self._going_on.discard(outcome.token or "")
            if settled.freed_assignee_id is None:
                self._finish_unfreed(outcome, settled)
        self._run_suspect()
        self._parts.freed()
        return answers

    def _finish_unfreed(self, outcome: Outcome, settled: Settled) -> None:
        key = (outcome.namespace, outcome.job_id)
        over = settled.error is None or isinstance(settled.error, StaleLease | JobNotFound)
        if over and outcome.event not in KEEPS_SLOT:
            self.slots.settle(key, outcome.token)
        else:
            # Whether the store still counts the job as ours is for the next comparison.
            self.slots.doubt(key, outcome.token)

    async def heartbeat(self, held: Sequence[Held]) -> list[LeaseAnswer]:
        freed = self.slots.report((job.namespace, job.job_id) for job in held)
        self._named = frozenset(job.token for job in held)
        self._heard()
        if freed:
            self._parts.freed()
        if self._leaving:
            await self._release_unnamed(held)
        answers = await self._parts.leases.submit(self._mine(held))
        self._learn(answers)
        self._run_suspect()
        if self._has_said_all():
            self._trust()
        return answers

    async def _release_unnamed(self, held: Sequence[Held]) -> None:
        """A draining worker starts nothing more, so what it does not name was still on the
        way to it, and goes to others at once.
        """
        named = {job.token for job in held}
        unseen = [
            undelivered(job_id, namespace, slot.token)
            for (namespace, job_id), slot in self.slots.items()
            if slot.stored and slot.token not in named and not self._waits(slot.token)
        ]
        await self._parts.completer.submit(unseen)

    def _learn(self, answers: Iterable[LeaseAnswer]) -> None:
        strays, self._strays = self._strays, set()
        self._going_on.clear()
        for answer in answers:
            key = (answer.namespace, answer.job_id)
            if answer.status in (LeaseStatus.CURRENT, LeaseStatus.LOST):
                self._going_on.add(answer.token)
            if answer.status is not LeaseStatus.CURRENT:
                self.slots.lose(key, answer.token)
            if self.slots.get(key) is None:
                # An outcome may have crossed this answer. If the next heartbeat still names
                # the job, its slot was given back by mistake, or its handler goes on although
                # the job has ended: either way the worker has no room for another.
                self._strays.add(answer.token)
                if answer.token in strays:
                    self._adopt(answer, UNKNOWN_TYPE)

    def confirm_cancels(self, received: Sequence[Held]) -> None:
        self._parts.hints.confirm_cancels(self._mine(received))

    def report_progress(self, reports: Sequence[ProgressReport]) -> None:
        self._parts.hints.report_progress(self._mine(reports))

    async def checkpoint(self, reports: Sequence[CheckpointReport]) -> list[CheckpointAnswer]:
        return await self._parts.asks.checkpoint(self._mine(reports))

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        return await self._parts.asks.spawn(self._mine(requests))

    def ship_logs(self, reports: Sequence[LogReport]) -> None:
        self._parts.hints.ship_logs(self._mine(reports))

    def _mine(self, said: Sequence[Said]) -> list[Said]:
        """What the worker says counts only for jobs that were given to its session."""
        return said_by(self._spec.assignee_id, said)

    async def adopt(
        self, held: Sequence[Held], stored: Iterable[Leased], *, same_process: bool
    ) -> None:
        """Takes over what the worker brings along from an earlier connection. The rest of what
        the store says it has never reached that process, or was lost with it if this is another.
        """
        types = {one.token: one for one in stored}
        self.adopted = tuple(await self._parts.leases.submit(self._mine(held)))
        for answer in self.adopted:
            known = types.pop(answer.token, None)
            self._adopt(answer, known.type if known else UNKNOWN_TYPE)
        gone = undelivered if same_process else lost
        missing = [gone(one.job_id, one.namespace, one.token) for one in types.values()]
        await self._parts.completer.submit(missing)

    def _adopt(self, answer: LeaseAnswer, job_type: str) -> None:
        key = (answer.namespace, answer.job_id)
        self.slots.adopt(
            key,
            answer.token,
            job_type,
            self._parts.next_order(),
            self._parts.clock.monotonic(),
            stored=answer.status is LeaseStatus.CURRENT,
        )

    def retype(self, types: Sequence[HandlerType]) -> None:
        self.declared = replace(self.declared, types=tuple(types))
        self._respecify()

    def follow(self, order: SessionOrder, number: int) -> None:
        """What the cluster's operators want goes above what the worker declared. What it has
        already it keeps.
        """
        self.followed = number
        if order != self._order:
            self._order = order
            self._respecify()
            if self.draining:
                self._hold_back()

    def _respecify(self) -> None:
        before, order, declared = self.groups, self._order, self.declared
        self._spec = replace(
            declared,
            capacity=declared.capacity if order.capacity is None else order.capacity,
            tags=declared.tags if order.tags is None else order.tags,
        )
        self.slots.capacity = self._spec.capacity
        self._ask_for_types()
        self._parts.retyped(self, before)

    def drain(self) -> None:
        self._leaving = True
        self._hold_back()

    def _hold_back(self) -> None:
        waiting = [*self._buffer.values(), *self._apart.take_all()]
        self._buffer.clear()
        self._release(waiting)

    def fail(self, error: QueueError) -> None:
        """Ends the stream; whoever reads it is told why."""
        if self.end_reason is None:
            self.error = error
            self._begin_end(EndReason.FAILED)

    async def close(self, reason: EndReason = EndReason.CLOSED) -> None:
        # Whoever waits may be cut off; what the stream gives back must not be.
        await asyncio.shield(self._begin_end(reason))

    def _begin_end(self, reason: EndReason) -> "asyncio.Future[None]":
        if self._closing is None:
            self.end_reason = reason
            self._changed.set()
            self._parts.closed(self)
            self._closing = asyncio.ensure_future(self._end())
        return self._closing

    async def _end(self) -> None:
        # A claim for this stream may be under way; what it brings is given back before this.
        await self._parts.claimed()
        waiting = [*self._handed.values(), *self._buffer.values(), *self._apart.end()]
        self._handed.clear()
        self._buffer.clear()
        self._release(waiting)
        while self._going_back:
            await asyncio.wait(self._going_back)
        try:
            await self._parts.ended(self)
        except Unavailable as error:
            logger.warning("what is shown of an ended stream stays for a while: %s", error)

    def _release(self, assignments: Iterable[Assignment], after_s: float | None = None) -> None:
        """They go back to the queue; the stream's end waits for it."""
        released = [unseen(assignment, after_s) for assignment in assignments]
        going_back = self._parts.completer.release(released)
        self._going_back.add(going_back)
        going_back.add_done_callback(partial(self._is_back, [one.job_id for one in released]))

    def _is_back(self, job_ids: list[str], going_back: "asyncio.Future[list[Settled]]") -> None:
        self._going_back.discard(going_back)
        if not going_back.cancelled() and (error := going_back.exception()):
            logger.warning(
                "%d undelivered jobs of %s go back when their leases end, the first of them %s: %s",
                len(job_ids),
                self._spec.assignee_id,
                ", ".join(job_ids[:_NAMED]),
                error,
            )

    # The queue's side

    def filter_for(self, job_type: str) -> Filter:
        """The filter by which a claim for this stream found a job of the type."""
        return self._filters.get(job_type, self._rest)

    def push(self, assignments: Sequence[Assignment]) -> None:
        """Takes the slots and queues the jobs for the worker, suspects until it has no other."""
        now_s = self._parts.clock.monotonic()
        suspects = [job for job in assignments if job.alone]
        if suspects and not self._apart.may_take():
            self._release(suspects, PAUSE_S)
            assignments = [job for job in assignments if not job.alone]
        for job in assignments:
            key = (job.namespace, job.job_id)
            self.slots.take(key, job.token, job.type, self._parts.next_order(), now_s)
            if job.token in self._told:
                self._stop_undelivered(job.job_id, job.namespace, job.token)
            elif job.alone:
                self._apart.add(job)
            else:
                self._buffer[job.token] = job
        served = {self.filter_for(job.type) for job in assignments}
        # Where slots are short, types that were not served come first the next time.
        self.groups = tuple(sorted(self.groups, key=lambda group: group.filter in served))
        self._run_suspect()
        self._changed.set()

    def _run_suspect(self) -> None:
        if self._may_start and (job := self._apart.next()) is not None:
            self._buffer[job.token] = job
            self._changed.set()

    def tend_suspects(self) -> None:
        """They do not wait for ever for what the worker has to do before."""
        self._run_suspect()
        if late := self._apart.overdue():
            self._release(late, PAUSE_S)

    def give_back(self, assignments: Sequence[Assignment]) -> None:
        """What a claim found for a stream that takes no more: it has ended meanwhile, or lives and
        is draining, stalled, silent or in doubt.
        """
        self._release(assignments)

    def _stop_undelivered(self, job_id: str, namespace: str, token: str) -> None:
        # Until that is stored the same request may come again; it is not for the worker.
        self._told[token] = True
        self._cancels.pop(token, None)
        self._parts.completer.release([cancelled_undelivered(job_id, namespace, token)])

    def cancel(self, request: CancelRequest) -> None:
        """Tells the worker, once, and once more when force is added; a job that still waits
        in the buffer is stopped instead, as is one whose cancel overtook its assignment.
        """
        if self._unqueue(request.token):
            self._stop_undelivered(request.job_id, request.namespace, request.token)
            return
        told = self._told.get(request.token)
        if self.renewed_by_queue or told is True or told is request.force:
            return
        self._told[request.token] = request.force
        self._cancels[request.token] = request
        self._changed.set()

    def left(self, key: JobKey, token: str | None) -> None:
        """An outcome was stored that frees the slot."""
        self._told.pop(token or "", None)
        self.slots.settle(key, token)
        self._run_suspect()

    def lose(self, key: JobKey, *, before: int | None = None) -> None:
        """The store took the job away. What the worker never saw, it shall not see."""
        slot = self.slots.get(key)
        if slot is not None and not (before is not None and slot.order > before):
            self._unqueue(slot.token)
            self._told.pop(slot.token, None)
            self.slots.lose(key, slot.token)
            self._run_suspect()

    def _unqueue(self, token: str) -> bool:
        """True for a job that its worker was not handed yet."""
        return (self._buffer.pop(token, None) or self._apart.pop(token)) is not None

    def lose_all(self, namespace: str | None = None, *, before: int) -> None:
        for key, _ in list(self.slots.items()):
            if namespace in (None, key[0]):
                self.lose(key, before=before)

    def to_renew(self) -> list[Held]:
        """Jobs for which no worker can send a heartbeat."""
        if self.renewed_by_queue:
            return [
                Held(job_id, slot.token, namespace)
                for (namespace, job_id), slot in self.slots.items()
            ]
        waiting = (*self._buffer.values(), *self._handed.values(), *self._apart)
        return [Held(job.job_id, job.token, job.namespace) for job in waiting]

    def release_stalled(self, after_s: float) -> None:
        """A worker that lives but does not read must not keep jobs it will never see."""
        if not (self._buffer or self._handed):
            return
        limit_s = self._parts.clock.monotonic() - after_s
        stuck = [
            job
            for job in (*self._handed.values(), *self._buffer.values())
            if (slot := self.slots.get((job.namespace, job.job_id))) and slot.since_s < limit_s
        ]
        if not stuck:
            return
        self.stalled = True
        for job in stuck:
            self._handed.pop(job.token, None)
            self._buffer.pop(job.token, None)
        self._release(stuck)
        logger.warning(
            "worker %s has not read for %g s: %d jobs go to others",
            self._spec.worker_name,
            after_s,
            len(stuck),
        )

    def renewed(self, answer: LeaseAnswer) -> None:
        """The answer about a job of `to_renew`."""
        key = (answer.namespace, answer.job_id)
        if answer.status is not LeaseStatus.CURRENT:
            self._unqueue(answer.token)
            self.slots.lose(key, answer.token)
        elif answer.cancel_requested and (
            answer.token in self._buffer or answer.token in self._apart
        ):
            self.cancel(
                CancelRequest(answer.job_id, answer.namespace, self._spec.assignee_id, answer.token)
            )

    def forget_silence(self, lease_ttl_s: float) -> None:
        """A worker that holds a job says so; one silent for a TTL holds none. One that was
        given jobs and says nothing for half of one, or whose heartbeats stay away, is cut off
        or stopped: it gets no more until it has said what it holds, or each would wait for its
        lease to end and lose an attempt, and a worker that wakes up would have too much to do.
        """
        now_s = self._parts.clock.monotonic()
        silent_s = now_s - self._heard_s
        if self.silent:
            self._wait_for_word(silent_s)
            return
        if self._is_overdue(now_s, lease_ttl_s):
            self.silent, self._interval_s = True, heartbeat_interval_s(lease_ttl_s)
            logger.warning(
                "worker %s says nothing about its jobs: it gets no more until it does",
                self._spec.worker_name,
            )
        elif silent_s > lease_ttl_s:
            self.slots.report(())

    def _wait_for_word(self, silent_s: float) -> None:
        """One that speaks again and then names nothing for an interval holds nothing, unless it
        named jobs that it has to go on with: then it was stopped once more.
        """
        if self._spoke_s is None:
            return
        # An outcome may have come while the answer to its heartbeat was still on its way.
        goes_on = any(slot.token in self._going_on for _, slot in self.slots.items())
        if not goes_on and silent_s > self._interval_s:
            self.slots.report(())
            self._trust()
        elif silent_s > 2 * self._interval_s:
            self._spoke_s = None

    def _is_overdue(self, now_s: float, lease_ttl_s: float) -> bool:
        owed_since_s = self._owes_word_since_s
        owes = owed_since_s is not None and now_s - owed_since_s > lease_ttl_s / 2
        holds = any(slot.stored and slot.reported for _, slot in self.slots.items())
        return owes or (holds and now_s - self._heard_s > _HEARTBEATS_MISSED * lease_ttl_s)

    def compare(self, stored: Mapping[JobKey, str], before: int) -> None:
        """Takes over what the store counted for this stream, by its tokens, when the last
        assignment was `before`.
        """
        for key in self.slots.compare(stored, before):
            self.lose(key)

    def could_have(self, one: Leased) -> bool:
        """Nobody but this stream's process claims what the store says of the job."""
        spec = self._spec
        if self.end_reason is not None or spec.namespace != one.namespace:
            return False
        # Library streams of other processes may go by the same assignee id.
        return not self.renewed_by_queue or spec.host == one.host

    def knows(self, token: str) -> bool:
        """The worker said last that it runs the job, whatever its slot says."""
        return token in self._named

    def left_tokens(self) -> Iterator[str]:
        """Of the jobs that the worker was given, and that the store counts as this stream's."""
        slots = (slot for _, slot in self.slots.items())
        return (slot.token for slot in slots if slot.stored and not self._waits(slot.token))

    @property
    def left_jobs(self) -> bool:
        return any(True for _ in self.left_tokens())

    def _waits(self, token: str) -> bool:
        return token in self._buffer or token in self._handed or token in self._apart
